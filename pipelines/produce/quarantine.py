"""Bad rows of an input: a list of the first, and the plan that sets all of them aside in `rejected_messages`."""

from typing import NamedTuple

from pyspark.sql import functions as F

from pipelines.errors import BadInput
from pipelines.produce.counted_input import CountedInput
from pipelines.store.head import EMPTY_HEAD
from pipelines.store.plan import Plan
from pipelines.store.snapshot import Snapshot
from schemas import REJECTED_MESSAGES


class BadRow(NamedTuple):
    """A row that cannot be put: its number in the input, the file and line (or row) where a person finds it, and why."""

    input_row: int
    where: str
    reason: str


def first_bad_rows(counted: CountedInput, count: int) -> list[BadRow]:
    source, found, first = counted.source, list[BadRow](), 0
    lines: dict[int, int] = {}
    for split in counted.splits:
        file = source.hashes[split.id[0]]
        before = lines.get(file, 0)
        for row, reason in split.bad:
            word = "line" if source.format == "jsonl" else "row"
            where = f"{source.files[file].name} {word} {before + row + 1}"
            if source.is_staged:
                where = f"row {first + row + 1} in order of arrival"
            found.append(BadRow(first + row, where, reason))
        lines[file] = before + split.rows
        first += split.rows
    return found[:count]


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
