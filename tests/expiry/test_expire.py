"""Segments expire: they leave whole and in order, what is owed stays, and nothing that was counted goes back."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from jobs.maintain import hours_kept
from pipelines.dispatch.follow import plan_dispatch
from pipelines.errors import StoreError
from pipelines.expiry import expire
from pipelines.expiry.expire import plan_expiry, plan_leave_log
from pipelines.expiry.owed import next_owed, rolled_copies
from pipelines.log import append
from pipelines.log.park import parked_rows
from pipelines.produce import counted_input, put, put_input
from pipelines.quality.caches import plan_bounds
from pipelines.replicate.acks import plan_ack, plan_first_ack
from pipelines.rocketmq.settings import Settings
from pipelines.store.commit import commit
from pipelines.store.cut import is_append_only, take_out
from pipelines.store.head import LogHead, bounds_write, read_head
from pipelines.store.plan import Plan
from pipelines.store.snapshot import Snapshot
from pipelines.store.sql_text import delta_table
from pipelines.store.store import Store
from schemas import CLAIMS, DERIVED, PARKED, QUEUE_BOUNDS
from tests.broker_files.conftest import GOLDEN_CONF
from tests.conftest import JobRun, write_jsonl
from tests.life import SCHEDULE, WHEEL, B, Life, raw
from tests.model.log import read_properties
from tests.scenes.processes import Moment, kill_at

HOUR = 3_600_000
# Old enough by fileReservedTime (72 hours), at the hour of deleteWhen: four in the morning, UTC.
FOUR = B - B % (24 * HOUR) + (5 * 24 + 4) * HOUR
SEGMENT = 1_000
SETTINGS = {
    "mappedFileSizeCommitLog": str(SEGMENT),
    "fileReservedTime": "72",
    "clockAheadMaxSec": "100000000",
}


def messages(count: int, **more: Any) -> list[dict[str, Any]]:
    return [{"topic": "T", "queue_id": n % 2, "tags": "a", **more} for n in range(count)]


def old_store(life: Callable[..., Life], *rows: dict[str, Any], **settings: str) -> Life:
    """Some hundred hours old, but for a last message; dispatched."""
    one = life(**(SETTINGS | settings))
    one.put(B, *rows)
    one.put(FOUR - HOUR, {"topic": "T", "queue_id": 0, "body": "young"})
    one.job("dispatch", FOUR - HOUR)
    return one


def maintain(one: Life, now: int = FOUR, *arguments: Any) -> dict[str, Any]:
    return one.job("maintain", now, *arguments).result


def expect_whole(one: Life, now: int) -> None:
    one.job("validate", now, "--full")


@pytest.mark.slow
def test_old_segments_leave_every_table_and_nothing_that_was_counted_goes_back(
    life: Callable[..., Life],
) -> None:
    one = old_store(life, *messages(28))
    before, rows = read_head(one.store.snapshot()), one.rows()
    last = rows[-1].segment
    would = maintain(one, FOUR, "--dry-run")
    assert len(one.rows()) == 29
    done = maintain(one)
    counts = ("segments_expired", "rolled")
    assert [done[name] for name in counts] == [would[name] for name in counts] == [last // SEGMENT, 0]

    kept = [row for row in rows if row.segment == last]
    assert [row.physical_offset for row in one.rows()] == [row.physical_offset for row in kept]
    for table in DERIVED:
        assert one.store.read(table).where(F.col("segment") < last).isEmpty(), table.name
    head = read_head(one.store.snapshot())
    assert (head.next_offset, head.next_queue_offsets) == (before.next_offset, before.next_queue_offsets)
    assert head.append_seq > before.append_seq
    assert head.min_offset == last
    first = {
        queue: min([row.queue_offset for row in kept if row.queue_id == queue], default=following)
        for (_, queue), following in head.next_queue_offsets.items()
    }
    assert {queue_id: start for (_, queue_id), start in head.min_queue_offsets.items()} == first
    expect_whole(one, FOUR)

    again = maintain(one, FOUR + 1)
    assert [again[name] for name in counts] == [0, 0]
    assert one.put(FOUR + 2, {"topic": "T", "queue_id": 1})["first_offset"] == before.next_offset
    assert one.rows()[-1].queue_offset == before.next_of("T", 1)
    one.job("dispatch", FOUR + 3)
    expect_whole(one, FOUR + 4)


@pytest.mark.slow
def test_a_batch_whose_first_messages_have_expired_is_put_already(life: Callable[..., Life]) -> None:
    # The batch's last segment stays for its last message.
    one = life(**SETTINGS, topicReservedTime="kept:1000000")
    rows = [{"topic": "kept" if n == 27 else "T", "queue_id": 0, "body": str(n)} for n in range(28)]
    put = ("put_messages", "--batch-id", "mine", "--trace", "--input")
    source = one.input(*rows)
    assert one.job(put[0], B, *put[1:], source).result["appended"] == 28
    one.put(FOUR - HOUR, {"topic": "T", "body": "young"})
    one.job("dispatch", FOUR - HOUR)
    maintain(one)
    left = len(one.rows())
    assert 0 < one.store.commitlog.where("append_id like 'mine:%'").count() < 28
    again = one.job(put[0], FOUR + 1, *put[1:], source).result
    assert (again["appended"], again["already"]) == (0, 28)
    assert len(one.rows()) == left
    other = one.input(*[row | {"body": f"another {row['body']}"} for row in rows])
    refused = one.run(put[0], FOUR + 2, *put[1:], other)
    assert (refused.exit_status, "batch id mine has put another input" in refused.stderr) == (2, True)


@pytest.mark.slow
@pytest.mark.parametrize("begins_the_log", [False, True])
def test_a_row_that_was_corrected_is_another_input_also_where_the_log_has_expired(
    life: Callable[..., Life], begins_the_log: bool
) -> None:
    one = life(**SETTINGS)
    one.put(B, *messages(28))
    # A message of most of a segment begins one.
    rows = [{"topic": "T", "queue_id": 0, "body": str(n) * (700 if begins_the_log else 1)} for n in range(4)]
    put = ("put_messages", "--batch-id", "mine", "--on-bad", "quarantine", "--input")
    bad = [*rows[:2], rows[2] | {"queue_id": -1}, *rows[3:]]
    assert one.job(put[0], FOUR - HOUR, *put[1:], one.input(*bad)).result["appended"] == 3
    one.job("dispatch", FOUR - HOUR)
    assert maintain(one)["segments_expired"] > 1
    first = one.store.commitlog.where("append_id like 'mine:%'").agg(F.min("physical_offset")).first()
    assert (first[0] == read_head(one.store.snapshot()).min_offset) == begins_the_log
    refused = one.run(put[0], FOUR + 2, *put[1:], one.input(*rows))
    assert (refused.exit_status, "batch id mine has put another input" in refused.stderr) == (2, True)


@pytest.mark.slow
def test_bounds_that_were_restored_to_before_an_expiry_are_refused(life: Callable[..., Life]) -> None:
    """What has expired since is in neither: its offsets would be given again, and groups would pass over new messages."""
    one = life(**SETTINGS)
    one.put(B, *[{"topic": "A", "queue_id": 0} for _ in range(5)])
    empty = one.store.snapshot().version(QUEUE_BOUNDS)
    commit(one.store, lambda at: Plan((bounds_write(at, read_head(at)),)))
    early = one.store.snapshot().version(QUEUE_BOUNDS)
    one.put(B, *messages(28))
    one.put(FOUR - HOUR, {"topic": "T", "queue_id": 0, "body": "young"})
    one.job("dispatch", FOUR - HOUR)
    assert maintain(one)["segments_expired"] > 1
    late = one.store.snapshot().version(QUEUE_BOUNDS)
    new = ("--input", one.input({"topic": "A", "queue_id": 0, "body": "new"}))
    for version in (empty, early):
        restore_bounds(one, version)
        refused = one.job("put_messages", FOUR, *new, exit_status=1)
        assert "queue_bounds says that the log ends at byte" in refused.stderr
        with pytest.raises(StoreError, match="has expired"):
            plan_bounds(one.store.snapshot(), one.store.settings)
    restore_bounds(one, late)
    one.job("put_messages", FOUR, *new)
    assert (one.rows()[-1].topic, one.rows()[-1].queue_offset) == ("A", 5)
    one.job("dispatch", FOUR)
    expect_whole(one, FOUR)


def restore_bounds(one: Life, version: int) -> None:
    one.store.spark.sql(
        f"RESTORE TABLE {delta_table(one.store.path(QUEUE_BOUNDS))} TO VERSION AS OF {version}"
    )


@pytest.mark.slow
def test_readers_below_the_start_go_to_the_start(life: Callable[..., Life]) -> None:
    one = old_store(life, *messages(30))
    read = ("consume", B + 1, "--group", "g", "--topic", "T", "--listener", "tests.consume.odd_listeners:ok")
    assert one.job(*read, "--max-messages", 4).result["consumed"] == 4
    assert "messages have expired that g had not read" in one.job("maintain", FOUR).stderr
    start, end = [
        one.store.topic_status.where("topic = 'T' AND queue_id = 0").select(name).first()[0]
        for name in ("min_offset", "max_offset")
    ]
    pulled = one.job("query", FOUR, "pull", "--topic", "T", "--queue-id", 0, "--offset", 0).result
    assert (pulled["pull_status"], pulled["next_offset"]) == ("OFFSET_TOO_SMALL", start)
    by_time = one.job("query", FOUR, "by-time", "--topic", "T", "--queue-id", 0, "--timestamp", B).result
    assert by_time["offset"] == start
    rest = one.store.consume_queue.where("topic = 'T'").count()
    assert 0 < rest < 27
    assert one.job(*read).result["consumed"] == rest
    reached = one.store.consumer_offsets.where("topic = 'T' AND queue_id = 0").first()
    assert reached is not None
    assert reached.next_offset == end


@pytest.mark.slow
def test_an_imported_message_that_is_due_at_once_is_so_when_it_was_rolled(life: Callable[..., Life]) -> None:
    """Its time is further away than its level waits, which is so of imported rows alone: its copy is none."""
    one = life(**SETTINGS, messageDelayLevel="1s 5s 10s")
    far = raw(UNIQ_KEY="far", DELAY=3, REAL_TOPIC="T", REAL_QID=0)
    due = FOUR + 100 * HOUR
    one.append(
        {"topic": SCHEDULE, "queue_id": 2, "append_id": "import:0-9", "due_ms": due, "properties": far},
        {
            "topic": SCHEDULE,
            "queue_id": 2,
            "append_id": "own",
            "due_ms": due,
            "properties": far.replace("far", "own"),
        },
    )
    one.write_floors(half=0)
    one.put(B, *messages(10))
    one.put(FOUR - HOUR, *messages(3, body="young"))
    one.job("dispatch", FOUR - HOUR)
    assert maintain(one)["rolled"] == 2
    assert one.deliver(FOUR)["delivered"] == 1
    assert [row.topic for row in one.by_key("far")][-1] == "T"
    assert one.deliver(due)["delivered"] == 1


@pytest.mark.slow
def test_what_is_owed_is_rolled_first_and_delivered_once(life: Callable[..., Life]) -> None:
    due, level_due = FOUR + 10 * HOUR, B + 9 * 24 * HOUR
    one = life(**SETTINGS, messageDelayLevel="1s 9d")
    half = {"topic": "T", "transaction": True, "producer_group": "p"}
    one.put(
        B,
        {"topic": "T", "unique_key": "level", "delay_level": 2},
        {"topic": "T", "unique_key": "timer", "deliver_at_ms": due},
        {"topic": "T", "unique_key": "cancelled", "deliver_at_ms": due},
        {"topic": "T", "unique_key": "cancel", "cancel_unique_key": "cancelled", "deliver_at_ms": due},
        {"topic": "T", "unique_key": "done", "delay_level": 1},
        {"unique_key": "open", **half},
        {"unique_key": "ended", **half},
        *messages(10),
    )
    assert one.deliver(B + 1_000)["delivered"] == 1
    (ended,) = one.by_key("ended")
    end = {"producer_group": "p", "state": "COMMIT"}
    named = one.input({**end, "physical_offset": ended.physical_offset, "queue_offset": ended.queue_offset})
    assert one.job("end_transactions", B + 2_000, "--input", named).result["committed"] == 1
    one.put(FOUR - HOUR, *messages(3, body="young"))
    one.job("dispatch", FOUR - HOUR)
    waited = {row.unique_key for row in one.store.scheduled_messages.collect()}
    owed = {name: one.by_key(name)[0] for name in ("level", "timer", "cancel", "open")}

    assert maintain(one, FOUR, "--dry-run")["rolled"] == 4
    done = maintain(one)
    assert done["rolled"] == 4
    assert done["segments_expired"] > 1
    rolled = [row for row in one.rows() if row.purpose == "roll"]
    assert {read_properties(row.properties)["UNIQ_KEY"] for row in rolled} == set(owed)
    same = (
        "topic",
        "queue_id",
        "flag",
        "sys_flag",
        "body",
        "born_timestamp",
        "due_ms",
        "reconsume_times",
    )
    for row in rolled:
        source = owed[read_properties(row.properties)["UNIQ_KEY"]]
        assert [row[name] for name in same] == [source[name] for name in same]
        rolls = {"TIMER_ROLL_TIMES": "1"} if row.topic == WHEEL else {}
        assert read_properties(row.properties) == read_properties(source.properties) | rolls
        assert (row.source_offset, row.claim) == (source.physical_offset, "settle")
    one.job("dispatch", FOUR + 1)
    assert {row.unique_key for row in one.store.scheduled_messages.collect()} == waited
    expect_whole(one, FOUR + 2)

    assert one.deliver(due + 1_000)["delivered"] == 1
    assert one.deliver(level_due)["delivered"] == 1
    (half_copy,) = one.by_key("open")
    named = one.input({**end, "physical_offset": half_copy.physical_offset})
    assert one.job("end_transactions", FOUR, "--input", named).result["committed"] == 1
    back = [
        read_properties(row.properties).get("UNIQ_KEY")
        for row in one.rows()
        if row.purpose in ("deliver", "commit")
    ]
    assert sorted(key for key in back if key in owed) == ["level", "open", "timer"]
    one.job("dispatch", level_due)
    assert maintain(one, level_due, "--retention-hours", 1)["rolled"] == 0
    expect_whole(one, level_due)


@pytest.mark.slow
def test_rows_of_segments_that_expired_earlier_hide_nothing_that_is_owed(life: Callable[..., Life]) -> None:
    one = life(**SETTINGS)
    half = {"topic": "T", "transaction": True, "producer_group": "p"}
    short = [{"topic": "T", "unique_key": key, "delay_level": 1} for key in ("short 1", "short 2")]
    one.put(B, *short, {"unique_key": "ended", **half})
    assert one.deliver(B + 2_000)["delivered"] == 2
    (ended,) = one.by_key("ended")
    end = {"producer_group": "p", "state": "COMMIT", "physical_offset": ended.physical_offset}
    assert one.job("end_transactions", B + 2_000, "--input", one.input(end)).result["committed"] == 1
    one.put(B + 3_000, *messages(10))
    later, far = B + 30 * HOUR, FOUR + 300 * HOUR
    timers = [{"topic": "T", "unique_key": f"far {n}", "deliver_at_ms": far} for n in range(9)]
    one.put(later, *timers, {"unique_key": "open", **half}, *messages(10))
    one.put(FOUR - HOUR, {"topic": "T", "queue_id": 0, "body": "young"})
    one.job("dispatch", FOUR - HOUR)
    # The sorted run of the parked rows is large, and stays as it is; that of their claims is sorted again.
    with mock.patch.object(expire, "ROWS_SORTED_AGAIN", 6):
        maintain(one, B + 90 * HOUR, "--retention-hours", 80)
    stayed = {row.unique_key for row in one.store.read(PARKED).collect()}
    assert {"short 1", "short 2", "ended"} < stayed
    assert one.store.read(CLAIMS).count() == 0

    assert maintain(one, FOUR, "--retention-hours", 50, "--dry-run")["rolled"] == 10
    with mock.patch.object(expire, "COPIES_OF_AN_APPEND", 2):
        assert maintain(one, FOUR, "--retention-hours", 50)["rolled"] == 10
    one.job("dispatch", FOUR)
    assert [row.unique_key for row in one.store.half_messages.collect()] == ["open"]
    assert one.deliver(far + 1_000)["delivered"] == 9


@pytest.mark.slow
def test_a_page_of_rows_that_the_log_does_not_have_hides_nothing_that_is_owed(
    life: Callable[..., Life],
) -> None:
    one = life(**SETTINGS)
    one.put(B, {"topic": "T", "unique_key": "timer", "deliver_at_ms": B + 10 * HOUR})
    (timer,) = one.by_key("timer")

    def ahead_of_the_log(at: Snapshot, condition: Column) -> DataFrame:
        rows = parked_rows(at, condition)
        moved = {"physical_offset": F.explode(F.array(F.lit(1), F.lit(2))), "due_ms": F.lit(B)}
        return rows.unionByName(rows.withColumns(moved))

    with mock.patch("pipelines.expiry.owed.parked_rows", ahead_of_the_log):
        found = next_owed(one.store.snapshot(), SEGMENT, limit=2)
    assert found.column("source_offset").to_pylist() == [timer.physical_offset]


@pytest.mark.parametrize(("before", "after"), [(32_748, 32_767), (32_749, 32_749), (32_767, 32_767)])
def test_a_rolled_message_whose_properties_are_full_stays_as_it_is(
    before: int, after: int, life: Callable[..., Life]
) -> None:
    """A record has two bytes for the length of its properties."""
    one = life()
    one.put(B, {"topic": "T", "unique_key": "timer", "deliver_at_ms": B + 10 * HOUR})
    padding = F.repeat(F.lit("x"), before - F.length("properties") - len("PAD\x01\x02"))
    padded = F.concat("properties", F.lit("PAD\x01"), padding, F.lit("\x02"))
    rows = one.store.commitlog.withColumns({"properties": padded, "order": F.lit(0)})
    (copy,) = rolled_copies(rows, B, F.lit(False)).select(F.length("properties").alias("length")).collect()
    assert copy.length == after


@pytest.mark.slow
def test_when_segments_expire(
    life: Callable[..., Life], store: Store, commitlake: Callable[..., JobRun]
) -> None:
    one = old_store(life, *messages(10))
    later = one.job("maintain", FOUR + HOUR, "--dry-run")
    assert later.result["segments_expired"] == 0
    by_hand = [
        maintain(one, FOUR + HOUR, "--dry-run", *how)["segments_expired"]
        for how in (("--force",), ("--retention-hours", 1), ("--retention-hours", 200))
    ]
    assert by_hand[0] == by_hand[1] > by_hand[2] == 0
    far = one.run("maintain", FOUR * 10, "--dry-run")
    assert (far.exit_status, "add --force if it is right" in far.stderr) == (2, True)
    one.put(FOUR, *messages(10))  # some segments more, which dispatch has not followed
    only_followed = maintain(one, FOUR + 100 * HOUR, "--dry-run", "--force")["segments_expired"]
    assert only_followed == by_hand[0]
    empty = commitlake("maintain", "--store", store.uri, "--retention-hours", 0).result
    assert (empty["segments_expired"], empty["rolled"]) == (0, 0)


@pytest.mark.slow
def test_a_segment_stays_for_a_slave_that_has_reported(life: Callable[..., Life], tmp_path: Path) -> None:
    """And not for one that joined and never did: its first run may have failed for good."""
    one = old_store(life, *messages(30))
    uri = str(tmp_path / "slave")
    first = partial(plan_first_ack, replica_id="1", uri=uri, now_ms=B, has_log=False)
    commit(one.store, first)
    expired = maintain(one, FOUR, "--dry-run")["segments_expired"]
    assert expired > 1
    commit(one.store, lambda at: plan_ack(at, "1", uri, SEGMENT, B))
    kept = one.job("maintain", FOUR, "--dry-run")
    assert kept.result["segments_expired"] == 1


@pytest.mark.slow
def test_a_segment_stays_for_a_topic_that_is_kept_longer(life: Callable[..., Life]) -> None:
    audit = {"topic": "audit", "queue_id": 0, "body": "kept"}
    one = old_store(
        life, *messages(12), audit, *messages(12), topicReservedTime="audit:1000; T:1", fileReservedTime="2"
    )
    kept = next(row.segment for row in one.rows() if row.topic == "audit")
    last = one.rows()[-1].segment
    assert 0 < kept < last
    would = one.job("maintain", FOUR, "--dry-run", "--retention-hours", 1)
    at_four = ("--store", one.store.uri, "--now", FOUR)
    done = one.commitlake("maintain", *at_four, "--retention-hours", 1)
    assert done.exit_status == 0, done.stderr
    assert done.result["segments_expired"] == would.result["segments_expired"] == kept // SEGMENT
    assert "topic audit keeps its messages for 1000 hours" in done.stderr
    assert min(row.segment for row in one.rows()) == kept
    expect_whole(one, FOUR)
    # Its time is over to the millisecond.
    assert maintain(one, B + 1000 * HOUR - 1, "--force")["segments_expired"] == 0
    assert maintain(one, B + 1000 * HOUR, "--force")["segments_expired"] == (last - kept) // SEGMENT
    expect_whole(one, B + 1000 * HOUR)


@pytest.mark.quick
@pytest.mark.parametrize(
    ("given", "asked", "hours"),
    [
        ({}, (None, False), None),
        ({}, (None, True), 72),
        ({}, (5, False), 5),
        ({"fileReservedTime": "48"}, (None, False), 48),
        ({"fileReservedTime": "48", "deleteWhen": "05"}, (None, False), None),
        ({"fileReservedTime": "48", "deleteWhen": "05"}, (None, True), 48),
    ],
)
def test_a_store_made_without_a_retention_keeps_all_until_somebody_asks(
    given: dict[str, str], asked: tuple[int | None, bool], hours: int | None
) -> None:
    run = mock.Mock(now_ms=FOUR, store=mock.Mock(settings=Settings.of(given)))
    assert hours_kept(run, *asked) == hours
    assert run.say.called == (hours is None)


@pytest.mark.slow
def test_an_append_comes_between_each_plan_and_its_commit(life: Callable[..., Life]) -> None:
    one = old_store(life, {"topic": "T", "unique_key": "timer", "deliver_at_ms": FOUR + 1}, *messages(20))
    put_by: list[str] = []

    def beside(planner: Callable[[Snapshot], Plan], at: Snapshot) -> Plan:
        plan = planner(at)
        name = getattr(planner, "__name__", "expiry")
        if name not in put_by:
            put_by.append(name)
            one.put(FOUR, {"topic": "T", "queue_id": 1, "body": name})
            one.deliver(FOUR + 1_000)
            commit(one.store, plan_dispatch)
        return plan

    real_commit, real_take_out = expire.commit_in_parts, expire.take_out
    with (
        mock.patch.object(
            expire,
            "commit_in_parts",
            lambda commits, plan, *rest: real_commit(
                lambda planner: commits(partial(beside, planner)), plan, *rest
            ),
        ),
        mock.patch.object(
            expire, "take_out", lambda store, plan: real_take_out(store, partial(beside, plan))
        ),
    ):
        done = maintain(one)
    assert put_by == ["expiry", "plan_leave_log"]
    # The timer was to be rolled, and was delivered first.
    assert (done["rolled"], done["segments_expired"] > 1) == (0, True)
    assert [body for body in one.bodies() if body in put_by] == put_by
    assert [row.purpose for row in one.by_key("timer")] == ["deliver"]
    one.job("dispatch", FOUR + 2_000)
    expect_whole(one, FOUR + 3_000)


@pytest.mark.slow
def test_a_put_that_began_before_an_expiry_does_not_put_the_logs_start_back(
    life: Callable[..., Life], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of its appends writes the bounds, from a head that was read when counting began."""
    one = old_store(life, *messages(20))
    source = tmp_path / "files"
    source.mkdir()
    for file in range(3):
        write_jsonl(source / f"{file}.jsonl", messages(2, body="b"))
    monkeypatch.setattr(counted_input, "APPEND_BYTES", 1)
    monkeypatch.setattr(counted_input, "PARTS_OF_A_FILE", 2**40)
    monkeypatch.setattr(append, "ROWS_BETWEEN_BOUNDS", 1)
    begun: list[int] = []
    heads_read: list[LogHead] = []

    def put_counted(*counted: Any) -> dict[str, Any]:
        commit(one.store, lambda at: plan_expiry(at, FOUR, 72, "run"))
        begun.append(read_head(one.store.snapshot()).min_offset)
        return go_on(*counted)

    def read(at: Snapshot) -> LogHead:
        heads_read.append(read_head(at))
        return heads_read[-1]

    go_on = put_input._put_counted
    monkeypatch.setattr(put_input, "_put_counted", put_counted)
    monkeypatch.setattr(put, "read_head", read)
    assert one.job("put_messages", FOUR, "--input", source).result["appended"] == 6
    assert len({row.append_seq for row in one.rows()}) == 5
    head = read_head(one.store.snapshot())
    assert (head.min_offset, head.bounds_append_seq) == (begun[0], head.append_seq)
    assert begun[0] > 0
    assert min(head.min_queue_offsets.values()) > 0
    # When counting began, and after the expiry: what the put itself writes it knows.
    assert [found.min_offset for found in heads_read] == [0, begun[0]]
    maintain(one)
    expect_whole(one, FOUR)


