"""What a table is: its name, its columns with their meaning, its key, and how its files are laid out."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from pyspark.sql import types as t


@dataclass(frozen=True)
class Table:
    """One Delta table of a store.

    name          its directory under the store, and its name in SQL
    comment       what a row is, one sentence
    columns       the columns, each with its meaning as the column's comment
    key           columns that identify a row
    partition_by  Delta's partition columns; none unless a reader prunes by them
    statistics    columns whose least and greatest value every file keeps; none: Delta's own choice
    properties    Delta table properties besides those every table has
    numbered_by   which commits are numbered together: all of the table, or those of one group; nothing: no row follows
                  from another, and commits have no numbers
    generation    which tables were added together, 1 with the first version: a store has all of the generations before its
                  newest
    """

    name: str
    comment: str
    columns: t.StructType
    key: tuple[str, ...]
    partition_by: tuple[str, ...] = ()
    statistics: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    numbered_by: Literal["table", "group", "nothing"] = "table"
    generation: int = 1

    @property
    def names(self) -> list[str]:
        return list(self.columns.names)


def columns(*described: tuple[str, str, str]) -> t.StructType:
    """The columns of a table from (name, type, meaning); the meaning becomes the column's comment."""
    return t.StructType(
        [
            t.StructField(name, TYPES[type_name], True, {"comment": meaning})
            for name, type_name, meaning in described
        ]
    )


# The types of columns, by the names that the docs use (a DDL parser would need a session).
TYPES: dict[str, t.DataType] = {
    "string": t.StringType(),
    "int": t.IntegerType(),
    "long": t.LongType(),
    "double": t.DoubleType(),
    "boolean": t.BooleanType(),
    "binary": t.BinaryType(),
    "map": t.MapType(t.StringType(), t.StringType()),
    "strings": t.ArrayType(t.StringType()),
}
