"""A listener that is content with everything."""

from typing import Any

from pipelines.consume import ConsumeStatus


def accept(message: Any) -> ConsumeStatus:
    return ConsumeStatus.CONSUME_SUCCESS
