"""The status that a listener returns for messages, and the contexts that listeners and hooks get with them."""

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

# RocketMQ's default of ackIndex: all messages of the batch succeeded.
ALL = 2**31 - 1


class ConsumeStatus(Enum):
    """What a listener returns. The last two are for orderly ones: done, or the queue waits and the batch comes again."""

    CONSUME_SUCCESS = "CONSUME_SUCCESS"
    RECONSUME_LATER = "RECONSUME_LATER"
    SUCCESS = "SUCCESS"
    SUSPEND_CURRENT_QUEUE_A_MOMENT = "SUSPEND_CURRENT_QUEUE_A_MOMENT"

    @property
    def is_success(self) -> bool:
        return self in (ConsumeStatus.CONSUME_SUCCESS, ConsumeStatus.SUCCESS)


@dataclass
class ConsumeContext:
    """What a listener gets with a batch, and may change (docs/rocketmq/consume-filter-ha.md 2.6).

    ack_index                      the last message of the batch that succeeded, counted from 0; those after it failed
    delay_level_when_next_consume  of failed messages: -1 dead letter, 0 the level by their number of retries, above 0
                                   that level
    """

    group: str
    topic: str
    queue_id: int
    ack_index: int = ALL
    delay_level_when_next_consume: int = 0


@dataclass
class ConsumeMessageContext:
    """What a hook gets before and after each call of the listener (docs/rocketmq/consume-filter-ha.md 2.6).

    status       the listener's status, by name; None before
    return_type  SUCCESS, TIME_OUT, EXCEPTION, RETURNNULL or FAILED; None before
    props        the hook's own, kept from before to after
    """

    group: str
    topic: str
    queue_id: int
    messages: list[Any]
    success: bool = False
    status: str | None = None
    return_type: str | None = None
    props: dict[str, Any] = field(default_factory=dict)
