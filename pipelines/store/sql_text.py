"""Names and values in SQL text, for the few commands of Spark and Delta that take nothing else."""

import re

# Any other text is unsafe in quotes: a quote ends it, a backslash may begin an escape, a setting replaces ${name}.
_PLAIN = re.compile(r"[^'\\$]*")


def text_literal(text: str) -> str:
    """An expression whose value is the text, whatever is in it.

    Spark reads quotes and backslashes differently with spark.sql.parser.escapedStringLiterals; bytes mean the same
    with and without it.
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
