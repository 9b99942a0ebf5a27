"""A slave's log is cut to its master's while others work on it: dispatch, another run, a run that is killed."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pipelines.replicate import truncate
from pipelines.replicate.fence import plan_fence
from pipelines.replicate.join import expect_joins
from pipelines.replicate.master import Master, open_master
from pipelines.store.commit import commit
from pipelines.store.store import Store
from tests.conftest import run_job
from tests.life import B, Life
from tests.replicate.test_replicate import log_of, replicate, slave_of

Split = tuple[Life, Life]


@pytest.fixture
def split(life: Callable[..., Life], tmp_path: Path) -> Split:
    """An old master with two messages of its own, and the slave that was promoted meanwhile, with three."""
    old = life(mappedFileSizeCommitLog="1024")
    old.put(B, *[{"topic": "T", "queue_id": 0, "body": f"both-{n}"} for n in range(2)])
    new = slave_of(old, tmp_path / "new")
    old.put(B + 1, *[{"topic": "T", "queue_id": 0, "body": f"old-{n}"} for n in range(2)])
    new.job("promote", B)
    new.put(B + 2, *[{"topic": "T", "queue_id": 0, "body": f"new-{n}"} for n in range(3)])
    return old, new


def cut_rows(store: Life) -> list[str]:
    return sorted(bytes(row.body).decode() for row in store.store.cut_rows.collect())


def expect_one_log(old: Life, new: Life) -> None:
    assert log_of(old.store) == log_of(new.store)
    assert cut_rows(old) == ["old-0", "old-1"]
    old.job("dispatch", B)
    assert old.store.consume_queue.count() == old.store.commitlog.count()
    assert old.job("validate", B, "--full").result["broken"] == 0


@pytest.mark.parametrize("step", ["plan_record_cut", "_plan_bounds", "_plan_void", "take_out"])
def test_a_dispatch_beside_the_cut_leaves_nothing_of_what_was_cut_off(
    split: Split, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    old, new = split
    made, statuses = getattr(truncate, step), list[int]()

    def after_a_dispatch(*arguments: Any, **named: Any) -> Any:
        if not statuses:
            statuses.append(run_job(["dispatch", "--store", old.store.uri, "--quiet"]).exit_status)
        return made(*arguments, **named)

    monkeypatch.setattr(truncate, step, after_a_dispatch)
    replicate(old.store.uri, new.store.uri)
    # Once the bounds have gone back it is refused.
    assert statuses == [0 if step in ("plan_record_cut", "_plan_bounds") else 1]
    expect_one_log(old, new)


def fenced_before_the_cut(split: Split, monkeypatch: pytest.MonkeyPatch, is_killed: bool) -> list[str]:
    """Have another run's fence, which was planned before, take the number of the cut."""
    new = split[1]
    take_out, fenced = truncate.take_out, list[str]()

    def after_a_fence(store: Store, planner: Any) -> Any:
        if not fenced:
            fenced.append("fence")
            commit(store, partial(plan_fence, master_uri=new.store.uri))
            if is_killed:
                raise SystemExit(9)
        return take_out(store, planner)

    monkeypatch.setattr(truncate, "take_out", after_a_fence)
    return fenced


def test_a_cut_whose_number_a_fence_has_taken_is_made_with_the_next(
    split: Split, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = split
    fenced = fenced_before_the_cut(split, monkeypatch, is_killed=False)
    assert replicate(old.store.uri, new.store.uri).result["copied"] == 3
    assert fenced
    expect_one_log(old, new)


def test_a_run_that_was_killed_once_a_fence_had_its_number_is_made_again(
    split: Split, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = split
    fenced = fenced_before_the_cut(split, monkeypatch, is_killed=True)
    replicate(old.store.uri, new.store.uri, exit_status=9)
    assert fenced
    assert log_of(old.store) != log_of(new.store)
    assert replicate(old.store.uri, new.store.uri).result["copied"] == 3
    expect_one_log(old, new)


def test_what_another_run_has_copied_meanwhile_is_not_cut_off(split: Split) -> None:
    old, new = split
    master = Master.read(open_master(old.store, new.store.uri))
    replicate(old.store.uri, new.store.uri)
    assert truncate.truncate(old.store, lambda at: expect_joins(at, master)) is None
    expect_one_log(old, new)
