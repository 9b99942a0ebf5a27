"""The upkeep of the store: how long it keeps messages, checks of its promises, runs of jobs, settings."""

from collections.abc import Mapping
from typing import Any

from pipelines.reports.page.ask import ROWS_SHOWN, Found, question
from pipelines.reports.page.charts import runs
from pipelines.reports.page.parts import Chart, Column, Section, Table, table
from pipelines.reports.page.words import count, moment, plural
from pipelines.rocketmq.settings import SETTINGS, Settings
from schemas.job_runs import READERS, is_missed

# Characters of a complaint and complaints of an expectation that are shown: enough to know what is wrong.
TEXT_SHOWN, COMPLAINTS_SHOWN = 300, 5
HOUR_MS = 3_600_000

# Each suite's own newest run: one of a few suites says nothing about the others.
NEWEST_VALIDATION = question(
    "quality",
    f"""
    SELECT suite, expectation, severity, checked, broken, checked_ms, from_append_seq, to_append_seq,
           transform(slice(complaints, 1, {COMPLAINTS_SHOWN}), said -> substring(said, 1, {TEXT_SHOWN})) AS complaints
    FROM (
        SELECT *, max_by(run_id, struct(checked_ms, run_id)) OVER (PARTITION BY suite) AS newest_run FROM validations
    )
    WHERE run_id = newest_run
    ORDER BY broken DESC, suite, expectation
    LIMIT {ROWS_SHOWN}
    """,
)

VALIDATIONS_BEFORE = question(
    "quality-history",
    f"""
    SELECT max(checked_ms) AS checked_ms, run_id,
           count(*) AS expectations, count_if(broken > 0) AS not_met, sum(checked) AS checked, sum(broken) AS broken
    FROM validations
    GROUP BY run_id
    ORDER BY checked_ms DESC
    LIMIT {ROWS_SHOWN}
    """,
)

JOBS = question(
    "jobs",
    f"""
    SELECT job, count(*) AS runs, count_if(status <> 'ok') AS failed, median(seconds) AS median_seconds,
           max(started_ms) AS last_ms, max_by(status, started_ms) AS last_status
    FROM job_runs
    GROUP BY job
    ORDER BY job
    LIMIT {ROWS_SHOWN}
    """,
)

RUNS = question(
    "runs",
    f"""
    SELECT started_ms, job, status, seconds, substring(result, 1, 1000) AS result
    FROM job_runs
    ORDER BY started_ms DESC
    LIMIT {ROWS_SHOWN}
    """,
)

SEGMENTS = question(
    "segments",
    f"""
    SELECT segment, count(*) AS messages, sum(size_bytes) AS bytes,
           min(store_timestamp) AS first_ms, max(store_timestamp) AS last_ms
    FROM commitlog
    GROUP BY segment
    ORDER BY segment
    LIMIT {ROWS_SHOWN}
    """,
)

GIVEN_SETTINGS = question("settings", "SELECT name, value FROM store_settings ORDER BY name")


def retention(found: Mapping[str, Found], now_ms: int) -> Section:
    segments, given = found["segments"], found["settings"]
    asked = [segments.question]
    if not segments.rows:
        return Section("retention", "Retention", "The log has no segment that could expire.", asked)
    settings = Settings.of({row["name"]: row["value"] for row in given.rows})
    if "fileReservedTime" not in settings.given:
        said = (
            "No segment expires by itself: the store was made without fileReservedTime. `maintain --retention-hours N` has "
            "old ones expire."
        )
        return Section("retention", "Retention", said, asked)
    hours = settings["fileReservedTime"]
    rows = [{**row, "expires_ms": row["last_ms"] + hours * HOUR_MS} for row in segments.rows]
    if not segments.was_cut:
        rows[-1]["expires_ms"] = None  # the last segment stays whatever its age
    old = [row for row in rows if row["expires_ms"] is not None and row["expires_ms"] <= now_ms]
    following = next((row["expires_ms"] for row in rows if row not in old), None)
    lead = (
        f"The oldest message was stored at {moment(rows[0]['first_ms'])} UTC. Segments are kept for {plural(hours, 'hour')} "
        f"(fileReservedTime); maintain has them expire at {settings['deleteWhen']} o'clock (deleteWhen, "
        f"{settings['timeZone']}). "
    )
    lead += f"{plural(len(old), 'segment is', 'segments are')} old enough; " if old else ""
    lead += "the last one stays." if following is None else f"the next one is at {moment(following)} UTC."
    listed = Table(
        "Segments, oldest first",
        (
            Column("segment", "Segment"),
            Column("messages", "Messages", "count"),
            Column("bytes", "Size", "size"),
            Column("first_ms", "First stored, UTC", "moment"),
            Column("last_ms", "Last stored, UTC", "moment"),
            Column("expires_ms", "Old enough, UTC", "moment"),
        ),
        rows,
        segments.question.name,
    )
    return Section("retention", "Retention", lead, asked, (), (), (listed,))


