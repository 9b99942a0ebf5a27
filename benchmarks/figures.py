"""The figures of a benchmark, kept for the page and the history when `make bench` runs it."""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

# Names the file that figures are added to, a JSON object a line.
KEPT_IN = "COMMITLAKE_FIGURES"


@dataclass(frozen=True)
class Figure:
    """One figure, and what it is compared with.

    value   the median of several runs, where there are several
    unit    messages/s, MB/s or s; of seconds, fewer are better
    beside  what else was measured in the same unit and run -> its value
    """

    name: str
    value: float
    unit: str
    beside: Mapping[str, float]


def keep(name: str, value: float, unit: str, **beside: float) -> None:
    """Keep a figure; names in `beside` are words joined by _. Run by hand, a benchmark keeps nothing."""
    if KEPT_IN in os.environ:
        compared = {other.replace("_", " "): round(found, 3) for other, found in beside.items()}
        with Path(os.environ[KEPT_IN]).open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(asdict(Figure(name, round(value, 3), unit, compared))) + "\n")


def kept(path: Path) -> list[Figure]:
    """The figures in a file."""
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    return [Figure(**json.loads(line)) for line in lines]
