"""Reading as a consumer group: who reads which queue, what a listener says, how far each has come."""

from pipelines.consume.allocation import allocate
from pipelines.consume.status import ConsumeStatus
from pipelines.log.message import Message

__all__ = ["ConsumeStatus", "Message", "allocate"]
