"""One check of the doctor, and what it found."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """bad: jobs fail or a promise is at risk until it is fixed. warn: worth knowing, jobs run."""

    ok = "ok"
    warn = "warn"
    bad = "bad"


@dataclass(frozen=True)
class Check:
    """One thing that was checked: what was found, and how to fix it where it is not as it should be."""

    name: str
    verdict: Verdict
    found: str
    remedy: str = ""


Look = Callable[[], Check]


def ok(name: str, found: str) -> Check:
    return Check(name, Verdict.ok, found)


def warn(name: str, found: str, remedy: str) -> Check:
    return Check(name, Verdict.warn, found, remedy)


def bad(name: str, found: str, remedy: str) -> Check:
    return Check(name, Verdict.bad, found, remedy)


def looked_at(looks: Iterable[tuple[str, Look]]) -> Iterator[Check]:
    """Every check, as it is made; one that fails is a bad check, and the others are made all the same."""
    for name, look in looks:
        try:
            yield look()
        except Exception as failure:
            said = str(failure).strip().partition("\n")[0] or type(failure).__name__
            yield bad(name, f"it could not be checked: {said}", "fix that, then run doctor again")
