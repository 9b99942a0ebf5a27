"""Large jobs as a user starts them: each a process of its own, less the time of a session that does nothing.

    .venv/bin/python benchmarks/started.py [--messages 2000000] [--rounds 3]

Messages of 300 bytes in 20 topics of 8 queues: a put beside a plain Delta append of the finished rows, a dispatch, and one
GROUP BY over the log. The other benchmarks time what a session does that has done it before.
"""

import argparse
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(PROJECT))

from benchmarks.commands import expect_done, run, timed  # noqa: E402
from benchmarks.figures import keep  # noqa: E402

NOTHING = "from jobs.launch.session import session; session('nothing').range(1).count()"
MAKE = """
from pathlib import Path
from benchmarks.put_messages import messages
from jobs.launch.session import session
made = messages(session("input"), {count}, False)
# Topics are made by the put, with four queues.
made.withColumn("queue_id", made.queue_id % 4).write.parquet({to!r})
"""
# What a user would write without a message store: the rows are finished, and appended to a table partitioned alike.
FINISH = """
from jobs.launch.session import session
log = session("finish").read.format("delta").load({log!r})
log.orderBy("physical_offset").write.parquet({to!r})
"""
PLAIN = """
from jobs.launch.session import session
spark = session("plain", runs_users_code=False)
rows = spark.read.parquet({finished!r})
rows.write.format("delta").partitionBy("segment").mode("append").save({to!r})
"""
STATISTICS = "SELECT topic, queue_id, count(*) AS messages, sum(size_bytes) AS bytes FROM messages GROUP BY topic, queue_id"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--messages", type=int, default=2_000_000)
    options.add_argument("--rounds", type=int, default=3)
    asked = options.parse_args()
    with tempfile.TemporaryDirectory() as work:
        measure(Path(work), asked.messages, asked.rounds)


def measure(work: Path, count: int, rounds: int) -> None:
    source, finished = str(work / "input"), str(work / "finished")
    python(MAKE.format(count=count, to=source))
    seconds: dict[str, list[float]] = {}

    def note(name: str, work: Callable[[], None]) -> None:
        seconds.setdefault(name, []).append(timed(work))

    for number in range(rounds):
        store = str(work / f"store-{number}")
        run(["create_store", "--store", store])
        note("nothing", lambda: python(NOTHING))
        put = ["put_messages", "--store", store, "--input", source, "--format", "parquet", "--batch-id", "b"]
        note("put", lambda put=put: run(put))  # type: ignore[misc]
        if not number:
            python(FINISH.format(log=f"{store}/commitlog", to=finished))
        plain = PLAIN.format(finished=finished, to=str(work / f"plain-{number}"))
        note("plain Delta append", lambda plain=plain: python(plain))  # type: ignore[misc]
        note("dispatch", lambda store=store: run(["dispatch", "--store", store]))  # type: ignore[misc]
        group_by = ["sql", "--store", store, STATISTICS]
        note("GROUP BY topic, queue_id", lambda group_by=group_by: run(group_by))  # type: ignore[misc]

    nothing = statistics.median(seconds.pop("nothing"))
    print(
        f"{count:,} messages, medians of {rounds} rounds; a session that does nothing takes {nothing:.1f} s"
    )
    speed = {}
    for name, taken in seconds.items():
        median = statistics.median(taken)
        speed[name] = count / max(median - nothing, 0.001)
        print(f"  {name:<26} {median:6.1f} s, less that: {speed[name]:>11,.0f} messages/s", flush=True)
    plain_append = speed.pop("plain Delta append")
    print(f"  put / plain {speed['put'] / plain_append:.2f} ×")
    for name, found in speed.items():
        beside = {"a_plain_Delta_append_started_alike": plain_append} if name == "put" else {}
        keep(f"as started: {name}", found, "messages/s", **beside)


def python(program: str) -> None:
    expect_done([sys.executable, "-c", program])


if __name__ == "__main__":
    main()
