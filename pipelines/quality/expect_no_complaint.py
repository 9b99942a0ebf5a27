"""The expectation that a column of complaints is null, counted by one query a check.

It imports Great Expectations, which takes seconds: only those who validate import it.
"""

from typing import Any

from great_expectations.core.metric_function_types import MetricPartialFunctionTypes
from great_expectations.execution_engine import SparkDFExecutionEngine
from great_expectations.expectations.expectation import BatchExpectation
from great_expectations.expectations.metrics.metric_provider import metric_partial
from great_expectations.expectations.metrics.table_metric_provider import TableMetricProvider
from pyspark.sql import functions as F

ROWS, COMPLAINTS = "table.row_count", "table.complaint_count"


class ComplaintCount(TableMetricProvider):
    """The rows with a value in a column, as an aggregate of the rows of the table.

    Great Expectations' own metrics about columns need the number of rows first, in a query of its own.
    """

    metric_name = COMPLAINTS
    value_keys = ("column",)

    @metric_partial(
        engine=SparkDFExecutionEngine,
        partial_fn_type=MetricPartialFunctionTypes.AGGREGATE_FN,
        domain_type="table",
    )
    def _spark(cls, metric_domain_kwargs: Any, metric_value_kwargs: Any, **_: Any) -> Any:
        return F.count(metric_value_kwargs["column"]), metric_domain_kwargs, {}


class ExpectNoComplaint(BatchExpectation):
    """Expect a column of complaints to be null in all rows."""

    column: str

    metric_dependencies = (ROWS, COMPLAINTS)
    success_keys = ("column",)

    def _validate(
        self,
        metrics: dict[str, Any],
        runtime_configuration: dict[str, Any] | None = None,
        execution_engine: Any = None,
    ) -> dict[str, Any]:
        broken = metrics[COMPLAINTS]
        return {
            "success": broken == 0,
            "result": {"element_count": metrics[ROWS], "unexpected_count": broken},
        }
