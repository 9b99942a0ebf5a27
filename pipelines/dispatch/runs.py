"""Sorted runs: the files that the commits of a derived table leave, and when they are merged.

Reading a page or a key opens about one file of each sorted run, and up to four of one that is not merged yet. Every
dispatch adds one, so the newest are merged when FAN_IN have come, together with older ones that are not much larger: a row
is rewritten a few times while its table grows tenfold, and a table never has more than a few small and a few large ones.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipelines.dispatch.layout import arranged
from pipelines.store.plan import Plan, Planned
from pipelines.store.progress import covered
from pipelines.store.snapshot import Snapshot
from schemas import Table

# Dispatch merges when at least this many sorted runs become one; fewer are not worth the time of a job run.
FAN_IN = 8
# An older sorted run is merged with the newer ones when it is at most this many times as large as all of them.
GROWTH = 4
# A sorted run of at least this size is not merged: sorting it again takes long and saves one file of a reader's dozen.
ROWS_OF_A_FINISHED_RUN = 256_000_000


@dataclass(frozen=True)
class Run:
    """A sorted run: files with the rows of appends first_append to last_append, both included; no other file has any."""

    first_append: int
    last_append: int
    rows: int
    files: int = 1

    def joined(self, other: "Run") -> "Run":
        return Run(
            min(self.first_append, other.first_append),
            max(self.last_append, other.last_append),
            self.rows + other.rows,
            self.files + other.files,
        )


@dataclass(frozen=True)
class Part:
    """Files of a sorted run that have rows of the same first and last append, and the segments of these rows."""

    run: Run
    first_segment: int
    last_segment: int


def runs_of(at: Snapshot, table: Table) -> list[Run]:
    """The sorted runs of a derived table, oldest first, found by the appends in its files' statistics."""
    return joined_runs([part.run for part in parts_of(at, table)])


def parts_of(at: Snapshot, table: Table) -> list[Part]:
    """The parts of a derived table's sorted runs; of a table of many files, a row a part comes to the driver."""
    listed = at.listed_files(table)
    if listed is None:
        return [Part(Run(*row[:4]), *row[4:]) for row in _grouped(at.files(table)).collect()]
    stats = [json.loads(file.stats or "{}") for file in listed]
    return [_part(each) for each in stats if each["numRecords"]]


def _part(stats: Mapping[str, Any]) -> Part:
    """One file, by Delta's statistics of it."""
    least, greatest = stats["minValues"], stats["maxValues"]
    run = Run(least["append_seq"], greatest["append_seq"], stats["numRecords"])
    return Part(run, least["segment"], greatest["segment"])


def _grouped(files: DataFrame) -> DataFrame:
    """The fields of Run, then those of Part."""
    bounds = "struct<append_seq: long, segment: long>"
    stats = F.from_json("stats", f"numRecords long, minValues {bounds}, maxValues {bounds}")
    return (
        files.select(stats.alias("stats"))
        # A file without statistics stays: it is in no run.
        .where(F.coalesce(F.col("stats.numRecords") > 0, F.lit(True)))
        .groupBy("stats.minValues.append_seq", "stats.maxValues.append_seq")
        .agg(
            F.sum("stats.numRecords"),
            F.count("*"),
            F.min("stats.minValues.segment"),
            F.max("stats.maxValues.segment"),
        )
    )


def joined_runs(files: Sequence[Run]) -> list[Run]:
    """Sorted runs, oldest first: files whose appends overlap are in one.

    >>> joined_runs([Run(4, 5, 10), Run(0, 3, 10), Run(2, 3, 10)])
    [Run(first_append=0, last_append=3, rows=20, files=2), Run(first_append=4, last_append=5, rows=10, files=1)]
    """
    runs: list[Run] = []
    for file in sorted(files, key=lambda file: file.first_append):
        if runs and file.first_append <= runs[-1].last_append:
            runs[-1] = runs[-1].joined(file)
        else:
            runs.append(file)
    return runs


def mergeable(runs: Sequence[Run], fan_in: int = FAN_IN) -> Sequence[Run]:
    """The newest sorted runs, as far back as each has at most GROWTH times the rows of all newer; none if under `fan_in`.

    >>> mergeable([Run(0, 0, 1000), Run(1, 1, 30), Run(2, 2, 10)], fan_in=2)
    [Run(first_append=1, last_append=1, rows=30, files=1), Run(first_append=2, last_append=2, rows=10, files=1)]
    """
    newer_rows = count = 0
    for run in reversed(runs):
        if run.rows >= ROWS_OF_A_FINISHED_RUN or (count and run.rows > GROWTH * newer_rows):
            break
        newer_rows, count = newer_rows + run.rows, count + 1
    return runs[len(runs) - count :] if count >= max(fan_in, 2) else []


def plan_merge(at: Snapshot, table: Table, fan_in: int = FAN_IN) -> Plan:
    """The plan that replaces the newest sorted runs by one with the same rows; it writes nothing when they are too few.

    Rows that do not count are left out, for the next dispatch to replace.
    """
    followed = covered(at, table)
    merged = mergeable([run for run in runs_of(at, table) if run.last_append <= followed], fan_in)
    if not merged:
        return Plan(result={"files_compacted": 0})
    first_append, last_append = merged[0].first_append, merged[-1].last_append
    rows = at.read(table).where(F.col("append_seq").between(first_append, last_append))
    in_runs = f"append_seq >= {first_append} AND append_seq <= {last_append}"
    files, count = sum(run.files for run in merged), sum(run.rows for run in merged)
    write = at.replace(table, arranged(table, rows, count), in_runs, planned=Planned(count))
    return Plan((write,), {"files_compacted": files})
