"""consume: how fast messages reach a listener, and what a filter spares.

    .venv/bin/python benchmarks/consume.py [--messages 2000000]

Messages of 300 bytes in 20 topics of 8 queues, of which one topic's group reads a share as large as asked: all of it, the
hundredth with a tag, and what a SQL92 expression selects; beside a plain scan of the same columns. All warm, in one session.
"""

import argparse
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(PROJECT))

from benchmarks.dispatch import append  # noqa: E402
from benchmarks.import_store import timed  # noqa: E402

NOW = 1_800_000_000_000
EXPRESSION = "KEYS IS NOT NULL AND TAGS IN ('tag-1', 'tag-2', 'tag-3') OR amount > 500"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--messages", type=int, default=2_000_000)
    asked = options.parse_args()

    from jobs.consume import Options, consume_as
    from jobs.dispatch import dispatch_store
    from jobs.job import Run
    from jobs.session import session
    from pipelines.consume.subscriptions import Selection, Subscription
    from pipelines.store.store import Store

    spark = session("consume benchmark")
    listeners = tempfile.mkdtemp()
    (Path(listeners) / "bench_listener.py").write_text(
        "from pipelines.consume import ConsumeStatus\n\ndef accept(messages):\n    return ConsumeStatus.CONSUME_SUCCESS\n"
    )
    sys.path.insert(0, listeners)
    with tempfile.TemporaryDirectory() as work:
        store = Store.create(spark, f"{work}/store")
        append(store, asked.messages, 8, is_hot=True)

        def run() -> Run:
            return Run("consume", store.uri, NOW, quiet=True)

        dispatch_store(run())
        in_topic = store.commitlog.where("topic = 'topic-00'").count()
        groups = iter(range(1_000))

        def line(what: str, work: Callable[[], Any], messages: int = in_topic) -> float:
            seconds, processor = timed(work)
            print(
                f"  {what:<52}{seconds:7.2f} s {messages / seconds:12,.0f} messages/s  processor {processor:6.2f} s",
                flush=True,
            )
            return seconds

        def consume(kind: str, expression: str, **more: Any) -> Callable[[], Any]:
            return lambda: consume_as(
                run(),
                Options(
                    f"g{next(groups)}",
                    "topic-00",
                    "bench_listener:accept",
                    kind,
                    expression,
                    batch_size=32,
                    **more,
                ),
            )

        print(f"{in_topic:,} messages of one topic, of {asked.messages:,}")
        line("all, the first of a session", consume("TAG", "*"))
        everything = line("all, a batch listener that does nothing", consume("TAG", "*"))
        line("one message at a time", lambda: consume_as(run(), _single(groups)))
        line("a tag of every hundredth, first", consume("TAG", "tag-7"))
        tagged = line("a tag of every hundredth", consume("TAG", "tag-7"))
        print(f"  the tag's is {everything / tagged:.1f} times as fast as all")
        plain = store.commitlog.where("topic = 'topic-00'").select(
            "topic", "queue_offset", "physical_offset", "properties"
        )
        selection = Selection(Subscription("g", "topic-00", "SQL92", EXPRESSION), "%RETRY%g")
        for _ in range(2):
            scan = line("plain scan of the columns SQL92 needs", lambda: _unwritten(plain))
            sql = line("SQL92 over them", lambda: _unwritten(plain.where(selection.of_row())))
        print(f"  SQL92 takes {sql / scan:.2f} times the plain scan")
        line("SQL92, to the listener", consume("SQL92", EXPRESSION))
    shutil.rmtree(listeners)


def _single(groups: Any) -> Any:
    from jobs.consume import Options

    return Options(f"g{next(groups)}", "topic-00", "bench_listener:accept", "TAG", "*")


def _unwritten(rows: Any) -> None:
    rows.write.format("noop").mode("overwrite").save()


if __name__ == "__main__":
    main()
