"""What a user of put_messages types and sees."""

import base64
import json
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pipelines.rocketmq.compression import SYS_FLAG_BITS, BodyTooLarge, Codec, compressed, unpacked
from pipelines.store.store import Store
from tests.conftest import JobRun, write_jsonl

Commitlake = Callable[..., JobRun]


def bodies(store: Store) -> list[str]:
    return [
        bytes(row.body).decode()
        for row in store.commitlog.orderBy("physical_offset").select("body").collect()
    ]


def put(commitlake: Commitlake, store: Store, source: Path, *more: str) -> JobRun:
    return commitlake("put_messages", "--store", store.uri, "--input", source, *more)


@pytest.mark.quick
def test_the_same_files_put_twice_go_in_once(commitlake: Commitlake, store: Store, tmp_path: Path) -> None:
    source = write_jsonl(
        tmp_path / "a.jsonl", [{"topic": "orders", "body": "a"}, {"topic": "orders", "body": ""}]
    )
    first = put(commitlake, store, source)
    again = put(commitlake, store, source)
    assert (first.exit_status, first.result["appended"], first.result["already"]) == (0, 2, 0)
    assert (again.exit_status, again.result["appended"], again.result["already"]) == (0, 0, 2)
    assert again.result["first_offset"] is None
    assert again.result["next_offset"] == first.result["next_offset"]
    assert bodies(store) == ["a", ""]


def test_a_batch_id_stands_for_one_input(commitlake: Commitlake, store: Store, tmp_path: Path) -> None:
    source = write_jsonl(tmp_path / "a.jsonl", [{"topic": "orders", "body": "a", "tags": "x"}])
    assert put(commitlake, store, source, "--batch-id", "B:1").result["appended"] == 1
    moved = write_jsonl(tmp_path / "b.jsonl", [{"topic": "orders", "body": "a", "tags": "x"}])
    assert put(commitlake, store, moved, "--batch-id", "B:1").result["already"] == 1
    other = write_jsonl(tmp_path / "c.jsonl", [{"topic": "orders", "body": "a", "tags": "y"}])
    refused = put(commitlake, store, other, "--batch-id", "B:1")
    assert refused.exit_status == 2
    assert "batch id B:1 has put another input" in refused.stderr
    assert put(commitlake, store, other, "--batch-id", "B").result["appended"] == 1  # B is not B:1
    assert bodies(store) == ["a", "a"]


def test_messages_of_a_topic_with_several_tags_say_so_wherever_they_wait(
    commitlake: Commitlake, store: Store, tmp_path: Path
) -> None:
    topics = ("topics", "--store", store.uri)
    assert commitlake(*topics, "create", "several", "--filter-type", "MULTI_TAG").exit_status == 0
    rows = [{"topic": "one"}, {"topic": "several"}, {"topic": "several", "delay_level": 1}]
    source = write_jsonl(tmp_path / "a.jsonl", [{"body": "b", **row} for row in rows])
    assert put(commitlake, store, source).exit_status == 0
    assert [row.sys_flag for row in store.commitlog.orderBy("physical_offset").collect()] == [0, 2, 2]


def test_a_message_without_a_unique_key_gets_one_and_nothing_else(
    commitlake: Commitlake, store: Store, tmp_path: Path
) -> None:
    source = write_jsonl(
        tmp_path / "a.jsonl", [{"topic": "orders", "body": "a", "tags": "t", "keys": ["k1", "k2"]}]
    )
    put(commitlake, store, source, "--batch-id", "B")
    row = store.commitlog.first()
    assert row is not None
    pairs = dict(pair.split("\x01") for pair in row.properties.rstrip("\x02").split("\x02"))
    assert list(pairs) == ["TAGS", "KEYS", "UNIQ_KEY"]
    assert (pairs["TAGS"], pairs["KEYS"]) == ("t", "k1 k2")
    assert len(pairs["UNIQ_KEY"]) == 32
    assert int(pairs["UNIQ_KEY"], 16)
    assert row.append_id == "B:0-1"
    assert row.properties.endswith("\x02")


