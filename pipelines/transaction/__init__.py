"""Half messages: held until their producer commits, rolls back, or does not answer."""

from pipelines.transaction.state import TransactionState

__all__ = ["TransactionState"]
