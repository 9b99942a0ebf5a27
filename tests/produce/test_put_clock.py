"""The clock of a put: far ahead of the log it is refused, because the log's time never goes back."""

from collections.abc import Callable

import pytest

from jobs.launch.run import Run
from tests.life import B, Life

DAY_MS = 86_400_000


@pytest.mark.slow
def test_a_clock_far_ahead_of_the_log_is_refused_unless_it_is_forced(life: Callable[..., Life]) -> None:
    store = life()
    row = {"topic": "New", "body": "b"}
    store.put(B, {"topic": "T"})  # an empty log has no time to be ahead of
    source = store.input(row)
    refused = store.job("put_messages", B + DAY_MS + 1, "--input", source, exit_status=2)
    assert f"--now is {B + DAY_MS + 1}, 1 d ahead of the log's last message (stored at {B})" in refused.stderr
    assert "expected at most 86400 seconds (clockAheadMaxSec)" in refused.stderr
    cycle = store.job("run_cycle", B + DAY_MS + 1, "--input", source, exit_status=2)
    assert "--force-clock" in cycle.stderr
    assert len(store.rows()) == 1
    assert "New" not in {topic.topic for topic in store.store.topics.collect()}  # nothing at all was written
    assert store.put(B + DAY_MS, row)["appended"] == 1
    forced = store.job("put_messages", B + 3 * DAY_MS, "--input", source, "--force-clock").result
    assert forced["appended"] == 1
    assert store.put(B, row)["appended"] == 1  # earlier than the log does no harm
    assert [row.store_timestamp - B for row in store.rows()] == [0, DAY_MS, 3 * DAY_MS, 3 * DAY_MS]


@pytest.mark.slow
def test_how_far_ahead_is_a_setting_and_the_machine_s_clock_is_believed(life: Callable[..., Life]) -> None:
    strict = life(clockAheadMaxSec="60")
    strict.put(B, {"topic": "T"})
    strict.job(
        "put_messages", B + 60_001, "--input", strict.input({"topic": "T", "body": "x"}), exit_status=2
    )
    plain = strict.input({"topic": "T", "body": "y"})
    by_machine = strict.commitlake("put_messages", "--store", strict.store.uri, "--input", plain, "--quiet")
    assert by_machine.result["appended"] == 1
    lenient = life(clockAheadMaxSec="0")
    lenient.put(B, {"topic": "T"})
    assert lenient.put(B + 400 * DAY_MS, {"topic": "T"})["appended"] == 1


def test_a_clock_is_read_again_unless_it_is_fixed() -> None:
    run, fixed = Run("deliver", "store"), Run("deliver", "store", B)
    first = run.now_ms
    while run.now_ms == first:
        pass
    assert (fixed.now_ms, fixed.now_ms) == (B, B)