def test_quarantine_puts_the_good_rows_and_keeps_the_others(
    commitlake: Commitlake, store: Store, tmp_path: Path
) -> None:
    source = tmp_path / "a.jsonl"
    source.write_text(
        '{"topic": "orders", "body": "a"}\n{"topic": "or.ders", "body": "b"}\nnonsense\n{"topic": "orders", "body": "c"}\n'
    )
    for _ in range(2):  # again: nothing new, in neither table
        run = put(commitlake, store, source, "--on-bad", "quarantine")
        assert (run.exit_status, run.result["rejected"]) == (0, 2)
    assert bodies(store) == ["a", "c"]
    kept = store.rejected_messages.orderBy("arrival").collect()
    assert [(row.arrival, row.raw) for row in kept] == [
        (1, '{"topic": "or.ders", "body": "b"}'),
        (2, "nonsense"),
    ]
    assert kept[0].reason.startswith("topic or.ders has a character")
    assert kept[1].reason == "not a JSON object"


@pytest.mark.slow
def test_bad_rows_of_a_batch_id_are_kept_once_and_those_of_another_input_are_refused(
    commitlake: Commitlake, store: Store, tmp_path: Path
) -> None:
    def quarantined(*lines: str) -> tuple[int, list[str]]:
        source = tmp_path / "a.jsonl"
        source.write_text("".join(f"{line}\n" for line in lines))
        run = put(commitlake, store, source, "--on-bad", "quarantine", "--batch-id", "orders")
        if run.exit_status:
            assert "batch id orders has set rows of another input aside" in run.stderr
        kept = store.rejected_messages.orderBy("arrival").collect()
        assert [row.arrival for row in kept] == list(range(len(kept)))
        return run.exit_status, [row.raw for row in kept]

    assert quarantined("first") == (0, ["first"])
    assert quarantined("first") == (0, ["first"])  # the same content is not doubled
    assert quarantined("other") == (2, ["first"])
    assert quarantined("other", "second") == (2, ["first"])
    assert quarantined("first", "second") == (0, ["first", "second"])  # an input that has grown loses nothing
    assert quarantined("first") == (0, ["first", "second"])


def test_one_bad_row_and_nothing_is_put(commitlake: Commitlake, store: Store, tmp_path: Path) -> None:
    rows = [{"topic": "orders", "body": "a"}] * 30 + [{"topic": "orders"}] * 25
    run = put(commitlake, store, write_jsonl(tmp_path / "a.jsonl", rows))
    assert run.exit_status == 2
    assert "25 of 55 rows cannot be put, so none was" in run.stderr
    assert "a.jsonl line 31: body is missing" in run.stderr
    assert "a.jsonl line 50: body is missing" in run.stderr
    assert "line 51:" not in run.stderr
    assert "and 5 more" in run.stderr
    assert bodies(store) == []
    assert "orders" not in {row.topic for row in store.topics.collect()}


@pytest.mark.parametrize("options", [(), ("--selector", "random")], ids=["by arrival", "by a selector"])
def test_bad_rows_of_an_input_to_be_arranged_are_named_by_their_lines(
    commitlake: Commitlake, store: Store, tmp_path: Path, options: tuple[str, ...]
) -> None:
    order = {} if options else {"arrival": 1}
    rows = [{"topic": "orders", "body": "a", **(order and {"arrival": 2})}, {"topic": "orders", **order}]
    run = put(commitlake, store, write_jsonl(tmp_path / "a.jsonl", rows), *options)
    assert run.exit_status == 2
    assert "a.jsonl line 2: body is missing" in run.stderr
    assert "writing the input down" not in run.stderr
    assert "calling the selector" not in run.stderr


