"""What a team expects of its messages."""

from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F


def columns() -> dict[str, Column]:
    return {
        "an order has a body": F.length("body_text") > 0,
        "an order has two keys": F.size("keys") == 2,
    }


def suite() -> Any:
    import great_expectations as gx
    import great_expectations.expectations as gxe

    return gx.ExpectationSuite(
        "orders",
        expectations=[
            gxe.ExpectColumnValueLengthsToBeBetween(
                column="body_text", max_value=510, severity="critical", description="orders are short"
            ),
            gxe.ExpectColumnValuesToBeInSet(column="tags", value_set=["t"]),
        ],
    )


def of_a_table() -> Any:
    import great_expectations as gx
    import great_expectations.expectations as gxe

    return gx.ExpectationSuite("orders", expectations=[gxe.ExpectTableRowCountToBeBetween(min_value=1)])


def nothing() -> int:
    return 7


def misspelt() -> dict[str, Column]:
    return {"an order has a body": F.col("body_txt").isNotNull()}


def of_numbers() -> dict[str, Column]:
    return {"a body is a number": F.col("body_text").cast("int") > 0}


def raising() -> dict[str, Column]:
    raise OSError("the schema registry cannot be reached")
