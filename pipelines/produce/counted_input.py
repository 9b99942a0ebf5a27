"""A counted input: rows and bytes of each split, from which follow the bad rows and the offsets of all others."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

from pyspark.sql import DataFrame

from pipelines.errors import BadInput
from pipelines.log.count import CountedSplit, CountRules, counted_splits
from pipelines.log.place import Placement, is_placed, place, with_places
from pipelines.produce.accepted_input import AcceptedInput
from pipelines.produce.inputs import Input, refusing_other_headers
from pipelines.produce.put_topics import PutTopics
from pipelines.rocketmq.record import BLANK_BYTES
from pipelines.store.head import LogHead

# Bytes of records in one append: about ten seconds, for which the lock is held and which a lost race costs.
APPEND_BYTES = 2 * 1024**3
# A file is cut into about this many appends at most, since each of them reads the file once.
PARTS_OF_A_FILE = 8
# For inputs up to this size the sizes of all rows come to the driver at once (four bytes a row); for larger ones by append.
COUNT_AT_ONCE_BYTES = 8 * 1024**3


@dataclass(frozen=True)
class CountedInput:
    """An accepted input and its counts.

    given   the accepted input that was counted
    splits  the counts of each split, in the order of the input
    rules   the rules of counting; its `queue_nums` decided the rows' queues
    """

    given: AcceptedInput
    splits: tuple[CountedSplit, ...]
    rules: CountRules

    @property
    def source(self) -> Input:
        return self.given.source

    @property
    def rows(self) -> int:
        return sum(split.rows for split in self.splits)

    @property
    def good_rows(self) -> int:
        return sum(split.good_rows for split in self.splits)

    @property
    def bad_rows(self) -> int:
        return sum(split.bad_rows for split in self.splits)

    @property
    def topics(self) -> frozenset[str]:
        return frozenset(topic for split in self.splits for topic in split.topics)

    @property
    def queue_nums(self) -> dict[str, int]:
        """Topic -> the number of queues that it was counted with."""
        return {topic: self.rules.queue_nums.of(topic) for topic in self.topics}

    def is_counted_for(self, topics: PutTopics) -> bool:
        """Whether each of its topics that exists has as many queues as it was counted with."""
        return all(
            topic not in topics.there or topics.there[topic].write_queue_nums == queues
            for topic, queues in self.queue_nums.items()
        )

    def agrees_with(self, parts: Mapping[tuple[int, int], int]) -> bool:
        """Whether ranges of its rows have as many good rows as are given for each."""
        firsts = [0, *accumulate(split.rows for split in self.splits)]
        good = [0, *accumulate(split.good_rows for split in self.splits)]
        before = dict(zip(firsts, good, strict=True))
        return all(
            first in before and to in before and before[to] - before[first] == rows
            for (first, to), rows in parts.items()
        )

    @property
    def is_out_of_order(self) -> bool:
        """Whether `arrival` descends anywhere among the good rows. Raises BadInput where only some of them have one."""
        arrivals = [split.arrival for split in self.splits if split.arrival is not None]
        missing = sum(split.without_arrival for split in self.splits)
        if arrivals and missing:
            raise BadInput(
                f"arrival is missing in {missing} rows that can be put and given in others; give it in all rows or in none"
            )
        return any(not in_order for _, _, in_order in arrivals) or any(
            before[1] > after[0] for before, after in pairwise(arrivals)
        )

    def appends(self) -> Iterator[tuple[int, list[CountedSplit]]]:
        """The input cut into appends: (input_row of the first row, splits)."""
        bytes_of_file = Counter[int]()
        for split in self.splits:
            bytes_of_file[split.id[0]] += split.size_bytes
        limit = max(APPEND_BYTES, max(bytes_of_file.values(), default=0) // PARTS_OF_A_FILE)
        part: list[CountedSplit] = []
        first = following = part_bytes = 0
        for split in self.splits:
            if part and part_bytes + split.size_bytes > limit:
                yield first, part
                first, part, part_bytes = following, [], 0
            part.append(split)
            part_bytes += split.size_bytes
            following += split.rows
        if part:
            yield first, part

    def with_sizes(self, splits: Sequence[CountedSplit]) -> list[CountedSplit]:
        """The same splits with the sizes of their rows; counted again where there were too many sizes to keep."""
        if all(split.sizes is not None or split.units is not None for split in splits):
            return list(splits)
        wanted = {split.id for split in splits}
        rules = replace(self.rules, with_sizes=True)
        again = _counted(self.given, rules, self.bad_rows > 0, self._files_of(splits))
        return [split for split in again if split.id in wanted]

    def _files_of(self, splits: Sequence[CountedSplit]) -> list[int]:
        return sorted({self.source.hashes[split.id[0]] for split in splits})

    def expect_unchanged(self, splits: Sequence[CountedSplit]) -> None:
        """Raises StoreError where a file of these splits has changed since it was counted."""
        self.source.expect_unchanged(self.given.spark, self._files_of(splits))

    def place(
        self, splits: Sequence[CountedSplit], first_row: int, head: LogHead, store_timestamp: int
    ) -> Placement:
        """Where the rows of some splits with sizes go after `head`; the first row's number in the input is `first_row`."""
        segment_bytes = self.given.rules.settings.segment_bytes
        return place(splits, first_row, head, segment_bytes, self.queue_nums, store_timestamp)

    def placed(self, placement: Placement) -> DataFrame:
        """The rows of a placement's splits with their offsets; `physical_offset` is null for a bad row."""
        files = sorted({self.source.hashes[file_hash] for file_hash, _ in placement.splits})
        messages = self.given.messages(files)
        if not self.bad_rows:
            messages = messages.drop("reason")  # so that Spark does not compute it
        counted = {split.id for split in self.splits if self.source.hashes[split.id[0]] in set(files)}
        if counted - set(placement.splits):
            messages = messages.where(is_placed(placement))
        return with_places(messages, placement)