@pytest.mark.slow
@pytest.mark.parametrize("step", ["take_out", pytest.param("plan_leave_derived", marks=pytest.mark.nightly)])
def test_a_run_that_is_cut_short_is_finished_by_the_next_one_at_any_hour(
    life: Callable[..., Life], step: str
) -> None:
    one = old_store(life, *messages(20))
    with mock.patch.object(expire, step, side_effect=RuntimeError("killed")):
        one.job("maintain", FOUR, exit_status=1)
    start = read_head(one.store.snapshot()).min_offset
    assert start > 0
    read = one.job(
        "consume", FOUR, "--group", "g", "--topic", "T", "--listener", "tests.consume.odd_listeners:ok"
    )
    left = one.store.commitlog.where(F.col("physical_offset") >= start).count()
    assert read.result["consumed"] == left
    one.put(FOUR + 1, {"topic": "T"})
    one.job("dispatch", FOUR + 1, "--rebuild")
    finished = maintain(one, FOUR + HOUR)
    assert finished["segments_expired"] == (start // SEGMENT if step == "take_out" else 0)
    assert one.store.commitlog.count() == left + 1
    for table in DERIVED:
        assert one.store.read(table).where(F.col("segment") < start).isEmpty(), table.name
    expect_whole(one, FOUR + HOUR)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("table", "moment", "altered"),
    [
        pytest.param("queue_bounds", Moment.DURING, 0, marks=pytest.mark.nightly),
        ("commitlog", Moment.BEFORE, 1),
        pytest.param("commitlog", Moment.AFTER, 1, marks=pytest.mark.nightly),
        pytest.param("consume_queue", Moment.AFTER, 0, marks=pytest.mark.nightly),
    ],
    ids=[
        "where the log begins is written",
        "the log is open",
        "rows have left the log",
        "the queues have followed",
    ],
)
def test_maintain_is_killed(life: Callable[..., Life], table: str, moment: Moment, altered: int) -> None:
    one = old_store(life, {"topic": "T", "unique_key": "timer", "deliver_at_ms": FOUR + HOUR}, *messages(20))
    one.put(FOUR, *messages(2))
    one.job("dispatch", FOUR)
    command = ("maintain", "--store", one.store.uri, "--now", FOUR)
    # Its copy of the timer is its first append.
    nth = 2 if table == "commitlog" else 1
    kill_at(moment, Path(one.store.uri) / table, *command, with_jvm=True, nth=nth, altered=altered)
    one.put(FOUR + 1, {"topic": "T"})
    one.job("dispatch", FOUR + 1)
    maintain(one, FOUR + 2)
    assert is_append_only(one.store.snapshot())
    assert len({row.segment for row in one.rows()}) < 4
    assert one.deliver(FOUR + HOUR)["delivered"] == 1
    one.job("dispatch", FOUR + HOUR)
    expect_whole(one, FOUR + HOUR)


