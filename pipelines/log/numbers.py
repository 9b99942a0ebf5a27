"""Numbers of an input: taken as they are or refused, never rounded or guessed."""

from pyspark.sql import Column
from pyspark.sql import functions as F

_WHOLE = ("tinyint", "smallint", "int", "bigint")


def may_be_whole(given: str) -> bool:
    """Whether a column of this type can hold whole numbers: as numbers, or as text."""
    return given in (*_WHOLE, "string") or _has_fractions(given)


def whole_number(name: str, wanted: str, given: str) -> tuple[Column, Column]:
    """(a column of type `given` as whole numbers of type `wanted`, whether it has a value that is not one).

    Of a type with fractions, whole values are taken; other values are not whole numbers.
    """
    column = F.col(name)
    if not may_be_whole(given):
        return F.lit(None).cast(wanted), column.isNotNull()
    value = column.try_cast(wanted)
    is_wrong = column.isNotNull() & value.isNull()
    if _has_fractions(given):
        # What a cast cuts off is missing when it is cast back.
        is_wrong = is_wrong | (value.try_cast(given) != column)
        value = F.when(~is_wrong, value)
    return value, is_wrong


def _has_fractions(given: str) -> bool:
    return given in ("float", "double") or given.startswith("decimal")
