"""Where a broker's log ends, as its own recovery would decide at the next start (docs/rocketmq/store.md 3.5).

Recovery starts at a segment up to whose first record the log is known to be sound, and follows the records and their CRCs
to the first that is not whole. The log before that segment is kept as it is, damage included.
"""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pipelines.broker_files.chain import Checks, RecordChain
from pipelines.broker_files.directory import BrokerDirectory
from pipelines.broker_files.segments import Segment
from pipelines.broker_files.survey import Survey

ABORT = "abort"
CHECKPOINT = "checkpoint"
# The checkpoint may be this many milliseconds ahead of what reached the disk.
CHECKPOINT_SLACK_MS = 3_000
# DLedger checks the entries of its last three files when it starts.
DLEDGER_RECOVERS_FILES = 3


@dataclass(frozen=True)
class RecoveryRules:
    """Settings of the broker that decide how it recovers."""

    checks: Checks
    index_is_safe: bool

    @classmethod
    def of(cls, conf: Mapping[str, str]) -> "RecoveryRules":
        def is_on(name: str, default: bool) -> bool:
            return conf.get(name, str(default)).strip().lower() == "true"

        checks = Checks(crc=is_on("checkCRCOnRecover", True), by_property=is_on("forceVerifyPropCRC", False))
        return cls(checks, is_on("messageIndexEnable", True) and is_on("messageIndexSafe", False))

    def checks_of(self, segment: Segment) -> Checks:
        """DLedger's own recovery checks its entries, not the CRCs of the records in them."""
        return self.checks if segment.committed_index is None else Checks()


@dataclass(frozen=True)
class Checkpoint:
    """Store times, epoch milliseconds, up to which log, queues and index had reached the disk; 0 without a checkpoint."""

    log_ms: int = 0
    queues_ms: int = 0
    index_ms: int = 0

    @classmethod
    def read(cls, directory: BrokerDirectory) -> "Checkpoint":
        content = directory.read(CHECKPOINT) or b""
        return cls(*struct.unpack_from(">qqq", content.ljust(24, b"\0")))

    @property
    def sound_ms(self) -> int:
        return max(0, min(self.log_ms, self.queues_ms) - CHECKPOINT_SLACK_MS)


def first_recovered(
    directory: BrokerDirectory, segments: Sequence[Segment], rules: RecoveryRules, queues_end: int
) -> int:
    """Index of the segment at which recovery starts.

    queues_end  physical offset up to which the consume queues cover the log; -1 without queues
    """
    if segments[-1].committed_index is not None:
        return _first_with_entries(directory, segments)
    was_aborted = directory.exists(ABORT)
    checkpoint = Checkpoint.read(directory)
    for index in range(len(segments) - 1, 0, -1):
        first = _first_record(directory, segments[index], rules.checks)
        if first is None or first.store_timestamp == 0:
            continue
        if rules.index_is_safe and first.store_timestamp > checkpoint.index_ms:
            continue
        if was_aborted and first.store_timestamp <= checkpoint.sound_ms:
            return index
        if not was_aborted and first.physical_offset <= queues_end:
            return index
    return 0


def _first_with_entries(directory: BrokerDirectory, segments: Sequence[Segment]) -> int:
    """DLedger starts at the last file but two, or before it where that one begins with something else than an entry."""
    first, *others = [index for index, one in enumerate(segments) if one.committed_index is not None]
    candidates = [first, *others][: max(len(others) + 2 - DLEDGER_RECOVERS_FILES, 1)]
    sound = (
        index
        for index in reversed(candidates)
        if _first_record(directory, segments[index], Checks()) is not None
    )
    return next(sound, first)


@dataclass(frozen=True)
class _FirstRecord:
    physical_offset: int
    store_timestamp: int


def _first_record(directory: BrokerDirectory, segment: Segment, checks: Checks) -> _FirstRecord | None:
    with directory.open(segment.path) as file:
        # One byte as the limit: the chain ends after its first record.
        chain = RecordChain(file, segment, 0, 1, checks=checks, piece_bytes=64 * 1024)
        for _, fields in chain.pieces():
            return _FirstRecord(int(fields.physical_offset[0]), int(fields.store_timestamp[0]))
    return None


@dataclass(frozen=True)
class LogEnd:
    """The end of a recovered log, a physical offset; `cut_reason` is None where only zeros follow.

    left_out  why what follows is not read yet, in words: entries that a DLedger group has not agreed on
    """

    offset: int
    cut_reason: str | None = None
    left_out: str | None = None

    @property
    def truncated_at(self) -> int | None:
        return None if self.cut_reason is None else self.offset


def log_end(surveys: Sequence[Survey]) -> LogEnd:
    """The end of the log from the surveys of the recovered segments, in order."""
    for index, survey in enumerate(surveys):
        later_surveys = surveys[index + 1 :]
        if survey.stopped == "uncommitted":
            return LogEnd(survey.end_offset, left_out=survey.reason)
        if survey.stopped == "blank" and later_surveys:
            continue
        lost = sum(later.records for later in later_surveys)
        is_unwritten = survey.stopped == "blank" or survey.rest_is_zero
        if is_unwritten and all(
            later.stopped == "broken" and later.rest_is_zero and not later.records for later in later_surveys
        ):
            # A blank that closes the last file is not part of the log: a broker that starts writes over it.
            return LogEnd(survey.end_offset)
        reason = survey.reason or "the segment is full and is not closed by a blank"
        if lost:
            reason += f"; {lost} whole records in later segments follow it"
        return LogEnd(survey.end_offset, reason)
    raise ValueError("a log without segments has no end")
