"""Listeners: one is content with everything, the other with nothing."""

from typing import Any

from pipelines.consume import ConsumeStatus


def accept(message: Any) -> ConsumeStatus:
    return ConsumeStatus.CONSUME_SUCCESS


def refuse(message: Any) -> ConsumeStatus:
    raise ValueError("out of stock")
