"""Export: a store becomes a directory that a broker opens; again, what is new is added.

The files are written first, then the note about them, then a broker's checkpoint. Meanwhile the directory has the file by
which a broker knows that it did not stop in order, so a broker that is started on a half-made export checks all that it
finds.
"""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from typing import Any

from pipelines.broker_files.export_note import NOTE, SETTINGS_FILE, UNDER_WAY, parsed_note
from pipelines.broker_files.queue_files import CONSUME_QUEUE as QUEUES
from pipelines.errors import BadInput, StoreError
from pipelines.export.config import (
    CHECKPOINT,
    OFFSET_FILES,
    broker_conf,
    checkpoint,
    config_files,
    offsets_digest,
    subscriptions_by_tag,
)
from pipelines.export.directory import LOCK, ExportDirectory, expect_apart, held
from pipelines.export.index import KnownIndex, write_index
from pipelines.export.queues import topics_without_files, write_queues
from pipelines.export.segments import gap, segment_path, write_segments
from pipelines.export.settled import Settled, read_settled
from pipelines.export.timer import write_timer
from pipelines.log.one_row import last_row
from pipelines.log.whole_import import expect_exportable
from pipelines.store.backup import SPEAK_OF_THE_LOG
from pipelines.store.head import read_head
from pipelines.store.holes import holes_of_log, lost_at
from pipelines.store.store import Store
from schemas import COMMITLOG, CUTS

ABORT = "abort"


@dataclass(frozen=True)
class Note:
    """What an export holds.

    log_id           Delta's id of the commit log it was made from
    append_seq       the last append in it
    end_offset       where its log ends
    index            its index files
    under_way_to     how far a run that has begun writes; 0 once it is complete
    last_record      its last record, also of a run that has begun, by the columns of log/one_row.SAME; empty: not known
    queue_file_bytes size of its queue files; 0: not known
    timer            where its timer reads next, and the slot of the first message that waits there or before, ms; or empty
    subscriptions    those by tag: (group, topic, expression)
    offsets_digest   of the file with the groups' offsets, as it was written; empty: not known
    """

    log_id: str
    append_seq: int
    end_offset: int
    index: KnownIndex = field(default_factory=KnownIndex)
    under_way_to: int = 0
    last_record: list[Any] = field(default_factory=list)
    queue_file_bytes: int = 0
    timer: list[int] = field(default_factory=list)
    subscriptions: list[list[str]] = field(default_factory=list)
    offsets_digest: str = ""

    @classmethod
    def of(cls, content: bytes, directory_uri: str) -> "Note":
        """The note of a directory. Raises BadInput where it is not one of this version or an earlier one."""
        found = parsed_note(content, directory_uri, _ALWAYS_NOTED)
        unknown = sorted(found.keys() - {*_ALWAYS_NOTED, *_NOTED_BY_NOW})
        if unknown:
            raise BadInput(
                f"{directory_uri.rstrip('/')}/{NOTE} has {', '.join(unknown)}, which this version does not know: a newer "
                "one has written it. Export with that version, or into an empty directory"
            )
        files = {int(number): (name, items) for number, (name, items) in found.pop("index_files").items()}
        # A note of an earlier version says nothing of segments.
        segments = {int(segment): items for segment, items in found.pop("index_segments", {}).items()}
        index = KnownIndex(files, segments, found.pop("index_timestamp"), found.pop("index_slots", 0))
        return cls(**found, index=index)

    def content(self) -> bytes:
        """The note as a file."""
        found = asdict(self)
        index = found.pop("index")
        return json.dumps(
            {
                **found,
                "index_files": index["files"],
                "index_segments": index["segments"],
                "index_timestamp": index["last_full_timestamp"],
                "index_slots": index["slots"],
            }
        ).encode()


# What a note of any version has, and what later versions have added.
_ALWAYS_NOTED = ("log_id", "append_seq", "end_offset", "index_files", "index_timestamp")
_NOTED_BY_NOW = {each.name for each in fields(Note)} - {"index"} | {"index_segments", "index_slots"}


@dataclass(frozen=True)
class Exported:
    """Messages, segments and files that a run has written, and what a broker will make of it."""

    messages: int
    segments: int
    files: int
    next_offset: int
    settled: Settled


