"""Great Expectations: each promise an expectation, each check's promises a suite that it validates over Spark.

An expectation is that a complaint column is null (`expect_no_complaint.py`). Great Expectations counts the rows and the
broken ones of all expectations of a check in one aggregate; the rows stay where they are. Only where something is broken
another query fetches the first complaints, in the order of the log. It is slow to import, so only those who validate do.
"""

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pipelines.errors import BadInput
from pipelines.quality.promise import Check, Promise

# Read when it is imported: nothing is sent anywhere.
os.environ["GX_ANALYTICS_ENABLED"] = "false"

COMPLAINTS_KEPT = 20


@dataclass(frozen=True)
class Finding:
    """What was found of one promise: rows looked at, rows that break it, and what is wrong with the first of them."""

    suite: str
    promise: Promise
    checked: int
    broken: int
    complaints: tuple[str, ...] = ()


def load() -> None:
    """Load Great Expectations, which takes two seconds: a Validator made later finds it loaded."""
    import pipelines.quality.expect_no_complaint  # noqa: F401


class Validator:
    """Validates checks in one context of Great Expectations that lives in memory alone."""

    def __init__(self) -> None:
        import great_expectations as gx
        from great_expectations.data_context.types.base import ProgressBarsConfig
        from great_expectations.expectations.metadata_types import FailureSeverity

        from pipelines.quality.expect_no_complaint import ExpectNoComplaint

        # When imported it sets a level of its own, and tells of each directory it makes.
        logging.getLogger("great_expectations").setLevel(logging.ERROR)
        self._gx, self._severity, self._expect = gx, FailureSeverity, ExpectNoComplaint
        self._context = context = gx.get_context(mode="ephemeral")
        context.variables.progress_bars = ProgressBarsConfig(globally=False)
        # It would keep every frame for ever; here each is kept while it is looked at. All frames are batches of one asset,
        # as it writes its whole configuration as YAML for each asset.
        source = context.data_sources.add_spark("store", persist=False)
        self._frames = source.add_dataframe_asset("rows").add_batch_definition_whole_dataframe("all")

    def findings(self, check: Check) -> list[Finding]:
        """What is found of each promise of a check."""
        try:
            counts = self._counts(check)
        except RuntimeError:
            # Great Expectations keeps the text alone of what Spark raises: counted by Spark, it raises it itself.
            check.rows.agg(*(F.count(promise.column) for promise in check.promises)).collect()
            raise
        broken = [promise for promise, (_, count) in counts.items() if count]
        complaints = first_complaints(check, broken) if broken else {}
        return [
            Finding(check.suite, promise, checked, count, complaints.get(promise.column, ()))
            for promise, (checked, count) in counts.items()
        ]

    def conditions(self, suite: Any, rows: DataFrame) -> dict[Promise, Column]:
        """Of each expectation of a suite about single rows: whether a row is what it does not expect.

        Raises TypeError for what is no suite, BadInput for expectations that are not about single rows.
        """
        if not isinstance(suite, self._gx.ExpectationSuite):
            raise TypeError("it is neither")
        asked = self._context.get_validator(batch=self._batch(rows))
        return {
            Promise(f"promise_{number}", _sentence_of(each), each.severity.value): self._condition(
                asked, each
            )
            for number, each in enumerate(suite.expectations, start=1)
        }

    def _condition(self, asked: Any, expectation: Any) -> Column:
        """The condition Great Expectations itself counts by."""
        from great_expectations.expectations.expectation import (
            ColumnMapExpectation,
            ColumnPairMapExpectation,
            MulticolumnMapExpectation,
        )
        from great_expectations.expectations.registry import get_metric_kwargs
        from great_expectations.validator.metric_configuration import MetricConfiguration

        about_rows = (ColumnMapExpectation, ColumnPairMapExpectation, MulticolumnMapExpectation)
        configuration = expectation.configuration
        if not isinstance(expectation, about_rows) or configuration.kwargs.get("row_condition"):
            raise BadInput(
                f"expectation {configuration.type} is not about single rows; expected those about values of columns, "
                "without a row_condition"
            )
        name = f"{expectation.map_metric}.condition"
        named = get_metric_kwargs(
            metric_name=f"{expectation.map_metric}.unexpected_count", configuration=configuration
        )
        domain = {key: value for key, value in named["metric_domain_kwargs"].items() if value is not None}
        metric = MetricConfiguration(name, domain, named["metric_value_kwargs"])
        try:
            found: Column = asked.get_metric(metric)[0]
        except self._gx.exceptions.GreatExpectationsError as wrong:
            raise BadInput(f"expectation {configuration.type} cannot be asked: {wrong}") from wrong
        return found

    def _batch(self, rows: DataFrame) -> Any:
        """A frame as Great Expectations takes it."""
        return self._frames.get_batch({"dataframe": rows})

    def _counts(self, check: Check) -> dict[Promise, tuple[int, int]]:
        """Rows and broken rows of each promise: each expectation's own result tells, whatever its severity."""
        suite = self._gx.ExpectationSuite(
            name=check.suite,
            expectations=[
                self._expect(
                    column=promise.column,
                    description=promise.sentence,
                    severity=self._severity(promise.severity),
                )
                for promise in check.promises
            ],
        )
        validated = self._batch(check.rows).validate(suite)
        by_column = {_column_of(result): result for result in validated.results}
        return {promise: _count(by_column[promise.column]) for promise in check.promises}


def _sentence_of(expectation: Any) -> str:
    """What its author calls it; else its name and what it is about."""
    kwargs = {key: value for key, value in expectation.configuration.kwargs.items() if key != "batch_id"}
    return str(expectation.description or f"{expectation.configuration.type} {kwargs}")


def _column_of(result: Any) -> str:
    return str(result.expectation_config.kwargs["column"])


def _count(result: Any) -> tuple[int, int]:
    """Rows and broken rows of one expectation. Raises what kept Great Expectations from finding out."""
    if result.exception_info and _raised(result.exception_info):
        raise RuntimeError(_raised(result.exception_info))
    found = result.result
    return int(found["element_count"] or 0), int(found["unexpected_count"] or 0)


def _raised(info: dict[str, Any]) -> str | None:
    """What went wrong while an expectation was evaluated: told for it as a whole, or for each of its metrics."""
    parts = [info] if "raised_exception" in info else list(info.values())
    return next((str(part["exception_message"]) for part in parts if part["raised_exception"]), None)


def first_complaints(check: Check, broken: Sequence[Promise]) -> dict[str, tuple[str, ...]]:
    """The first complaints of each broken promise, in the order of the check's places; all in one job."""
    told = F.explode(
        F.array(
            *[
                F.struct(F.lit(promise.column).alias("promise"), F.col(promise.column).alias("complaint"))
                for promise in broken
            ]
        )
    )
    in_order = Window.partitionBy("promise").orderBy("place", "complaint")
    first = (
        check.rows.select("place", told.alias("told"))
        .select("place", "told.*")
        .where(F.col("complaint").isNotNull())
        .withColumn("rank", F.row_number().over(in_order))
        .where(F.col("rank") <= COMPLAINTS_KEPT)
        .orderBy("promise", "rank")
    )
    complaints: dict[str, tuple[str, ...]] = {}
    for row in first.collect():  # at most 20 a promise
        complaints[row.promise] = (*complaints.get(row.promise, ()), row.complaint)
    return complaints
