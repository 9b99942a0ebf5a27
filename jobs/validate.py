"""Check every promise of the tables, as Great Expectations suites, and mend what can be derived."""

import json
from collections.abc import Mapping, Sequence
from enum import StrEnum
from functools import partial
from typing import Annotated, Any

import typer
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from rich import box
from rich.table import Table as TextTable
from rich.text import Text

from jobs.dispatch import dispatch_store
from jobs.launch.command_line import EXIT_BROKEN_PROMISE
from jobs.launch.job import job, main
from jobs.launch.output import Output, terminal
from jobs.launch.run import Run
from jobs.send_back import send_requests
from pipelines.errors import BadInput
from pipelines.quality.appends import APPEND_ONLY, PLANNED
from pipelines.quality.caches import AHEAD, AS_OF, BEGINS, ENDS, plan_bounds, plan_followers
from pipelines.quality.content import (
    content_check,
    expectations_named,
    failed_messages,
    messages_of,
    plan_quarantine,
)
from pipelines.quality.expectations import Finding, Validator
from pipelines.quality.promise import Check, at_least
from pipelines.quality.scope import Scope, scope_after, sound_up_to
from pipelines.quality.suites import SUITES, chosen_suites
from pipelines.quality.validation import DERIVED_PROMISES, plan_record, validate_suites
from pipelines.reports.queues import expect_topic
from pipelines.store.cut import cut_damaged_append, set_append_only
from pipelines.store.planned import damage_of
from pipelines.store.progress import covered, plan_void
from schemas import COMMITLOG, DERIVED, REJECTED_MESSAGES

# Complaints of a broken promise that the table shows; `validations` keeps more of them.
COMPLAINTS_SHOWN = 5
# Broken promises that the run's last sentence names.
PROMISES_TOLD = 3


class FailOn(StrEnum):
    """From which severity on a broken promise is a failure."""

    critical = "critical"
    warning = "warning"
    info = "info"


class FailedTo(StrEnum):
    """Where messages go that a team's expectations find wrong."""

    quarantine = "quarantine"
    retry = "retry"
    dead_letter = "dead-letter"


# Delay levels of a send-back (docs/rocketmq/delay-retry-transaction.md 4.3): by the ladder of retries, or given up.
LADDER, GIVE_UP = 0, -1


@job
def validate(
    run: Run,
    suite: Annotated[
        list[str] | None, typer.Option(help=f"Only this one, repeatable: {', '.join(SUITES)}.")
    ] = None,
    fail_on: Annotated[
        FailOn, typer.Option(help="Exit status 3 where a promise of this severity or a worse one is broken.")
    ] = FailOn.warning,
    since_append_seq: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=-1, help="Segments with appends after N; else after those found sound."
        ),
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="The whole log, whatever was found sound.")] = False,
    repair: Annotated[
        bool,
        typer.Option(
            "--repair",
            help="Mend what is derived from the log; take off a last append that is not as planned.",
        ),
    ] = False,
    expectations: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:NAME", help="Instead: a function that gives expectations of a topic's messages."
        ),
    ] = None,
    topic: Annotated[str | None, typer.Option(help="--expectations: whose messages.")] = None,
    failed_to: Annotated[
        FailedTo | None, typer.Option(help="--expectations: where messages go that fail; else nowhere.")
    ] = None,
    group: Annotated[
        str | None, typer.Option(help="--failed-to retry or dead-letter: the group that sees them again.")
    ] = None,
    output: Annotated[
        Output, typer.Option(help="A table to read, or a JSON object a promise.")
    ] = Output.table,
) -> dict[str, Any]:
    """Check every promise of the tables; exit status 3 where one does not hold."""
    if full and since_append_seq is not None:
        raise BadInput("--full and --since-append-seq are given; expected one of them, or neither")
    if expectations is not None:
        if suite or repair:
            raise BadInput("--expectations goes with neither --suite nor --repair: it is a suite of its own")
        _expect_whole(topic, failed_to, group)
        run.store.make_tables()
        after = -1 if full else since_append_seq
        return _validate_content(run, expectations, topic or "", failed_to, group, after, fail_on, output)
    if topic is not None or failed_to is not None or group is not None:
        raise BadInput("--topic, --failed-to and --group go with --expectations MODULE:NAME")
    names = chosen_suites(suite or ())
    run.store.make_tables()  # of an older version, or of derived tables that were dropped
    scopes = _scopes(run, names, -1 if full else since_append_seq)
    validator = Validator()
    findings = _validate(run, validator, scopes, run.run_id)
    counts: dict[str, Any] = {}
    if repair:
        broken_before = {finding.promise for finding in findings if finding.broken}
        if _repair(run, findings):
            scopes = _scopes(run, names, -1 if full else since_append_seq)  # a cut is a commit of the log
            findings = _validate(run, validator, scopes, f"{run.run_id}:repaired")
        broken_after = {finding.promise for finding in findings if finding.broken}
        counts = {"repaired": len(broken_before - broken_after)}
    _show(run, findings, output)
    return {**_judged(run, findings, scopes, fail_on), **counts}


