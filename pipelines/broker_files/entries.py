"""The log of a DLedger broker: records that are the bodies of entries (docs/rocketmq/store.md 1.16).

Each record has a header of 48 bytes before it. Physical offsets point at the record, so between two records of such a log
there are 48 bytes that no row takes.
"""

import struct
from collections.abc import Mapping

from pipelines.broker_files.directory import BrokerDirectory
from pipelines.broker_files.records import LEAST_RECORD_BYTES, MESSAGE_MAGICS, Walked
from pipelines.errors import BadInput
from pipelines.rocketmq.record import BLANK_BYTES, ENTRY_HEADER_BYTES

DIRECTORY_PREFIX = "dledger-"
CHECKPOINT = "checkpoint"
COMMITTED_INDEX = "committedIndex"

# magic, size, index, term, position, channel, two CRCs that DLedger leaves 0, bytes of the body; then the record's own
# length and magic code.
_HEADER_AND_RECORD = struct.Struct(">iiqqqiiiiiI")
_MAGIC_AND_SIZE = struct.Struct(">ii")
_MAGIC = 1
_BLANK = -1


def walk_entries(
    piece: memoryview, offset: int, left_in_file: int, committed_index: int, index_before: int | None
) -> Walked:
    """Walk from entry to entry as DLedger's own recovery does; the result's `starts` are those of the records in them.

    offset        physical offset of the piece's first byte, where an entry starts
    index_before  index of the entry before; None where it is not known
    """
    at, length = 0, len(piece)
    starts: list[int] = []
    header_and_record, least = _HEADER_AND_RECORD.unpack_from, _HEADER_AND_RECORD.size
    while at + BLANK_BYTES <= length:
        magic, size = _MAGIC_AND_SIZE.unpack_from(piece, at)
        if magic == _BLANK:
            return Walked(starts, at, "blank", index=index_before)
        following = at + size
        if magic != _MAGIC or size < least or following > left_in_file:
            reason = f"not an entry (magic {magic}, size {size})"
            return Walked(starts, at, "broken", reason, index_before)
        if following > length:
            return Walked(starts, at, "more", index=index_before)
        _, _, index, _, position, _, _, _, body_bytes, record_bytes, record_magic = header_and_record(
            piece, at
        )
        if position != offset + at or body_bytes + ENTRY_HEADER_BYTES != size:
            reason = f"an entry of position {position} and a body of {body_bytes} bytes, its size is {size}"
            return Walked(starts, at, "broken", reason, index_before)
        if index_before is not None and index != index_before + 1:
            reason = f"entry {index} comes after entry {index_before}"
            return Walked(starts, at, "broken", reason, index_before)
        if index > committed_index:
            reason = f"entry {index} is not committed: the group has agreed on those up to {committed_index}"
            return Walked(starts, at, "uncommitted", reason, index_before)
        is_record = record_magic in MESSAGE_MAGICS and LEAST_RECORD_BYTES <= record_bytes == body_bytes
        if not is_record:
            reason = f"entry {index} holds no record (length {record_bytes}, magic {record_magic:08X})"
            return Walked(starts, at, "no record", reason, index_before)
        starts.append(at + ENTRY_HEADER_BYTES)
        index_before, at = index, following
    if left_in_file - at < BLANK_BYTES:
        reason = f"only {left_in_file - at} bytes are left in the file"
        return Walked(starts, at, "broken", reason, index_before)
    return Walked(starts, at, "more", index=index_before)


def entry_bytes(piece: memoryview, at: int = 0) -> int:
    """Bytes of the entry that starts at a position: header and record."""
    return int(_MAGIC_AND_SIZE.unpack_from(piece, at)[1])


def group_directory(directory: BrokerDirectory, conf: Mapping[str, str]) -> str | None:
    """The directory `dledger-ID` of a broker; None where it has none, or its settings say that it uses none.

    Raises BadInput where the one that the settings name is missing, or several are there and none is named.
    """
    is_enabled = conf.get("enableDLegerCommitLog", "").strip().lower()
    if not directory.exists() or is_enabled == "false":
        return None
    found = sorted(
        entry.name
        for entry in directory.entries("")
        if entry.is_directory and entry.name.startswith(DIRECTORY_PREFIX)
    )
    given = conf.get("dLegerSelfId", "").strip()
    if given and DIRECTORY_PREFIX + given in found:
        return DIRECTORY_PREFIX + given
    if (given and found) or (is_enabled == "true" and not found):
        raise BadInput(
            f"the broker's settings say that its log is in {DIRECTORY_PREFIX}{given or 'ID'} (enableDLegerCommitLog, "
            f"dLegerSelfId), and {directory.uri} has {' and '.join(found) or 'no such directory'}: copy it too, or correct "
            "the settings"
        )
    if len(found) > 1:
        raise BadInput(
            f"{directory.uri} has {' and '.join(found)}; expected the log of one member of a DLedger group: name it with "
            "dLegerSelfId in broker.conf, or move the others away"
        )
    return found[0] if found else None


def read_committed_index(directory: BrokerDirectory, group: str) -> int:
    """Index of the last entry that the DLedger group has agreed on, as this member last wrote it down; -1 for none.

    Entries after it may yet be taken back, and a broker shows them to nobody. Raises BadInput where it is not known.
    """
    path = f"{group}/{CHECKPOINT}"
    content = directory.read(path)
    lines = [] if content is None else content.decode("utf-8", "replace").splitlines()
    values = [line.partition("=")[2] for line in lines if line.partition("=")[0].strip() == COMMITTED_INDEX]
    try:
        return int(values[-1])
    except (IndexError, ValueError):
        found = "the file is missing" if content is None else f"found {lines[:3]}"
        raise BadInput(
            f"{path} does not say {COMMITTED_INDEX}, the last entry that the DLedger group has agreed on ({found}). DLedger "
            "writes it every three seconds and when it is shut down: copy the file too, or write the line "
            f"{COMMITTED_INDEX}=N into it"
        ) from None
