"""A cut of rows that had been dispatched, killed before what is derived from them is written again."""

from collections.abc import Callable
from unittest import mock

import jobs.validate
import pipelines.store.commit as committing
import pipelines.store.head
from pipelines.produce import put
from tests.life import B, Life
from tests.store.test_planned import has_every_row_twice

LISTENERS = "tests.consume.odd_listeners:"


def test_a_cut_whose_rebuild_was_killed(life: Callable[..., Life]) -> None:
    one = life()
    real = put.Put.log_rows
    with mock.patch.object(committing, "expect_as_planned"):
        with mock.patch.object(put.Put, "log_rows", lambda *a: has_every_row_twice(real(*a))):
            one.put(B, *[{"topic": "T", "queue_id": 0, "body": "v", "tags": "a"} for _ in range(2)])
        with mock.patch.object(pipelines.store.head, "expect_whole"):
            one.job("dispatch", B + 1)  # as pipelines/quality/repair.py foresees
    with mock.patch.object(jobs.validate, "dispatch_store", side_effect=RuntimeError("killed")):
        one.job("validate", B + 2, "--suite", "log", "--repair", exit_status=1)
    one.put(B + 3, *[{"topic": "T", "queue_id": 0, "body": "w", "tags": "a"} for _ in range(2)])
    one.job("dispatch", B + 4)
    done = one.run(
        "consume", B + 5, "--group", "g", "--topic", "T", "--listener", LISTENERS + "ok", "--filter", "a"
    )
    assert done.result["consumed"] == 2, done.result
