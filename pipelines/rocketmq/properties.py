"""Decoding the properties string: `name 0x01 value 0x02`, repeated (docs/rocketmq/store.md 1.8).

A piece between two 0x02 counts when its first 0x01 has a name before it and a value after it; a value may hold further
0x01. Of pieces with the same name the last one counts.
"""

from pyspark.sql import Column
from pyspark.sql import functions as F

from pipelines.spark_internals.catalyst import after_last, occurrences, parts_between

NAME_END, PROPERTY_END = "\x01", "\x02"
# The most bytes of a properties string: its length is stored in two of them.
LONGEST = 32_767


def property_value(properties: Column, name: str) -> Column:
    """The value of one property, string; null where there is none.

    This takes much less time than the whole map: two searches for bytes, no list, lambda or regular expression.
    """
    begins = PROPERTY_END + name + NAME_END
    pieces = F.concat(F.lit(PROPERTY_END), properties)
    last = after_last(pieces, begins, PROPERTY_END)
    # A name without a value is not a property: an earlier piece with that name may count.
    with_value = F.nullif(F.regexp_extract(pieces, rf"(?s)^.*\Q{begins}\E([^{PROPERTY_END}]+)", 1), F.lit(""))
    return F.coalesce(last, F.when(occurrences(pieces, begins) > 0, with_value))


def properties_map(properties: Column) -> Column:
    """All properties, map<string,string>; empty for an empty string, null for null."""
    pieces = F.filter(F.split(properties, PROPERTY_END), _is_whole)
    names = F.transform(pieces, _name)
    has_each_name_once = F.size(F.array_distinct(names)) == F.size(names)

    def is_last(piece: Column, index: Column) -> Column:
        later = F.slice(names, index + 2, F.size(names))
        return ~F.array_contains(later, _name(piece))

    # Almost no message has a name twice; only then is every piece compared with those after it.
    kept = F.when(has_each_name_once, pieces).otherwise(F.filter(pieces, is_last))
    return F.map_from_entries(F.transform(kept, lambda piece: F.struct(_name(piece), _value(piece))))


def without(properties: Column, *names: str) -> Column:
    """The properties string without these names, each pair closed by its 0x02; pieces that are not a pair are dropped."""
    kept = F.filter(
        F.split(properties, PROPERTY_END), lambda piece: _is_whole(piece) & ~_name(piece).isin(*names)
    )
    rewritten = F.array_join(F.transform(kept, lambda piece: F.concat(piece, F.lit(PROPERTY_END))), "")
    # Nearly all strings are closed pairs only, from which one search removes the names; lists of pieces cost more.
    named = "|".join(rf"\Q{name}\E" for name in names)
    cut = F.regexp_replace(
        properties, f"(?<![^{PROPERTY_END}])(?:{named}){NAME_END}[^{PROPERTY_END}]++{PROPERTY_END}", ""
    )
    # Most strings have none of the names, and one search a name shows it.
    has_one = F.lit(False)
    for name in names:
        has_one = has_one | (occurrences(properties, name + NAME_END) > 0)
    return F.when(~_is_closed_pairs(properties), rewritten).when(has_one, cut).otherwise(properties)


def _is_closed_pairs(properties: Column) -> Column:
    """Whether a string is closed pairs only; it may be false for such a string, but is never true for another.

    As many 0x02 as values between a 0x01 and the next 0x02 means that no name has a 0x02 in it. A regular expression
    takes four times as long to find that out.
    """
    values = parts_between(properties, NAME_END, PROPERTY_END)
    has_names = ~properties.startswith(NAME_END) & (occurrences(properties, PROPERTY_END + NAME_END) == 0)
    has_values = occurrences(properties, NAME_END + PROPERTY_END) == 0
    is_closed = properties.endswith(PROPERTY_END) & (occurrences(properties, PROPERTY_END) == values)
    return F.coalesce(is_closed & has_names & has_values, F.lit(False))


def _is_whole(piece: Column) -> Column:
    name_end = F.instr(piece, NAME_END)
    return (name_end > 1) & (name_end < F.length(piece))


def _name(piece: Column) -> Column:
    return F.substring_index(piece, NAME_END, 1)


def _value(piece: Column) -> Column:
    return piece.substr(F.instr(piece, NAME_END) + 1, F.lit(LONGEST))
