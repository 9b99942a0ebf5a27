"""Bad rows of an input: a list of the first, and the plan that sets all of them aside in `rejected_messages`."""

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from pyspark.sql import functions as F

from pipelines.errors import BadInput
from pipelines.log.count import CountedSplit
from pipelines.log.place import input_row
from pipelines.produce.counted_input import CountedInput
from pipelines.store.head import EMPTY_HEAD
from pipelines.store.plan import Plan
from pipelines.store.snapshot import Snapshot
from schemas import REJECTED_MESSAGES


class BadRow(NamedTuple):
    """A row that cannot be put: the file and line (or row) where a person finds it, and why."""

    where: str
    reason: str


def first_bad_rows(counted: CountedInput, count: int) -> list[BadRow]:
    source, first, found = counted.source, 0, list[tuple[int, int, str]]()
    firsts: dict[int, int] = {}
    for split in counted.splits:
        file = source.hashes[split.id[0]]
        firsts.setdefault(file, first)
        found += [(file, first + row, reason) for row, reason in split.bad]
        first += split.rows
    found = found[:count]
    if source.is_staged:
        return [BadRow(f"row {row + 1} in order of arrival", reason) for _, row, reason in found]
    word, numbers = "row", {row: row - firsts[file] for file, row, _ in found}
    if source.format == "jsonl" and found:
        word, numbers = "line", numbers | _lines(counted, {row: file for file, row, _ in found})
    return [
        BadRow(f"{source.files[file].name} {word} {numbers[row] + 1}", reason) for file, row, reason in found
    ]


def _lines(counted: CountedInput, files_of: Mapping[int, int]) -> dict[int, int]:
    """Row of the input -> its line in its file, from 0; empty where each line is a row: white space alone is none.

    files_of  the file of each of these rows
    """
    source = counted.source

    def place(split: CountedSplit) -> tuple[int, int]:
        return source.hashes[split.id[0]], split.id[1]

    # From the input's first file on, so that rows have the numbers they have in the whole input.
    files = range(max(files_of.values()) + 1)
    splits = [split for split in counted.splits if place(split)[0] in files]
    lines = source.lines(counted.given.session_with_splits(), files)
    by_split = lines.groupBy("file_hash", "block_start").count().collect()
    of_lines = sorted((CountedSplit((each[0], each[1]), rows=each[2]) for each in by_split), key=place)
    lines_of_file = Counter[int]()
    for split in of_lines:
        lines_of_file[place(split)[0]] += split.rows
    if lines_of_file.total() == sum(split.rows for split in splits):
        return {}
    numbered = (
        lines.withColumn("line", input_row(of_lines)).where("is_row").withColumn("row", input_row(splits))
    )
    found = numbered.where(F.col("row").isin(*files_of)).collect()
    before = {file: sum(lines_of_file[other] for other in range(file)) for file in files_of.values()}
    return {each.row: each.line - before[files_of[each.row]] for each in found}


def plan_quarantine(at: Snapshot, counted: CountedInput, batch_id: str) -> Plan:
    """A plan that sets bad rows aside with their reasons, each once for a batch id.

    Raises BadInput where the batch id has set aside rows with other content.
    """
    if not counted.bad_rows:
        return Plan()
    placement = counted.place(counted.with_sizes(counted.splits), 0, EMPTY_HEAD, 0)
    bad = counted.placed(placement).where(F.col("physical_offset").isNull())
    batch_reason = F.lit("its batch was refused")
    rows = bad.select(
        F.lit(batch_id).alias("batch_id"),
        F.col("input_row").alias("arrival"),
        F.coalesce("reason", batch_reason).alias("reason"),
        "raw",
    )
    mine = at.read(REJECTED_MESSAGES).where(F.col("batch_id") == batch_id)
    if mine.isEmpty():
        return Plan((at.append(REJECTED_MESSAGES, rows),))
    known = mine.select("arrival", F.col("raw").alias("known_raw"))
    if not rows.join(known, "arrival").where(~F.col("raw").eqNullSafe(F.col("known_raw"))).isEmpty():
        raise BadInput(
            f"batch id {batch_id} has set rows of another input aside: the same id means the same input; "
            "nothing was written, give this input an id of its own"
        )
    new = rows.join(known, "arrival", "left_anti").select(*REJECTED_MESSAGES.names)
    return Plan() if new.isEmpty() else Plan((at.append(REJECTED_MESSAGES, new),))
