"""Epochs: who was master from which offset on, and up to where two logs are one (docs/rocketmq/consume-filter-ha.md 5.5)."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from pipelines.errors import BadInput
from pipelines.rocketmq.settings import INT_MAX
from pipelines.store.snapshot import Snapshot
from schemas import EPOCHS

LOG_BEGINS = 0

# The greatest number that may be chosen: each later promotion needs a greater one, and an epoch's number is an int.
MOST_CHOSEN = 2_000_000_000


@dataclass(frozen=True, order=True)
class Epoch:
    """One master's time: its number, and the physical offset of its first message."""

    epoch: int
    start_offset: int


# Of a store that nobody has promoted: its log is of one master from its first byte.
FIRST_EPOCH = Epoch(1, LOG_BEGINS)

Epochs = Sequence[Epoch]


def read_epochs(at: Snapshot) -> Epochs:
    """The epochs of a store, the oldest first.

    Every log has the first one. A store that an earlier version promoted while its log was empty has no row of it.
    """
    return sorted({FIRST_EPOCH, *(Epoch(row.epoch, row.start_offset) for row in at.rows(EPOCHS))})


def consistent_point(own: Epochs, own_end: int, masters: Epochs, masters_end: int) -> int | None:
    """The offset up to which a log and its master's are one by their epochs; None where they share no epoch.

    >>> own = [Epoch(1, 0), Epoch(2, 300), Epoch(3, 500)]
    >>> masters = [Epoch(1, 0), Epoch(2, 300), Epoch(4, 700)]
    >>> consistent_point(own, 800, masters, 1000), consistent_point([Epoch(9, 0)], 800, masters, 1000)
    (500, None)
    >>> consistent_point([Epoch(1, 0)], 600, masters, 1000)
    300

    The last epochs of a slave may begin after what it has of its master's log:

    >>> consistent_point(masters, 600, masters[:2], 1000)
    600

    With a master that was promoted while its log was empty a store shares no byte:

    >>> consistent_point([Epoch(1, 0)], 600, [Epoch(1, 0), Epoch(2, 0)], 1000)
    0
    """
    ends_of_master = _ends(masters, masters_end)
    for epoch, end in sorted(_ends(own, own_end).items(), reverse=True):
        if epoch in ends_of_master:
            return min(end, ends_of_master[epoch], own_end)
    return None


def _ends(epochs: Epochs, log_end: int) -> dict[Epoch, int]:
    """Where each epoch ends: where the next one starts, the last one at the log's end."""
    in_order = sorted(epochs)
    ends = {epoch: following.start_offset for epoch, following in pairwise(in_order)}
    return {**ends, in_order[-1]: log_end}


def epochs_before(epochs: Epochs, offset: int) -> Epochs:
    """The epochs that have begun before an offset, and the first of all: a log without a message has it too."""
    return [epoch for epoch in sorted(epochs) if epoch.start_offset < offset] or [min(epochs)]


def with_promotion(epochs: Epochs, log_end: int, number: int | None) -> Epochs:
    """The epochs once a store becomes master at its log's end; an epoch without a message gives way, but for the first.

    number  of the new epoch; None: the one after the last

    >>> with_promotion([Epoch(1, 0), Epoch(2, 500)], 500, None)
    [Epoch(epoch=1, start_offset=0), Epoch(epoch=3, start_offset=500)]

    The first one is what all copies of the log have in common, also where it has no message yet:

    >>> with_promotion([Epoch(1, 0)], 0, None)
    [Epoch(epoch=1, start_offset=0), Epoch(epoch=2, start_offset=0)]

    Raises BadInput for a number that is not after the last one, or where an int holds no later one.
    """
    last = max(epochs)
    if number is not None and number <= last.epoch:
        raise BadInput(
            f"--epoch is {number}; the store's last epoch is {last.epoch}, from byte {last.start_offset} on: give a "
            "greater number, or none"
        )
    if (last.epoch if number is None else number - 1) >= INT_MAX:
        raise BadInput(
            f"the epoch would be {(last.epoch + 1) if number is None else number}, and an epoch's number is an int, at most "
            f"{INT_MAX}: no later epoch can begin. A new store begins at 1: `commitlake export_store`, then `import_store`"
        )
    return [*epochs_before(epochs, log_end), Epoch(last.epoch + 1 if number is None else number, log_end)]
