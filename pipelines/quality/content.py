"""A team's own expectations of its messages, and where messages go that do not meet them."""

from collections.abc import Callable, Mapping
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipelines.errors import BadInput
from pipelines.log.python_code import load_function, text_of
from pipelines.quality.expectations import Validator
from pipelines.quality.promise import Check, Promise, check, complaint, record
from pipelines.store.plan import Plan
from pipelines.store.snapshot import Snapshot
from pipelines.views.read import read_view
from pipelines.views.text import base64_text
from schemas import REJECTED_MESSAGES

OPTION = "--expectations"
# Delay levels of a send-back (docs/rocketmq/delay-retry-transaction.md 4.3): by the ladder of retries, or given up.
LADDER, GIVE_UP = 0, -1


def messages_of(at: Snapshot, topic: str) -> DataFrame:
    """The messages of a topic: rows of the view messages."""
    return read_view(at, "messages").where(F.col("topic") == topic)


def expectations_named(name: str) -> Callable[[], Any]:
    """The function MODULE:NAME that returns expectations. Raises BadInput where there is none; it, for what it raises."""
    function = load_function(OPTION, name)

    def expected() -> Any:
        try:
            return function()
        except Exception as failure:
            raise BadInput(
                f"{OPTION} {name} raised {type(failure).__name__}: {text_of(failure)}"
            ) from failure

    return expected


def content_check(name: str, given: Any, messages: DataFrame, validator: Validator) -> Check:
    """What a team expects of `messages`, as a check.

    given  a sentence -> what must hold of a message (Column, boolean; unknown counts as broken), or an ExpectationSuite of
           expectations about single rows

    Raises BadInput for anything else, and for columns that messages do not have.
    """
    try:
        if isinstance(given, Mapping):
            complaints = {
                Promise(f"promise_{number}", str(sentence), "warning"): complaint(holds, _told(str(sentence)))
                for number, (sentence, holds) in enumerate(given.items(), start=1)
            }
        else:
            complaints = {
                promise: F.when(is_unexpected, _told(promise.sentence))
                for promise, is_unexpected in validator.conditions(given, messages).items()
            }
        return check(name, messages, F.col("physical_offset"), complaints)
    except AnalysisException as wrong:
        raise BadInput(
            f"{OPTION} {name}: {str(wrong).splitlines()[0]} (columns: {', '.join(messages.columns)})"
        ) from wrong
    except TypeError as wrong:
        raise BadInput(
            f"{OPTION} {name} gives {type(given).__name__}; expected sentences with columns, or an ExpectationSuite: {wrong}"
        ) from wrong


def _told(sentence: str) -> Column:
    return F.concat(record(), F.lit(f" does not keep: {sentence}"))


def failed_messages(content: Check) -> DataFrame:
    """The messages that break an expectation: `physical_offset` and `reason`, all that is wrong with each."""
    reasons = [F.col(promise.column) for promise in content.promises]
    return content.rows.where(F.coalesce(*reasons).isNotNull()).select(
        F.col("place").alias("physical_offset"), F.concat_ws("; ", *reasons).alias("reason")
    )


def plan_quarantine(at: Snapshot, name: str, failed: DataFrame, messages: DataFrame) -> Plan:
    """Keep failed messages in rejected_messages with their reasons, each once under the name of its expectations."""
    known = at.read(REJECTED_MESSAGES).where(F.col("batch_id") == name).select("arrival")
    text = F.coalesce("body_text", base64_text(F.col("body")))
    new = (
        failed.join(messages.select("physical_offset", text.alias("raw")), "physical_offset")
        .select(F.lit(name).alias("batch_id"), F.col("physical_offset").alias("arrival"), "reason", "raw")
        .join(known, "arrival", "left_anti")
        .select(*REJECTED_MESSAGES.names)
    )
    return Plan(() if new.isEmpty() else (at.append(REJECTED_MESSAGES, new),))


def send_back_requests(failed: DataFrame, is_given_up: bool) -> DataFrame:
    """Failed messages as requests of send_back: they come again later, or become dead letters at once."""
    return failed.select(
        F.col("physical_offset").alias("request"),
        "physical_offset",
        F.lit(None).cast("string").alias("message_id"),
        F.lit(GIVE_UP if is_given_up else LADDER).alias("delay_level"),
        F.lit(None).cast("int").alias("max_reconsume_times"),
    )
