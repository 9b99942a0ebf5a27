"""An accepted input: a frozen input and the rules of its put, read the same way each time."""

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

# Nearly unique columns: Parquet would build a dictionary for each file and throw it away.
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

    spark        the session of the job run
    whole_files  whether each file is one split: batches are found in whole files, and only the input decides at which
                 rows the files of an arranged input begin
    """

    spark: SparkSession
    source: Input
    rules: AcceptRules
    whole_files: bool = False

    @cached_property
    def _reader(self) -> SparkSession:
        reader = self.session_with_splits()
        if self.rules.compress_over is None:
            # Only slim columns go to Python, so no batch gets large; weighing each row takes a tenth of a put.
            reader.conf.set(BYTES_OF_A_BATCH, NO_LIMIT)
        for name in UNIQUE_COLUMNS:
            reader.conf.set(f"parquet.enable.dictionary#{name}", "false")
        return reader

    def session_with_splits(self) -> SparkSession:
        """A session whose splits depend on the input alone: the same for all files and for some, on any cluster.

        It is a clone, since settings belong to a session and several puts may run in one at the same time.
        """
        mine = cloned(self.spark)
        eighth = -(-self.source.size_bytes // 8)
        split_bytes = min(max(eighth, 8 * 1024**2), 128 * 1024**2)
        if self.whole_files:
            # The largest file, not more: Spark packs smaller files into one partition up to this size.
            split_bytes = max(file.size_bytes for file in self.source.files) or 2**40
        mine.conf.set("spark.sql.files.maxPartitionBytes", str(split_bytes))
        mine.conf.set(
            "spark.sql.files.minPartitionNum", "1"
        )  # else a read of some files would get smaller splits
        for name, value in ALL_FILES.items():
            mine.conf.set(f"spark.sql.files.{name}", value)
        return mine

    def messages(self, files: Sequence[int] | None = None) -> DataFrame:
        """The input's messages as they will be stored, but without offsets; of some files, by their numbers, or of all."""
        if files is not None and len(files) < len(self.source.files):
            return self._accepted(files)
        return self._all_messages

    @cached_property
    def _all_messages(self) -> DataFrame:
        # Cached, so Spark plans it once: it is read for counting and for each append.
        return self._accepted(None)

    def _accepted(self, files: Sequence[int] | None) -> DataFrame:
        return self.source.read(self._reader, files).transform(accepted, self.source, self.rules)

    def slim_columns(self, with_reasons: bool) -> list[str]:
        """The columns of `messages` that counting needs; with `reason` only where reasons are needed."""
        has = {*self.source.columns, "wire_bytes" if "batch" in self.source.columns else ""}
        if "sharding_key" in self.source.columns:
            has.add("shard")
        if with_reasons:
            has.add("reason")
        if may_divert(self.source):
            has |= {"parked_topic", "parked_queue"}
        return [*_SLIM, *[name for name in _SLIM_OPTIONAL if name in has]]

    def given_rows(self) -> DataFrame:
        """The input's rows as they came, with typed columns."""
        rows = self.source.read(self.session_with_splits())
        # An arranged copy has typed columns already, and no sharding_key.
        return rows if self.source.is_staged else rows.transform(with_typed_columns, self.source)
