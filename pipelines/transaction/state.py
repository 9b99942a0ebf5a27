"""The states that a producer returns for its transaction."""

from enum import Enum


class TransactionState(Enum):
    """The outcome of a local transaction: what `execute` and `check` return."""

    COMMIT = "COMMIT"
    ROLLBACK = "ROLLBACK"
    UNKNOWN = "UNKNOWN"
