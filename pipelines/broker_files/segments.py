"""Segment files of a commit log, checked as a broker checks them when it starts (docs/rocketmq/store.md 1.1)."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from pipelines.broker_files.directory import BrokerDirectory, FileEntry
from pipelines.broker_files.entries import group_directory, read_committed_index
from pipelines.errors import BadInput
from pipelines.rocketmq.record import ENTRY_HEADER_BYTES
from pipelines.rocketmq.settings import LONG_MAX, SETTINGS

COMMITLOG = "commitlog"
LOG_PATHS, READ_ONLY_PATHS = "storePathCommitLog", "readOnlyCommitLogStorePaths"
_NAME = re.compile(r"[0-9]{20}")


@dataclass(frozen=True)
class Segment:
    """One file of the log: the physical offset it starts at and its path, in the broker's directory unless absolute.

    committed_index  of a file of DLedger's entries: the last entry to be read; None where records lie one after the other
    """

    start_offset: int
    path: str
    size_bytes: int
    committed_index: int | None = None

    @property
    def end_offset(self) -> int:
        return self.start_offset + self.size_bytes

    @property
    def header_bytes(self) -> int:
        """Bytes before each record."""
        return 0 if self.committed_index is None else ENTRY_HEADER_BYTES


def read_segments(directory: BrokerDirectory, conf: Mapping[str, str]) -> tuple[list[Segment], int]:
    """(the log's files in order, the size in bytes that each has).

    conf  the broker's settings; without mappedFileSizeCommitLog the size is that of the files

    Raises BadInput where a broker would not start: a file of another length, a missing one, a name that is not an offset.
    """
    group = group_directory(directory, conf)
    of_entries = [] if group is None else _entry_directories(directory, conf, group)
    # A broker that has always had DLedger has no other files.
    others = [COMMITLOG, *_named_directories(conf, LOG_PATHS)]
    has_others = not of_entries or any(directory.exists(path) for path in others)
    paths = log_directories(directory, conf) if has_others else []
    files = sorted(
        (file for path in (*paths, *of_entries) for file in _log_files(directory, path)),
        key=lambda file: file.name,
    )
    _expect_each_once(files, [*paths, *of_entries])
    if files and files[-1].size_bytes == 0:
        files.pop()  # created but never filled; a broker deletes it
    segment_bytes = _segment_bytes(files, conf)
    for file in files:
        if file.size_bytes != segment_bytes:
            raise BadInput(
                f"{file.path} has {file.size_bytes} bytes; expected {segment_bytes}, the size of a log "
                "segment (mappedFileSizeCommitLog). A broker would not start with it: restore the file or set the size"
            )
        if int(file.name) + segment_bytes > LONG_MAX:
            raise BadInput(
                f"{file.path} is not a log segment: no offset is above {LONG_MAX}. Move the file away"
            )
        if int(file.name) % segment_bytes:
            raise BadInput(
                f"{file.path} is not a multiple of {segment_bytes}, the size of a log segment; set "
                "mappedFileSizeCommitLog as the broker has it"
            )
    for before, file in pairwise(files):
        expected = int(before.name) + segment_bytes
        if int(file.name) != expected:
            missing = before.path.removesuffix(before.name) + f"{expected:020d}"
            raise BadInput(
                f"{missing} is missing: {before.name} is followed by {file.name}. Restore the file, or move those before "
                "the gap away to import what follows it"
            )
    has_entries = any(file.directory in of_entries for file in files)
    committed = read_committed_index(directory, group) if group is not None and has_entries else None
    segments = [
        Segment(
            int(file.name),
            file.path,
            file.size_bytes,
            committed if file.directory in of_entries else None,
        )
        for file in files
    ]
    return segments, segment_bytes


def log_directories(directory: BrokerDirectory, conf: Mapping[str, str]) -> list[str]:
    """Where the log's files are: `commitlog`, or what storePathCommitLog names, several directories with , or : between.

    Where it names several, those of readOnlyCommitLogStorePaths too: a broker whose storePathCommitLog is one directory does
    not look there. A path below the broker's storePathRootDir is one below this directory, which may be a copy; another is
    used as it is. Where none but `commitlog` is there, the log was copied to it. Raises BadInput where one is missing.
    """
    is_split = len(_named_directories(conf, LOG_PATHS)) > 1
    return _directories(
        directory, conf, (LOG_PATHS, READ_ONLY_PATHS) if is_split else (LOG_PATHS,), COMMITLOG
    )


def read_only_left_out(directory: BrokerDirectory, conf: Mapping[str, str]) -> list[str]:
    """The directories of readOnlyCommitLogStorePaths that have files, and that a broker does not look into."""
    is_read = group_directory(directory, conf) is not None or len(_named_directories(conf, LOG_PATHS)) > 1
    found = [] if is_read else _named_directories(conf, READ_ONLY_PATHS)
    return [path for path in found if directory.entries(path)]


def counted_as_copied(directory: BrokerDirectory, conf: Mapping[str, str]) -> list[str]:
    """The log's directories that are not there, where the broker has `commitlog` too: it is read as the whole log."""
    several = _named_directories(conf, LOG_PATHS)
    named = [*several, *_named_directories(conf, READ_ONLY_PATHS)] if len(several) > 1 else several
    return [path for path in named if COMMITLOG in named and not directory.exists(path)]


def _entry_directories(directory: BrokerDirectory, conf: Mapping[str, str], group: str) -> list[str]:
    """Where the files of a DLedger broker's log are: `dledger-ID/data`, or what storePathDLedgerCommitLog names.

    Those of readOnlyCommitLogStorePaths too.
    """
    found = _directories(directory, conf, ("storePathDLedgerCommitLog", READ_ONLY_PATHS), f"{group}/data")
    return [path for path in found if directory.exists(path)]


def _directories(
    directory: BrokerDirectory, conf: Mapping[str, str], settings: Sequence[str], default: str
) -> list[str]:
    """The directories that settings name; the default one for the first of them where that names none."""
    named = {setting: _named_directories(conf, setting) for setting in settings}
    named[settings[0]] = named[settings[0]] or [default]
    setting_of = {path: setting for setting, paths in reversed(named.items()) for path in paths}
    found = [path for paths in named.values() for path in paths]
    elsewhere = [path for path in dict.fromkeys(found) if path != default]
    missing = [path for path in elsewhere if not directory.exists(path)]
    if not missing:
        return list(dict.fromkeys(found))
    if missing == elsewhere and directory.exists(default):
        return [default]
    setting = setting_of[missing[0]]
    raise BadInput(
        f"{setting} is {conf[setting].strip()}, and {missing[0]} is not there; expected the directories of its log: "
        f"copy them to where the setting says, or all their files to {directory.uri}/{default}"
    )


def _named_directories(conf: Mapping[str, str], setting: str) -> list[str]:
    """The directories that a setting names: those below storePathRootDir relative to it."""
    root = conf.get("storePathRootDir", "").strip().rstrip("/")
    found = []
    for path in _split_paths(conf.get(setting, "").strip()):
        is_below = bool(root) and path.startswith(f"{root}/")
        found.append(path[len(root) + 1 :] if is_below else path)
    return found


def _split_paths(given: str) -> list[str]:
    """The paths of storePathCommitLog; versions before 5 split them at colons.

    >>> _split_paths("/a/log, /b/log"), _split_paths("/a/log:/b/log"), _split_paths("hdfs://n:8020/log")
    (['/a/log', '/b/log'], ['/a/log', '/b/log'], ['hdfs://n:8020/log'])
    """
    pieces = [piece.strip() for piece in given.split(",")]
    paths = [path for piece in pieces for path in ([piece] if "://" in piece else piece.split(":"))]
    return [path.rstrip("/") for path in paths if path]


@dataclass(frozen=True)
class _LogFile(FileEntry):
    """A file of the log: its path in the broker's directory, or the absolute one, and that of the directory it is in."""

    path: str
    directory: str


def _expect_each_once(files: list[_LogFile], paths: list[str]) -> None:
    for before, file in pairwise(files):
        if before.name == file.name:
            raise BadInput(
                f"the log segment {file.name} is in two directories, {before.path} and {file.path}; expected it in one of "
                f"{', '.join(paths)}: move one of them away"
            )


def _log_files(directory: BrokerDirectory, path: str) -> list[_LogFile]:
    if not directory.exists():
        raise BadInput(f"there is no directory {directory.uri}; expected a broker's storePathRootDir")
    if not directory.exists(path):
        inside = [entry.name for entry in directory.entries("")]
        if inside and all(_NAME.fullmatch(name) for name in inside):
            raise BadInput(
                f"{directory.uri} looks like a broker's {COMMITLOG} itself; expected storePathRootDir, the one above"
            )
        found = ", ".join(inside[:5]) or "nothing"
        raise BadInput(
            f"{directory.uri} has no {COMMITLOG}/; expected a broker's storePathRootDir, found {found}"
        )
    files = [
        _LogFile(entry.name, entry.size_bytes, False, f"{path}/{entry.name}", path)
        for entry in directory.entries(path)
        if not entry.is_directory and not entry.name.startswith(".")
    ]
    for file in files:
        if not _NAME.fullmatch(file.name):
            raise BadInput(
                f"{file.path} is not a log segment; expected names of 20 digits. Move the file away"
            )
    return files


def _segment_bytes(files: Sequence[FileEntry], conf: Mapping[str, str]) -> int:
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