def count_input(given: AcceptedInput, topics: PutTopics, split_batches: bool) -> CountedInput:
    """The counted input; rows for topics or queues that do not take them are among its bad rows."""
    counted = count_for(given, topics, split_batches)
    complaints = topics.complaints(counted.topics)
    overrun = overrun_queues(counted, topics)
    if not complaints and not overrun:
        return counted
    # Count again, to find the rows.
    rules = replace(given.rules, topic_complaints=complaints, queues_by_topic=overrun)
    return count_for(replace(counted.given, rules=rules), topics, split_batches)


def count_for(given: AcceptedInput, topics: PutTopics, split_batches: bool) -> CountedInput:
    """The input counted with the queues that its topics have, whether or not they take its rows."""
    settings = given.rules.settings
    rules = CountRules(
        topics.queue_nums,
        settings.max_message_bytes,
        with_sizes=given.source.size_bytes <= COUNT_AT_ONCE_BYTES,
        split_batches=split_batches,
        max_unit_bytes=settings.segment_bytes - BLANK_BYTES,
    )
    splits = _counted(given, rules)
    if any(split.units is not None for split in splits) and not given.whole_files:
        # Batches are found in whole files: the border of a split could cut one.
        given = replace(given, whole_files=True)
        if len({split.id[0] for split in splits}) < len(splits):
            splits = _counted(given, replace(rules, with_sizes=True))
    return CountedInput(given, tuple(splits), rules)


def overrun_queues(counted: CountedInput, topics: PutTopics) -> dict[str, int]:
    """Topics where some row's queue_id is too large: topic -> number of its queues."""
    return topics.overrun(
        queue for split in counted.splits for queue in (*split.rows_by_queue, *split.parked_for)
    )


def _counted(
    given: AcceptedInput, rules: CountRules, with_reasons: bool = True, files: Sequence[int] | None = None
) -> list[CountedSplit]:
    with refusing_other_headers(given.source):
        slim = given.messages(files).select(*given.slim_columns(with_reasons))
        counted = counted_splits(slim, rules, given.source.is_short)
    return sorted(counted, key=lambda split: (given.source.hashes[split.id[0]], split.id[1]))