def test_lines_without_text_count_as_lines(commitlake: Commitlake, store: Store, tmp_path: Path) -> None:
    good, bad = '{"topic": "orders", "body": "a"}\n', '{"topic": "orders"}\n'
    for name, text in {
        "a.jsonl": "\n" + good + "  \n" + good,
        "b.jsonl": "\n" + good + bad + " \t\n\n" + bad,
        "c.jsonl": bad,
    }.items():
        (tmp_path / name).write_text(text)
    run = put(commitlake, store, tmp_path)
    listed = [line.split(":")[0] for line in run.stderr.splitlines() if "body is missing" in line]
    assert [line.strip() for line in listed] == ["b.jsonl line 3", "b.jsonl line 6", "c.jsonl line 1"]


def test_each_bad_row_is_told_with_its_line(
    commitlake: Commitlake, new_store: Callable[..., Store], tmp_path: Path
) -> None:
    """Of the reasons, which are in test_complaints.py, those that the store knows."""
    store = new_store(maxMessageSize="1000")
    rows = [
        {"topic": "T", "body": "x" * 1_001},
        {"topic": "T", "body": "fine"},
        {"topic": "T", "body": "", "queue_id": 4},
        {"topic": "T", "body": "", "tagz": "x"},
    ]
    run = put(commitlake, store, write_jsonl(tmp_path / "a.jsonl", rows))
    assert run.exit_status == 2
    for line, complaint in (
        (1, "its body is 1001 bytes; at most 1000 (maxMessageSize)"),
        (3, "queue_id is 4; topic T has queues 0 to 3"),
        (4, "unknown column tagz"),
    ):
        assert f"a.jsonl line {line}: {complaint}" in run.stderr
    assert "line 2:" not in run.stderr


def test_a_topic_is_made_on_the_fly_with_four_queues_or_refused(
    commitlake: Commitlake, store: Store, new_store: Callable[..., Store], tmp_path: Path
) -> None:
    source = write_jsonl(tmp_path / "a.jsonl", [{"topic": "new", "body": str(n)} for n in range(8)])
    run = put(commitlake, store, source)
    assert run.result["appended"] == 8
    assert {row.queue_id for row in store.commitlog.collect()} == {0, 1, 2, 3}
    assert store.topics.where("topic = 'new'").first().write_queue_nums == 4  # type: ignore[union-attr]
    strict = new_store(autoCreateTopicEnable="false")
    refused = put(commitlake, strict, source)
    assert refused.exit_status == 2
    assert "topic new does not exist and autoCreateTopicEnable is false" in refused.stderr


def test_round_robin_goes_on_where_the_last_put_ended(
    commitlake: Commitlake, store: Store, tmp_path: Path
) -> None:
    for number, count in enumerate([3, 3]):
        put(
            commitlake,
            store,
            write_jsonl(tmp_path / f"{number}.jsonl", [{"topic": "T", "body": "x"}] * count),
        )
    queues = [row.queue_id for row in store.commitlog.orderBy("physical_offset").collect()]
    assert queues == [0, 1, 2, 3, 0, 1]


def test_a_topic_that_is_not_writable_is_refused(
    commitlake: Commitlake, store: Store, tmp_path: Path
) -> None:
    assert commitlake("topics", "--store", store.uri, "create", "closed", "--perm", "R").exit_status == 0
    run = put(commitlake, store, write_jsonl(tmp_path / "a.jsonl", [{"topic": "closed", "body": ""}]))
    assert run.exit_status == 2
    assert "topic closed is not writable" in run.stderr


