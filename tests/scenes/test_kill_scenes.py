"""Ends of transactions, a whole round and a repair, killed in real processes: run again, every promise holds."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from pipelines.produce import put
from pipelines.store import commit as committing
from pipelines.store.cut import is_append_only
from tests.life import B, Life
from tests.scenes.processes import Moment, kill_at
from tests.scenes.test_second_life_scenes import EACH_MOMENT, kill_in_the_middle
from tests.store.test_planned import has_every_row_twice, written


@pytest.mark.nightly
def test_ends_killed_at_any_moment_end_each_half_once(life: Callable[..., Life]) -> None:
    store = life()
    keys = [f"k{n}" for n in range(20)]
    halves = [{"topic": "T", "unique_key": key, "transaction": True, "producer_group": "p"} for key in keys]
    store.put(B, *halves)
    ends = store.input(
        *[
            {"producer_group": "p", "physical_offset": row.physical_offset, "queue_offset": row.queue_offset,
             "state": "COMMIT" if number % 2 else "ROLLBACK"}
            for number, row in enumerate(store.rows())
        ]
    )  # fmt: skip
    for moment, with_jvm in EACH_MOMENT:
        kill_in_the_middle(
            store, "end_transactions", "plan_end", moment, with_jvm, B + 1_000, "--input", ends
        )
    store.job("end_transactions", B + 2_000, "--input", ends)
    counts = Counter(row.purpose for row in store.rows() if row.topic == "T")
    assert counts == {"commit": 10}
    settled = [row.source_offset for row in store.rows() if row.claim == "settle"]
    assert len(settled) == len(set(settled)) == 20
    again = store.job("end_transactions", B + 3_000, "--input", ends).result
    assert (again["committed"], again["rolled_back"]) == (0, 0)
    checked = store.job("check_transactions", B + 10_000_000, "--checker", "builtins:print").result
    assert checked["checked"] == checked["discarded"] == 0
    store.expect_promises()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("table", "moment", "nth"),
    [
        ("commitlog", Moment.AFTER, 1),
        pytest.param("commitlog", Moment.BEFORE, 2, marks=pytest.mark.nightly),
        pytest.param("progress", Moment.BEFORE, 2, marks=pytest.mark.nightly),
    ],
    ids=["after its put", "before its delivery", "before its delivery is recorded"],
)
def test_a_round_that_is_killed_is_run_again(
    life: Callable[..., Life], table: str, moment: Moment, nth: int
) -> None:
    store = life()
    store.put(B, *[{"topic": "T", "unique_key": f"k{n}", "delay_level": 1} for n in range(5)])
    source = store.input(*[{"topic": "U", "unique_key": f"u{n}", "body": "b"} for n in range(5)])
    arguments = ("--input", source, "--batch-id", "round", "--until-quiet")
    command = ("run_cycle", "--store", store.store.uri, "--now", B + 5_000, *arguments)
    kill_at(moment, Path(store.store.uri) / table, *command, with_jvm=True, nth=nth)
    round_ = store.job("run_cycle", B + 5_000, *arguments).result
    assert round_["put_messages"]["appended"] + round_["put_messages"]["already"] == 5
    assert Counter(row.topic for row in store.rows() if row.purpose == "deliver") == {"T": 5}
    assert Counter(row.topic for row in store.rows() if row.purpose is None) == {
        "SCHEDULE_TOPIC_XXXX": 5,
        "U": 5,
    }
    entries = store.store.consume_queue.where("topic IN ('T', 'U')")
    assert entries.count() == entries.select("physical_offset").distinct().count() == 10
    store.expect_promises()


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("table", "moment", "altered"),
    [("cut_rows", Moment.BEFORE, 0), ("cuts", Moment.AFTER, 0), ("commitlog", Moment.BEFORE, 1)],
    ids=["before rows are set aside", "they are set aside", "the log is open, before they are taken out"],
)
def test_a_repair_that_is_killed_is_made_again(
    life: Callable[..., Life], monkeypatch: pytest.MonkeyPatch, table: str, moment: Moment, altered: int
) -> None:
    store = life()
    store.put(B, {"topic": "other"})
    with monkeypatch.context() as killed:
        written(killed, put.Put, "log_rows", has_every_row_twice)
        killed.setattr(committing, "expect_as_planned", lambda *_: None)
        store.put(B, {"topic": "orders"}, {"topic": "orders"})
    repair = ("validate", "--store", store.store.uri, "--suite", "log", "--repair", "--now", B)
    kill_at(moment, Path(store.store.uri) / table, *repair, with_jvm=True, altered=altered)
    result = store.job("validate", B, "--suite", "log", "--repair").result
    assert result["broken"] == 0
    assert (store.store.commitlog.count(), store.store.cut_rows.count(), store.store.cuts.count()) == (
        1,
        4,
        1,
    )
    assert is_append_only(store.store.snapshot())
    assert store.put(B, {"topic": "orders"})["appended"] == 1
    store.expect_promises()
