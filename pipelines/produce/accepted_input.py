"""An accepted input: a frozen input and the rules its rows are accepted by, read the same way each time."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from pyspark.sql import DataFrame, SparkSession

from pipelines.produce.accept import accepted, with_typed_columns
from pipelines.produce.complaints import AcceptRules
from pipelines.produce.divert import may_divert
from pipelines.produce.inputs import ALL_FILES, Input
from pipelines.spark_internals.arrow import BYTES_OF_A_BATCH, NO_LIMIT
from pipelines.spark_internals.sessions import cloned

# Hardly a value comes twice: a dictionary would be made for each file and thrown away.
UNIQUE_COLUMNS = ("physical_offset", "properties", "body", "body_crc")

_SLIM = ("file_hash", "block_start", "topic", "size_bytes")
_SLIM_OPTIONAL = (
    "queue_id",
    "shard",
    "batch",
    "wire_bytes",
    "arrival",
    "parked_topic",
    "parked_queue",
    "reason",
)


@dataclass(frozen=True)
class AcceptedInput:
    """An input and the rules of its put.

    spark        the session of the run
    whole_files  whether a file is one split: batches are found in whole files, and an arranged input begins its files at
                 rows that the input alone decides
    """

    spark: SparkSession
    source: Input
    rules: AcceptRules
    whole_files: bool = False

    @cached_property
    def _reader(self) -> SparkSession:
        reader = self.session_with_splits()
        if self.rules.compress_over is None:
            # What goes to Python are slim columns, of which no batch gets large; weighing each row is a tenth of a put.
            reader.conf.set(BYTES_OF_A_BATCH, NO_LIMIT)
        for name in UNIQUE_COLUMNS:
            reader.conf.set(f"parquet.enable.dictionary#{name}", "false")
        return reader

    def session_with_splits(self) -> SparkSession:
        """A session whose splits depend on the input alone: the same for all of it and for a part, on any cluster.

        A session of its own, since settings belong to a session and several puts may run in one at the same time.
        """
        mine = cloned(self.spark)
        eighth = -(-self.source.size_bytes // 8)
        split_bytes = min(max(eighth, 8 * 1024**2), 128 * 1024**2)
        if self.whole_files:
            # The largest file and no more: Spark puts smaller ones together up to that.
            split_bytes = max(file.size_bytes for file in self.source.files) or 2**40
        mine.conf.set("spark.sql.files.maxPartitionBytes", str(split_bytes))
        mine.conf.set(
            "spark.sql.files.minPartitionNum", "1"
        )  # else a part of the input would get smaller splits
        for name, value in ALL_FILES.items():
            mine.conf.set(f"spark.sql.files.{name}", value)
        return mine

    def messages(self, files: Sequence[int] | None = None) -> DataFrame:
        """The input's messages as they will be stored, but for their place; of some files, by their numbers, or of all."""
        if files is not None and len(files) < len(self.source.files):
            return self._accepted(files)
        return self._all_messages

    @cached_property
    def _all_messages(self) -> DataFrame:
        # Planned once: it is read to count, and for each append.
        return self._accepted(None)

    def _accepted(self, files: Sequence[int] | None) -> DataFrame:
        return self.source.read(self._reader, files).transform(accepted, self.source, self.rules)

    def slim_columns(self, with_reasons: bool) -> list[str]:
        """Columns of `messages` that counting needs."""
        has = {*self.source.columns, "wire_bytes" if "batch" in self.source.columns else ""}
        if "sharding_key" in self.source.columns:
            has.add("shard")
        if with_reasons:
            has.add("reason")
        if may_divert(self.source):
            has |= {"parked_topic", "parked_queue"}
        return [*_SLIM, *[name for name in _SLIM_OPTIONAL if name in has]]

    def given_rows(self) -> DataFrame:
        """The input's rows as they were given, with numbers as numbers."""
        return self.source.read(self.session_with_splits()).transform(with_typed_columns, self.source)