def test_what_is_put_to_retries_is_for_a_group_and_no_batch(
    commitlake: Commitlake, store: Store, new_store: Callable[..., Store], tmp_path: Path
) -> None:
    retry = {"topic": "%RETRY%billing", "body": "a"}
    alone = write_jsonl(tmp_path / "alone.jsonl", [retry])
    batch = write_jsonl(tmp_path / "batch.jsonl", [{**retry, "batch": "1"}, {**retry, "batch": "1"}])
    refused = put(commitlake, store, batch)
    assert refused.exit_status == 2
    assert "a batch cannot be sent to retries (topic %RETRY%billing)" in refused.stderr
    assert store.subscription_groups.where("`group` = 'billing'").isEmpty()
    assert put(commitlake, store, alone).result["appended"] == 1
    assert store.subscription_groups.where("`group` = 'billing'").count() == 1
    closed = new_store(autoCreateSubscriptionGroup="false")
    refused = put(commitlake, closed, alone)
    assert refused.exit_status == 2
    assert "topic %RETRY%billing holds retries of group billing, which does not exist" in refused.stderr
    assert closed.topics.where("topic = '%RETRY%billing'").isEmpty()


def test_arrival_decides_the_order(commitlake: Commitlake, store: Store, tmp_path: Path) -> None:
    rows = [{"topic": "T", "body": str(n), "arrival": arrival} for n, arrival in enumerate([30, 10, 20, 10])]
    run = put(commitlake, store, write_jsonl(tmp_path / "a.jsonl", rows))
    assert run.exit_status == 0, run.stderr
    assert bodies(store) == ["1", "3", "2", "0"]
    assert not list(Path(store.uri.removeprefix("file:")).glob("_staging/*"))


@pytest.mark.slow
def test_a_bad_row_without_an_arrival_does_not_keep_the_others_out(
    commitlake: Commitlake, store: Store, tmp_path: Path
) -> None:
    lines = [
        '{"topic": "T", "body": "second", "arrival": 20}',
        "nonsense",
        '{"topic": "T", "body": "first", "arrival": 10}',
        '{"topic": "T", "body": "never", "arrival": "abc"}',
    ]
    source = tmp_path / "a.jsonl"
    source.write_text("\n".join(lines))
    for appended in (2, 0):
        run = put(commitlake, store, source, "--on-bad", "quarantine")
        assert (run.exit_status, run.result["appended"], run.result["rejected"]) == (0, appended, 2), (
            run.stderr
        )
    assert bodies(store) == ["first", "second"]
    reasons = {row.reason for row in store.rejected_messages.collect()}
    assert reasons == {"not a JSON object", "arrival is abc; expected a whole number of type long"}


def test_bodies_are_compressed_only_when_asked(commitlake: Commitlake, store: Store, tmp_path: Path) -> None:
    rows = [{"topic": "T", "body": "a" * 500}, {"topic": "T", "body": "b"}]
    put(commitlake, store, write_jsonl(tmp_path / "a.jsonl", rows), "--compress-over", "100")
    long, short = store.commitlog.orderBy("physical_offset").collect()
    assert long.sys_flag == 0x301
    assert bytes(long.body) == zlib.compress(b"a" * 500, 5)
    assert long.body_crc == zlib.crc32(bytes(long.body)) & 0x7FFFFFFF
    assert (short.sys_flag, bytes(short.body)) == (0, b"b")


@pytest.mark.parametrize(
    ("compression", "sys_flag", "reader"),
    [
        ("lz4", 0x101, "net.jpountz.lz4.LZ4FrameInputStream"),
        ("zstd", 0x201, "com.github.luben.zstd.ZstdInputStream"),
        ("zlib", 0x301, "java.util.zip.InflaterInputStream"),
    ],
)
def test_what_is_compressed_a_rocketmq_consumer_can_read(
    spark: SparkSession, compression: str, sys_flag: int, reader: str
) -> None:
    # Larger than a block of LZ4, so that its blocks could build on each other.
    body = "".join(f"{n * n} apples and {n} pears; " for n in range(20_000)).encode()
    packed = spark.range(1).select(compressed(F.lit(body), Codec(compression)).alias("body")).first()[0]
    assert len(packed) < len(body) / 2
    jvm = spark._jvm
    stream = jvm
    for name in reader.split("."):
        stream = getattr(stream, name)
    opened = stream(jvm.java.io.ByteArrayInputStream(packed))
    assert bytes(opened.readAllBytes()) == body
    assert SYS_FLAG_BITS[Codec(compression)] | 1 == sys_flag
    assert unpacked(bytes(packed), sys_flag, len(body)) == body
    with pytest.raises(BodyTooLarge, match=f"unpacks to more than {len(body) - 1} "):
        unpacked(bytes(packed), sys_flag, len(body) - 1)


