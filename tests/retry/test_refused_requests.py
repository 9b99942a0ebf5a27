"""Requests that would bring back what no group has consumed, or bring it where nobody reads."""

from collections.abc import Callable

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.life import B, Life


def test_nor_in_requests(life: Callable[..., Life]) -> None:
    one = life()
    one.put(B, {"topic": "T"}, {"topic": "T"})
    a, b = (row.physical_offset for row in one.rows())
    path = one.directory / "req.jsonl"
    path.write_text(f'{{"physical_offset":{a}}}{{"physical_offset":{b}}}\n')
    done = one.run("send_back", B, "--group", "g", "--input", path)
    assert done.exit_status == 2 or done.result["sent_back"] == 2, done


@pytest.mark.slow
def test_a_half_and_a_waiting_message_are_not_sent_back(life: Callable[..., Life]) -> None:
    one = life()
    one.put(B, {"topic": "T", "body": "half", "transaction": "true", "producer_group": "p"},
            {"topic": "T", "body": "later", "deliver_at_ms": B + 10**9})  # fmt: skip
    path = one.input(*[{"physical_offset": row.physical_offset} for row in one.rows()])
    sent = one.run("send_back", B + 1, "--group", "g", "--input", path)
    one.deliver(B + 20_000)
    early = [(row.topic, bytes(row.body)) for row in one.rows() if row.topic == "%RETRY%g"]
    assert sent.exit_status == 2, sent
    assert not early


@pytest.mark.slow
@pytest.mark.parametrize("name", ["req[1].jsonl", "req*.csv", "{a,b}?.parquet"])
def test_a_requests_own_name_is_no_glob_pattern(life: Callable[..., Life], name: str) -> None:
    one = life()
    one.put(B, {"topic": "T"})
    offset = one.rows()[0].physical_offset
    path = one.directory / name
    requests = {
        "jsonl": f'{{"physical_offset":{offset}}}\n'.encode(),
        "csv": f"physical_offset\n{offset}\n".encode(),
    }.get(name.rpartition(".")[2])
    if requests is None:
        pq.write_table(pa.table({"physical_offset": [offset]}), path)
    else:
        path.write_bytes(requests)
    assert one.job("send_back", B, "--group", "g", "--input", path).result["sent_back"] == 1


@pytest.mark.parametrize("topic", ["rmq_sys_wheel_timer", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC"])
def test_redrive_refuses_the_topics_a_put_refuses(life: Callable[..., Life], topic: str) -> None:
    one = life()
    one.put(B, {"topic": "T"})
    done = one.run("redrive", B + 1, "--where", "topic='T'", "--to-topic", topic)
    assert done.exit_status == 2, done


@pytest.mark.parametrize("topic", ["bad name", "ReadOnly"])
def test_a_dry_run_refuses_the_topics_that_the_redrive_refuses(life: Callable[..., Life], topic: str) -> None:
    one = life()
    one.put(B, {"topic": "T"})
    one.job("topics", B, "create", "ReadOnly", "--perm", "R")
    for more in ((), ("--dry-run",)):
        refused = one.job("redrive", B + 1, "--where", "topic='T'", "--to-topic", topic, *more, exit_status=2)
        assert topic in refused.stderr, refused
