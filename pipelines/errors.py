"""Errors, told apart by what the caller should do."""


class StoreError(Exception):
    """A run failed; nothing is lost and it is safe to run it again. Says what was expected, found, and what next."""


class HeadMoved(StoreError):
    """Another writer came first. Nothing was written; plan again from the new head."""


class TableMissing(StoreError):
    """A table of the store is not there: its directory was deleted, or never finished."""


class BadInput(StoreError):
    """The arguments or the input are wrong; nothing was written. Mend them and run again."""


def in_words(failure: BaseException) -> str:
    """What is wrong with the content of a file: Python's own text of a missing key, say, is that key alone."""
    if isinstance(failure, KeyError):
        return f"it has no {failure}"
    if isinstance(failure, AttributeError | TypeError):
        return "a value is of another kind than in RocketMQ's files"
    return str(failure).strip().partition("\n")[0] or "it cannot be read"
