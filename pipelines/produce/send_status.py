"""What a put tells its producer: whether slaves have its messages too (docs/rocketmq/consume-filter-ha.md 5.4)."""

from collections.abc import Callable
from enum import StrEnum

from tenacity import RetryError, Retrying, retry_if_result, stop_after_delay, wait_fixed

from pipelines.store.replicas import is_acknowledged, read_slaves
from pipelines.store.role import settings_now
from pipelines.store.snapshot import Snapshot
from pipelines.store.work import Work

# How long to wait until the table of replicas is read again: a slave's report is a commit, a second or so.
SECONDS_BETWEEN_LOOKS = 0.25


class SendStatus(StrEnum):
    """RocketMQ's words for what happened to messages that are in the log.

    FLUSH_SLAVE_TIMEOUT  the slaves that the put waits for do not have them yet; they follow, and nothing need be put again
    """

    SEND_OK = "SEND_OK"
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"


def await_replicas(work: Work, end: Callable[[], int], wait_ms: int | None) -> SendStatus:
    """Wait until enough slaves have the log up to an end, at most `wait_ms`; None: only a SYNC_MASTER looks, once.

    So a put of an ASYNC_MASTER without --wait-for-replicas is done as soon as its messages are in the log.
    """
    at = work.store.snapshot()
    if wait_ms is None and settings_now(at)["brokerRole"] != "SYNC_MASTER":
        return SendStatus.SEND_OK
    offset = end()
    if is_acknowledged(at, offset):
        return SendStatus.SEND_OK
    if wait_ms:
        work.say(f"waiting at most {wait_ms:,} ms until slaves have the log up to byte {offset:,}")
    looks = Retrying(
        stop=stop_after_delay((wait_ms or 0) / 1_000),
        wait=wait_fixed(SECONDS_BETWEEN_LOOKS),
        retry=retry_if_result(lambda is_there: not is_there),
    )
    try:
        looks(lambda: is_acknowledged(work.store.snapshot(), offset))
    except RetryError:
        work.warn(f"FLUSH_SLAVE_TIMEOUT: {_who_lacks(work.store.snapshot(), offset)}")
        return SendStatus.FLUSH_SLAVE_TIMEOUT
    return SendStatus.SEND_OK


def _who_lacks(at: Snapshot, offset: int) -> str:
    settings, slaves = settings_now(at), read_slaves(at)
    lacking = [f"{name} has it up to byte {each.acked_offset}" for name, each in sorted(slaves.items())]
    need = (
        "all copies that are in sync"
        if settings["allAckInSyncStateSet"]
        else f"{settings['inSyncReplicas']} copies"
    )
    return (
        f"the messages are in the log, up to byte {offset}, but not yet in {need}, this store included "
        f"({'; '.join(lacking) or 'no slave has reported'}). Nothing need be put again; run `commitlake replicate` for the "
        "slaves"
    )
