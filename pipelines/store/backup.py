"""Backups: a copy of a store that is itself a store, made while other jobs write.

Every table is pinned to one version, and the files of that version are copied: its data files, which are never changed
once written, and of its log the last checkpoint and the commits since. A table that refers to another is pinned before it:
progress before the derived tables it covers, those and the groups' offsets before the log they follow, the log before the
topics and settings its messages were put by. So the copy is, at worst, like a store after a crash: the next run of each
job goes on from there. On a local store all tables are pinned under its lock, at one moment.

Data files are copied first, while nothing refers to them; then the logs, that of `store_settings` last: without it a
directory is not a store. An interrupted backup is run again, and a run that finds a backup adds what is new.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import unquote

from pipelines.errors import BadInput, StoreError
from pipelines.spark_internals.delta_log import has_commit
from pipelines.spark_internals.files import copy_file, hadoop_path, length_of, read_text
from pipelines.store.lock import under_lock
from pipelines.store.snapshot import Snapshot
from pipelines.store.store import BACKUP_FILE, Store, absolute
from schemas import (
    COMMITLOG,
    CONSUMER_OFFSETS,
    DERIVED,
    IN_FLIGHT,
    PROGRESS,
    QUEUE_BOUNDS,
    STORE_SETTINGS,
    TABLES,
    TABLES_BY_NAME,
    Table,
)

SPEAK_OF_THE_LOG = (PROGRESS, *DERIVED, CONSUMER_OFFSETS, IN_FLIGHT, QUEUE_BOUNDS)
# Files are copied by this many threads: copies wait for the storage, not for this machine.
COPIED_SIDE_BY_SIDE = 8


@dataclass(frozen=True)
class File:
    """A file of a table: its path relative to the store's directory, and its length in bytes."""

    name: str
    size: int


@dataclass(frozen=True)
class Pinned:
    """The version of a table that a backup holds; `commit` is Delta's id of its last commit."""

    id: str
    version: int
    commit: str


@dataclass
class Copied:
    """The counts of a backup: files and bytes copied, and files that were there already."""

    files: int = 0
    bytes: int = 0
    already: int = 0