def _judged(
    run: Run, findings: Sequence[Finding], scopes: Mapping[str, Scope], fail_on: FailOn
) -> dict[str, Any]:
    """The counts of the result, and whether what is broken is bad enough for exit status 3."""
    broken = [finding for finding in findings if finding.broken]
    if any(finding.promise.severity in at_least(fail_on.value) for finding in broken):
        sentences = [finding.promise.sentence for finding in broken]
        more = len(sentences) - PROMISES_TOLD
        told = "; ".join(sentences[:PROMISES_TOLD]) + (f"; and {more} more" if more > 0 else "")
        run.end_with(
            EXIT_BROKEN_PROMISE,
            f"{len(broken)} of {len(findings)} promises do not hold: {told}. See `validations`",
        )
    return {
        "checked": len(findings),
        "broken": len(broken),
        "broken_rows": sum(finding.broken for finding in broken),
        "to_append_seq": max(scope.to_append for scope in scopes.values()),
    }


def _expect_whole(topic: str | None, failed_to: FailedTo | None, group: str | None) -> None:
    if topic is None:
        raise BadInput("--expectations needs --topic: whose messages are they about?")
    needs_group = failed_to in (FailedTo.retry, FailedTo.dead_letter)
    if needs_group and group is None:
        raise BadInput(f"--failed-to {failed_to} needs --group: who sees them again?")
    if group is not None and not needs_group:
        raise BadInput("--group goes with --failed-to retry or dead-letter")


def _validate_content(
    run: Run,
    name: str,
    topic: str,
    failed_to: FailedTo | None,
    group: str | None,
    asked: int | None,
    fail_on: FailOn,
    output: Output,
) -> dict[str, Any]:
    """Check what a team expects of a topic's messages, and send those that fail where they shall go."""
    expected = expectations_named(name)
    # Columns are made in a session, which a store has.
    at = run.store.snapshot()
    expect_topic(at, topic)
    suite = f"{name} {topic}"
    scopes = _scopes(run, [suite], asked)
    messages = messages_of(at, scopes[suite], topic)
    validator = Validator()
    content = content_check(suite, expected(), messages, validator)
    findings = validator.findings(content)
    counts: dict[str, Any] = {}
    if failed_to is not None and any(finding.broken for finding in findings):
        counts = _send_failed(run, content, messages, failed_to, group or "")
    run.commit(partial(plan_record, findings=findings, scopes=scopes, run_id=run.run_id, now_ms=run.now_ms))
    _show(run, findings, output)
    return {**_judged(run, findings, scopes, fail_on), **counts}


def _send_failed(
    run: Run, content: Check, messages: DataFrame, failed_to: FailedTo, group: str
) -> dict[str, Any]:
    """Messages that fail to where they shall go, each once however often it is found; how many went."""
    failed = failed_messages(content)
    if failed_to == FailedTo.quarantine:
        committed = run.commit(lambda at: plan_quarantine(at, content.suite, failed, messages))
        return {"quarantined": committed.counts.get(REJECTED_MESSAGES.name, 0)}
    level = GIVE_UP if failed_to == FailedTo.dead_letter else LADDER
    requests = failed.select(
        F.col("physical_offset").alias("request"),
        "physical_offset",
        F.lit(None).cast("string").alias("message_id"),
        F.lit(level).alias("delay_level"),
        F.lit(None).cast("int").alias("max_reconsume_times"),
    )
    sent = send_requests(run, group, requests, content.suite)
    return {name: sent[name] for name in ("sent_back", "dead_lettered", "already")}


