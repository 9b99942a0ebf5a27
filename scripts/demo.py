"""`make demo`: a real broker's store becomes tables, messages of one's own go in, answers come out in SQL.

Everything here is a command a user can type; each is shown before it runs. They share one Spark session, which a shell
cannot give them. The first time, scripts/setup.sh has the session's JVM keep its classes when it ends: some ten seconds.
"""

import shlex
import shutil
import sys
import tarfile
from pathlib import Path

from share_classes import end_jvm

from jobs.launch.cli import run

PROJECT = Path(__file__).resolve().parent.parent
DEMO = PROJECT / "demo"
STORE = "demo/store"

TOUR = (
    ("A RocketMQ 5.3.3 broker's directory becomes Delta tables, at the same offsets.",
     f"import_store --store {STORE} --from demo/broker/store"),
    ("Messages of your own go in after the broker's, and the queues and the index follow.",
     f"run_cycle --store {STORE} --input tests/data/messages.jsonl"),
    ("By key: the broker's messages and yours.",
     f"query --store {STORE} by-key --topic OrderTopic --key order-9001"),
    ("A queue, from its newest broker message on.",
     f"query --store {STORE} pull --topic OrderTopic --queue-id 0 --offset 92 --max 4"),
    ("And everything in SQL.",
     f'sql --store {STORE} "SELECT topic, tags, count(*) AS messages, max(store_time) AS last FROM messages '
     "WHERE topic NOT LIKE 'rmq%' GROUP BY ALL ORDER BY messages DESC LIMIT 8\""),
    ("A page to look at, one file that needs no network.",
     f"report --store {STORE} --out demo/report.html"),
)  # fmt: skip


def main() -> None:
    shutil.rmtree(DEMO, ignore_errors=True)
    (DEMO / "broker").mkdir(parents=True)
    with tarfile.open(PROJECT / "tests" / "data" / "store-a.tar.gz") as broker:
        broker.extractall(DEMO / "broker", filter="data")
    for says, command in TOUR:
        print(f"\n# {says}\n$ commitlake {command}", flush=True)
        try:
            run(shlex.split(command))
        except SystemExit as leave:
            if leave.code:
                sys.exit(f"the demo stopped: that command ended with exit status {leave.code}")
    print(
        f"""
The store is in {STORE}: Delta tables, for any reader of Delta; the page is demo/report.html. Try next:
  .venv/bin/commitlake query --store {STORE} topic-status --topic OrderTopic
  .venv/bin/commitlake sql --store {STORE} "SELECT * FROM message_lineage LIMIT 5"
  .venv/bin/commitlake put_messages --store {STORE} --input your.jsonl
  .venv/bin/commitlake --help""",
        flush=True,
    )
    end_jvm()


if __name__ == "__main__":
    main()
