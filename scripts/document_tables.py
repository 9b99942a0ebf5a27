"""Write the columns of every table into docs/tables.md, from schemas/. `--check`: fail where the page differs."""

import sys
from pathlib import Path

from schemas import TABLES, Table

PAGE = Path(__file__).resolve().parent.parent / "docs" / "tables.md"
BEGIN, END = "<!-- columns of {}: from schemas/ -->", "<!-- end -->"


def columns_of(table: Table) -> str:
    lines = ["", f"{table.comment}", "", "| column | type | meaning |", "|---|---|---|"]
    for column in table.columns:
        lines.append(f"| {column.name} | {column.dataType.simpleString()} | {column.metadata['comment']} |")
    key = ", ".join(table.key)
    partitioned = f" Partitioned by {', '.join(table.partition_by)}." if table.partition_by else ""
    return "\n".join([*lines, "", f"Key: {key}.{partitioned} {commits_of(table)}", ""])


def commits_of(table: Table) -> str:
    if table.numbered_by == "nothing":
        return "Commits are not numbered."
    app_id = table.name if table.numbered_by == "table" else f"{table.name}:GROUP"
    return f"Commits are numbered under `{app_id}`."


def documented(page: str) -> str:
    for table in TABLES:
        begin = BEGIN.format(table.name)
        before, found, rest = page.partition(begin)
        if not found:
            sys.exit(
                f"docs/tables.md does not describe the table {table.name}: add the line {begin} and {END} under it"
            )
        page = before + begin + "\n" + columns_of(table) + END + rest.partition(END)[2]
    return page


def main() -> None:
    page = PAGE.read_text(encoding="utf-8")
    if "--check" in sys.argv:
        sys.exit(
            0
            if documented(page) == page
            else "docs/tables.md differs from schemas/: run scripts/document_tables.py"
        )
    PAGE.write_text(documented(page), encoding="utf-8")


if __name__ == "__main__":
    main()