def test_a_batch_too_large_is_refused_or_cut(
    commitlake: Commitlake, new_store: Callable[..., Store], tmp_path: Path
) -> None:
    store = new_store(maxMessageSize="400")
    rows = [{"topic": "T", "body": "x" * 100, "batch": "b", "unique_key": f"k{n}"} for n in range(5)]
    source = write_jsonl(tmp_path / "a.jsonl", rows)
    refused = put(commitlake, store, source)
    assert refused.exit_status == 2
    assert "batch 'b' is 670 bytes; at most 400 (maxMessageSize)" in refused.stderr
    assert put(commitlake, store, source, "--split-batches").result["appended"] == 5
    placed = [
        (row.queue_id, row.queue_offset) for row in store.commitlog.orderBy("physical_offset").collect()
    ]
    assert placed == [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0)]  # each part takes its own turn


def test_a_batch_of_two_topics_is_refused_whole(commitlake: Commitlake, store: Store, tmp_path: Path) -> None:
    rows = [
        {"topic": "T", "body": "", "batch": "b"},
        {"topic": "U", "body": "", "batch": "b"},
        {"topic": "T", "body": "1"},
    ]
    run = put(commitlake, store, write_jsonl(tmp_path / "a.jsonl", rows), "--on-bad", "quarantine")
    assert (run.result["appended"], run.result["rejected"]) == (1, 2)
    assert bodies(store) == ["1"]
    assert store.rejected_messages.count() == 2


def test_a_selector_of_ones_own_chooses(
    commitlake: Commitlake, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_selectors.py").write_text(
        "def by_length(queues, message, sharding_key):\n    return len(message.body) % len(queues)\n"
    )
    monkeypatch.chdir(tmp_path)
    source = write_jsonl(tmp_path / "a.jsonl", [{"topic": "T", "body": "x" * n} for n in range(6)])
    run = put(commitlake, store, source, "--selector", "my_selectors:by_length")
    assert run.exit_status == 0, run.stderr
    assert [row.queue_id for row in store.commitlog.orderBy("physical_offset").collect()] == [
        0,
        1,
        2,
        3,
        0,
        1,
    ]
    missing = put(commitlake, store, source, "--selector", "my_selectors:nothing")
    assert missing.exit_status == 2
    assert "has no function nothing" in missing.stderr


@pytest.mark.slow
def test_the_selector_random_spreads_a_batch_alike_each_time(
    commitlake: Commitlake, new_store: Callable[..., Store], tmp_path: Path
) -> None:
    """A queue or a sharding key of the row's own decides before it."""
    free = [{"topic": "T", "body": f"{n}"} for n in range(80)]
    decided = [{"topic": "T", "body": "named", "queue_id": 3}] * 8 + [
        {"topic": "T", "body": "sharded", "sharding_key": "k"}
    ] * 8
    source = write_jsonl(tmp_path / "a.jsonl", free + decided)

    def queues(batch_id: str) -> list[int]:
        store = new_store()
        run = put(commitlake, store, source, "--selector", "random", "--batch-id", batch_id)
        assert (run.exit_status, run.result["appended"]) == (0, 96), run.stderr
        return [row.queue_id for row in store.commitlog.orderBy("physical_offset").collect()]

    first, again, other = queues("one"), queues("one"), queues("two")
    assert first == again
    assert first[:80] != other[:80]
    # 20 each on average; fewer than 8 of 80 comes once in a thousand batches, and these are always the same.
    assert all(first[:80].count(queue) >= 8 for queue in range(4))
    assert first[80:88] == [3] * 8
    assert len(set(first[88:])) == 1