def _scopes(run: Run, names: Sequence[str], asked: int | None) -> dict[str, Scope]:
    """What each suite looks at: what is asked for, else what came since it was last found sound."""
    at = run.store.snapshot()
    last = at.number(COMMITLOG)
    if asked is not None and asked > max(last, -1):
        raise BadInput(f"--since-append-seq is {asked}; the log's last append is {last}")
    after = {name: sound_up_to(at, name) if asked is None else asked for name in names}
    scope_of = {append: scope_after(at, append) for append in set(after.values())}
    return {name: scope_of[append] for name, append in after.items()}


def _validate(run: Run, validator: Validator, scopes: Mapping[str, Scope], run_id: str) -> list[Finding]:
    checks = sum(len(SUITES[name].checks) for name in scopes)
    with run.progress("validating", checks, "checks") as looked:
        findings = validate_suites(validator, run.store.snapshot(), scopes, looked)
    run.commit(partial(plan_record, findings=findings, scopes=scopes, run_id=run_id, now_ms=run.now_ms))
    return findings


def _repair(run: Run, findings: Sequence[Finding]) -> bool:
    """Fix derived tables and caches that are broken, and the log's end; whether there was anything to fix."""
    broken = {finding.promise for finding in findings if finding.broken}
    has_cut = _cut(run)
    if broken & {AS_OF, ENDS, BEGINS}:
        run.commit(lambda at: plan_bounds(at, run.store.settings))
        run.say("queue_bounds: put right by the records of the log")
    if AHEAD in broken:
        run.commit(plan_followers)
        dispatch_store(run)
        run.say("progress: followers ahead of the log start again")
    if broken & DERIVED_PROMISES:
        dispatch_store(run, rebuild=True)
        run.say("consume_queue, message_index, parked, claims: rebuilt from the log")
    mendable = broken & ({AS_OF, ENDS, BEGINS, AHEAD, PLANNED, APPEND_ONLY} | DERIVED_PROMISES)
    if broken - mendable:
        run.say("the log and what groups and people have set are the truth: nothing else of that is changed")
    return bool(mendable) or has_cut


def _cut(run: Run) -> bool:
    """Take a last append that is not as planned off the log, and close the log again where a cut was cut short."""
    at = run.store.snapshot()
    damage = damage_of(at)
    dispatched = [
        table for table in DERIVED if damage is not None and covered(at, table) >= damage.append_seq
    ]
    if dispatched:
        # Before the cut: a kill between the two must not leave entries of rows that are gone.
        run.commit(lambda at: plan_void(at, dispatched))
    damage = cut_damaged_append(run.store)
    set_append_only(run.store, True)
    if damage is None:
        return False
    run.wrote = True
    run.say(
        f"{damage}. Its rows are in cut_rows now (cut_seq {damage.append_seq + 1}) and no more in the log: run the job "
        "that wrote them again"
    )
    if dispatched:
        dispatch_store(run, rebuild=True)
        run.say(
            "they had been dispatched: groups may have read them. What is derived from the log was rebuilt"
        )
    return True


def _show(run: Run, findings: Sequence[Finding], output: Output) -> None:
    if output == Output.json:
        for finding in findings:
            print(json.dumps(_as_object(finding), ensure_ascii=False))
    elif not run.quiet:
        _print(findings)


def _as_object(finding: Finding) -> dict[str, Any]:
    return {
        "suite": finding.suite,
        "expectation": finding.promise.sentence,
        "severity": finding.promise.severity,
        "checked": finding.checked,
        "broken": finding.broken,
        "complaints": list(finding.complaints),
    }


def _print(findings: Sequence[Finding]) -> None:
    """A line a promise, and below a broken one what is wrong with the first rows."""
    console = terminal()
    table = TextTable(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold")
    for name in ("suite", "promise", "severity"):
        table.add_column(name, no_wrap=name != "promise")
    for name in ("checked", "broken"):
        table.add_column(name, justify="right", no_wrap=True)
    for finding in findings:
        promise = finding.promise
        style = "bold red" if finding.broken else ""
        counts = (f"{finding.checked:,}", f"{finding.broken:,}" if finding.broken else "")
        table.add_row(finding.suite, promise.sentence, promise.severity, *counts, style=style)
        shown = finding.complaints[:COMPLAINTS_SHOWN]
        left = finding.broken - len(shown)
        for line in (*shown, *([f"… and {left:,} more"] if finding.broken and left else [])):
            table.add_row("", Text(f"  {line}"), "", "", "")
    console.print(table)


if __name__ == "__main__":
    main(validate)
