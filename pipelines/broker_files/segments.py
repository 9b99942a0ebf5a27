"""Segment files of a commit log, checked as a broker checks them when it starts (docs/rocketmq/store.md 1.1)."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from pipelines.broker_files.directory import BrokerDirectory, FileEntry
from pipelines.errors import BadInput
from pipelines.rocketmq.settings import LONG_MAX, SETTINGS

COMMITLOG = "commitlog"
_NAME = re.compile(r"[0-9]{20}")


@dataclass(frozen=True)
class Segment:
    """One file of the log: the physical offset it starts at and its path in the broker's directory."""

    start_offset: int
    path: str
    size_bytes: int

    @property
    def end_offset(self) -> int:
        return self.start_offset + self.size_bytes


def read_segments(directory: BrokerDirectory, conf: Mapping[str, str]) -> tuple[list[Segment], int]:
    """(the log's files in order, the size in bytes that each has).

    conf  the broker's settings; without mappedFileSizeCommitLog the size is that of the files

    Raises BadInput where a broker would not start: a file of another length, a missing one, a name that is not an offset.
    """
    files = _log_files(directory)
    if files and files[-1].size_bytes == 0:
        files.pop()  # created but never filled; a broker deletes it
    segment_bytes = _segment_bytes(files, conf)
    for file in files:
        if file.size_bytes != segment_bytes:
            raise BadInput(
                f"{COMMITLOG}/{file.name} has {file.size_bytes} bytes; expected {segment_bytes}, the size of a log "
                "segment (mappedFileSizeCommitLog). A broker would not start with it: restore the file or set the size"
            )
        if int(file.name) + segment_bytes > LONG_MAX:
            raise BadInput(
                f"{COMMITLOG}/{file.name} is not a log segment: no offset is above {LONG_MAX}. Move the file away"
            )
        if int(file.name) % segment_bytes:
            raise BadInput(
                f"{COMMITLOG}/{file.name} is not a multiple of {segment_bytes}, the size of a log segment; set "
                "mappedFileSizeCommitLog as the broker has it"
            )
    for before, file in pairwise(files):
        expected = int(before.name) + segment_bytes
        if int(file.name) != expected:
            raise BadInput(
                f"{COMMITLOG}/{expected:020d} is missing: {before.name} is followed by {file.name}. Restore the file, or "
                "move those before the gap away to import what follows it"
            )
    return [
        Segment(int(file.name), f"{COMMITLOG}/{file.name}", file.size_bytes) for file in files
    ], segment_bytes


def _log_files(directory: BrokerDirectory) -> list[FileEntry]:
    if not directory.exists():
        raise BadInput(f"there is no directory {directory.uri}; expected a broker's storePathRootDir")
    if not directory.exists(COMMITLOG):
        inside = [entry.name for entry in directory.entries("")]
        if any(name.startswith("dledger-") for name in inside):
            raise BadInput(
                f"{directory.uri} holds a DLedger log, which is not read here; copy it to a broker without DLedger first"
            )
        if inside and all(_NAME.fullmatch(name) for name in inside):
            raise BadInput(
                f"{directory.uri} looks like a broker's {COMMITLOG} itself; expected storePathRootDir, the one above"
            )
        found = ", ".join(inside[:5]) or "nothing"
        raise BadInput(
            f"{directory.uri} has no {COMMITLOG}/; expected a broker's storePathRootDir, found {found}"
        )
    files = [
        entry
        for entry in directory.entries(COMMITLOG)
        if not entry.is_directory and not entry.name.startswith(".")
    ]
    for file in files:
        if not _NAME.fullmatch(file.name):
            raise BadInput(
                f"{COMMITLOG}/{file.name} is not a log segment; expected names of 20 digits. Move the file away"
            )
    return files


def _segment_bytes(files: list[FileEntry], conf: Mapping[str, str]) -> int:
    given = conf.get("mappedFileSizeCommitLog") or conf.get("mapedFileSizeCommitLog")
    if given is not None:
        try:
            return int(SETTINGS["mappedFileSizeCommitLog"].parse(given))
        except ValueError as expected:
            raise BadInput(f'setting mappedFileSizeCommitLog is "{given}"; expected {expected}') from None
    if not files:
        return int(SETTINGS["mappedFileSizeCommitLog"].default)
    # The most frequent size, so that the error names a single wrong file, whichever it is.
    sizes = [file.size_bytes for file in files]
    return max(sorted(set(sizes)), key=sizes.count)