def test_the_selector_random_chooses_one_queue_for_a_batch(
    commitlake: Commitlake, store: Store, tmp_path: Path
) -> None:
    rows = [{"topic": "T", "body": f"{n}", "batch": f"b{n // 8}"} for n in range(64)]
    run = put(commitlake, store, write_jsonl(tmp_path / "a.jsonl", rows), "--selector", "random")
    assert (run.exit_status, run.result["appended"]) == (0, 64), run.stderr
    queues = [row.queue_id for row in store.commitlog.orderBy("physical_offset").collect()]
    assert all(len(set(queues[first : first + 8])) == 1 for first in range(0, 64, 8))
    assert len(set(queues)) > 1


def test_csv_and_delta_are_inputs_too(commitlake: Commitlake, store: Store, tmp_path: Path) -> None:
    table = tmp_path / "delta"
    spark = store.spark
    spark.createDataFrame([("T", bytearray(b"\x00\xff"))], "topic string, body binary").write.format(
        "delta"
    ).save(str(table))
    assert put(commitlake, store, table, "--format", "delta").result["appended"] == 1
    text = tmp_path / "a.csv"
    text.write_text('topic,body,properties\nT,"two\nlines","{""p"": ""1""}"\n')
    run = put(commitlake, store, text, "--format", "csv")
    assert run.exit_status == 0, run.stderr
    binary, lines = store.commitlog.orderBy("physical_offset").collect()
    assert bytes(binary.body) == b"\x00\xff"
    assert bytes(lines.body) == b"two\nlines"
    assert lines.properties.startswith("p\x011\x02")


def test_wrong_arguments_say_what_was_expected(commitlake: Commitlake, store: Store, tmp_path: Path) -> None:
    source = write_jsonl(tmp_path / "a.jsonl", [{"topic": "T", "body": ""}])
    wrong = {
        ("--format", "xml"): "--format is 'xml'; expected one of jsonl, parquet, delta, csv",
        ("--on-bad", "skip"): "--on-bad is 'skip'; expected one of reject, quarantine",
        ("--selector", "best"): "expected round_robin, hash, random or MODULE:NAME",
        ("--batch-id", "a b"): "--batch-id is 'a b'; expected 1 to 200 letters",
    }
    for option, sentence in wrong.items():
        run = put(commitlake, store, source, *option)
        assert run.exit_status == 2
        assert sentence in run.stderr
    missing = put(commitlake, store, tmp_path / "nothing")
    assert missing.exit_status == 2
    assert "there is nothing at" in missing.stderr
    nowhere = commitlake("put_messages", "--store", tmp_path / "no-store", "--input", source)
    assert nowhere.exit_status == 2
    assert "no store at" in nowhere.stderr
    unknown = commitlake("put_messages", "--store", store.uri, "--input", source, "--fromat", "csv")
    assert unknown.exit_status == 2
    assert unknown.result["status"] == "failed"


def test_a_run_leaves_its_result_in_job_runs_and_where_it_is_told(
    commitlake: Commitlake, store: Store, tmp_path: Path
) -> None:
    source = write_jsonl(
        tmp_path / "a.jsonl", [{"topic": "T", "body_base64": base64.b64encode(b"x").decode()}]
    )
    run = put(commitlake, store, source, "--result-path", str(tmp_path / "result.json"))
    assert json.loads((tmp_path / "result.json").read_text()) == run.result
    recorded = store.job_runs.where("job = 'put_messages'").collect()
    assert [json.loads(row.result) for row in recorded] == [run.result]
    put(commitlake, store, source)  # writes nothing, leaves nothing
    assert store.job_runs.where("job = 'put_messages'").count() == 1
