"""Errors, told apart by the remedy. What reaches a user says what was expected, what was found, and what the user can do."""


class StoreError(Exception):
    """A run failed and nothing is lost. Remedy: do what the sentence says, if it says anything, and run it again."""


class HeadMoved(StoreError):
    """Another writer came first, and this write added nothing to its table.

    Remedy: `commit` plans again from the new head. A user reads it only when every attempt was lost, and runs it again.
    """


class TableMissing(StoreError):
    """A table of the store is not there: its directory was deleted, or never finished.

    Remedy: the command that makes it, which the sentence names; dispatch makes what is derived by itself.
    """


class BadInput(StoreError):
    """The arguments or the input are wrong; nothing was written. Remedy: correct them and run again."""


def in_words(failure: BaseException) -> str:
    """What is wrong with the content of a file: Python's own text of a missing key, say, is that key alone."""
    if isinstance(failure, KeyError):
        return f"it has no {failure}"
    if isinstance(failure, AttributeError | TypeError):
        return "a value is of another kind than in RocketMQ's files"
    return str(failure).strip().partition("\n")[0] or "it cannot be read"
