"""A broker's log, recovered: its segments, its end, and its next rows for an append."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from pyspark.sql import SparkSession

from pipelines.broker_files.chain import Checks, RecordChain, Skipped
from pipelines.broker_files.directory import BrokerDirectory
from pipelines.broker_files.queue_bounds import QueueBounds, queue_names, read_queue_bounds
from pipelines.broker_files.recovery import ABORT, LogEnd, RecoveryRules, first_recovered, log_end
from pipelines.broker_files.rows import Piece
from pipelines.broker_files.segments import Segment, read_segments
from pipelines.broker_files.survey import Survey, SurveyTask, survey_segments
from pipelines.store.plan import Planned

# Bytes of a split: some seconds of work for a task, and a file of a few dozen megabytes in the table.
PIECE_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True)
class NextRows:
    """The rows of one append: the log's records in [from_offset, to_offset).

    pieces        the splits that they are read in
    records       their number, by the survey; None where the survey began before them or went on after them
    first_offset  physical offset of the first; None where it is not known
    """

    pieces: list[Piece]
    from_offset: int
    to_offset: int
    records: int | None = None
    first_offset: int | None = None

    @property
    def planned(self) -> Planned:
        """What the append of these rows holds."""
        return Planned(self.records, self.first_offset, None, self.to_offset)

    @property
    def segments(self) -> set[int]:
        return {piece.segment.start_offset for piece in self.pieces}


@dataclass
class BrokerLog:
    """The log in a broker's directory as its own recovery would leave it.

    recovered_from  index of the segment at which recovery starts; damage before it is skipped and reported
    surveys         surveys of segments so far, by the segment's start offset
    queues          bounds of the queues that have files
    """

    spark: SparkSession
    directory: BrokerDirectory
    segments: Sequence[Segment]
    segment_bytes: int
    recovered_from: int
    end: LogEnd
    queues: list[QueueBounds]
    surveys: dict[int, Survey] = field(default_factory=dict)

    @classmethod
    def read(
        cls,
        spark: SparkSession,
        directory: BrokerDirectory,
        conf: Mapping[str, str],
        piece_bytes: int = PIECE_BYTES,
    ) -> "BrokerLog":
        """The log; its end is found in its last segments with a broker's checks. BadInput where a broker would not start."""
        segments, segment_bytes = read_segments(directory, conf)
        names = queue_names(directory)
        if not segments:
            # Without a log a broker drops its queues.
            return cls(spark, directory, [], segment_bytes, 0, LogEnd(0), [])
        start = segments[0].start_offset
        queues = read_queue_bounds(spark, directory, names, start, None)
        queues_end = max((queue.last_end for queue in queues), default=-1)
        rules = RecoveryRules.of(conf)
        recovered_from = first_recovered(directory, segments, rules, queues_end)
        tasks = [
            SurveyTask(
                segment,
                segment.start_offset,
                segment.end_offset,
                rules.checks_of(segment),
                False,
                piece_bytes,
            )
            for segment in segments[recovered_from:]
        ]
        surveys = survey_segments(spark, directory, tasks)
        end = log_end(surveys)
        if queues_end > end.offset:
            queues = read_queue_bounds(spark, directory, names, start, end.offset)
        by_start = {survey.start_offset: survey for survey in surveys}
        return cls(spark, directory, segments, segment_bytes, recovered_from, end, queues, by_start)

    @property
    def start_offset(self) -> int:
        return self.segments[0].start_offset if self.segments else 0

    @property
    def queues_end(self) -> int:
        """Physical offset up to which the consume queues cover the log."""
        return max([0, *(queue.last_end for queue in self.queues)])

    def queue_ends(self) -> dict[tuple[str, int], int]:
        """The next offset of each queue, by its files and by the records surveyed so far."""
        ends = {(queue.topic, queue.queue_id): queue.next_offset for queue in self.queues}
        for survey in self.surveyed(self.start_offset, self.end.offset):
            for topic, queue_id, _, next_offset, _ in survey.queues:
                ends[topic, queue_id] = max(next_offset, ends.get((topic, queue_id), 0))
        return ends

    def begun_again(self) -> list[tuple[str, int]]:
        """Queues, in the segments surveyed so far, that began again at 0: their topic was deleted and made again.

        Of those the log has more messages than there are offsets, or messages after where the broker's own files end.
        """
        first: dict[tuple[str, int], int] = {}
        following: dict[tuple[str, int], int] = {}
        taken = Counter[tuple[str, int]]()
        ends = {(queue.topic, queue.queue_id): queue.next_offset for queue in self.queues}
        found = set()
        # Queue files of a broker that runs, or was killed, are not all of one moment.
        are_whole = not self.directory.exists(ABORT)
        for survey in self.surveyed(self.start_offset, self.end.offset):
            # What follows the queues' end had not been dispatched when the broker went down.
            is_dispatched = min(survey.end_offset, self.end.offset) <= self.queues_end
            for topic, queue_id, least, next_offset, count in survey.queues:
                queue = (topic, queue_id)
                first[queue] = min(least, first.get(queue, least))
                following[queue] = max(next_offset, following.get(queue, 0))
                taken[queue] += count
                if are_whole and is_dispatched and next_offset > ends.get(queue, next_offset):
                    found.add(queue)
        found |= {queue for queue, count in taken.items() if count > following[queue] - first[queue]}
        return sorted(found)

    def next_rows(self, from_offset: int, append_bytes: int) -> NextRows:
        """The records from `from_offset` on: whole segments until `append_bytes` are reached or the log ends.

        from_offset  where a record starts, or the blank or the end after the last one
        """
        pieces: list[Piece] = []
        records: int | None = 0
        first_offset = None
        to_offset = from_offset
        for first in range(self._index_of(from_offset), len(self.segments)):
            segment = self.segments[first]
            is_enough = bool(pieces) and to_offset - from_offset >= append_bytes
            if segment.start_offset >= self.end.offset or is_enough:
                break
            if segment.start_offset not in self.surveys:
                self._survey_ahead(first, from_offset, append_bytes)
            begin = max(segment.start_offset, from_offset)
            survey = self._survey_from(first, begin)
            found = self._pieces(first, begin, survey)
            if found and not pieces:
                first_offset = self._first_record(found[0], survey)
            pieces += found
            is_whole = begin == survey.from_offset and survey.end_offset <= self.end.offset
            records = records + survey.records if is_whole and records is not None else None
            to_offset = min(segment.end_offset, self.end.offset)
        return NextRows(pieces, from_offset, to_offset, records, first_offset)

    def _first_record(self, piece: Piece, survey: Survey) -> int | None:
        """Physical offset of the first record of a split; None where damage may come before it."""
        first = survey.borders[0]
        if piece.from_offset <= first:
            return first + piece.segment.header_bytes
        return None if piece.skip_damage else piece.from_offset

    def _survey_from(self, index: int, begin: int) -> Survey:
        """A survey of a segment that says which record is the first from `begin` on, and whether there is one."""
        segment = self.segments[index]
        survey = self.surveys[segment.start_offset]
        end = min(survey.end_offset, self.end.offset)
        if not segment.header_bytes or begin <= survey.from_offset or begin >= end:
            return survey
        # A whole entry of DLedger may hold no record, also where the log is sound by its recovery: the first record may
        # come later than the entry at `begin`, or not at all.
        task = SurveyTask(segment, begin, end, Checks(), index < self.recovered_from, PIECE_BYTES)
        (following,) = survey_segments(self.spark, self.directory, [task])
        return following

    def surveyed(self, from_offset: int, to_offset: int) -> list[Survey]:
        """Surveys of the segments of an append, as far as they exist."""
        starts = [segment.start_offset for segment in self.segments if segment.end_offset > from_offset]
        return [self.surveys[start] for start in starts if start < to_offset and start in self.surveys]

    def damage(self) -> list[Skipped]:
        """Damage that was skipped in the segments surveyed so far, in order."""
        return [skipped for start in sorted(self.surveys) for skipped in self.surveys[start].skipped]

    def displaced(self) -> int:
        """Number of records, in the segments surveyed so far, whose own offset is not where they lie."""
        return sum(survey.displaced for survey in self.surveys.values())

    def torn(self) -> tuple[int, int] | None:
        """(number, offset of the first) of records that end in zeros in the segments surveyed so far; None without any."""
        firsts = [survey.first_torn for survey in self.surveys.values() if survey.first_torn is not None]
        return (sum(survey.torn for survey in self.surveys.values()), min(firsts)) if firsts else None

    def record_at(self, offset: int) -> tuple[int, int, int, int, int] | None:
        """(length, body CRC, queue, queue offset, store time) of the record at an offset; None where there is none."""
        segment = next((one for one in self.segments if one.start_offset <= offset < one.end_offset), None)
        if segment is None:
            return None
        at = offset - segment.header_bytes - segment.start_offset
        with self.directory.open(segment.path) as file:
            chain = RecordChain(file, segment, at, at + 1, piece_bytes=64 * 1024)
            for _, found in chain.pieces():
                columns = (
                    found.sizes,
                    found.body_crc,
                    found.queue_id,
                    found.queue_offset,
                    found.store_timestamp,
                )
                length, body_crc, queue_id, queue_offset, store_timestamp = (
                    int(column[0]) for column in columns
                )
                return length, body_crc, queue_id, queue_offset, store_timestamp
        return None

    def _index_of(self, offset: int) -> int:
        return max((offset - self.start_offset) // self.segment_bytes, 0) if self.segments else 0

    def _survey_ahead(self, first: int, from_offset: int, append_bytes: int) -> None:
        """Survey in parallel the segments of one append that lie before the recovered ones."""
        count = max(-(-append_bytes // self.segment_bytes), 1)
        ahead = self.segments[first : self.recovered_from][:count]
        tasks = [
            SurveyTask(one, max(one.start_offset, from_offset), one.end_offset, Checks(), True, PIECE_BYTES)
            for one in ahead
            if one.start_offset not in self.surveys
        ]
        for found in survey_segments(self.spark, self.directory, tasks):
            self.surveys[found.start_offset] = found

    def _pieces(self, index: int, begin: int, survey: Survey) -> list[Piece]:
        segment = self.segments[index]
        end = min(survey.end_offset, self.end.offset)
        if not survey.records or begin >= end:
            return []
        borders = [begin, *(border for border in survey.borders if begin < border < end), end]
        skip_damage = index < self.recovered_from
        return [
            Piece(segment, at, following, skip_damage, is_surveyed=True)
            for at, following in pairwise(borders)
        ]
