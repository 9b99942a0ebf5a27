"""How fast a broker's log becomes a table: `import_store` against a plain read of its files and a plain Delta write.

    .venv/bin/python benchmarks/import_store.py [--megabytes 926] [--segment-megabytes 128] [--rounds 3] [--warm-ups 3]

The log has records of about 463 bytes, 20 topics of 8 queues. It has no consume queues, so that its whole length is
recovered, with every CRC: the most work an import can have. It is imported several times, into a new store each, as the
first ones in a session also compile: the rounds that warm up do not count.
"""

import argparse
import json
import os
import random
import shutil
import statistics
import struct
import sys
import tempfile
import time
import zlib
from collections.abc import Callable
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(PROJECT))

from benchmarks.figures import keep  # noqa: E402

TOPICS, QUEUES, BODY_BYTES = 20, 8, 300
MEGABYTE = 1_000_000
HOST = bytes([10, 0, 0, 1]) + struct.pack(">i", 10_911)
HEAD = struct.Struct(">iIiiiqqiq8sq8siqi")
MAGIC = 0xDAA320A7


def write_log(root: Path, log_bytes: int, segment_bytes: int) -> int:
    """Write a log of about `log_bytes`; returns the number of its messages."""
    directory = root / "commitlog"
    directory.mkdir(parents=True)
    random.seed(7)
    # Bodies are windows into a megabyte of text: cheap to make, and they compress about as well as JSON with ids does.
    words = ["order", "paid", "amount", "region", "customer", "cn-hz", "us-1", "true", "null", "2024"]
    text = " ".join(f'"{random.choice(words)}":{random.randrange(10**9)}' for _ in range(60_000)).encode()
    at = messages = 0
    next_offsets = [0] * (TOPICS * QUEUES)
    while at < log_bytes:
        segment, start = bytearray(segment_bytes), at
        while True:
            queue = messages * 7919 % (TOPICS * QUEUES)
            topic = b"topic-%02d" % (queue // QUEUES)
            window = random.randrange(len(text) - BODY_BYTES)
            body = text[window : window + BODY_BYTES]
            properties = b"UNIQ_KEY\x01%032X\x02KEYS\x01k%d\x02TAGS\x01t%d\x02" % (
                messages,
                messages,
                messages % 5,
            )
            size = 91 + BODY_BYTES + len(topic) + len(properties)
            position = at - start
            if size + 8 > segment_bytes - position or at >= log_bytes:
                break
            stored = 1_700_000_000_000 + messages // 100
            HEAD.pack_into(
                segment, position, size, MAGIC, zlib.crc32(body) & 0x7FFFFFFF, queue % QUEUES, 0, next_offsets[queue], at, 0,
                stored, HOST, stored, HOST, 0, 0, BODY_BYTES,
            )  # fmt: skip
            tail = body + bytes([len(topic)]) + topic + struct.pack(">h", len(properties)) + properties
            segment[position + 88 : position + size] = tail
            next_offsets[queue] += 1
            messages += 1
            at += size
        if at < log_bytes:
            struct.pack_into(">iI", segment, at - start, segment_bytes - (at - start), 0xCBD43194)
        (directory / f"{start:020d}").write_bytes(segment)
        at = start + segment_bytes if at < log_bytes else at
        if at >= log_bytes:
            return messages
    return messages


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Seconds on the clock, and seconds of processor time of this process, its JVM and their Python workers."""
    started, before = time.monotonic(), processor_seconds()
    work()
    return time.monotonic() - started, processor_seconds() - before


def processor_seconds() -> float:
    """Processor seconds of this process and its descendants, ended ones included once their parents have waited for them."""
    parents, used = {}, {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(entry.name)] = int(fields[1])
            used[int(entry.name)] = sum(int(field) for field in fields[11:15])
    ours = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in ours} - ours:
        ours |= more
    return sum(used.get(pid, 0) for pid in ours) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--megabytes", type=int, default=926, help="2 M messages")
    options.add_argument("--segment-megabytes", type=int, default=128)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--warm-ups", type=int, default=3)
    asked = options.parse_args()
    with tempfile.TemporaryDirectory() as work:
        log_bytes, segment_bytes = asked.megabytes * MEGABYTE, asked.segment_megabytes * 2**20
        bench(Path(work), log_bytes, segment_bytes, asked.rounds, asked.warm_ups)


def bench(work: Path, log_bytes: int, segment_bytes: int, rounds: int, warm_ups: int) -> None:
    from jobs.launch.session import session
    from pipelines.broker_files.broker_log import BrokerLog
    from pipelines.broker_files.directory import BrokerDirectory
    from pipelines.broker_files.import_log import read_rows, waits
    from pipelines.rocketmq.settings import Settings
    from pipelines.store.create import make_store
    from pipelines.store.store import Store

    broker = work / "broker"
    messages = write_log(broker, log_bytes, segment_bytes)
    files = sorted((broker / "commitlog").iterdir())
    spark = session("import_store benchmark")
    print(
        f"{messages:,} messages of {log_bytes / messages:.0f} bytes, {len(files)} segments of {segment_bytes:,} bytes"
    )
    warm_up(spark, work)

    def show(what: str, taken: tuple[float, float], note: str = "") -> None:
        seconds, processor = taken
        speed = f"{log_bytes / seconds / MEGABYTE:6.0f} MB/s  {messages / seconds:9,.0f} messages/s"
        print(f"{what:<46} {seconds:6.1f} s  {speed}  {processor:6.1f} s of processors  {note}", flush=True)

    show("plain read of the files", timed(lambda: [file.read_bytes() for file in files]))
    directory = BrokerDirectory(str(broker))
    logs: list[BrokerLog] = []
    show(
        "recovery: find the end, check every CRC",
        timed(lambda: logs.append(BrokerLog.read(spark, directory, {}))),
    )
    log = logs[0]
    rows = read_rows(spark, directory, log.next_rows(log.start_offset, 2**62).pieces, waits(Settings.of({})))
    show(
        "parse all columns on the executors, write none",
        timed(lambda: rows.write.format("noop").mode("overwrite").save()),
    )
    settings = {"mappedFileSizeCommitLog": str(segment_bytes)}

    def one_round(number: int) -> tuple[float, float]:
        """Seconds of an import, and of a plain Delta read and append of the same rows."""
        print(f"round {number + 1}")
        plain, copy, store = (work / f"{name}{number}" for name in ("plain", "copy", "store"))
        show(
            "parse and plain Delta append",
            timed(lambda: rows.write.format("delta").partitionBy("segment").save(str(plain))),
        )
        again = spark.read.format("delta").load(str(plain))
        copied = timed(lambda: again.write.format("delta").partitionBy("segment").save(str(copy)))
        show("plain Delta read and append of the same rows", copied)
        show("make the tables of a store", timed(lambda: make_store(Store(spark, str(store)), settings)))
        imported = timed(lambda: run_import(store, broker, messages))
        show("import_store into it: recovery, state, log", imported)
        for made in (plain, copy, store):
            shutil.rmtree(made)
        return imported[0], copied[0]

    taken = [one_round(number) for number in range(warm_ups + rounds)][warm_ups:]
    ours, plain = (log_bytes / statistics.median(each) / MEGABYTE for each in zip(*taken, strict=True))
    keep("import_store", ours, "MB/s", plain_Delta_read_and_append=plain)
    print(
        "\nWhat bounds it: rows and Parquet in the JVM (the plain append); parsing itself is columnar and takes a tenth "
        "of that. Making the store and its state takes the same for a log of any length."
    )


def run_import(store: Path, broker: Path, messages: int) -> None:
    from jobs.import_store import import_store
    from jobs.launch.job import main as run_job

    result = store.parent / f"{store.name}.json"
    arguments = ["--store", str(store), "--from", str(broker), "--quiet", "--result-path", str(result)]
    try:
        run_job(import_store, arguments)
    except SystemExit as leave:
        if leave.code:
            raise
    imported = json.loads(result.read_text())["messages"]
    if imported != messages:
        raise AssertionError(f"{messages} were to be imported: {imported}")


def warm_up(spark, work: Path) -> None:  # type: ignore[no-untyped-def]
    """Do what a session does once: load Delta, start Python workers."""
    spark.range(1000).write.format("delta").save(str(work / "warm"))
    spark.read.format("rocketmq_store").load(str(work / "broker")).where("physical_offset < 1").collect()


if __name__ == "__main__":
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    main()
