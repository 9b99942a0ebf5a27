"""The ids of appends: which put, import or job run wrote a row of the log.

A put writes `BATCH_ID:from-to`, the rows of its input (half-open); an import `import:from-to`, the bytes of the broker's
log; anything else the id of a job run, or the name the user gave it.
"""

import re

from pyspark.sql import Column
from pyspark.sql import functions as F

from pipelines.errors import BadInput
from pipelines.store.floors import IMPORT_PREFIX

# Batch ids of puts of trace messages begin with this; each is named after what it traces.
TRACE_PREFIX = "trace:"

_NAME = re.compile(r"[\w.:@/+-]{1,200}")
_RANGE = r"[0-9]+-[0-9]+"
_OF_AN_APPEND = re.compile(rf".*:{_RANGE}", re.DOTALL)


def expect_batch_id(batch_id: str | None) -> None:
    """Raises BadInput for a --batch-id that could be taken for another writer's, or that is not a valid name."""
    if batch_id is None:
        return
    if not _NAME.fullmatch(batch_id):
        raise BadInput(f"--batch-id is {batch_id!r}; expected 1 to 200 letters, digits and _ . : @ / + -")
    for prefix in (IMPORT_PREFIX, TRACE_PREFIX):
        if batch_id.startswith(prefix):
            raise BadInput(
                f"--batch-id is {batch_id!r}; ids that begin with {prefix} are the store's own. Choose another"
            )
    if _OF_AN_APPEND.fullmatch(batch_id):
        raise BadInput(
            f"--batch-id is {batch_id!r}; an id that ends with :NUMBER-NUMBER names one append of a batch. Choose another"
        )


def is_put_by(batch_id: str) -> Column:
    """Whether a row of the log was put under this batch id, and not under one that continues it after a colon."""
    append_id = F.col("append_id")
    rows = F.substring(append_id, len(batch_id) + 2, 2**31 - 1)
    # Delta skips files by the range: their statistics cannot answer the pattern.
    is_near = (append_id >= f"{batch_id}:") & (append_id < f"{batch_id};")
    return is_near & rows.rlike(rf"\A{_RANGE}\z")