@pytest.mark.slow
def test_an_append_that_is_not_as_planned_stops_expiry(life: Callable[..., Life]) -> None:
    one = old_store(life, *messages(20))
    commit(one.store, lambda at: plan_expiry(at, FOUR, 72, "run"))
    not_as_planned = RuntimeError("not as planned")
    with (
        mock.patch.object(expire, "expect_whole", side_effect=not_as_planned),
        pytest.raises(RuntimeError, match="not as planned"),
    ):
        take_out(one.store, plan_leave_log)
    assert len(one.rows()) == 21
    assert is_append_only(one.store.snapshot())


@pytest.mark.nightly
def test_an_imported_store_goes_on_with_its_last_segment(
    golden_broker: Callable[[str], Path], commitlake: Callable[..., JobRun], store: Store, tmp_path: Path
) -> None:
    conf, at = tmp_path / "broker.conf", ("--store", tmp_path / "store")
    conf.write_text(GOLDEN_CONF)

    def job(name: str, *arguments: Any) -> dict[str, Any]:
        run = commitlake(name, *at, "--quiet", *arguments)
        assert run.exit_status == 0, run.stderr
        return run.result

    job("import_store", "--from", golden_broker("a"), "--broker-conf", conf)
    job("export_store", "--to", tmp_path / "export")
    imported = Store(store.spark, str(tmp_path / "store"))
    last = imported.commitlog.agg(F.max("segment")).first()[0]
    waiting = {
        view: sorted(row.unique_key or "" for row in getattr(imported, view).collect())
        for view in ("scheduled_messages", "half_messages")
    }
    before = read_head(imported.snapshot())
    assert job("maintain", "--retention-hours", 0)["segments_expired"] == 0  # it is not dispatched
    job("dispatch")
    done = job("maintain", "--retention-hours", 0)
    assert done["segments_expired"] > 0
    assert done["rolled"] >= len(waiting["scheduled_messages"]) + len(waiting["half_messages"])
    kept = imported.commitlog
    assert kept.agg(F.min("segment")).first()[0] == last
    assert kept.where("purpose IS NULL").agg(F.max("physical_offset")).first()[0] < before.next_offset

    job("put_messages", "--input", write_jsonl(tmp_path / "put.jsonl", [{"topic": "Expiry", "body": "b"}]))
    job("dispatch")
    for view, keys in waiting.items():
        assert sorted(row.unique_key or "" for row in getattr(imported, view).collect()) == keys, view
    listener = ("--listener", "tests.consume.odd_listeners:ok")
    assert job("consume", "--group", "g", "--topic", "Expiry", *listener)["consumed"] == 1
    job("validate", "--full")
    exported = job("export_store", "--to", tmp_path / "export")  # over one that has the expired segments
    back = ("--store", tmp_path / "back", "--quiet", "--from", tmp_path / "export")
    again = commitlake("import_store", *back, "--broker-conf", conf)
    assert again.result["messages"] == exported["messages"] == kept.count(), again.stderr


@pytest.mark.nightly
def test_a_stream_of_the_log_goes_on_when_segments_expire(life: Callable[..., Life], tmp_path: Path) -> None:
    one = old_store(life, *messages(20))

    def follow() -> int:
        stream = one.store.spark.readStream.format("delta").option("ignoreDeletes", True)
        rows = stream.load(f"{one.store.uri}/commitlog").select("physical_offset").writeStream.format("delta")
        started = rows.option("checkpointLocation", str(tmp_path / "at")).trigger(availableNow=True)
        started.start(str(tmp_path / "rows")).awaitTermination()
        return one.store.spark.read.format("delta").load(str(tmp_path / "rows")).count()

    assert follow() == 21
    maintain(one)
    one.put(FOUR, {"topic": "T"})
    assert follow() == 22
