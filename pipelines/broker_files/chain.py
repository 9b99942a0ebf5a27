"""The chain of records in one segment file, read a few megabytes at a time."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from pipelines.broker_files.entries import entry_bytes, walk_entries
from pipelines.broker_files.records import Fields, Walked, located_records, read_fields, walk, wrong_crc
from pipelines.broker_files.segments import Segment
from pipelines.errors import StoreError

# Bytes of a piece: large enough that object stores read at full speed, small enough that a task can hold a few.
PIECE_BYTES = 8 * 1024 * 1024
# At most this many damaged parts of a segment are kept one by one: a segment of a gigabyte may have millions.
SKIPPED_LISTED = 1_000


@dataclass(frozen=True)
class Checks:
    """The checks of a record besides its length (docs/rocketmq/store.md 1.7 and 3.5).

    crc          compare CRCs
    by_property  compare the CRC in the properties, which is of the whole record, and not the body's
    """

    crc: bool = False
    by_property: bool = False


@dataclass(frozen=True)
class Skipped:
    """Bytes [from_at, to_at) of a segment that hold no whole record.

    parts  number of damaged parts in them, with whole records between: 1, or all after the first SKIPPED_LISTED
    """

    from_at: int
    to_at: int
    reason: str
    parts: int = 1


class RecordChain:
    """The records of one segment file that start in [from_at, to_at), positions in the file.

    `to_at` is where a record starts, or the end. In a file of DLedger's entries records are the bodies of entries, and both
    positions are those of entries. Where the chain is broken the reading ends, unless `skip_damage`: then it goes on at
    the next record whose own physical offset is where it lies. After `pieces()`, `ended_at` is the position
    where it ended and `stopped` says how:

    end     at `to_at`
    blank   at the blank that closes the segment
    broken  at something that is not a record: `reason` says why
    uncommitted  at an entry after the last committed one
    """

    def __init__(
        self,
        file: pa.NativeFile,
        segment: Segment,
        from_at: int,
        to_at: int,
        skip_damage: bool = False,
        checks: Checks | None = None,
        piece_bytes: int = PIECE_BYTES,
    ) -> None:
        self._file = file
        self._file_offset, self._file_bytes = segment.start_offset, segment.size_bytes
        self._to_at = to_at
        self._skip_damage = skip_damage
        self._checks = checks or Checks()
        self._piece_bytes = piece_bytes
        self._committed_index, self._header_bytes = segment.committed_index, segment.header_bytes
        self._index: int | None = None  # of the entry before `ended_at`
        self.ended_at = from_at
        self.stopped = "end"
        self.reason = ""
        self.skipped: list[Skipped] = []
        # The bytes read last, and their position: after damage the same bytes are needed again.
        self._window_at, self._window = 0, memoryview(b"")
        # Positions of records whose own physical offset is where they lie, found by searching up to `_located_to`.
        self._located, self._located_to = np.zeros(0, np.int64), 0

    def pieces(self) -> Iterator[tuple[int, Fields]]:
        """Whole records in order, piece by piece: (position of the piece in the file, fields of its records)."""
        while self.ended_at < self._to_at:
            piece_at, going_on = self.ended_at, True
            piece = self._piece(piece_at)
            walked = self._walk(piece, piece_at)
            if walked.stopped == "more" and not walked.starts:  # one record is longer than the piece
                piece = self._read(piece_at, self._length(piece))
                walked = self._walk(piece, piece_at)
            starts = np.array(walked.starts, np.int64)
            starts = starts[starts - self._header_bytes < self._to_at - piece_at]
            fields = read_fields(piece, starts)
            good, reason = self._first_bad(fields)
            if good < len(starts):
                begin = int(starts[good]) - self._header_bytes
                self.ended_at, self._index = piece_at + begin, None
                fields = read_fields(piece, starts[:good])
                if self._header_bytes:
                    self._pass_by(entry_bytes(piece, begin), reason)
                else:
                    going_on = self._broken(reason)
            elif piece_at + walked.next_at >= self._to_at:
                self.ended_at = self._to_at
            else:
                self.ended_at, self._index = piece_at + walked.next_at, walked.index
                if walked.stopped == "broken":
                    going_on = self._broken(walked.reason)
                elif walked.stopped == "no record":
                    self._pass_by(entry_bytes(piece, walked.next_at), walked.reason)
                elif walked.stopped != "more":
                    self.stopped, self.reason, going_on = walked.stopped, walked.reason, False
            if len(fields.starts):
                yield piece_at, fields
            if not going_on:
                return

    def _walk(self, piece: memoryview, piece_at: int) -> Walked:
        left = self._file_bytes - piece_at
        if self._committed_index is None:
            return walk(piece, 0, left)
        return walk_entries(piece, self._file_offset + piece_at, left, self._committed_index, self._index)

    def _length(self, piece: memoryview) -> int:
        return entry_bytes(piece) if self._header_bytes else int(struct.unpack_from(">i", piece)[0])

    def _pass_by(self, length: int, reason: str) -> None:
        """Go on after a whole entry that holds no whole record: DLedger's own recovery does not look into entries."""
        self._skip(Skipped(self.ended_at, self.ended_at + length, reason))
        self.ended_at, self._index = self.ended_at + length, None

    def _first_bad(self, fields: Fields) -> tuple[int, str]:
        """(index, reason) of the first record that is not whole or whose CRC is wrong; the number of records without one."""
        count = len(fields.starts)
        broken = np.flatnonzero(~fields.is_whole)
        good = int(broken[0]) if len(broken) else count
        reason = "its parts do not add up to its length" if good < count else ""
        if self._checks.crc and good:
            whole = fields if good == count else read_fields(fields.piece, fields.starts[:good])
            matching = wrong_crc(whole, self._checks.by_property)
            if matching < good:
                return matching, "its CRC does not match"
        return good, reason

    def _broken(self, reason: str) -> bool:
        """Whether reading goes on after the chain breaks at `ended_at`: with `skip_damage`, after the damage."""
        if not self._skip_damage:
            self.stopped, self.reason = "broken", reason
            return False
        found = self._next_record(self.ended_at + 1 + self._header_bytes)
        going_on_at = self._to_at if found is None else min(found - self._header_bytes, self._to_at)
        self._skip(Skipped(self.ended_at, going_on_at, reason))
        self.ended_at, self._index = going_on_at, None
        return True

    def _skip(self, part: Skipped) -> None:
        if len(self.skipped) < SKIPPED_LISTED:
            self.skipped.append(part)
        else:
            last = self.skipped[-1]
            self.skipped[-1] = replace(last, to_at=part.to_at, parts=last.parts + 1)

    def _next_record(self, from_at: int) -> int | None:
        """The first position from `from_at` on of a record whose own offset is where it lies. Searches each byte once."""
        following = int(np.searchsorted(self._located, from_at))
        while following == len(self._located):
            at = max(from_at, self._located_to)
            if at >= self._file_bytes:
                return None
            # Twice the length: a record that starts in the first half is read whole.
            found = located_records(self._read(at, self._piece_bytes * 2), self._file_offset + at)
            self._located_to = at + self._piece_bytes
            self._located, following = at + found[found < self._piece_bytes], 0
        return int(self._located[following])

    def _piece(self, at: int) -> memoryview:
        """The bytes from `at` on: the rest of those read last where it is at least half a piece, else a new piece."""
        left = self._window_at + len(self._window) - at
        is_enough = at >= self._window_at and left >= min(self._piece_bytes // 2, self._file_bytes - at)
        return self._read(at, left if is_enough else self._piece_bytes)

    def _read(self, at: int, length: int) -> memoryview:
        expected = min(length, self._file_bytes - at)
        from_window = at - self._window_at
        if from_window >= 0 and from_window + expected <= len(self._window):
            return self._window[from_window : from_window + expected]
        self._file.seek(at)
        found = memoryview(self._file.read_buffer(expected))
        if len(found) < expected:
            raise StoreError(
                f"segment {self._file_offset:020d} ends at byte {at + len(found)} of {self._file_bytes}: it became shorter "
                "while it was read. Nothing of this append was written, import again from a directory that is whole"
            )
        self._window_at, self._window = at, found
        return found


def is_zero_from(file: pa.NativeFile, at: int, file_bytes: int) -> bool:
    """Whether only zeros follow: nothing was ever written after this position."""
    while at < file_bytes:
        file.seek(at)
        piece = file.read(min(PIECE_BYTES, file_bytes - at))
        if piece.count(0) != len(piece):
            return False
        at += len(piece)
    return True
