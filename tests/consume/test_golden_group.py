"""What a real group with a SQL92 filter was handed by a real broker."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from pipelines.store.store import Store
from tests.conftest import JobRun
from tests.consume.listeners import Listeners
from tests.reports.golden import cases

pytestmark = pytest.mark.usefixtures("users_engine")

FILTER = "amount > 500 AND region IN ('cn-hz','us-1') OR vip = TRUE"


@pytest.mark.parametrize("name", ["a", pytest.param("b", marks=pytest.mark.nightly)])
def test_the_filtered_group_is_handed_what_it_was(
    golden: Callable[[str], Store],
    commitlake: Callable[..., JobRun],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
) -> None:
    shutil.copytree(golden(name).uri.removeprefix("file:"), tmp_path / name)
    listeners = Listeners(tmp_path, monkeypatch)
    run = commitlake(
        "consume", "--store", tmp_path / name, "--group", "CG_PAY", "--topic", "PayTopic", "--filter-type", "SQL92",
        "--filter", FILTER, "--listener", listeners.name("by_place"), "--quiet",
    )  # fmt: skip
    assert run.exit_status == 0, run.stderr
    (broker,) = cases(name, "store")
    handed = listeners.handed()
    assert sorted(f"{queue_id}:{offset}" for _, queue_id, offset in handed) == sorted(broker["sqlConsumed"])
    in_topic = sum(
        queue["max"] - queue["min"] for queue in cases(name, "queue") if queue["topic"] == "PayTopic"
    )
    assert (run.result["consumed"], run.result["filtered"]) == (len(handed), in_topic - len(handed))