def quality(found: Mapping[str, Found], now_ms: int) -> Section:
    newest, before = found["quality"], found["quality-history"]
    asked = [newest.question, before.question]
    if not newest.rows:
        return Section(
            "quality", "Quality", "The store's promises have not been checked yet: run validate.", asked
        )
    broken = [row for row in newest.rows if row["broken"]]
    checked_at = moment(max(row["checked_ms"] for row in newest.rows))
    expectations = plural(len(newest.rows), "expectation")
    lead = f"{expectations} checked, last at {checked_at} UTC; " + (
        f"{len(broken)} not met, {plural(newest.total('broken'), 'row')}." if broken else "all are met."
    )
    results = table(
        "Newest check of each suite",
        newest,
        Column("suite", "Suite"),
        Column("expectation", "Expectation"),
        Column("severity", "Severity"),
        Column("checked_ms", "Checked at, UTC", "moment"),
        Column("checked", "Checked", "count"),
        Column("broken", "Broken", "count"),
        Column("complaints", "Complaints", "lines"),
    )
    history = table(
        "Checks before",
        before,
        Column("checked_ms", "Checked, UTC", "moment"),
        Column("expectations", "Expectations", "count"),
        Column("not_met", "Not met", "count"),
        Column("checked", "Rows checked", "count"),
        Column("broken", "Broken rows", "count"),
    )
    worries = [f"{plural(len(broken), 'expectation')} not met at the newest check."] if broken else []
    return Section("quality", "Quality", lead, asked, (), (), (results, history), worries)


def job_runs(found: Mapping[str, Found], now_ms: int) -> Section:
    newest, by_job = found["runs"], found["jobs"]
    asked = [newest.question, by_job.question]
    if not newest.rows:
        return Section("runs", "Job runs", "No run has written anything yet.", asked)
    failing = [
        row["job"]
        for row in by_job.rows
        if row["last_status"] != "ok" and is_missed(row["job"], row["last_ms"], now_ms)
    ]
    all_runs, failed = by_job.total("runs"), by_job.total("failed")
    lead = f"{plural(all_runs, 'run')} that wrote or failed, {count(failed)} failed."
    chart = Chart("Newest runs: when, how long", runs(newest.rows), "runs", lead)
    summary = table(
        "Jobs",
        by_job,
        Column("job", "Job"),
        Column("runs", "Runs", "count"),
        Column("failed", "Failed", "count"),
        Column("median_seconds", "Median seconds", "seconds"),
        Column("last_status", "Last"),
        Column("last_ms", "Last run, UTC", "moment"),
    )
    listed = table(
        "Newest runs",
        newest,
        Column("started_ms", "Started, UTC", "moment"),
        Column("job", "Job"),
        Column("status", "Status"),
        Column("seconds", "Seconds", "seconds"),
        Column("result", "Result", "code"),
    )
    worries = [
        f"The last recorded run of {job} failed; run it again, unless a later one went well."
        if job in READERS
        else f"The last run of {job} failed; run it again."
        for job in failing
    ]
    return Section("runs", "Job runs", lead, asked, (), (chart,), (summary, listed), worries)


def settings(found: Mapping[str, Found], now_ms: int) -> Section:
    asked = found["settings"]
    given = Settings.of({row["name"]: row["value"] for row in asked.rows})
    rows: list[dict[str, Any]] = [
        {"name": name, "value": str(given[name]), "default": str(setting.default), "meaning": setting.meaning}
        for name, setting in SETTINGS.items()
        if given[name] != setting.default
    ]
    rows += [
        {"name": name, "value": given.given[name], "default": "", "meaning": "kept, but without effect here"}
        for name in given.without_effect
    ]
    if not rows:
        return Section("settings", "Settings", "All settings have their defaults.", [asked.question])
    lead = f"{plural(len(rows), 'setting')} not at RocketMQ's default."
    columns = (Column("name", "Setting"), Column("value", "Value"), Column("default", "Default"))
    shown = Table("Settings", (*columns, Column("meaning", "What it is")), rows, asked.question.name)
    return Section("settings", "Settings", lead, [asked.question], (), (), (shown,))
