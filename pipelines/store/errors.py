"""Errors, told apart by what the caller should do."""


class StoreError(Exception):
    """A run failed; nothing is lost and it is safe to run it again. Says what was expected, found, and what next."""


class HeadMoved(StoreError):
    """Another writer came first. Nothing was written; plan again from the new head."""


class BadInput(StoreError):
    """The arguments or the input are wrong; nothing was written. Mend them and run again."""
