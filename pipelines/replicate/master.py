"""A slave's master as of one moment: its log up to the last whole append, and what it has beside the log."""

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipelines.errors import BadInput, StoreError
from pipelines.store.epochs import Epochs, read_epochs
from pipelines.store.head import LogHead, Queue, bounds_of, read_head
from pipelines.store.lock import is_inside, is_same_directory
from pipelines.store.role import is_slave, master_of, settings_now
from pipelines.store.snapshot import Snapshot
from pipelines.store.store import Store
from schemas import COMMITLOG, CONSUMER_OFFSETS
from schemas.queue_bounds import LOG_TOPIC


@dataclass(frozen=True)
class Master:
    """The store that is followed, and one snapshot of it.

    head    its log head: all that a slave may have of the log now
    epochs  its epochs; of a slave that is to be promoted those that it will have
    """

    store: Store
    at: Snapshot
    head: LogHead
    epochs: Epochs

    @classmethod
    def read(cls, store: Store) -> "Master":
        """The master as it is now.

        Raises BadInput for a store that is a slave itself, and StoreError where its last append is not as planned: a slave
        must not have what a repair will cut off.
        """
        at = store.snapshot()
        if is_slave(at):
            raise BadInput(
                f"--master is {store.uri}, which is a slave itself{_of(at)}: a slave follows a master. Name that one; where "
                f"a promotion was stopped halfway, `commitlake promote --store {store.uri}` ends it"
            )
        # Pinned before the log, so that no group is further on than the rows that are copied.
        at.version(CONSUMER_OFFSETS)
        try:
            return cls(store, at, read_head(at), read_epochs(at))
        except StoreError as failure:
            raise StoreError(f"the master at {store.uri} must be repaired first: {failure}") from failure

    @property
    def uri(self) -> str:
        return self.store.uri

    @property
    def end(self) -> int:
        """Where its log ends, bytes."""
        return self.head.next_offset

    def reaching(self, offset: int) -> "Master":
        """This one, or the master as it is now where a slave has more than it had: another run has copied that since."""
        return self if offset <= self.end else Master.read(self.store)

    def rows_from(self, offset: int) -> DataFrame:
        """The log's rows from an offset on; only the files of their segments are read."""
        return rows_from(self.at, offset)

    def queues_from(self, offset: int) -> Mapping[Queue, int]:
        """Where each queue begins for a log that begins at an offset: at its first message there, else at its end."""
        return queues_from(self.at, self.head, offset)


def rows_from(at: Snapshot, offset: int) -> DataFrame:
    """As Master.rows_from, of any log."""
    first_segment = offset - offset % settings_now(at).segment_bytes
    return at.read(COMMITLOG).where(
        (F.col("segment") >= first_segment) & (F.col("physical_offset") >= offset)
    )


def queues_from(at: Snapshot, head: LogHead, offset: int) -> Mapping[Queue, int]:
    """As Master.queues_from, of any log."""
    found = bounds_of(rows_from(at, offset)).collect()  # a row a queue, as in the head
    begins = {(row.topic, row.queue_id): row.min_offset for row in found if row.topic != LOG_TOPIC}
    return {**head.next_queue_offsets, **begins}


def _of(at: Snapshot) -> str:
    master = master_of(at)
    return "" if master is None else f" (of {master})"


def open_master(slave: Store, uri: str) -> Store:
    """The store at the URI of a master.

    Raises BadInput where there is none, where it is the slave's own directory, and for a slave among the master's tables.
    """
    if not uri.strip():
        raise BadInput(
            "--master is empty; name the store to follow, or leave it out for the one followed before"
        )
    master = Store(slave.spark, uri)
    if is_same_directory(slave.uri, master.uri):
        raise BadInput(f"--master is {master.uri}, which is the slave's own directory; name the master's")
    if is_inside(slave.uri, master.uri):
        raise BadInput(
            f"--store is {slave.uri}, which lies in the master's directory {master.uri}; name a directory elsewhere"
        )
    if not master.exists():
        master.expect_no_backup()
        raise BadInput(f"--master is {master.uri}, where there is no store; nothing was written")
    return master
