"""Whether a command's work is small, judged before Java starts: it is then planned for few rows, and not compiled for speed.

Java's second compiler, and Spark's, take longer than most commands run. What works on many rows needs them, so they are left
out only where files on this machine say that there are few. Nothing is known of a store or an input elsewhere.
"""

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from pathlib import Path
from typing import Any

from pipelines.uris import local_path

# Bytes of messages on which it makes no difference.
SMALL_BYTES = 16 * 1024 * 1024
# Bytes up to which a job of READ_ONCE ends sooner with the fast compiler alone, by plans that are compiled. Of two million
# messages (350 MB), as a process: a GROUP BY over slim columns 6.9 s, not 10.4; one over properties the same 14 s.
MODERATE_BYTES = 512 * 1024 * 1024
# Jobs that read a store once, by a query.
READ_ONCE = frozenset(("sql",))
# Jobs that read a few files of a store, however many it has.
READ_LITTLE = frozenset(
    (
        "create_store",
        "doctor",
        "promote",
        "query",
        "register",
        "reset_offsets",
        "settings",
        "subscribe",
        "topics",
    )
)
# Jobs whose work is what waits, what their input has, and what the log has beyond what was dispatched.
FOLLOW_THE_LOG = frozenset(
    ("check_transactions", "deliver", "dispatch", "end_transactions", "put_messages", "run_cycle")
)
# Jobs that may call a user's function, which may read a data source written in Python, where no option names it.
RUN_USERS_CODE = frozenset(("check_transactions", "consume", "run_cycle", "validate"))

# As against MODULE:NAME, and words of a query.
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/\S*\Z")


@dataclass(frozen=True)
class Work:
    """What a session is started for.

    is_small         whether so little is to be done that plans and tasks cost more than rows
    is_short         whether the session ends so soon that Java's second compiler would take longer than it saves
    runs_users_code  whether something may read a data source written in Python
    """

    is_small: bool = False
    is_short: bool = False
    runs_users_code: bool = True

    @classmethod
    def of(cls, job: str, store_uri: str, options: Mapping[str, Any]) -> "Work":
        """The work of a job with its own options."""
        small = is_small(job, store_uri, options)
        # The shell, a page that is updated and ticks go on after their first answer.
        is_lasting = job == "shell" or bool(options.get("watch", options.get("every")))
        is_short = not is_lasting and (small or is_moderate(job, store_uri, options))
        # MODULE:NAME, whatever a module is called.
        names_code = any(
            ":" in one and not _URI.match(one) for one in options.values() if isinstance(one, str)
        )
        return cls(small, is_short, is_lasting or job in RUN_USERS_CODE or names_code)


def typed(arguments: Sequence[str]) -> tuple[str, dict[str, Any]]:
    """The store and the options of a command line that is not parsed yet, well enough to judge the work by.

    >>> typed(["--store", "s", "--input=a.jsonl", "--rebuild"])
    ('s', {'input': 'a.jsonl', 'rebuild': True})
    """
    options: dict[str, Any] = {}
    name = ""
    for place, argument in enumerate(arguments):
        if argument.startswith("--"):
            name, equals, value = argument.removeprefix("--").partition("=")
            options[name] = value if equals else True
        elif options.get(name) is True:
            options[name] = argument
        else:
            options[str(place)] = argument
    store = options.pop("store", "")
    return (store if isinstance(store, str) else ""), options


def is_small(job: str, store_uri: str, options: Mapping[str, Any]) -> bool:
    """Whether a job has little to do, by the files of its store, and of its other options, on this machine.

    options  the job's own; a file or directory of this machine counts, whichever option names it
    """
    return _is_within(SMALL_BYTES, job, store_uri, options)


def is_moderate(job: str, store_uri: str, options: Mapping[str, Any]) -> bool:
    """Whether a job that reads a store once has so little to read that Java's second compiler would not pay; as is_small."""
    return job in READ_ONCE and _is_within(MODERATE_BYTES, job, store_uri, options)


def _is_within(limit: int, job: str, store_uri: str, options: Mapping[str, Any]) -> bool:
    named = [str(value) for value in options.values() if isinstance(value, str | Path)]
    places = [local_path(value) if _URI.match(value) else value for value in (store_uri, *named)]
    if any(place is None for place in places):
        return False
    store, *inputs = (Path(place) for place in places if place is not None)
    sizes = [_bytes_in(path) for path in inputs]
    if job in FOLLOW_THE_LOG and not options.get("rebuild"):
        dispatched = _committed(store / "progress" / "_delta_log")
        sizes += [_bytes_in(store / "parked"), _bytes_in(store / "commitlog", newer_than=dispatched)]
    elif job not in READ_LITTLE:
        sizes.append(_bytes_in(store))
    return all(total <= limit for total in accumulate(chain.from_iterable(sizes)))


def _committed(log: Path) -> float:
    """When the last commit of a Delta log was made, by its own words: a copy of the store has files of another time."""
    try:
        last = max(path for path in log.iterdir() if path.suffix == ".json")
        with last.open(encoding="utf-8") as actions:
            found = next(action for line in actions if (action := json.loads(line).get("commitInfo")))
        return float(found["timestamp"]) / 1_000
    except (OSError, ValueError, KeyError, TypeError, AttributeError, StopIteration):
        return 0.0


def _modified(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _bytes_in(path: Path, newer_than: float = 0.0) -> Iterator[int]:
    """The bytes of each file in a directory, or of the file; none where there is nothing.

    newer_than  folders to which nothing was added since are left out
    """
    try:
        if path.is_file():
            yield path.stat().st_size
            return
        with os.scandir(path) as entries:
            found = list(entries)
        if _modified(path) > newer_than:
            yield from (entry.stat().st_size for entry in found if entry.is_file())
        folders = [Path(entry.path) for entry in found if entry.is_dir() and not entry.name.startswith("_")]
    except (OSError, ValueError):
        return
    for folder in folders:
        yield from _bytes_in(folder, newer_than)
