"""How many offsets of its queue a record takes, defined once for records in files and for rows of the log.

A record takes one offset. An inner batch is one record that holds many messages and takes an offset for each
(docs/rocketmq/store.md 1.13, 1.14): the property INNER_NUM says how many, where sys_flag has the bit 0x80. RocketMQ reads it
as a Java short and takes what is below 1 as 1. An import also meets what RocketMQ never writes: a flagged record without the
number, with words instead of it or with more than a short can hold takes one offset; a record without a topic, or whose
offset no queue file can address, lies in no queue.
"""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column
from pyspark.sql import functions as F

from pipelines.rocketmq.flags import COMMITTED, INNER_BATCH, PLAIN, TRANSACTION_BITS
from pipelines.rocketmq.settings import CONSUME_QUEUE_UNIT_BYTES, LONG_MAX
from schemas.queue_bounds import LOG_TOPIC

MOST_IN_A_BATCH = 2**15 - 1
HAVE_A_SLOT = (PLAIN, COMMITTED)
# The last valid queue offset: a queue's files are named by the byte at which they start, and an entry has 20 bytes. The last
# offset leaves room for a batch.
LAST_OFFSET = LONG_MAX // CONSUME_QUEUE_UNIT_BYTES - MOST_IN_A_BATCH

# It matches the last value: that one counts where a property comes twice (1.8).
_INNER_NUM = "(?s)^(?:.*\x02)?INNER_NUM\x01(?<value>[^\x02]+)"
_WHOLE_NUMBER = r"\A[+-]?[0-9]{1,18}\z"


def has_queue_slot() -> Column:
    """Whether a row of the log has a slot in its queue: plain or committed, at an offset that a queue can have."""
    is_in_queue = F.col("sys_flag").bitwiseAND(TRANSACTION_BITS).isin(*HAVE_A_SLOT)
    # In queue_bounds the empty topic is the log itself.
    return is_in_queue & F.col("queue_offset").between(0, LAST_OFFSET) & (F.col("topic") != LOG_TOPIC)


def slots_taken() -> Column:
    """How many offsets a row of the log takes, int; needs `sys_flag` and `properties`."""
    value = F.regexp_extract("properties", _INNER_NUM, 1)
    number = F.when(value.rlike(_WHOLE_NUMBER), value).try_cast("long")
    held = F.when(number.between(1, MOST_IN_A_BATCH), number.cast("int")).otherwise(1)
    return F.when(F.col("sys_flag").bitwiseAND(INNER_BATCH) != 0, held).otherwise(1)


def next_in_queue() -> Column:
    """The queue offset after a row of the log, long; null for a row whose offset no queue can have."""
    offset = F.col("queue_offset")
    return F.when(offset.between(0, LAST_OFFSET), offset + slots_taken())


def records_with_queue_slot(
    sys_flag: npt.NDArray[np.int64], queue_offset: npt.NDArray[np.int64], topic_bytes: npt.NDArray[np.int64]
) -> npt.NDArray[np.bool_]:
    """The same as has_queue_slot, for records in a broker's file: `topic_bytes` is the length of each topic."""
    is_in_queue = np.isin(sys_flag & TRANSACTION_BITS, HAVE_A_SLOT)
    return is_in_queue & (queue_offset >= 0) & (queue_offset <= LAST_OFFSET) & (topic_bytes > 0)


def slots_of_batches(properties: pa.Array) -> npt.NDArray[np.int64]:
    """The same as slots_taken, for inner batches in a broker's file; `properties` is as stored, binary."""
    number = whole_numbers(pc.struct_field(pc.extract_regex(properties, _INNER_NUM), "value"), 1)
    return np.where((number >= 1) & (number <= MOST_IN_A_BATCH), number, 1)


def whole_numbers(text: pa.Array, otherwise: int) -> npt.NDArray[np.int64]:
    """The whole numbers, of at most 18 digits, in the texts; `otherwise` for any other text and for null.

    >>> whole_numbers(pa.array(["12", "+3", "-4", "x", "", None, "1" * 30]), 0).tolist()
    [12, 3, -4, 0, 0, 0, 0]
    """
    is_number = pc.fill_null(pc.match_substring_regex(text, _WHOLE_NUMBER), False)
    plain = pc.if_else(is_number, text, pa.scalar(str(otherwise)).cast(text.type))
    unsigned = pc.replace_substring_regex(plain, r"^\+", "")
    found: npt.NDArray[np.int64] = pc.cast(pc.cast(unsigned, pa.string()), pa.int64()).to_numpy(
        zero_copy_only=False
    )
    return found
