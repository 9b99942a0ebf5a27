"""A broker's directory: its files on this machine, HDFS or an object store, each read whole or at any position."""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from urllib.parse import urlparse

import pyarrow as pa
from pyarrow import fs

from pipelines.errors import BadInput, StoreError
from pipelines.uris import expect_no_secret

# Hadoop's schemes of file systems -> Arrow's, where they differ.
ARROW_SCHEMES = {"s3a": "s3", "s3n": "s3"}


@dataclass(frozen=True)
class FileEntry:
    """A file or directory: its name, and its length (0 for a directory)."""

    name: str
    size_bytes: int
    is_directory: bool


@dataclass(frozen=True)
class BrokerDirectory:
    """storePathRootDir of a broker. It is small enough to be sent to executors, which open its files themselves.

    Paths are relative to it and used as they are: names such as %RETRY%group are not percent-encoded. A path that is
    absolute, or a URI, is where a broker keeps files apart from the others (storePathCommitLog).

    uri  a relative path is made absolute, so that a job and its executors mean the same directory
    """

    uri: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "uri", from_anywhere(self.uri))

    def entries(self, path: str) -> list[FileEntry]:
        """The entries directly in a directory, ordered by name; none where it does not exist.

        Raises BadInput for a file.
        """
        files, found_at = self._located(path)
        selector = fs.FileSelector(found_at, allow_not_found=True)
        try:
            infos = files.get_file_info(selector)
        except NotADirectoryError as failure:
            raise BadInput(f"{found_at} is a file; expected a directory") from failure
        found = [
            FileEntry(info.base_name, info.size or 0, info.type == fs.FileType.Directory) for info in infos
        ]
        return sorted(found, key=lambda entry: entry.name)

    def exists(self, path: str = "") -> bool:
        files, found_at = self._located(path)
        return files.get_file_info(found_at).type != fs.FileType.NotFound

    def read(self, path: str, count: int | None = None) -> bytes | None:
        """The content of a small file, or at most its first `count` bytes; None where it does not exist.

        Raises BadInput where there is a directory in place of the file, or a file in place of the directory.
        """
        files, base = resolved(self.uri)
        try:
            with files.open_input_file(f"{base}/{path}") as file:
                return bytes(file.read(count))
        except FileNotFoundError:
            return None
        except NotADirectoryError as failure:
            raise BadInput(f"{base} is a file; expected a directory") from failure
        except OSError as failure:
            if files.get_file_info(f"{base}/{path}").type != fs.FileType.Directory:
                raise
            raise BadInput(f"{base}/{path} is a directory; expected a file") from failure

    def open(self, path: str) -> pa.NativeFile:
        """An open file, readable at any position. Raises StoreError for one that is gone since it was listed."""
        files, found_at = self._located(path)
        try:
            return files.open_input_file(found_at)
        except FileNotFoundError as failure:
            raise StoreError(
                f"{path} was listed in {self.uri} and is not there: a broker that runs deletes files that expire, and each "
                "machine of a cluster must see the directory. Nothing of this append was written, import again"
            ) from failure

    def _located(self, path: str) -> tuple[fs.FileSystem, str]:
        """The file system of a path, and the path in it."""
        if path.startswith("/") or "://" in path:
            return resolved(path)
        files, base = resolved(self.uri)
        return files, f"{base}/{path}".rstrip("/")


def from_anywhere(uri: str) -> str:
    """The URI without a relative path: executors have another working directory."""
    return uri if _has_scheme(uri) else Path(uri).absolute().as_posix()


def resolved(uri: str) -> tuple[fs.FileSystem, str]:
    """The file system of a URI and the path in it."""
    return _elsewhere(uri) if _has_scheme(uri) else (fs.LocalFileSystem(), from_anywhere(uri))


def _has_scheme(uri: str) -> bool:
    return len(urlparse(uri).scheme) > 1


@lru_cache(maxsize=16)
def _elsewhere(uri: str) -> tuple[fs.FileSystem, str]:
    parsed = urlparse(uri)
    expect_no_secret(uri)
    scheme = ARROW_SCHEMES.get(parsed.scheme, parsed.scheme)
    try:
        files, path = fs.FileSystem.from_uri(f"{scheme}{uri[len(parsed.scheme) :]}".rstrip("/"))
    except (pa.ArrowException, OSError) as failure:
        raise BadInput(
            f"cannot read {uri}: {str(failure).splitlines()[0]}; expected a local path or a file:, hdfs:, s3a:, abfss: "
            "or gs: directory that this machine has a client for"
        ) from failure
    return files, path.rstrip("/")
