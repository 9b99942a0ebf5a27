"""Requests about messages of the log, from a file: which message, and what is requested for it."""

from collections.abc import Mapping

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from pipelines.errors import BadInput
from pipelines.log.claims import lies_in, spans_of_offsets
from pipelines.log.json_lines import has_text, is_one_object
from pipelines.log.numbers import whole_number
from pipelines.log.park import is_parking_topic
from pipelines.rocketmq.message_ids import message_id, offset_in_id
from pipelines.spark_internals.delta_log import is_delta_table
from pipelines.spark_internals.files import existing_path
from pipelines.store.snapshot import Snapshot
from pipelines.uris import expect_no_secret, literal_path
from schemas import COMMITLOG

BAD_REQUESTS_LISTED = 20
# The column where Spark leaves a line that it cannot parse, or a row of CSV with other fields than the header.
_BROKEN = "_broken"


def read_requests(spark: SparkSession, path: str, columns: Mapping[str, str]) -> DataFrame:
    """The rows of JSON lines, CSV, Parquet or a Delta table, as the end of its name says, with `columns` alone.

    columns  name -> type; those the file does not have are null

    adds  `request` (long): ascends in the order of the file

    The file is read here, once: a run carries out the requests that it has checked, whatever the file holds later.

    Raises BadInput for a path where nothing is, a column that is not known, or a value of another type.
    """
    existing_path(spark, expect_no_secret(path), "a file or directory of requests")
    try:
        rows = _rows(spark, path)
    except AnalysisException as failure:
        raise BadInput(f"{path} cannot be read: {str(failure).splitlines()[0]}") from failure
    unknown = sorted(set(rows.columns) - {*columns, _BROKEN})
    if unknown:
        raise BadInput(
            f"{path} has a column {unknown[0]!r} that a request does not have; known are {', '.join(columns)}"
        )
    given = dict(rows.dtypes)
    values, complaints = {}, []
    fields = [name for name in rows.columns if name != _BROKEN]
    if _BROKEN in given and not fields:
        raise BadInput(f"{path} has no line that is a JSON object; known columns are {', '.join(columns)}")
    if _BROKEN in given:
        expected = (
            f"the fields of the header: {', '.join(fields)}" if path.endswith(".csv") else "a JSON object"
        )
        sentence = F.format_string(f"%s is not a valid row of its file; expected {expected}", F.col(_BROKEN))
        complaints.append(F.when(F.col(_BROKEN).isNotNull(), sentence))
    for name, kind in columns.items():
        if name not in given:
            values[name] = F.lit(None).cast(kind)
        elif kind == "string":
            values[name] = F.col(name).cast(kind)
        else:
            values[name], is_wrong = whole_number(name, kind, given[name])
            sentence = F.format_string(
                f"{name} is %s; expected a value of type {kind}", F.col(name).cast("string")
            )
            complaints.append(F.when(is_wrong, sentence))
    read = rows.select(
        F.monotonically_increasing_id().alias("request"),
        *[value.alias(name) for name, value in values.items()],
        F.coalesce(*complaints, F.lit(None).cast("string")).alias("complaint"),
    )
    # About a hundred bytes a request come to the driver.
    frozen = spark.createDataFrame(read.toArrow(), read.schema)
    refuse(frozen.select("complaint").where(F.col("complaint").isNotNull()), path)
    return frozen.drop("complaint")


def _rows(spark: SparkSession, given: str) -> DataFrame:
    path = literal_path(given)
    if is_delta_table(spark, given):
        return spark.read.format("delta").load(given)
    if given.rstrip("/").endswith(".parquet"):
        return spark.read.parquet(path)
    if path.endswith(".csv"):
        reader = spark.read.options(header=True, columnNameOfCorruptRecord=_BROKEN)
        fields = reader.csv(path).schema
        return reader.schema(StructType([*fields, StructField(_BROKEN, StringType())])).csv(path)
    lines = spark.read.text(path)
    line = F.col("value")
    sentence = F.format_string("%s has something after its JSON object; expected one object a line", line)
    refuse(lines.where(has_text(line) & ~is_one_object(line)).select(sentence), given)
    return spark.read.options(primitivesAsString=True, columnNameOfCorruptRecord=_BROKEN).json(path)


def refuse(complaints: DataFrame, path: str) -> None:
    """Raise BadInput when there are complaints (sentences in the first column), with the first BAD_REQUESTS_LISTED."""
    found = complaints.limit(BAD_REQUESTS_LISTED + 1).collect()
    if found:
        listed = "".join(f"\n  {row[0]}" for row in found[:BAD_REQUESTS_LISTED])
        more = "\n  …" if len(found) > BAD_REQUESTS_LISTED else ""
        raise BadInput(
            f"requests of {path} cannot be carried out, so none was; correct them or leave them out:{listed}{more}"
        )


def with_rows(at: Snapshot, requests: DataFrame) -> DataFrame:
    """Requests with `asked_offset`, which they name, and `source_offset` and slim columns of its row; null without a row.

    requests  `request`, `physical_offset`, `message_id` and others that are not columns of the log
    """
    log = at.read(COMMITLOG).select(
        F.col("physical_offset").alias("row_offset"),
        message_id().alias("row_id"),
        *[name for name in COMMITLOG.names if name not in ("physical_offset", "body", "source_offset")],
    )
    located = requests.withColumn(
        "asked_offset", F.coalesce("physical_offset", offset_in_id(F.col("message_id")))
    )
    # Eight bytes a request, so that only those parts of the log are read.
    offsets = located.select("asked_offset").where(F.col("asked_offset").isNotNull()).toArrow()
    log = log.where(lies_in("row_offset", spans_of_offsets(offsets.column("asked_offset").to_numpy())))
    is_it = (F.col("row_offset") == F.col("asked_offset")) & (
        F.col("message_id").isNull() | (F.upper("message_id") == F.col("row_id"))
    )
    return located.join(log, is_it, "left").withColumnRenamed("row_offset", "source_offset").drop("row_id")


def refuse_parked(found: DataFrame, path: str) -> None:
    """Raise BadInput for requests about rows that wait in a topic of the store's own: no group has consumed them."""
    is_parked = is_parking_topic(F.col("topic"))
    sentence = F.format_string(
        "message %d lies in %s: it waits there for its time or its transaction, and no group has consumed it",
        F.col("source_offset"),
        F.col("topic"),
    )
    refuse(found.select(F.when(is_parked, sentence).alias("complaint")).where(is_parked), path)


def refuse_missing(found: DataFrame, path: str) -> None:
    """Raise BadInput for requests that name no message, or none that is in the log."""
    refuse(found.select(missing_message().alias("complaint")).where(F.col("complaint").isNotNull()), path)


def missing_message() -> Column:
    """What is wrong with a request, after with_rows, that names no message or none that is in the log; else null."""
    name = F.coalesce(F.col("message_id"), F.col("physical_offset").cast("string"))
    nameless = F.lit("a request names no message: give physical_offset or message_id")
    missing = F.col("source_offset").isNull()
    return F.when(name.isNull(), nameless).when(missing, F.format_string("no message %s is in the log", name))
