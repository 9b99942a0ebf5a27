"""The benchmarks at a small size: what `make bench` starts runs to its end and prints its figures."""

import re
import runpy
import sys

import pytest
from pyspark.sql import SparkSession

from tests.conftest import PROJECT

pytestmark = pytest.mark.slow

FOLDER = PROJECT / "benchmarks"
SMALL = {
    "commands": "--rounds 1 --only plain,sql,deliver",
    "consume": "--messages 2000 --rounds 1",
    "deliver": "--messages 2000",
    "dispatch": "--messages 2000 --rounds 1 --dispatches 2",
    "export_store": "--megabytes 1 --segment-megabytes 1 --rounds 1",
    "import_store": "--megabytes 1 --segment-megabytes 1 --rounds 1",
    "put_messages": "--messages 2000 --rounds 1 --warm-ups 1",
    "replicate": "--messages 2000 --rounds 1",
}


# Minutes of a processor, however few the messages are: they measure many things one after the other.
LONG = ("commands", "consume", "deliver", "dispatch", "export_store", "import_store")
CASES = [pytest.param(name, marks=pytest.mark.nightly) if name in LONG else name for name in SMALL]


def test_each_benchmark_has_a_small_size() -> None:
    assert sorted(SMALL) == sorted(file.stem for file in FOLDER.glob("*.py"))


@pytest.mark.parametrize("name", CASES)
def test_a_benchmark_prints_its_figures(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    """In the suite's session, which each finds: a session of their own would take longer than they do."""
    script = FOLDER / f"{name}.py"
    monkeypatch.setattr(sys, "argv", [str(script), *SMALL[name].split()])
    monkeypatch.syspath_prepend(str(FOLDER))  # as for any script
    runpy.run_path(str(script), run_name="__main__")
    figures = re.findall(r"\d (?:s|messages/s)\b", capsys.readouterr().out)
    assert len(figures) >= 3
