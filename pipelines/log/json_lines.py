"""Lines that hold one JSON object each.

Spark's parser stops after the first value of a line: what follows it would be lost without an error.
"""

from pyspark.sql import Column
from pyspark.sql import functions as F


def has_text(line: Column) -> Column:
    """Whether a line holds anything but white space."""
    # Nearly every line begins with a brace; only the others are matched with the pattern.
    return F.trim(line).startswith("{") | line.rlike(r"\S")


def is_one_object(line: Column) -> Column:
    """Whether nothing follows the first value of a line, where that is an object; true of a line that is not JSON.

    An object ends with a brace: a line whose first brace is its last character holds one. Others are parsed in brackets and
    in braces: what follows the object would have to close both.
    """
    # It is false for a line with white space at its end, which is then parsed.
    ends_at_its_first = F.instr(line, "}") == F.length(line)
    in_brackets = F.json_array_length(F.concat(F.lit("["), line, F.lit("]"))) == 1
    in_braces = F.json_object_keys(F.concat(F.lit('{"":'), line, F.lit("}"))).isNotNull()
    is_one = F.coalesce(in_brackets & in_braces, F.lit(False))
    is_object = F.json_object_keys(line).isNotNull()
    return F.when(ends_at_its_first, True).otherwise(is_one | ~is_object)
