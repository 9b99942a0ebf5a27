"""`commitlake run_cycle`: rounds by a clock that goes on, and what it refuses before it writes."""

from collections.abc import Callable
from itertools import chain, repeat

import pytest

from jobs.launch.run import Run
from tests.life import SCHEDULE, B, Life, place


@pytest.mark.slow
def test_rounds_go_on_by_a_clock_that_goes_on(
    life: Callable[..., Life], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = life(messageDelayLevel="1s 5s 10s")
    store.put(
        B,
        {"topic": "T", "unique_key": "now", "delay_level": 1},
        {"topic": "T", "unique_key": "soon", "delay_level": 2},
        {"topic": "T", "unique_key": "later", "delay_level": 3},
    )
    # The second message falls due while the first round works, the third after the last round.
    clock = chain([B + 1_000] * 4, repeat(B + 5_000))
    monkeypatch.setattr(Run, "now_ms", property(lambda _: next(clock)))
    source = store.input({"topic": "T", "body": "b", "unique_key": "put", "delay_level": 2})
    run = store.commitlake(
        "run_cycle", "--store", store.store.uri, "--input", source, "--until-quiet", "--quiet"
    )
    assert run.exit_status == 0, run.stderr
    assert run.result["deliver"]["delivered"] == 2
    assert run.result["rounds"] >= 2
    topics = {key: [row.topic for row in store.by_key(key)] for key in ("now", "soon", "later", "put")}
    assert topics == {"now": [SCHEDULE, "T"], "soon": [SCHEDULE, "T"], "later": [SCHEDULE], "put": [SCHEDULE]}
    store.expect_promises()
    # What waits is delivered once each by later rounds.
    monkeypatch.undo()
    later = store.job("run_cycle", B + 20_000, "--until-quiet").result
    assert later["deliver"]["delivered"] == 2
    assert store.job("run_cycle", B + 30_000, "--until-quiet").result["deliver"]["delivered"] == 0
    assert {place(row)[0] for row in store.rows() if row.purpose == "deliver"} == {"T"}
    store.expect_promises()