class Backup:
    """One backup: a store as it is now, and the directory it is copied to.

    Raises BadInput where the directory holds anything but a backup of this store that has not been written to.
    """

    def __init__(self, store: Store, to: str, now_ms: int) -> None:
        self.store, self.to, self.now_ms = store, absolute(store.spark, to), now_ms
        self._expect_apart()
        self.before = self._read_note()
        self._at = _pinned(store)
        self.tables = {table.name: _version_of(self._at, table) for table in TABLES}
        self._expect_same_store()
        self.data = [file for table in TABLES for file in _data_files(self._at, table)]

    @property
    def append_seq(self) -> int:
        """The log's last append that the backup has; -1 for an empty log."""
        return self._at.number(COMMITLOG)

    @property
    def size(self) -> int:
        """Bytes of the data files of all tables."""
        return sum(file.size for file in self.data)

    def copy(self, advance: Callable[[int], None]) -> Copied:
        """Copy what is not there yet, and count it; `advance` is called with the bytes of each data file that is there."""
        copied = Copied()
        if self.before is None:
            self._write_note("copying")
        with ThreadPoolExecutor(COPIED_SIDE_BY_SIDE) as pool:
            self._copy_all(pool, self.data, copied, advance)
            # From here on the directory is not a store, until its last log is there.
            self._write_note("copying")
            self._remove(f"{STORE_SETTINGS.name}/_delta_log")
            for table in (*(table for table in TABLES if table != STORE_SETTINGS), STORE_SETTINGS):
                self._copy_all(pool, list(self._log_files(table)), copied, lambda _: None)
        self._write_note("complete")
        return copied

    def _copy_all(
        self, pool: ThreadPoolExecutor, files: Sequence[File], copied: Copied, advance: Callable[[int], None]
    ) -> None:
        for file, is_new in zip(files, pool.map(self.copy_one, files), strict=True):
            copied.files += is_new
            copied.bytes += file.size if is_new else 0
            copied.already += not is_new
            advance(file.size)

    def copy_one(self, file: File) -> bool:
        """Whether a file was copied: it is, unless it is there with its whole length. Raises StoreError where that fails."""
        spark = self.store.spark
        source, target = (f"{uri}/{file.name}" for uri in (self.store.uri, self.to))
        try:
            if length_of(spark, target) == file.size:
                return False
            copy_file(spark, source, target)
            found = length_of(spark, target)
        except Exception as failure:
            raise StoreError(f"{file.name} could not be copied to {self.to}: {failure}") from failure
        if found != file.size:
            raise StoreError(
                f"{file.name} has {found} bytes in {self.to}, expected {file.size}; the backup is not complete, run it again"
            )
        return True

    def _log_files(self, table: Table) -> Iterator[File]:
        """The log files of a table's version, with the commits since that which progress names, or the last backup has."""
        named = [self.tables[table.name].version]
        if self.before is not None and table.name in self.before:
            named.append(self.before[table.name].version)
        if table == COMMITLOG:
            named += [row.log_version for row in self._at.rows(PROGRESS) if row.log_version is not None]
        for name, size in self._at.log_files(table, min(named)):
            yield File(f"{table.name}/_delta_log/{name}", size)

    def _expect_apart(self) -> None:
        ours, theirs = self.store.uri, self.to
        if f"{theirs}/".startswith(f"{ours}/") or f"{ours}/".startswith(f"{theirs}/"):
            raise BadInput(f"--to is {theirs}; expected a directory apart from the store, which is at {ours}")

    def _read_note(self) -> dict[str, Pinned] | None:
        """The pinned tables by name, of the backup in the directory, complete or not; None without a readable one.

        Raises BadInput where the directory is not empty and is not a backup.
        """
        directory, files = hadoop_path(self.store.spark, self.to)
        note, _ = hadoop_path(self.store.spark, f"{self.to}/{BACKUP_FILE}")
        if files.exists(note):
            try:
                recorded = json.loads(read_text(self.store.spark, f"{self.to}/{BACKUP_FILE}") or "")
            except ValueError:
                return None  # its writer was interrupted
            return {name: Pinned(**pinned) for name, pinned in recorded["tables"].items()}
        if files.exists(directory) and not self._holds_data_files_alone():
            raise BadInput(f"{self.to} is not empty and holds no backup; name an empty directory for --to")
        return None

    def _holds_data_files_alone(self) -> bool:
        """Whether the directory is empty, or has only tables' files without their logs, copied by other means."""
        directory, files = hadoop_path(self.store.spark, self.to)
        names = [status.getPath().getName() for status in files.listStatus(directory)]
        logs = (hadoop_path(self.store.spark, f"{self.to}/{name}/_delta_log")[0] for name in names)
        are_known = all(name in TABLES_BY_NAME or name.startswith(("_", ".")) for name in names)
        return are_known and not any(files.exists(log) for log in logs)

    def _write_note(self, status: str) -> None:
        note, files = hadoop_path(self.store.spark, f"{self.to}/{BACKUP_FILE}")
        said: dict[str, Any] = {"status": status, "store": self.store.uri, "made_ms": self.now_ms}
        said["tables"] = {name: asdict(pinned) for name, pinned in self.tables.items()}
        stream = files.create(note, True)
        stream.write(bytearray(json.dumps(said, indent=1).encode()))
        stream.close()

    def _expect_same_store(self) -> None:
        """Raises BadInput where the directory holds other tables, or more of them than this store has."""
        for name, before in (self.before or {}).items():
            now = self.tables.get(name)
            if now is None or now.id != before.id:
                raise BadInput(f"{self.to} holds a backup of another store; name an empty directory for --to")
            table = TABLES_BY_NAME[name]
            is_older = now.version < before.version
            is_other = self._at.commit_id(table, before.version) not in (before.commit, None)
            is_written_to = has_commit(self.store.spark, f"{self.to}/{name}", before.version + 1)
            if is_older or is_other or is_written_to:
                raise BadInput(
                    f"the table {name} in {self.to} and the store's went different ways: one of them was written to since "
                    "the backup, or put back as it was earlier; name an empty directory for --to"
                )

    def _remove(self, name: str) -> None:
        target, files = hadoop_path(self.store.spark, f"{self.to}/{name}")
        files.delete(target, True)


def _pinned(store: Store) -> Snapshot:
    """A snapshot with every table pinned; a table that refers to another is pinned first."""
    at = store.snapshot()
    after_the_log = [table for table in TABLES if table != COMMITLOG and table not in SPEAK_OF_THE_LOG]
    in_order = (*SPEAK_OF_THE_LOG, COMMITLOG, *after_the_log)
    under_lock(store.spark, store.uri, lambda: [at.version(table) for table in in_order])
    return at


def _version_of(at: Snapshot, table: Table) -> Pinned:
    version = at.version(table)
    return Pinned(at.table_id(table), version, at.commit_id(table, version) or "")


def _data_files(at: Snapshot, table: Table) -> Iterator[File]:
    listed = at.listed_files(table)
    if listed is not None:
        for each in listed:
            yield File(f"{table.name}/{each.name}", each.size)
        return
    # The driver gets a few bytes a file.
    for row in at.files(table).select("path", "size").collect():
        name = unquote(row.path)
        if name.startswith("/") or "://" in name:
            raise StoreError(
                f"{table.name} has a file outside its directory: {name}; a backup would not have it"
            )
        yield File(f"{table.name}/{name}", row["size"])
