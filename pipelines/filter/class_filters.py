"""Class filters: Python code of the user that sees the whole message (docs/rocketmq/consume-filter-ha.md 4.6).

    class Large:
        def match(self, message, context) -> bool:
            return len(message.body) > 1_000

The class is in a module of the user, or its source text was uploaded and is in the store.
"""

import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Protocol

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import DataFrame

from pipelines.errors import BadInput
from pipelines.log.message import Message, message_columns, messages_of
from pipelines.log.python_code import expect_no_control_c, load_function, text_of
from pipelines.rocketmq.compression import BodyTooLarge
from pipelines.rocketmq.settings import MAX_UNPACKED_BYTES, Settings

ERROR_CHARS = 300


@dataclass(frozen=True)
class FilterContext:
    """What a class filter receives besides the message."""

    group: str


class ClassFilter(Protocol):
    """An object of the user's class."""

    def match(self, message: Message, context: FilterContext) -> bool: ...


@dataclass(frozen=True)
class UploadedClass:
    """A row of `filter_classes`: source text that a group uploaded for a topic."""

    topic: str
    group: str
    class_name: str
    source: str
    crc: int

    @classmethod
    def of(cls, topic: str, group: str, class_name: str, source: str) -> "UploadedClass":
        """The row for a new upload.

        Raises BadInput when the source has no such filter; an earlier upload stays.
        """
        uploaded = cls(topic, group, class_name, source, source_crc(source))
        uploaded.load()
        return uploaded

    def load(self) -> ClassFilter:
        """An object of the class, made by running the source.

        Raises BadInput when the source differs from the uploaded one, does not run, or has no such filter.
        """
        found = source_crc(self.source)
        if found != self.crc:
            raise BadInput(
                f"the source of class filter {self.class_name} of group {self.group} has CRC {found}; recorded when it was "
                f"uploaded is {self.crc}, so it was changed since; upload it again with `subscribe --filter-class`"
            )
        return _made(f"class filter {self.class_name}", self._class())

    def _class(self) -> Callable[[], Any]:
        # The name comes from the content, so that two sources are never taken for one module.
        module = ModuleType(f"uploaded_class_filter_{self.crc}")
        sys.modules[module.__name__] = module
        try:
            exec(compile(self.source, f"<class filter {self.class_name}>", "exec"), module.__dict__)
        except Exception as failure:
            raise BadInput(
                f"the source of class filter {self.class_name} does not run: {type(failure).__name__}: {failure}; "
                "fix it and upload it again"
            ) from failure
        cloudpickle.register_pickle_by_value(module)  # the workers cannot import it
        found = getattr(module, self.class_name, None)
        if not isinstance(found, type):
            raise BadInput(
                f"the source of class filter {self.class_name} has no class of that name; name one it has, and "
                "upload it again"
            )
        return found


def load_class_filter(option: str, name: str) -> ClassFilter:
    """An object of the class `MODULE:NAME`; its module may be in the current directory.

    option  the option that names the class, for the error

    Raises BadInput when it cannot be loaded or is not a filter.
    """
    return _made(f"{option} {name}", load_function(option, name))


def expect_uploads(settings: Settings) -> None:
    """Raises BadInput for a store that takes no source text: it is code, and would run with the rights of each reader."""
    if not settings["filterSupportUpload"]:
        raise BadInput(
            "this store takes no source of class filters (filterSupportUpload is false); name a class as MODULE:NAME, "
            "or allow it with `commitlake settings set filterSupportUpload=true`"
        )


def source_crc(source: str) -> int:
    """CRC-32 of a source without its highest bit, as RocketMQ keeps all CRCs (docs/rocketmq/store.md 1.7)."""
    return zlib.crc32(source.encode()) & 0x7FFFFFFF


def verdicts(
    rows: DataFrame, class_filter: ClassFilter, group: str, max_unpacked_bytes: int = MAX_UNPACKED_BYTES
) -> DataFrame:
    """The verdict of a class filter on each row of the log, worked out on the executors.

    Returns `physical_offset`, `match` (boolean) and `error` (string). `error` is null where the filter returned true or
    false; else `match` is null. One error fails the whole pull (4.6), so that no message is skipped unseen. A body that
    unpacks to more than `max_unpacked_bytes` would fail it for ever: such a message matches, and fails in its listener.
    """
    context = FilterContext(group)

    def match_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            found = [_verdict(class_filter, message, context) for message in messages_of(batch)]
            yield pa.RecordBatch.from_pydict(
                {
                    "physical_offset": batch.column("physical_offset"),
                    "match": pa.array([match for match, _ in found], pa.bool_()),
                    "error": pa.array([error for _, error in found], pa.string()),
                }
            )

    return rows.select(*message_columns(max_unpacked_bytes)).mapInArrow(
        match_rows, "physical_offset long, match boolean, error string"
    )


def _verdict(
    class_filter: ClassFilter, message: Message, context: FilterContext
) -> tuple[bool | None, str | None]:
    try:
        match = class_filter.match(message, context)
    except BodyTooLarge:
        return True, None
    except BaseException as failure:
        expect_no_control_c(failure)
        return None, f"{type(failure).__name__}: {text_of(failure)}"[:ERROR_CHARS]
    if not isinstance(match, bool):
        # Most likely a return is missing: taken as False, it would skip messages.
        return None, f"match returned {match!r}; expected True or False"[:ERROR_CHARS]
    return match, None


def _made(what: str, make: Callable[[], Any]) -> ClassFilter:
    try:
        made = make()
    except Exception as failure:
        raise BadInput(
            f"{what} cannot be made: {type(failure).__name__}: {failure}; expected a class that is made without arguments"
        ) from failure
    if not callable(getattr(made, "match", None)):
        raise BadInput(f"{what} has no method match(self, message, context); a class filter needs it")
    return made
