"""A store with a long past: up to 100,000 segments of a gigabyte, of which Delta's logs know and no file is there.

    .venv/bin/python benchmarks/past.py [--segments 100,2000,40000,100000] [--rounds 5]

The files of the past have the statistics that real ones would have: a file a segment in the log, sorted runs of 256 million
rows in the consume queue and the key index. Only what is new is put, dispatched and read: what is measured is what jobs take
to pass over the rest. A key is looked up in all sorted runs, so the files of the index are there, all one small file.
Figures are those of growth.py.
"""

import argparse
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(PROJECT))

from benchmarks.growth import NOW_MS, QUEUES, Size, build, fill, measure, new_store, show, topic_name  # noqa: E402

GIB = 1024**3
ROWS_OF_A_SEGMENT, BYTES_OF_A_SEGMENT = 2_300_000, 330_000_000
TOPICS = 20
# Of one segment.
ROWS_OF_A_QUEUE = ROWS_OF_A_SEGMENT // (TOPICS * QUEUES)
# A file system allows 65,000 names of a file, or more.
NAMES_OF_A_FILE = 50_000
# An append a segment.
ROWS_OF_A_RUN, ROWS_OF_A_FILE = 256_000_000, 1_000_000
SMALL = Size(10_000)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--segments", default="100,2000,40000,100000")
    options.add_argument("--rounds", type=int, default=5)
    asked = options.parse_args()
    sizes = [int(each) for each in asked.segments.split(",")]

    from jobs.launch.session import session

    spark = session("past benchmark")
    with tempfile.TemporaryDirectory() as work:
        plain = build(spark, Path(work, "plain"), SMALL)
        measure(plain, SMALL, 5)
        found = []
        for segments in sizes:
            store = with_past(spark, Path(work, f"past-{segments}"), segments, plain)
            size = replace(SMALL, first_offset=segments * ROWS_OF_A_QUEUE)
            found.append(measure(store, size, asked.rounds))
        show("segments of the past", sizes, found)


def with_past(spark: Any, path: Path, segments: int, like: Any) -> Any:
    """A store of `segments` full segments that are named in Delta's logs alone, and of some messages after them.

    like  a store whose files have statistics to begin from
    """
    from pipelines.store.commit import commit
    from pipelines.store.head import LogHead, bounds_write
    from pipelines.store.plan import Plan
    from pipelines.store.progress import progress_write
    from pipelines.store.store import Store
    from schemas import COMMITLOG, CONSUME_QUEUE, DERIVED, MESSAGE_INDEX

    store = new_store(spark, path, SMALL)
    rows, queues = segments * ROWS_OF_A_SEGMENT, TOPICS * QUEUES
    for table, files in (
        (COMMITLOG, log_files(segments, template(like, COMMITLOG))),
        (CONSUME_QUEUE, queue_files(segments, rows, template(like, CONSUME_QUEUE))),
        (MESSAGE_INDEX, index_files(segments, 2 * rows, template(like, MESSAGE_INDEX))),
    ):
        # The log's last append, and one commit of each other table.
        number = segments - 1 if table is COMMITLOG else 0
        write_commit(Path(store.path(table)), table.name, number, files)
        store.delta(table).update().write_checkpoint()
    link_index(
        Path(store.path(MESSAGE_INDEX)), index_files(segments, 2 * rows, template(like, MESSAGE_INDEX)), like
    )
    store = Store(spark, str(path))
    each = rows // queues
    following = {(topic_name(topic), queue): each for topic in range(TOPICS) for queue in range(QUEUES)}
    head = LogHead(segments - 1, 0, segments * GIB, NOW_MS - 1, following, dict.fromkeys(following, 0))
    commit(store, lambda at: Plan((bounds_write(at, head),)))
    followed = {table.name: segments - 1 for table in DERIVED}
    commit(store, lambda at: Plan((progress_write(at, followed),)))
    fill(store, SMALL)
    return store


def template(store: Any, table: Any) -> dict[str, Any]:
    """The action by which Delta's log adds a file of a table."""
    commits = sorted(Path(store.path(table), "_delta_log").glob("*.json"))
    actions = [json.loads(line) for commit in commits for line in commit.read_text().splitlines()]
    added: dict[str, Any] = [action["add"] for action in actions if "add" in action][-1]
    return {**added, "dataChange": True}


