"""The benchmarks at a small size: what `make bench` starts runs to its end and prints its figures."""

import json
import re
import runpy
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from benchmarks import bench, rocketmq
from tests.conftest import PROJECT

pytestmark = pytest.mark.slow

FOLDER = PROJECT / "benchmarks"
SMALL = {
    "bytes_kept": "--messages 2000",
    "commands": "--rounds 1 --only plain,sql,deliver",
    "consume": "--messages 2000 --rounds 1",
    "deliver": "--messages 2000",
    "dispatch": "--messages 2000 --rounds 1 --dispatches 2",
    "export_store": "--megabytes 1 --segment-megabytes 1 --rounds 1",
    "lookups": "--messages 2000 --rounds 1",
    "import_store": "--megabytes 1 --segment-megabytes 1 --rounds 1",
    "put_messages": "--messages 2000 --rounds 1 --warm-ups 1",
    "replicate": "--messages 2000 --rounds 1",
    "rocketmq": "--messages 20000 --rounds 1",
    "started": "--messages 2000 --rounds 1",
}
# Not started by `make bench`: half an hour each.
ALONE = {"growth": "--only rows --rounds 1 --share 0.01", "past": "--segments 1,2 --rounds 1"}
# What runs them all, and keeps their figures.
NO_BENCHMARKS = {"bench", "figures"}


# The others take minutes of a processor, however few the messages are: they measure many things one after the other.
CASES = [
    name if name == "rocketmq" else pytest.param(name, marks=pytest.mark.nightly) for name in SMALL | ALONE
]


def test_each_benchmark_has_a_small_size() -> None:
    assert {*SMALL} == {*bench.SIZES}
    assert {*SMALL, *ALONE} == {file.stem for file in FOLDER.glob("*.py")} - NO_BENCHMARKS


def test_a_run_becomes_a_line_of_the_history_and_a_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each run starts the benchmark as a process, so the cheapest one runs: RocketMQ's own store, twice."""
    if not rocketmq.JARS.exists():
        pytest.skip("there is no RocketMQ; scripts/test_jars.sh")
    monkeypatch.setattr(bench, "HISTORY", tmp_path / "history.jsonl")
    monkeypatch.setattr(bench, "PAGE", tmp_path / "build" / "bench.html")
    monkeypatch.setattr(bench, "SIZES", {"rocketmq": SMALL["rocketmq"], "broken": ""})
    assert bench.measure(["rocketmq"]) == []
    assert bench.measure(["rocketmq", "broken"]) == ["broken"]
    runs = [json.loads(line) for line in bench.HISTORY.read_text().splitlines()]
    names = ["put", "log bytes a message", "dispatch", "read and decode", "query by key"]
    for run in runs:
        assert [figure["name"] for figure in run["figures"]] == [f"RocketMQ: {name}" for name in names]
        assert all(figure["value"] > 0 for figure in run["figures"])
        assert run["commit"]
        assert "cores" in run["machine"]
    bench.draw(runs)
    page = bench.PAGE.read_text("utf-8")
    assert all(f"RocketMQ: {name}" in page for name in names)
    with pytest.raises(SystemExit, match="expected some of rocketmq, broken"):
        bench.measure(["rocketmk"])


def test_a_history_with_a_line_cut_short_is_refused_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "HISTORY", tmp_path / "history.jsonl")
    monkeypatch.setattr(bench, "measure", lambda names: pytest.fail("it has measured"))
    monkeypatch.setattr("sys.argv", ["bench.py"])
    bench.HISTORY.write_text('{"figures": []}\n{"figures": [{"na')
    with pytest.raises(SystemExit, match="line 2: expected a run as JSON, found"):
        bench.main()


@pytest.mark.parametrize("name", CASES)
def test_a_benchmark_prints_its_figures(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    """In the suite's session, which each finds: a session of their own would take longer than they do."""
    script = FOLDER / f"{name}.py"
    monkeypatch.setattr(sys, "argv", [str(script), *(SMALL | ALONE)[name].split()])
    monkeypatch.syspath_prepend(str(FOLDER))  # as for any script
    runpy.run_path(str(script), run_name="__main__")
    figures = re.findall(r"\d (?:s\b|messages/s\b|queries/s\b|×)", capsys.readouterr().out)
    assert len(figures) >= 3