class Export:
    """An export of a store, as of one snapshot, into a directory that is empty or holds an earlier export of it.

    Raises BadInput for a directory that holds anything else.
    """

    def __init__(self, store: Store, to: str, now_ms: int) -> None:
        self.to = ExportDirectory(to)
        self._at = store.snapshot()
        for table in SPEAK_OF_THE_LOG:  # pinned before it: they may be older, never newer
            self._at.version(table)
        self._now_ms = now_ms
        self.head = read_head(self._at)
        self._log_id = self._at.table_id(COMMITLOG)
        expect_apart(self._at, to)
        expect_exportable(self._at, self.head.next_offset)
        self._note_found = self.to.found.read(NOTE)
        self._note = self._read_note()

    @cached_property
    def from_offset(self) -> int:
        """From where on the log is written: the end of the earlier export; the log's start without one."""
        return (
            self.head.min_offset if self._note is None else max(self.head.min_offset, self._note.end_offset)
        )

    @property
    def topics_without_files(self) -> list[str]:
        """Topics of the log that get no queue files."""
        return topics_without_files(self._at, self.head)

    @property
    def size(self) -> int:
        """Bytes of the log that are to be written: whole segments from the first that is new or has grown."""
        return self.head.next_offset - self._first_segment if self.head.next_offset > self.from_offset else 0

    @property
    def _first_segment(self) -> int:
        return self.from_offset - self.from_offset % self._at.store.settings.segment_bytes

    @property
    def _queue_file_bytes(self) -> int:
        return self._at.store.settings.queue_file_bytes

    def write(self, advance: Callable[[int], None]) -> Exported:
        """Write what the directory lacks. Run again after it was interrupted, it goes on.

        Raises StoreError where another export or a broker uses the directory, or has written to it since it was read.
        """
        with held(self._at.store.spark, self.to.uri):
            if self.to.found.read(NOTE) != self._note_found:
                raise StoreError(
                    f"another export has written to {self.to.uri} meanwhile. Nothing was written; run this again, and it "
                    "adds what is new"
                )
            return self._write(advance)

    def _write(self, advance: Callable[[int], None]) -> Exported:
        at, to = self._at, self.to
        self._expect_no_hole()
        messages, segments, files = 0, 0, 0
        last_record = self._last_record(self.head.next_offset)
        to.write(ABORT, [])
        to.delete(CHECKPOINT)  # a broker that is started on what is half-made writes one
        index = KnownIndex() if self._note is None else self._note.index
        if self._note is not None:
            begun = replace(self._note, under_way_to=self.head.next_offset, last_record=last_record)
            self._write_note(replace(begun, offsets_digest=""))
        else:
            # Of an export that was cut short, or that has rows which were cut off the log since. The note goes first: what
            # it says holds no longer.
            to.delete(NOTE)
            for directory in ("commitlog", QUEUES, "index"):
                to.delete(directory)
        if self.head.next_offset > self.from_offset:
            # A row a segment.
            missing = {*range(self._first_segment, self.head.next_offset, at.store.settings.segment_bytes)}
            for row in write_segments(at, to, self.head, self._first_segment).toLocalIterator():
                messages, segments, files = messages + row.messages, segments + 1, files + 1
                missing.discard(row.segment)
                advance(row.bytes)
            if missing:
                raise gap(min(missing), min(missing) + at.store.settings.segment_bytes)
            files += write_queues(at, to, self.head, self.from_offset, self._now_ms)
        # Also without new messages: broker.conf, which is written each time, says what its files must be like.
        if self.head.next_offset > self.from_offset or not index.holds(to, at.store.settings):
            written, index = write_index(at, to, index, self.from_offset)
            files += written.count()
        settled = read_settled(at, self.head)
        config = dict(config_files(at, self.head, settled, self._now_ms))
        for path, content in config.items():
            to.write(path, [content])
            files += 1
        timer = write_timer(at, to, self.head, self._now_ms)
        to.write(SETTINGS_FILE, [broker_conf(at)])
        head = self.head
        self._write_note(
            Note(
                self._log_id,
                head.append_seq,
                head.next_offset,
                index,
                0,
                last_record,
                self._queue_file_bytes,
                timer.times,
                subscriptions_by_tag(at),
                offsets_digest(config),
            )
        )
        to.write(CHECKPOINT, [checkpoint(self.head, index.last_full_timestamp)])
        to.delete(ABORT)
        to.delete(UNDER_WAY)
        return Exported(messages, segments, files + timer.files + 3, self.head.next_offset, settled)

    def _expect_no_hole(self) -> None:
        """Raises BadInput where a part of the log that is to be written is lost: a broker's log has no gap."""
        lost = [row for row in holes_of_log(self._at) if self.size and row.to_offset > self._first_segment]
        if lost:
            raise BadInput(
                f"the log has lost bytes {lost[0].from_offset} to {lost[0].to_offset} ({lost[0].reason}), and a broker "
                f"stops reading at such a gap. Nothing was written; export what lies around it: `commitlake export_store "
                f"--store {self._at.store.uri} --to DIR --format jsonl`"
            )

    def _read_note(self) -> Note | None:
        found = self.to.found
        content = self._note_found
        if content is None:
            names = [entry.name for entry in found.entries("") if entry.name != LOCK]
            # A first export that was cut short has the broker's sign and this store's folder for files under way.
            if names and UNDER_WAY not in names:
                raise BadInput(
                    f"{self.to.uri} is not empty and holds no export of this store (found {', '.join(names[:5])}); name an "
                    "empty directory, or one that export_store has made"
                )
            self._expect_no_broker_has_begun()
            return None
        note = Note.of(content, self.to.uri)
        if note.log_id != self._log_id:
            raise BadInput(f"{self.to.uri} holds an export of another store; name an empty directory")
        if note.append_seq > self.head.append_seq:
            raise BadInput(
                f"{self.to.uri} holds append {note.append_seq} of the log, and the log's last is {self.head.append_seq}: "
                "the store was put back as it was earlier. Export into an empty directory"
            )
        self._expect_untouched(note)
        if note.under_way_to:
            self._expect_no_broker_has_begun()
        # A row a cut. Queues and keys of what was cut off are in many files: all are written again.
        is_cut = any(
            row.append_seq > note.append_seq and row.physical_offset < max(note.end_offset, note.under_way_to)
            for row in self._at.rows(CUTS)
        )
        if is_cut:
            return None
        self._expect_same_log(note)
        return note if self._holds_what_is_left(note) else None

    def _holds_what_is_left(self, note: Note) -> bool:
        """Whether the directory has the segments of the note that the log still has, and none before; else all is written.

        Where segments have expired since, queue files begin elsewhere too; with another size they have other names.
        """
        if note.queue_file_bytes not in (0, self._queue_file_bytes):
            return False
        segment_bytes = self._at.store.settings.segment_bytes
        found = self._segments_found()
        first = self.head.min_offset - self.head.min_offset % segment_bytes
        return min(found, default=first) >= first and found >= {*range(first, note.end_offset, segment_bytes)}

    def _segments_found(self) -> set[int]:
        return {int(entry.name) for entry in self.to.found.entries("commitlog") if entry.name.isdigit()}

    def _write_note(self, note: Note) -> None:
        self.to.write(NOTE, [note.content()])

    def _last_record(self, before: int) -> list[Any]:
        row = last_row(self._at, before)
        return [] if row is None else list(row)

    def _expect_same_log(self, note: Note) -> None:
        """Raises BadInput where the last record of the note is not the log's, as of a store put back that has gone on."""
        if not note.last_record:
            return
        end = max(note.end_offset, note.under_way_to)
        found = self._last_record(end)
        if found and found != note.last_record and lost_at(self._at, note.last_record[0]) is None:
            raise BadInput(
                f"{self.to.uri} holds records up to byte {end} of the log, and the last of them is not what the log has "
                "there: the store was put back as it was earlier, and has gone on since. Export into an empty directory"
            )

    def _expect_no_broker_has_begun(self) -> None:
        """Raises BadInput where a broker was started on an export that was cut short: what it has appended would be lost.

        A broker makes a checkpoint. One of 5.x also writes its process id into the file `abort`; each takes that file away
        when it ends in order.
        """
        found = self.to.found
        if found.exists("commitlog") and (found.read(ABORT) != b"" or found.exists(CHECKPOINT)):
            raise BadInput(
                f"{self.to.uri} holds an export that was cut short, and a broker has been started on it since (its files "
                f"{ABORT} and {CHECKPOINT} say so): what it has appended would be lost. Import that, or export into an "
                "empty directory"
            )

    def _expect_untouched(self, note: Note) -> None:
        """Raises BadInput where a broker has gone on with the export: its rows, or what its groups read, would be lost."""
        segment_bytes = self._at.store.settings.segment_bytes
        found = self.to.found
        offsets = {path: found.read(path) for path in OFFSET_FILES}
        if note.offsets_digest and any(offsets.values()) and offsets_digest(offsets) != note.offsets_digest:
            raise BadInput(
                f"{' or '.join(OFFSET_FILES)} in {self.to.uri} has other offsets than were exported: groups have read on "
                "with a broker, and "
                "would be put back. Import the directory into a store of its own, or export into an empty directory"
            )
        end = max(note.end_offset, note.under_way_to)
        later = [segment for segment in self._segments_found() if segment >= end]
        if later:
            raise BadInput(
                f"{segment_path(min(later))} in {self.to.uri} begins after byte {end}, where the export ends: a broker has "
                "appended to it. Import what it has appended, or export into an empty directory"
            )
        position = end % segment_bytes
        path = segment_path(end - position)
        if not found.exists(path):
            return
        with found.open(path) as file:
            file.seek(position)
            following = bytes(file.read(8))
        if any(following):
            raise BadInput(
                f"{path} in {self.to.uri} goes on after byte {end}, where the export ends: a broker has "
                "appended to it. Import what it has appended, or export into an empty directory"
            )
