"""Files stay few: runs are merged as they come, and by maintain."""

from collections.abc import Callable

import pytest

from pipelines.dispatch.follow import plan_dispatch
from pipelines.dispatch.runs import FAN_IN, Run, joined_runs, mergeable, parts_of, plan_merge, runs_of
from pipelines.store.commit import commit
from pipelines.store.snapshot import Snapshot
from pipelines.store.store import Store
from schemas import CONSUME_QUEUE, MESSAGE_INDEX
from tests.conftest import JobRun
from tests.dispatch.log_rows import append, properties

MESSAGE = {"properties": properties(UNIQ_KEY="u", TAGS="TagA", KEYS="k")}


def runs(*rows: int) -> list[Run]:
    return [Run(append, append, count) for append, count in enumerate(rows)]


@pytest.mark.quick
def test_files_with_rows_of_the_same_appends_are_one_run() -> None:
    assert joined_runs([Run(4, 4, 5), Run(0, 3, 10), Run(2, 3, 10)]) == [Run(0, 3, 20, 2), Run(4, 4, 5)]


@pytest.mark.quick
def test_the_newest_runs_are_merged_as_far_back_as_none_is_much_larger() -> None:
    assert mergeable(runs(1000, 30, 10), fan_in=2) == runs(1000, 30, 10)[1:]
    assert mergeable(runs(100, 30, 10), fan_in=2) == runs(100, 30, 10)
    assert mergeable(runs(100, 30, 10), fan_in=4) == []
    assert mergeable(runs(10), fan_in=1) == []
    assert mergeable([], fan_in=2) == []


@pytest.mark.quick
def test_a_thousand_dispatches_leave_a_dozen_runs_and_write_a_row_a_few_times() -> None:
    now: list[Run] = []
    rewritten = 0
    for number in range(1000):
        now.append(Run(number, number, 100))
        merged = mergeable(now)
        if merged:
            rewritten += sum(run.rows for run in merged)
            now = now[: len(now) - len(merged)] + joined_runs(
                [Run(merged[0].first_append, number, sum(r.rows for r in merged))]
            )
        assert len(now) <= FAN_IN + 4
    assert sum(run.rows for run in now) == 100_000
    assert rewritten < 12 * 100_000


@pytest.mark.slow
def test_merging_keeps_every_row_and_goes_on_after_it(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(3):
        append(store, MESSAGE, MESSAGE)
        commit(store, plan_dispatch)
    before = sorted(store.message_index.collect())
    assert len(runs_of(store.snapshot(), MESSAGE_INDEX)) == 3
    merged = commit(store, lambda at: plan_merge(at, MESSAGE_INDEX, fan_in=2))
    assert merged.result == {"files_compacted": 3}
    assert runs_of(store.snapshot(), MESSAGE_INDEX) == [Run(0, 2, 12)]
    assert sorted(store.message_index.collect()) == before
    append(store, MESSAGE)
    assert commit(store, plan_dispatch).counts["message_index"] == 2
    assert runs_of(store.snapshot(), MESSAGE_INDEX) == [Run(0, 2, 12), Run(3, 3, 2)]
    listed = parts_of(store.snapshot(), MESSAGE_INDEX)
    monkeypatch.setattr(Snapshot, "listed_files", lambda *_: None)  # as of a table of many files
    assert {*parts_of(store.snapshot(), MESSAGE_INDEX)} == {*listed}
    assert len(listed) == 2


@pytest.mark.nightly
def test_a_merge_that_a_dispatch_overtakes_plans_again(store: Store) -> None:
    for _ in range(2):
        append(store, MESSAGE)
        commit(store, plan_dispatch)
    plans = 0

    def overtaken(at):  # type: ignore[no-untyped-def]
        nonlocal plans
        plans += 1
        plan = plan_merge(at, CONSUME_QUEUE, fan_in=2)
        if plans == 1:
            append(store, MESSAGE)
            commit(store, plan_dispatch)
        return plan

    commit(store, overtaken)
    assert plans == 2
    assert runs_of(store.snapshot(), CONSUME_QUEUE) == [Run(0, 2, 3)]


@pytest.mark.slow
def test_maintain_merges_and_says_how_many_files(commitlake: Callable[..., JobRun], store: Store) -> None:
    for _ in range(3):
        append(store, MESSAGE)
        commit(store, plan_dispatch)
    before = sorted(store.consume_queue.collect())
    dry = commitlake("maintain", "--store", store.uri, "--dry-run").result
    assert len(runs_of(store.snapshot(), CONSUME_QUEUE)) == 3
    done = commitlake("maintain", "--store", store.uri).result
    assert (dry["status"], done["status"]) == ("ok", "ok")
    # three files of the log, the queues, the index and maybe of progress
    assert done["files_compacted"] >= 9
    assert dry["files_compacted"] >= 9
    assert (done["segments_expired"], done["rolled"]) == (0, 0)
    assert len(runs_of(store.snapshot(), CONSUME_QUEUE)) == 1
    assert sorted(store.consume_queue.collect()) == before
    assert commitlake("maintain", "--store", store.uri).result["files_compacted"] <= 2
