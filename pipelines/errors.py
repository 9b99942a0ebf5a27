"""Errors, a class for each remedy. A message that reaches a user says what was expected, what was found, what to do next."""


class StoreError(Exception):
    """A job run failed and nothing is lost. Remedy: do what the message says, if it says anything, and run it again."""


class HeadMoved(StoreError):
    """Another writer came first, and this write added nothing to its table.

    Remedy: `commit` plans again from the new head. A user reads it only when every attempt has failed, and runs it again.
    """


class TableMissing(StoreError):
    """A table of the store does not exist: its directory was deleted, or never finished.

    Remedy: run the command that makes it, which the message names; dispatch makes derived tables by itself.
    """


class BadInput(StoreError):
    """The arguments or the input are wrong; nothing was written. Remedy: correct them and run again."""


def in_words(failure: BaseException) -> str:
    """What is wrong with the content of a file, in words: Python's own text of a KeyError, say, is the key alone."""
    if isinstance(failure, KeyError):
        return f"it has no {failure}"
    if isinstance(failure, AttributeError | TypeError):
        return "a value is of another kind than in RocketMQ's files"
    return str(failure).strip().partition("\n")[0] or "it cannot be read"
