"""The note that an export leaves in its directory, as an import reads it: what a broker's files have no place for.

A broker that runs on the directory leaves the note as it is: what it says is compared with the broker's own files.
"""

import json
import re
from collections.abc import Callable, Collection
from typing import Any

from pipelines.broker_files.directory import BrokerDirectory
from pipelines.errors import BadInput, in_words
from pipelines.rocketmq.settings import LONG_MAX

NOTE = "commitlake-export.json"
# Files under way, until an export is complete: a broker does not start with a file among its own whose name it cannot read.
UNDER_WAY = "_export"
# The store's settings, as a broker reads them too.
SETTINGS_FILE = "broker.conf"


def read_export_note(directory: BrokerDirectory) -> dict[str, Any]:
    """The note of the export that a directory is; empty where it is none. Raises BadInput as `parsed_note` does."""
    content = directory.read(NOTE)
    return {} if content is None else parsed_note(content, directory.uri)


def parsed_note(content: bytes, directory_uri: str, required: Collection[str] = ()) -> dict[str, Any]:
    """A note by names, those of other versions as they are; one of an earlier version may lack what is not required.

    Raises BadInput where it is not as export_store writes it.
    """
    try:
        found = json.loads(content)
    except (ValueError, RecursionError) as failure:
        raise _unreadable(directory_uri, f"is not JSON ({in_words(failure)})") from failure
    if not isinstance(found, dict):
        raise _unreadable(directory_uri, f"holds {_shown(found)}, expected a JSON object")
    for name, (expected, is_valid) in _VALUES.items():
        if name in found and not is_valid(found[name]):
            raise _unreadable(directory_uri, f"has {name} {_shown(found[name])}, expected {expected}")
    missing = [name for name in required if name not in found]
    if missing:
        raise _unreadable(directory_uri, f"lacks {', '.join(missing)}")
    return found


def _unreadable(directory_uri: str, complaint: str) -> BadInput:
    return BadInput(
        f"{directory_uri.rstrip('/')}/{NOTE} {complaint}. Restore the file as export_store has written it, or export the "
        "store again into an empty directory"
    )


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:60]}…"


def _is_number(value: Any) -> bool:
    return type(value) is int and -LONG_MAX - 1 <= value <= LONG_MAX


def _is_count(value: Any) -> bool:
    return _is_number(value) and value >= 0


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_list_of(value: Any, is_valid: Callable[[Any], bool]) -> bool:
    return isinstance(value, list) and all(map(is_valid, value))


def _is_by_number(value: Any, is_valid: Callable[[Any], bool]) -> bool:
    return isinstance(value, dict) and all(
        re.fullmatch("[0-9]{1,19}", key) and is_valid(one) for key, one in value.items()
    )


def _is_subscription(value: Any) -> bool:
    return _is_list_of(value, _is_text) and len(value) == 3


def _is_record(value: Any) -> bool:
    return isinstance(value, list) and (not value or _is_count(value[0]))


def _is_index_file(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and _is_text(value[0]) and _is_count(value[1])


_NUMBER = ("a whole number", _is_number)
_COUNT = ("a whole number from 0 on", _is_count)
_TEXT = ("a text", _is_text)
# Name -> (what is expected, whether a value is that).
_VALUES: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "log_id": _TEXT,
    "append_seq": _NUMBER,
    "end_offset": _COUNT,
    "under_way_to": _COUNT,
    "last_record": ("a list that begins with an offset, or an empty one", _is_record),
    "queue_file_bytes": _COUNT,
    "timer": ("a list of whole numbers", lambda value: _is_list_of(value, _is_number)),
    "subscriptions": ("lists of group, topic and tags", lambda value: _is_list_of(value, _is_subscription)),
    "offsets_digest": _TEXT,
    "index_files": ("name and items by number", lambda value: _is_by_number(value, _is_index_file)),
    "index_segments": ("whole numbers by segment", lambda value: _is_by_number(value, _is_count)),
    "index_timestamp": _NUMBER,
    "index_slots": _COUNT,
}
