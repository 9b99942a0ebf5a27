"""consume: how fast messages reach a listener, and how much time a filter saves.

    .venv/bin/python benchmarks/consume.py [--messages 2000000] [--rounds 7] [--warm-ups 3]

Messages of 300 bytes in 20 topics of 8 queues. A group reads one topic: all of it, the hundredth with a tag, and what a
SQL92 expression selects; compared with a plain scan of the same columns. All in one session;
rounds that warm up do not count.
"""

import argparse
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(PROJECT))

from benchmarks.dispatch import QUEUES, append  # noqa: E402
from benchmarks.figures import keep  # noqa: E402
from benchmarks.import_store import timed  # noqa: E402

NOW = 1_800_000_000_000
LISTENERS = {
    "accept": "a batch listener that does nothing",
    "read": "a listener that reads each message's body and keys",
}
EXPRESSIONS = {"*": "all", "tag-7": "a tag of every hundredth"}
EXPRESSION = "KEYS IS NOT NULL AND TAGS IN ('tag-1', 'tag-2', 'tag-3') OR amount > 500"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--messages", type=int, default=2_000_000)
    options.add_argument("--rounds", type=int, default=7)
    options.add_argument("--warm-ups", type=int, default=3)
    asked = options.parse_args()

    from jobs.consume import consume_as
    from jobs.dispatch import dispatch_store
    from jobs.launch.run import Run
    from jobs.launch.session import session
    from pipelines.consume.options import Options
    from pipelines.consume.subscriptions import Selection, Subscription, plan_subscribe
    from pipelines.retry.send_back import plan_group
    from pipelines.store.commit import commit
    from pipelines.store.create import make_store
    from pipelines.store.store import Store
    from pipelines.store.topics import TopicConfig, plan_create_topic

    spark = session("consume benchmark")
    listeners = tempfile.mkdtemp()
    (Path(listeners) / "bench_listener.py").write_text(
        "import hashlib\n\nfrom pipelines.consume import ConsumeStatus\n\n\n"
        "def accept(messages):\n    return ConsumeStatus.CONSUME_SUCCESS\n\n\n"
        "def read(message):\n    hashlib.sha256(message.body).digest()\n    message.properties.get('KEYS')\n"
        "    return ConsumeStatus.CONSUME_SUCCESS\n"
    )
    sys.path.insert(0, listeners)
    with tempfile.TemporaryDirectory() as work:
        store = make_store(Store(spark, f"{work}/store"))
        commit(store, lambda at: plan_create_topic(at, TopicConfig("topic-00", QUEUES, QUEUES)))
        append(store, asked.messages, 8, is_hot=True)

        def run() -> Run:
            return Run("consume", store.uri, NOW, quiet=True)

        dispatch_store(run())
        in_topic = store.commitlog.where("topic = 'topic-00'").count()
        groups = iter(range(1_000))

        tagged = store.commitlog.where(
            "topic = 'topic-00' AND instr(properties, 'TAGS\x01tag-7\x02') > 0"
        ).count()

        def line(what: str, work: Callable[[], Any]) -> float:
            seconds, processor = timed(work)
            speed = f"{in_topic / seconds:12,.0f} messages/s"
            print(f"  {what:<76}{seconds:7.2f} s {speed}  processor {processor:6.2f} s", flush=True)
            return seconds

        def consume(expression: str, listener: str, batch_size: int, consumed: int | None = None) -> Any:
            kind = "SQL92" if " " in expression else "TAG"
            group = f"g{next(groups)}"
            commit(store, lambda at: plan_group(at, group))
            commit(store, lambda at: plan_subscribe(at, Subscription(group, "topic-00", kind, expression)))

            def work() -> None:
                how = Options(group, "topic-00", f"bench_listener:{listener}", batch_size=batch_size)
                result = consume_as(run(), how)
                if (result["consumed"] != consumed and consumed is not None) or not result["consumed"]:
                    raise AssertionError(f"{consumed} were to be consumed: {result}")

            return work

        print(f"{in_topic:,} messages of one topic, of {asked.messages:,}; {tagged:,} with the tag")
        # Groups and their subscriptions are made before the rounds, as they are for any run but the first.
        first = [
            ("all, the first of a session", consume("*", "accept", 32, in_topic)),
            ("all, one message at a time", consume("*", "accept", 1, in_topic)),
            ("a tag, the first of a session", consume("tag-7", "accept", 32, tagged)),
        ]
        turns = [
            (number, listener, expression, consume(expression, listener, batch_size, consumed))
            for number in range(asked.warm_ups + asked.rounds)
            for listener, batch_size in (("accept", 32), ("read", 1))
            for expression, consumed in (("*", in_topic), ("tag-7", tagged))
        ]
        of_sql92 = consume(EXPRESSION, "accept", 32)
        for what, work in first:
            line(what, work)
        seconds: dict[tuple[str, str], list[float]] = {}
        for number, listener, expression, work in turns:
            taken = line(f"{EXPRESSIONS[expression]}, {LISTENERS[listener]}", work)
            if number >= asked.warm_ups:
                seconds.setdefault((listener, expression), []).append(taken)
        for listener, what in LISTENERS.items():
            every, some = (statistics.median(seconds[listener, expression]) for expression in EXPRESSIONS)
            print(
                f"  {what}: all {every:.2f} s, {in_topic / every:,.0f} messages/s; with the tag {some:.2f} s, "
                f"{every / some:.1f} times as fast (medians of {asked.rounds} rounds)",
                flush=True,
            )
            keep(f"consume all: {what}", in_topic / every, "messages/s")
            keep(f"consume a tag of every hundredth: {what}", some, "s", all=every)
        plain = store.commitlog.where("topic = 'topic-00'").select(
            "topic", "queue_offset", "physical_offset", "properties"
        )
        selection = Selection(Subscription("g", "topic-00", "SQL92", EXPRESSION), "%RETRY%g")
        scans, filtered = [], []
        for number in range(2 + asked.rounds):
            scan = line("plain scan of the columns SQL92 needs", lambda: _unwritten(plain))
            sql = line("SQL92 over them", lambda: _unwritten(plain.where(selection.of_row())))
            if number >= 2:  # the JVM has compiled both by then
                scans.append(scan)
                filtered.append(sql)
        ratio = statistics.median(filtered) / statistics.median(scans)
        print(f"  SQL92 takes {ratio:.2f} times the plain scan (medians of {asked.rounds} rounds)")
        keep("SQL92 over its columns", statistics.median(filtered), "s", plain_scan=statistics.median(scans))
        line("SQL92, to the listener", of_sql92)
    shutil.rmtree(listeners)


def _unwritten(rows: Any) -> None:
    rows.write.format("noop").mode("overwrite").save()


if __name__ == "__main__":
    main()
