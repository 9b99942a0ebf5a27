"""The slaves of the store: how far each has come, and who was master when."""

from collections.abc import Mapping

from pipelines.reports.page.ask import ROWS_SHOWN, Found, question
from pipelines.reports.page.log import HEAD
from pipelines.reports.page.parts import Column, Section, Table, table
from pipelines.reports.page.words import duration, plural, size
from pipelines.store.replicas import MASTERS_ID

# A slave runs every minute or so: one that has not reported for longer has stopped.
SILENT_MS = 15 * 60_000

REPLICAS = question(
    "replicas",
    f"""
    SELECT replica_id, uri, role, acked_offset, in_sync, updated_timestamp
    FROM replicas
    ORDER BY acked_offset DESC, replica_id
    LIMIT {ROWS_SHOWN}
    """,
)

EPOCHS = question(
    "epochs", f"SELECT epoch, start_offset FROM epochs ORDER BY start_offset DESC LIMIT {ROWS_SHOWN}"
)


def replicas(found: Mapping[str, Found], now_ms: int) -> Section:
    known, epochs = found["replicas"], found["epochs"]
    log_end = found[HEAD.name].first["next_offset"] or 0
    masters_row = next((row for row in known.rows if row["replica_id"] == MASTERS_ID), None)
    slaves = [row for row in known.rows if row["replica_id"] != MASTERS_ID]
    rows = [{**row, "lag": log_end - row["acked_offset"]} for row in slaves]
    farthest = min((row["lag"] for row in rows), default=None)
    lead = f"{plural(len(rows), 'slave')} followed this store." + (
        "" if farthest is None else f" The one that is furthest on lacks {size(farthest)}."
    )
    if masters_row is not None:
        lead = (
            f"This store follows the master at {masters_row['uri']}, as {plural(len(rows), 'slave')} did when it last "
            f"replicated; consumers may read the log up to byte {masters_row['acked_offset']:,}."
        )
    columns = (
        Column("replica_id", "Slave"),
        Column("uri", "Where"),
        Column("acked_offset", "Has the log up to", "count"),
        Column("lag", "Lacks, bytes", "count"),
        Column("in_sync", "In sync at its last report"),
        Column("updated_timestamp", "Last report, UTC", "moment"),
    )
    shown = Table("Slaves", columns, rows, known.question.name)
    masters = table(
        "Epochs",
        epochs,
        Column("epoch", "Epoch", "count"),
        Column("start_offset", "From byte", "count"),
    )
    worries = [
        f"Slave {row['replica_id']} has not reported for {duration(now_ms - row['updated_timestamp'])} and lacks "
        f"{size(row['lag'])}; run replicate."
        for row in rows
        if masters_row is None and row["lag"] > 0 and now_ms - row["updated_timestamp"] > SILENT_MS
    ]
    return Section(
        "replicas", "Slaves", lead, [known.question, epochs.question], (), (), (shown, masters), worries
    )
