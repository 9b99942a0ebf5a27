"""A counted input: what each split of it takes, and so which rows cannot be put and where all others may go."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from pyspark.sql import DataFrame

from pipelines.errors import BadInput
from pipelines.log.count import CountedSplit, CountRules, counted_splits
from pipelines.log.place import Placement, is_placed, place, with_places
from pipelines.produce.accepted_input import AcceptedInput
from pipelines.produce.inputs import Input, refusing_other_headers
from pipelines.produce.put_topics import PutTopics
from pipelines.rocketmq.record import BLANK_BYTES
from pipelines.store.head import LogHead

# Records of one append: the lock is held and a lost race is paid for this long (about ten seconds).
APPEND_BYTES = 2 * 1024**3
# A file is read once for each append that takes a part of it, so it is cut into few.
PARTS_OF_A_FILE = 8
# Sizes of all rows are brought to the driver at once (four bytes a row) for inputs up to this; larger ones by append.
COUNT_AT_ONCE_BYTES = 8 * 1024**3


@dataclass(frozen=True)
class CountedInput:
    """What counting found.

    given   the input as it was read and accepted
    splits  what each of them takes, in the order of the input
    rules   what it was counted by; `queue_nums` are those its rows' queues were worked out with
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
        """Of each of its topics, how many queues it was counted with."""
        return {topic: self.rules.queue_nums.of(topic) for topic in self.topics}

    def is_counted_for(self, topics: PutTopics) -> bool:
        """Whether those of its topics that are there have as many queues as they were counted with."""
        return all(
            topic not in topics.there or topics.there[topic].write_queue_nums == queues
            for topic, queues in self.queue_nums.items()
        )

    @property
    def is_out_of_order(self) -> bool:
        """Whether the arrival column does not ascend over the input. Raises BadInput where only some rows have one."""
        arrivals = [split.arrival for split in self.splits if split.arrival is not None]
        missing = sum(split.without_arrival for split in self.splits)
        if arrivals and missing:
            raise BadInput(
                f"arrival is missing in {missing} rows and given in others; give it in all rows or in none"
            )
        return any(not in_order for _, _, in_order in arrivals) or any(
            before[1] > after[0] for before, after in pairwise(arrivals)
        )

    def appends(self) -> Iterator[tuple[int, list[CountedSplit]]]:
        """The input cut into appends: (number of the first row, splits)."""
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
        """The same splits with the sizes of their rows, counted again where they were too many to keep."""
        if all(split.sizes is not None or split.units is not None for split in splits):
            return list(splits)
        wanted = {split.id for split in splits}
        rules = replace(self.rules, with_sizes=True)
        again = _counted(self.given, rules, self.bad_rows > 0, self._files_of(splits))
        return [split for split in again if split.id in wanted]

    def _files_of(self, splits: Sequence[CountedSplit]) -> list[int]:
        return sorted({self.source.hashes[split.id[0]] for split in splits})

    def expect_unchanged(self, splits: Sequence[CountedSplit]) -> None:
        """The files of these splits must be as they were counted. Raises StoreError where one has changed."""
        self.source.expect_unchanged(self.given.spark, self._files_of(splits))

    def place(
        self, splits: Sequence[CountedSplit], first_row: int, head: LogHead, store_timestamp: int
    ) -> Placement:
        """Where some splits with their sizes go, the first of whose rows is `first_row`, after `head`."""
        segment_bytes = self.given.rules.settings.segment_bytes
        return place(splits, first_row, head, segment_bytes, self.queue_nums, store_timestamp)

    def placed(self, placement: Placement) -> DataFrame:
        """The rows of a placement's splits, each with its place; `physical_offset` is null for a bad one."""
        files = sorted({self.source.hashes[file_hash] for file_hash, _ in placement.splits})
        messages = self.given.messages(files)
        if not self.bad_rows:
            messages = messages.drop("reason")  # which then need not be worked out
        counted = {split.id for split in self.splits if self.source.hashes[split.id[0]] in set(files)}
        if counted - set(placement.splits):
            messages = messages.where(is_placed(placement))
        return with_places(messages, placement)


def count_input(given: AcceptedInput, topics: PutTopics, split_batches: bool) -> CountedInput:
    """Count an input; rows for topics or queues that do not take them are among its bad rows."""
    counted = count_for(given, topics, split_batches)
    complaints = topics.complaints(counted.topics)
    overrun = overrun_queues(counted, topics)
    if not complaints and not overrun:
        return counted
    # Once more, to find which rows.
    rules = replace(given.rules, topic_complaints=complaints, queues_by_topic=overrun)
    return count_for(replace(counted.given, rules=rules), topics, split_batches)


def count_for(given: AcceptedInput, topics: PutTopics, split_batches: bool) -> CountedInput:
    """Count an input with the queues that its topics have, whether or not they take its rows."""
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
        # Batches are found in files read as a whole: a split could cut one.
        given = replace(given, whole_files=True)
        if len({split.id[0] for split in splits}) < len(splits):
            splits = _counted(given, replace(rules, with_sizes=True))
    return CountedInput(given, tuple(splits), rules)


def overrun_queues(counted: CountedInput, topics: PutTopics) -> dict[str, int]:
    """Topics to whose queues some row asks for one too many: topic -> queues."""
    return topics.overrun(
        queue for split in counted.splits for queue in (*split.rows_by_queue, *split.parked_for)
    )


def _counted(
    given: AcceptedInput, rules: CountRules, with_reasons: bool = True, files: Sequence[int] | None = None
) -> list[CountedSplit]:
    with refusing_other_headers(given.source):
        slim = given.messages(files).select(*given.slim_columns(with_reasons))
        counted = counted_splits(slim, rules)
    return sorted(counted, key=lambda split: (given.source.hashes[split.id[0]], split.id[1]))
