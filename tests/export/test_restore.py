"""A store comes back from its export: what waits, when it is due, what groups have read, whatever else goes on."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pipelines.errors import BadInput, StoreError
from pipelines.expiry.expire import plan_expiry
from pipelines.export.export import Export
from pipelines.store.commit import commit
from pipelines.store.floors import LOG_OF_FLOORS
from pipelines.store.store import Store
from tests.consume.listeners import Listeners
from tests.expiry.test_expire import HOUR, SETTINGS, messages
from tests.life import SCHEDULE, B, Life, raw
from tests.quality.damages import data_files

QUEUE = {"topic": "T", "queue_id": 0}


def restored(life: Life, directory: Path, now: int) -> Life:
    """The store that an export as of `now` becomes, by the commands of docs/operations.md."""
    life.job("export_store", now, "--to", directory / "export")
    back = Store(life.store.spark, str(directory / "back"))
    run = life.commitlake("import_store", "--store", back.uri, "--from", directory / "export", "--now", now)
    assert run.exit_status == 0, run.stderr
    found = Life(life.commitlake, back, directory)
    found.job("dispatch", now)
    return found


@pytest.mark.slow
def test_timed_messages_that_are_overdue_wait_in_the_restored_store(
    life: Callable[..., Life], tmp_path: Path
) -> None:
    one = life()
    first = {**QUEUE, "body": "delivered", "deliver_at_ms": B + 5_000, "unique_key": "U0"}
    one.put(B, first, {**QUEUE, "body": "timed", "deliver_at_ms": B + 10_000, "unique_key": "U1"})
    assert one.deliver(B + 6_000)["delivered"] == 1
    two = restored(one, tmp_path, B + 20_000)  # deliver has not run since it was due
    assert (one.deliver(B + 60_000)["delivered"], two.deliver(B + 60_000)["delivered"]) == (1, 1)
    # Once a broker has run on the export, its own file says how far the timer is.
    check = tmp_path / "export" / "config" / "timercheck"
    check.write_bytes((B + 30_000).to_bytes(8, "big") + check.read_bytes()[8:])
    back = tmp_path / "after a broker"
    assert one.commitlake("import_store", "--store", back, "--from", tmp_path / "export").exit_status == 0
    three = Life(one.commitlake, Store(one.store.spark, str(back)), tmp_path)
    assert three.deliver(B + 60_000)["delivered"] == 0


@pytest.mark.slow
def test_the_restored_store_has_the_settings_and_the_subscriptions_by_tag(
    life: Callable[..., Life], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listeners = Listeners(tmp_path, monkeypatch)
    one = life(messageDelayLevel="1h 2h", brokerName=" é\\ ")
    one.put(
        B, {**QUEUE, "body": "later", "delay_level": 1}, {**QUEUE, "body": "list", "deliver_through": [2, 1]}
    )
    one.put(B, {**QUEUE, "body": "a", "tags": "a"}, {**QUEUE, "body": "b", "tags": "b"})
    one.job("subscribe", B, "--group", "g", "--topic", "T", "--filter-type", "TAG", "--filter", "a")
    two = restored(one, tmp_path, B + 1_000)
    assert one.store.settings.given.items() <= two.store.settings.given.items()  # file sizes are added
    assert [each.deliver(B + 2_000)["delivered"] for each in (one, two)] == [0, 0]
    consumed = two.job("consume", B, "--group", "g", "--topic", "T", "--listener", listeners.name("accept"))
    assert (consumed.result["consumed"], consumed.result["filtered"]) == (1, 1)


@pytest.mark.slow
def test_an_imported_message_that_is_due_at_once_is_so_in_the_restored_store(
    life: Callable[..., Life], tmp_path: Path
) -> None:
    """Its time is further away than its level waits; only a broker's times are compared with the level."""
    one = life(messageDelayLevel="10s")
    far = {"topic": SCHEDULE, "due_ms": B + 10 * HOUR, "properties": raw(DELAY=1, REAL_TOPIC="T", REAL_QID=0)}
    one.append({**far, "append_id": "import:0-9"}, {**far, "append_id": "own"})
    one.write_floors(half=0)
    two = restored(one, tmp_path, B + 1_000)
    assert [each.deliver(B + 2_000)["delivered"] for each in (one, two)] == [1, 1]
    # As when a broker has gone on with the export, by a level table of its own.
    two.append({**far, "append_id": "import:end"})
    assert two.deliver(B + 3_000)["delivered"] == 1


