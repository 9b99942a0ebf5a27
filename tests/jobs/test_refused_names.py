"""Names and settings that would damage a table, or that no clock can follow."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import JobRun
from tests.life import B, Life


@pytest.mark.parametrize("group", ["", "__HIVE_DEFAULT_PARTITION__", "a/b=c"])
def test_reset_offsets_takes_no_name_that_is_none(life: Callable[..., Life], group: str) -> None:
    one = life()
    one.put(B, {"topic": "T"})
    one.job("dispatch", B)
    done = one.run("reset_offsets", B, "--group", group, "--topic", "T", "--skip-accumulation")
    assert done.exit_status == 2, done
    assert one.store.consumer_offsets.where("`group` is null").count() == 0


@pytest.mark.parametrize("levels", ["99999999999999999999d", "106751991167d"])
def test_levels_no_clock_has_are_refused(
    commitlake: Callable[..., JobRun], tmp_path: Path, levels: str
) -> None:
    made = commitlake(
        "create_store", "--store", tmp_path / "s", "--quiet", "--set", f"messageDelayLevel={levels}"
    )
    assert made.exit_status == 2, made
