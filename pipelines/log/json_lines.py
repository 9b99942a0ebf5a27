"""Lines that hold one JSON object each.

Spark's parser stops after the first value of a line: what follows it would be lost without a word.
"""

from pyspark.sql import Column
from pyspark.sql import functions as F


def has_text(line: Column) -> Column:
    """Whether a line holds anything but white space."""
    # Nearly every line begins as an object does, and the pattern is for the others.
    return F.trim(line).startswith("{") | line.rlike(r"\S")


def is_one_object(line: Column) -> Column:
    """Whether nothing follows the first value of a line, where that is an object; true of a line that is no JSON at all.

    An object ends with a brace: a line whose first brace is its last character holds one. Others are parsed in brackets and
    in braces: what follows the object would have to close both.
    """
    # Of a line with white space at its end it is not known so cheaply.
    ends_at_its_first = F.instr(line, "}") == F.length(line)
    in_brackets = F.json_array_length(F.concat(F.lit("["), line, F.lit("]"))) == 1
    in_braces = F.json_object_keys(F.concat(F.lit('{"":'), line, F.lit("}"))).isNotNull()
    is_one = F.coalesce(in_brackets & in_braces, F.lit(False))
    is_object = F.json_object_keys(line).isNotNull()
    return F.when(ends_at_its_first, True).otherwise(is_one | ~is_object)
