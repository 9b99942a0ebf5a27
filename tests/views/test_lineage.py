"""The view message_lineage of rows that a broker wrote: what its copies have in common tells what they are copies of."""

from collections.abc import Callable

from pipelines.rocketmq.message_ids import message_id_of
from pipelines.store.store import Store
from tests.life import HALF, SCHEDULE, Life, raw


def told(store: Store) -> dict[int, tuple[int, bool]]:
    rows = store.message_lineage.collect()
    return {row.physical_offset: (row.origin_offset, row.inferred) for row in rows}


def test_a_brokers_copies_share_the_origin_that_their_properties_name(life: Callable[..., Life]) -> None:
    store = life()
    imported = {"append_id": "import:broker"}
    half, parked, plain = store.append(
        {"topic": HALF, "properties": raw(UNIQ_KEY="k1"), **imported},
        {"topic": SCHEDULE, "properties": raw(UNIQ_KEY="k2", REAL_TOPIC="T"), **imported},
        {"topic": "T", **imported},
    )
    first_id = message_id_of(plain.store_host, plain.physical_offset)
    committed, keyless, delivered, again, dead, odd, huge = store.append(
        {"sys_flag": 8, "prepared_transaction_offset": half.physical_offset, "properties": raw(UNIQ_KEY="k1"), **imported},
        {"sys_flag": 8, "prepared_transaction_offset": half.physical_offset, **imported},
        {"properties": raw(UNIQ_KEY="k2"), **imported},
        {"topic": "%RETRY%g", "properties": raw(ORIGIN_MESSAGE_ID=first_id), **imported},
        {"topic": "%DLQ%g", "properties": raw(UNIQ_KEY="k2"), **imported},
        # Names no message: too short, and of a record further on.
        {"properties": raw(ORIGIN_MESSAGE_ID="FF", UNIQ_KEY="k3"), **imported},
        # Its last half is too large for a long.
        {"properties": raw(ORIGIN_MESSAGE_ID="F" * 32, UNIQ_KEY="k4"), **imported},
    )  # fmt: skip
    own, of_half, of_own = store.append(
        {"properties": raw(UNIQ_KEY="k2")},
        # Made here of an imported copy: it has that one's origin.
        {
            "topic": "%DLQ%g",
            "source_offset": committed.physical_offset,
            "origin_offset": committed.physical_offset,
        },
        {"topic": "%DLQ%g", "source_offset": plain.physical_offset, "origin_offset": plain.physical_offset},
    )

    def is_copy_of(first: object) -> tuple[object, bool]:
        return first, True

    assert told(store.store) == {
        **{
            row.physical_offset: (row.physical_offset, False) for row in (half, parked, plain, odd, huge, own)
        },
        committed.physical_offset: is_copy_of(half.physical_offset),
        keyless.physical_offset: is_copy_of(half.physical_offset),
        delivered.physical_offset: is_copy_of(parked.physical_offset),
        again.physical_offset: is_copy_of(plain.physical_offset),
        dead.physical_offset: is_copy_of(parked.physical_offset),
        of_half.physical_offset: is_copy_of(half.physical_offset),
        of_own.physical_offset: (plain.physical_offset, False),
    }


def test_what_a_real_broker_delivered_has_the_row_that_waited_as_its_origin(
    dispatched_broker: Callable[[str], Store],
) -> None:
    store = dispatched_broker("a")
    rows = (
        store.messages.select("topic", "physical_offset", "unique_key").orderBy("physical_offset").collect()
    )
    waited = {row.unique_key: row.physical_offset for row in reversed(rows) if row.topic == SCHEDULE}
    delivered = [row for row in rows if row.unique_key in waited and row.topic != SCHEDULE]
    after = [row for row in delivered if row.physical_offset > waited[row.unique_key]]
    assert len(after) > 10
    lineage = told(store)
    found = {row.physical_offset: lineage[row.physical_offset][0] for row in after}
    # A message that failed before it waited for its retry is the origin of both.
    before = {row.unique_key: row.physical_offset for row in reversed(rows)}
    assert found == {row.physical_offset: before[row.unique_key] for row in after}
    assert all(lineage[row.physical_offset][1] for row in after)
