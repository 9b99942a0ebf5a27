"""How fast a store becomes a broker's directory: `export_store` against a plain copy of the files it writes.

    .venv/bin/python benchmarks/export_store.py [--megabytes 926] [--segment-megabytes 128] [--rounds 3] [--warm-ups 3]

The store is an import of the log that benchmarks/import_store.py makes. Each round exports it whole into a new
directory; those that warm up do not count. The log's segments are timed alone too: what executors write without the JVM.
"""

import argparse
import contextlib
import shutil
import statistics
import sys
import tempfile
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(PROJECT))

from benchmarks.figures import keep  # noqa: E402
from benchmarks.import_store import MEGABYTE, timed, write_log  # noqa: E402


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--megabytes", type=int, default=926, help="2 M messages")
    options.add_argument("--segment-megabytes", type=int, default=128)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--warm-ups", type=int, default=3)
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as work:
        log_bytes, segment_bytes = given.megabytes * MEGABYTE, given.segment_megabytes * 2**20
        bench(Path(work), log_bytes, segment_bytes, given.rounds, given.warm_ups)


def bench(work: Path, log_bytes: int, segment_bytes: int, rounds: int, warm_ups: int) -> None:
    from jobs.launch.cli import run as commitlake
    from jobs.launch.session import session
    from pipelines.export.directory import ExportDirectory
    from pipelines.export.export import Export
    from pipelines.export.segments import write_segments
    from pipelines.store.store import Store

    messages = write_log(work / "broker", log_bytes, segment_bytes)
    spark = session("export_store benchmark")
    print(f"{messages:,} messages of {log_bytes / messages:.0f} bytes, segments of {segment_bytes:,} bytes")
    at = ("--store", str(work / "store"))
    for arguments in (["import_store", *at, "--from", str(work / "broker")], ["dispatch", *at]):
        with contextlib.suppress(SystemExit):
            commitlake(arguments)
    store = Store(spark, str(work / "store"))

    def show(what: str, taken: tuple[float, float]) -> None:
        seconds, processor = taken
        speed = f"{log_bytes / seconds / MEGABYTE:6.0f} MB/s  {messages / seconds:9,.0f} messages/s"
        print(f"{what:<46} {seconds:6.1f} s  {speed}  {processor:6.1f} s of processors", flush=True)

    exported, copied = [], []
    for number in range(warm_ups + rounds):
        to = work / f"export{number}"
        exported.append(timed(lambda to=to: Export(store, str(to), 0).write(lambda _: None)))  # type: ignore[misc]
        show("export, whole", exported[-1])
        copied.append(timed(lambda to=to: shutil.copytree(to, work / "copy")))  # type: ignore[misc]
        show("plain copy of the exported files", copied[-1])
        shutil.rmtree(to)
        shutil.rmtree(work / "copy")
        snapshot = store.snapshot()
        export = Export(store, str(work / "none"), 0)
        written = write_segments(snapshot, ExportDirectory(str(work / "segments")), export.head, 0)
        show("the log's segments alone", timed(written.collect))
        shutil.rmtree(work / "segments")
    ours, plain = (
        log_bytes / statistics.median(seconds for seconds, _ in each[warm_ups:]) / MEGABYTE
        for each in (exported, copied)
    )
    keep("export_store", ours, "MB/s", plain_copy_of_its_files=plain)


if __name__ == "__main__":
    main()
