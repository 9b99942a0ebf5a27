"""Lookups and statistics in a session that has done them before: a key, keys of a file, a page of a queue, one GROUP BY.

    .venv/bin/python benchmarks/lookups.py [--messages 1000000] [--rounds 7]

Messages of 300 bytes in 20 topics of 8 queues, in eight appends, dispatched. GROUP BY is compared with a plain Delta
read of the same columns.
"""

import argparse
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(PROJECT))

from benchmarks.dispatch import APPENDS, QUEUES, TOPICS, append  # noqa: E402
from benchmarks.figures import keep  # noqa: E402
from benchmarks.import_store import timed  # noqa: E402

KEYS = 10_000


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--messages", type=int, default=1_000_000)
    options.add_argument("--rounds", type=int, default=7)
    asked = options.parse_args()

    from jobs.dispatch import dispatch_store
    from jobs.launch.run import Run
    from jobs.launch.session import session
    from pipelines.reports.lookup import messages_by_key, messages_by_keys, read_keys
    from pipelines.reports.pull import pull
    from pipelines.store.commit import commit
    from pipelines.store.create import make_store
    from pipelines.store.store import Store
    from pipelines.store.topics import TopicConfig, plan_make_topics
    from pipelines.views.read import read_view

    spark = session("lookups benchmark")
    with tempfile.TemporaryDirectory() as work:
        store = make_store(Store(spark, f"{work}/store"))
        topics = [TopicConfig(f"topic-{number:02d}", QUEUES, QUEUES) for number in range(TOPICS)]
        commit(store, lambda at: plan_make_topics(at, topics))
        append(store, asked.messages, APPENDS, is_hot=False)
        dispatch_store(Run("dispatch", store.uri, 1_800_000_000_000, quiet=True))
        print(f"{asked.messages:,} messages, medians of {asked.rounds} rounds, the first three left out")

        def median(what: str, work: Callable[[int], Any]) -> float:
            taken = [timed(lambda number=number: work(number))[0] for number in range(3 + asked.rounds)]  # type: ignore[misc]
            seconds = statistics.median(taken[3:])
            print(f"  {what:<58}{seconds:7.2f} s", flush=True)
            return seconds

        def by_key(number: int) -> None:
            wanted = 7_919 * (number + 1) % asked.messages
            topic = f"topic-{wanted % (TOPICS * QUEUES) // QUEUES:02d}"
            rows = messages_by_key(store.snapshot(), topic, f"order-{wanted}").rows.collect()
            assert len(rows) == 1, (topic, wanted, rows)

        # Of one topic, as far apart as its messages are many.
        of_a_topic = [n for n in range(asked.messages) if n % (TOPICS * QUEUES) // QUEUES == 7]
        many = of_a_topic[:: max(1, len(of_a_topic) // KEYS)][:KEYS]
        Path(work, "keys").write_text("".join(f"order-{number}\n" for number in many))

        def by_keys(_: int) -> None:
            keys = read_keys(spark, f"{work}/keys")
            rows = messages_by_keys(store.snapshot(), "topic-07", keys).rows.select("body").collect()
            assert len(rows) == len(many)

        def page(number: int) -> None:
            first = asked.messages // (TOPICS * QUEUES) // 2 + number
            answer = pull(store.snapshot(), "topic-07", 3, first, 32)
            assert answer.rows.collect()

        def group_by(_: int) -> None:
            messages = read_view(store.snapshot(), "messages")
            assert len(messages.groupBy("topic", "queue_id").count().collect()) == TOPICS * QUEUES

        def plain(_: int) -> None:
            rows = (
                spark.read.format("delta").load(f"{store.uri}/commitlog").groupBy("topic", "queue_id").count()
            )
            assert len(rows.collect()) == TOPICS * QUEUES

        keep("a key", median("a key", by_key), "s")
        seconds = median(f"{len(many):,} keys at once", by_keys)
        keep("keys of a file", len(many) / seconds, "keys/s")
        keep("a page of a queue", median("a page of 32 messages of a queue", page), "s")
        statistic = asked.messages / median("GROUP BY topic, queue_id over the view messages", group_by)
        of_plain = asked.messages / median("the same of the plain Delta table", plain)
        print(f"  {statistic:,.0f} messages/s, {statistic / of_plain:.2f} of the plain table")
        keep("GROUP BY topic, queue_id", statistic, "messages/s", of_the_plain_Delta_table=of_plain)


if __name__ == "__main__":
    main()
