"""Names and values in SQL text, for the few places of Spark and Delta that take nothing else."""

import re

# A quote ends a text, a backslash may begin an escape, and ${name} is replaced by a setting.
_PLAIN = re.compile(r"[^'\\$]*")


def text_literal(text: str) -> str:
    """An expression whose value is the text, whatever is in it.

    Spark reads quotes and backslashes differently with spark.sql.parser.escapedStringLiterals; bytes mean the same.
    """
    if _PLAIN.fullmatch(text):
        return f"'{text}'"
    return f"CAST(X'{text.encode().hex()}' AS STRING)"


def quoted_name(name: str) -> str:
    """The name of a column, table or database, whatever is in it."""
    return "`" + name.replace("`", "``") + "`"


def delta_table(path: str) -> str:
    """A Delta table by its directory, where SQL takes a table."""
    return f"delta.{quoted_name(path)}"
