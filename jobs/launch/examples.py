"""One example of every job, the last line of its --help: a command to try first."""

EXAMPLES = {
    "create_store": "create_store --store demo/store --set messageDelayLevel='1s 5s 10s 30s 1m'",
    "settings": "settings --store demo/store set fileReservedTime=168",
    "topics": "topics --store demo/store create OrderTopic --queues 8",
    "put_messages": "put_messages --store demo/store --input tests/data/messages.jsonl",
    "dispatch": "dispatch --store demo/store",
    "deliver": "deliver --store demo/store",
    "subscribe": "subscribe --store demo/store --group shipping --topic OrderTopic --filter 'paid || shipped'",
    "consume": "consume --store demo/store --group shipping --topic OrderTopic --listener shipping:listen",
    "reset_offsets": "reset_offsets --store demo/store --group shipping --topic OrderTopic --to-offset 0 --dry-run",
    "send_back": "send_back --store demo/store --group shipping --input failures.jsonl",
    "redrive": "redrive --store demo/store --where \"topic = '%DLQ%shipping'\" --dry-run",
    "end_transactions": "end_transactions --store demo/store --input ends.jsonl",
    "check_transactions": "check_transactions --store demo/store --checker my_module:check",
    "run_cycle": "run_cycle --store demo/store --input tests/data/messages.jsonl",
    "import_store": "import_store --store demo/store --from demo/broker/store",
    "export_store": "export_store --store demo/store --to demo/export",
    "query": "query --store demo/store by-key --topic OrderTopic --key order-9001",
    "sql": "sql --store demo/store 'SELECT topic, count(*) FROM messages GROUP BY topic'",
    "register": "register --store demo/store --database orders",
    "maintain": "maintain --store demo/store --dry-run",
    "backup": "backup --store demo/store --to demo/backup",
    "replicate": "replicate --store demo/slave --master demo/store",
    "promote": "promote --store demo/slave --old-master demo/store",
    "validate": "validate --store demo/store --suite log --suite lineage",
    "report": "report --store demo/store --out report.html",
    "doctor": "doctor --store demo/store",
    "shell": "shell --store demo/store",
}


def epilog(job_name: str) -> str | None:
    """The last line of a job's --help; None for a job without an example."""
    example = EXAMPLES.get(job_name)
    return None if example is None else f"Example:\u00a0 commitlake {example}"