def file_like(
    like: Mapping[str, Any], name: str, size: int, rows: int, **bounds: tuple[Any, Any]
) -> dict[str, Any]:
    """A file with other statistics: column -> its least and its greatest value."""
    stats = json.loads(like["stats"])
    nulls = {column: rows if count else 0 for column, count in stats["nullCount"].items()}
    stats |= {
        "numRecords": rows,
        "nullCount": nulls,
        "minValues": stats["minValues"] | {column: least for column, (least, _) in bounds.items()},
        "maxValues": stats["maxValues"] | {column: greatest for column, (_, greatest) in bounds.items()},
    }
    return {**like, "path": name, "size": size, "stats": json.dumps(stats)}


def log_files(segments: int, like: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for number in range(segments):
        start = number * GIB
        file = file_like(
            like,
            f"segment={start}/past-{number}.parquet",
            BYTES_OF_A_SEGMENT,
            ROWS_OF_A_SEGMENT,
            physical_offset=(start, start + GIB - 500),
            queue_offset=(number * ROWS_OF_A_QUEUE, (number + 1) * ROWS_OF_A_QUEUE),
            store_timestamp=(NOW_MS - 10**9 + number, NOW_MS - 10**9 + number),
            append_seq=(number, number),
            append_id=(f"past-{number}:0-{ROWS_OF_A_SEGMENT}",) * 2,
        )
        yield {**file, "partitionValues": {"segment": str(start)}}


def queue_files(segments: int, rows: int, like: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for run, first, last, file, files in run_files(segments, rows):
        topic = topic_name(file * TOPICS // files)
        yield file_like(
            like,
            f"past-{run}-{file}.parquet",
            12_000_000,
            ROWS_OF_A_FILE,
            topic=(topic, topic),
            queue_id=(file * TOPICS * QUEUES // files % QUEUES,) * 2,
            queue_offset=(first * ROWS_OF_A_QUEUE, (last + 1) * ROWS_OF_A_QUEUE - 1),
            physical_offset=(first * GIB, (last + 1) * GIB - 1),
            store_timestamp=(NOW_MS - 10**9 + first, NOW_MS - 10**9 + last),
            append_seq=(first, last),
            segment=(first * GIB, last * GIB),
        )


def index_files(segments: int, rows: int, like: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for run, first, last, file, files in run_files(segments, rows):
        yield file_like(
            like,
            f"past-{run}-{file}.parquet",
            like["size"],
            ROWS_OF_A_FILE,
            key_hash=(2**31 * file // files, 2**31 * (file + 1) // files - 1),
            append_seq=(first, last),
            segment=(first * GIB, last * GIB),
        )


def link_index(table: Path, files: Iterator[dict[str, Any]], like: Any) -> None:
    """Have the files of an index be there, as names of a small one."""
    from schemas import MESSAGE_INDEX

    (small, *_) = Path(like.path(MESSAGE_INDEX)).glob("*.parquet")
    for number, file in enumerate(files):
        if number % NAMES_OF_A_FILE == 0:
            source = table / f"_source-{number}"
            shutil.copyfile(small, source)
        os.link(source, table / file["path"])


def run_files(segments: int, rows: int) -> Iterator[tuple[int, int, int, int, int]]:
    """Each file of each sorted run: the run, its first and its last append, the file, and how many files the run has.

    An append is a segment.
    """
    runs = min(segments, max(1, rows // ROWS_OF_A_RUN))
    for run in range(runs):
        first, last = segments * run // runs, segments * (run + 1) // runs - 1
        files = max(1, rows // runs // ROWS_OF_A_FILE)
        for file in range(files):
            yield run, first, last, file, files


def write_commit(table: Path, name: str, number: int, files: Iterator[dict[str, Any]]) -> None:
    """Add files to a table's log that are not there, in a commit with a number."""
    log = table / "_delta_log"
    version = len(list(log.glob("*.json")))
    info = {"timestamp": NOW_MS, "operation": "WRITE", "operationParameters": {}, "txnId": "past"}
    with (log / f"{version:020d}.json").open("w") as lines:
        lines.write(json.dumps({"commitInfo": info}) + "\n")
        lines.write(json.dumps({"txn": {"appId": name, "version": number, "lastUpdated": NOW_MS}}) + "\n")
        lines.writelines(json.dumps({"add": file}) + "\n" for file in files)


if __name__ == "__main__":
    main()
