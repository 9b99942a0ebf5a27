"""A broadcasting client's own offsets: the file `offsets.json` and its `.bak` (docs/rocketmq/consume-filter-ha.md 3.1).

RocketMQ's clients and these functions read each other's files. The keys of the table are objects, which only fastjson
allows in JSON:

    {"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"T"}:12}}

The files lie on the client's machine, so paths are local.
"""

import json
import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path

from pipelines.broker_files.broker_config import parse_fastjson
from pipelines.errors import BadInput, in_words

# (topic, broker name, queue id)
MessageQueue = tuple[str, str, int]

# Strings are matched first, so that a brace inside a string does not count as one of an object.
_STRING = r'"(?:[^"\\]|\\.)*"'
_STRING_OR_OBJECT_KEY = re.compile(rf'({_STRING})|(\{{(?:{_STRING}|[^"{{}}])*\}})(\s*:)', re.DOTALL)
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/.*", re.DOTALL)
_FILE_URI = re.compile(r"file:(?://)?(/(?!/).*)", re.DOTALL)


def read_offsets(path: str | Path) -> dict[MessageQueue, int]:
    """The next offset of each queue (topic, broker name, queue id): of the file, else of its .bak; empty without either.

    An empty file counts as none, as it does in RocketMQ. While a file is being written, these are the old offsets or the
    new. Raises BadInput where there is a file and neither can be read, and for a URI that is not of a local file.
    """
    file = _local_file(path)
    failures = []
    for candidate in (file, _backup(file)):
        try:
            content = candidate.read_bytes()
            if content:
                return _parse(content.decode())
        except FileNotFoundError:
            continue
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as failure:
            failures.append(f"{candidate} ({in_words(failure)})")
    if failures:
        raise BadInput(
            f"cannot read {' nor '.join(failures)}; expected the offsets of a RocketMQ client. Restore the file or its "
            ".bak, or move both away to begin without offsets"
        )
    return {}


def write_offsets(path: str | Path, offsets: Mapping[MessageQueue, int]) -> None:
    """Set the next offsets of these queues, also to lower ones; other queues keep theirs, as from RocketMQ 5.2 on.

    The offsets before stay as .bak. A write that is killed leaves the old offsets or the new ones, and at most a temporary
    file beside them. Two writers at once leave a whole file, which may lack the offsets of one of them.
    Raises BadInput, and changes nothing, where `read_offsets` does; OSError where the write fails.
    """
    file = _local_file(path)
    before = read_offsets(file)
    file.parent.mkdir(parents=True, exist_ok=True)
    if before:
        # The offsets that were read, not a copy of the file: a damaged file must not replace the .bak they came from.
        _replace(_backup(file), _text(before))
    _replace(file, _text({**before, **offsets}))


def _backup(file: Path) -> Path:
    return file.with_name(f"{file.name}.bak")


def _local_file(path: str | Path) -> Path:
    text = str(path)
    if not _URI.fullmatch(text):
        return Path(text)
    found = _FILE_URI.fullmatch(text)
    if found is None:
        raise BadInput(
            f"offsets of a broadcasting client are kept on its own machine; expected a path or file:/…, found {text}"
        )
    return Path(found[1])


def _parse(text: str) -> dict[MessageQueue, int]:
    def quoted(found: re.Match[str]) -> str:
        return found[1] if found[1] is not None else f"{json.dumps(found[2])}{found[3]}"

    table = parse_fastjson(_STRING_OR_OBJECT_KEY.sub(quoted, text))["offsetTable"]
    return dict(_entry(parse_fastjson(key), offset) for key, offset in table.items())


def _entry(queue: object, offset: object) -> tuple[MessageQueue, int]:
    match queue, offset:
        case {"topic": str(topic), "brokerName": str(broker_name), "queueId": int(queue_id)}, int(
            next_offset
        ):
            return (topic, broker_name, queue_id), next_offset
    raise ValueError(f"expected a queue and its offset, found {queue}: {offset}")


def _text(offsets: Mapping[MessageQueue, int]) -> str:
    entries = []
    for (topic, broker_name, queue_id), offset in sorted(offsets.items()):
        queue = {"brokerName": broker_name, "queueId": queue_id, "topic": topic}
        entries.append(f"{json.dumps(queue, ensure_ascii=False, separators=(',', ':'))}:{offset}")
    return f'{{"offsetTable":{{{",".join(entries)}}}}}'


def _replace(file: Path, text: str) -> None:
    """Replace the content of a file atomically, and force it to the disk."""
    with tempfile.NamedTemporaryFile(
        "w", encoding="utf-8", dir=file.parent, prefix=f"{file.name}.", suffix=".new", delete=False
    ) as out:
        try:
            out.write(text)
            out.flush()
            os.fsync(out.fileno())
            os.chmod(out.name, 0o644)  # as other files: only its owner can read a temporary one
            os.replace(out.name, file)
        except BaseException:
            os.unlink(out.name)
            raise
    # The new name is on the disk only after the directory is forced to it too.
    directory = os.open(file.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