@pytest.mark.slow
@pytest.mark.parametrize("was_imported", [False, True])
def test_a_timed_message_that_was_rolled_comes_once_from_the_restored_store(
    life: Callable[..., Life], tmp_path: Path, was_imported: bool
) -> None:
    """Its source is still in the export after a maintain that was killed, and in a store that imports a second time."""
    one = life(**SETTINGS)
    timed = {**QUEUE, "body": "timed", "deliver_at_ms": B + HOUR, "unique_key": "U"}
    one.put(B, timed, {**timed, "born_timestamp": B - 1}, *messages(20))
    one.job("dispatch", B)
    if was_imported:
        restored(one, tmp_path, B)
        one.job("maintain", B + 60_000, "--retention-hours", 0, "--force")
    else:
        commit(one.store, lambda at: plan_expiry(at, B + 60_000, 0, "killed"))
    one.put(B + 60_000, {**timed, "born_timestamp": B - 2})  # sent once more, with the same key
    two = restored(one, tmp_path, B + 120_000)
    waiting = [each.store.scheduled_messages.count() for each in (one, two)]
    assert waiting == [3, 3]
    assert [each.deliver(B + 2 * HOUR)["delivered"] for each in (one, two)] == [3, 3]


@pytest.mark.slow
def test_offsets_of_groups_are_not_ahead_of_the_exported_log(
    life: Callable[..., Life], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A group that fails on a message meanwhile goes on after it: its retry is not in the export."""
    listeners = Listeners(tmp_path, monkeypatch)
    one = life()
    one.put(B, {**QUEUE, "body": "later"})
    one.job("dispatch", B)
    export = Export(one.store, str(tmp_path / "export"), B)
    one.job("consume", B, "--group", "g", "--topic", "T", "--listener", listeners.name("by_body"))
    export.write(lambda _: None)
    offsets = json.loads((tmp_path / "export" / "config" / "consumerOffset.json").read_text())["offsetTable"]
    assert offsets == {}


def test_an_import_that_has_not_ended_is_not_exported(life: Callable[..., Life], tmp_path: Path) -> None:
    """Its broker has delivered what waits in the log, and the log has no copy of that yet."""
    one = life()
    (row,) = one.append(
        {
            "topic": SCHEDULE,
            "append_id": "import:0-1",
            "due_ms": B,
            "properties": raw(REAL_TOPIC="T", REAL_QID=0),
        }
    )
    end = row.physical_offset + row.size_bytes
    one.write_floors(**{"schedule:1": 1, LOG_OF_FLOORS: end + 1})
    with pytest.raises(StoreError, match="run `commitlake import_store` again, then this"):
        Export(one.store, str(tmp_path / "export"), B)
    one.append({"topic": "T", "append_id": "import:1-2"})
    Export(one.store, str(tmp_path / "export"), B)


@pytest.mark.slow
def test_where_an_import_cannot_go_on_an_export_says_how_to_get_the_rest_out(
    life: Callable[..., Life], tmp_path: Path
) -> None:
    """As an earlier version left it: a put came before the rest of the import."""
    one = life()
    one.append({"topic": "T", "append_id": "import:0-1"})
    one.put(B, {**QUEUE, "body": "put here"})
    one.write_floors(**{LOG_OF_FLOORS: 1_000})
    rows = ("--format", "jsonl", "--from-offset", one.rows()[1].physical_offset)
    with pytest.raises(StoreError, match=" ".join(map(str, rows))):
        Export(one.store, str(tmp_path / "export"), B)
    assert one.job("export_store", B, "--to", tmp_path / "rows", *rows).result["messages"] == 1
    one.put(B, QUEUE)  # what works there still goes on


@pytest.mark.slow
def test_a_lost_part_of_the_log_is_no_part_of_a_brokers_log(
    life: Callable[..., Life], tmp_path: Path
) -> None:
    one = life(**SETTINGS)
    one.put(B, *messages(28))
    one.job("dispatch", B)
    two = one.copied("two")
    for file in data_files(Path(two.store.uri), "commitlog"):
        if file.parent.name == "segment=1000":
            file.unlink()
    two.job("validate", B, "--cut-damaged")
    refused = two.run("export_store", B, "--to", tmp_path / "export")
    assert refused.exit_status == 2
    assert "the log has lost bytes 1000 to" in refused.stderr
    assert not (tmp_path / "export" / "commitlog").exists()
    beyond = ("--begin", -(2**63) - 1, "--end", 2**63 - 1)
    rows = two.job("export_store", B, "--to", tmp_path / "rows", "--format", "jsonl", *beyond)
    assert rows.result["messages"] == two.store.commitlog.count()


def test_an_export_that_another_one_overtook_says_so(life: Callable[..., Life], tmp_path: Path) -> None:
    one = life()
    one.put(B, QUEUE)
    late = Export(one.store, str(tmp_path / "export"), B)
    one.put(B, QUEUE)
    one.job("export_store", B, "--to", tmp_path / "export")
    with pytest.raises(StoreError, match=r"another export has written to .* meanwhile"):
        late.write(lambda _: None)


@pytest.mark.slow
def test_index_files_have_the_slots_of_the_setting(life: Callable[..., Life], tmp_path: Path) -> None:
    one = life(maxIndexNum="8", maxHashSlotNum="4")
    keys = [{**QUEUE, "keys": f"k{n % 5}"} for n in range(10)]
    one.put(B, *keys)
    for slots in (4, 9):
        one.job("settings", B, "set", f"maxHashSlotNum={slots}")
        one.put(B, *keys)
        one.job("export_store", B, "--to", tmp_path / "export")
    # As after a run that was killed once it had deleted them.
    (lost, *_) = (tmp_path / "export" / "index").iterdir()
    lost.unlink()
    one.put(B, *keys)
    one.job("export_store", B, "--to", tmp_path / "export")
    one.job("export_store", B, "--to", tmp_path / "whole")

    def files(export: str) -> dict[str, bytes]:
        return {file.name: file.read_bytes() for file in (tmp_path / export / "index").iterdir()}

    assert files("export") == files("whole")


@pytest.mark.slow
def test_an_export_without_new_messages_repairs_its_index(life: Callable[..., Life], tmp_path: Path) -> None:
    one = life(maxIndexNum="8", maxHashSlotNum="4")
    one.put(B, *[{**QUEUE, "keys": f"k{n % 5}"} for n in range(10)])
    index = tmp_path / "export" / "index"

    def files() -> dict[str, bytes]:
        one.job("export_store", B, "--to", tmp_path / "export")
        return {file.name: file.read_bytes() for file in index.iterdir()}

    before = files()
    one.job("settings", B, "set", "maxHashSlotNum=9")
    after = files()
    assert {len(content) for content in after.values()} == {
        len(content) + 5 * 4 for content in before.values()
    }
    shutil.rmtree(index)
    assert files() == after


def test_a_queue_whose_last_file_has_no_name_is_refused(life: Callable[..., Life], tmp_path: Path) -> None:
    """A damaged record may say any queue offset; a file is named after the byte it starts at."""
    one = life()
    one.put(B, QUEUE)
    export = Export(one.store, str(tmp_path / "export"), B)
    far = {("T", 0): 2**62}
    export.head = replace(export.head, min_queue_offsets=far, next_queue_offsets={("T", 0): 2**62 + 1})
    with pytest.raises(BadInput, match="a damaged record was imported"):
        export.write(lambda _: None)
