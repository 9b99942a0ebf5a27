"""The findings of validate, for a person at a terminal and for a program that reads lines."""

import json
from collections.abc import Sequence
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from jobs.launch.output import Output, terminal
from jobs.launch.printable import printable
from pipelines.quality.expectations import Finding

# How many complaints of a broken promise the table shows; `validations` keeps more of them.
COMPLAINTS_SHOWN = 5


def show_findings(findings: Sequence[Finding], output: Output, quiet: bool) -> None:
    """Print a JSON object a promise on stdout; or a table on stderr, unless the run is quiet."""
    if output == Output.json:
        for finding in findings:
            print(json.dumps(_as_object(finding), ensure_ascii=False))
    elif not quiet:
        _print(findings)


def _as_object(finding: Finding) -> dict[str, Any]:
    return {
        "suite": finding.suite,
        "expectation": finding.promise.sentence,
        "severity": finding.promise.severity,
        "checked": finding.checked,
        "broken": finding.broken,
        "complaints": list(finding.complaints),
    }


def _print(findings: Sequence[Finding]) -> None:
    """Print a line a promise, and below a broken one what is wrong with the first rows."""
    console = terminal()
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold")
    for name in ("suite", "promise", "severity"):
        table.add_column(name, no_wrap=name != "promise")
    for name in ("checked", "broken"):
        table.add_column(name, justify="right", no_wrap=True)
    for finding in findings:
        promise = finding.promise
        style = "bold red" if finding.broken else ""
        counts = (f"{finding.checked:,}", f"{finding.broken:,}" if finding.broken else "")
        table.add_row(finding.suite, promise.sentence, promise.severity, *counts, style=style)
        shown = finding.complaints[:COMPLAINTS_SHOWN]
        left = finding.broken - len(shown)
        for line in (*shown, *([f"… and {left:,} more"] if finding.broken and left else [])):
            table.add_row("", Text(f"  {printable(line)}"), "", "", "")
    console.print(table)
