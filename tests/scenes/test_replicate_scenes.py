"""Slaves and promotions killed in real processes: run again, the logs are one, and nothing is there twice."""

from collections.abc import Callable
from pathlib import Path

import pytest

from pipelines.store.store import Store
from tests.life import B, Life
from tests.replicate.test_promote import epochs
from tests.replicate.test_replicate import bounds_of, log_of, replicate, slave_of
from tests.scenes.processes import Moment, kill_at

IN_PARTS = "import pipelines.replicate.copy_log as copying; copying.PART_BYTES = 1"


@pytest.mark.slow
def test_a_slave_that_is_killed_at_any_moment_goes_on_without_gap_or_double(
    life: Callable[..., Life], tmp_path: Path
) -> None:
    master = life(mappedFileSizeCommitLog="1024")
    master.put(B, *[{"topic": "T", "body": f"0-{n}"} for n in range(3)])
    slave = slave_of(master, tmp_path / "slave")
    for number, (moment, with_jvm, nth) in enumerate(
        [(Moment.BEFORE, True, 1), (Moment.DURING, True, 1), (Moment.AFTER, True, 1), (Moment.DURING, False, 1),
         (Moment.AFTER, True, 2)], start=1
    ):  # fmt: skip
        for each in range(2):
            master.put(B + number, *[{"topic": "T", "body": f"{number}-{each}-{n}"} for n in range(3)])
        kill_at(
            moment,
            Path(slave.store.path_of("commitlog")),
            *("replicate", "--store", slave.store.uri, "--master", master.store.uri, "--quiet"),
            with_jvm=with_jvm,
            nth=nth,
            before=IN_PARTS,
        )
    last = replicate(slave.store.uri, master.store.uri).result
    assert last["copied"] > 0
    assert log_of(slave.store) == log_of(master.store)
    assert bounds_of(slave.store) == bounds_of(master.store)
    assert [row.acked_offset for row in master.store.replicas.collect()] == [last["max_offset"]]
    slave.job("dispatch", B)
    slave.expect_promises()


@pytest.mark.nightly
@pytest.mark.parametrize(
    "table", ["cut_rows", "queue_bounds"], ids=["rows are set aside", "the bounds are back"]
)
def test_a_promotion_and_a_cut_that_are_killed_are_made_again(
    life: Callable[..., Life], tmp_path: Path, table: str
) -> None:
    old = life()
    old.put(B, {"topic": "T", "body": "both"})
    new = slave_of(old, tmp_path / "new")
    old.put(B, {"topic": "T", "body": "lost"})
    old.job("dispatch", B)
    promotion = ("promote", "--store", new.store.uri, "--old-master", old.store.uri, "--quiet")
    kill_at(Moment.AFTER, Path(new.store.path_of("epochs")), *promotion, with_jvm=True)
    promoted = new.job("promote", B, "--old-master", old.store.uri).result
    assert epochs(new.store)[-1] == (promoted["epoch"], promoted["max_offset"])
    new.put(B, {"topic": "T", "body": "new"})

    again = ("replicate", "--store", old.store.uri, "--quiet")
    kill_at(Moment.AFTER, Path(old.store.path_of(table)), *again, with_jvm=True)
    old.job("replicate", B)
    store = Store(old.store.spark, old.store.uri)
    assert log_of(store) == log_of(new.store)
    assert [bytes(row.body) for row in store.cut_rows.collect()] == [b"lost"]
    old.job("dispatch", B)
    old.expect_promises()
