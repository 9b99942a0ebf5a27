"""Check every promise of the tables, as Great Expectations suites, and fix what can be derived."""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Annotated, Any

import typer
from pyspark.sql import DataFrame

from jobs.dispatch import dispatch_store
from jobs.launch.command_line import EXIT_BROKEN_PROMISE
from jobs.launch.findings import show_findings
from jobs.launch.job import job, main
from jobs.launch.output import Output
from jobs.launch.run import Run
from jobs.send_back import send_requests
from pipelines.errors import BadInput
from pipelines.quality.content import (
    content_check,
    expectations_named,
    failed_messages,
    messages_of,
    plan_quarantine,
    send_back_requests,
)
from pipelines.quality.damage import (
    WOULD_LOSE,
    cut_damaged_files,
    damage_left,
    findings_of,
    holes_found,
    losses_found,
    repair_files,
)
from pipelines.quality.expectations import Finding, Validator, load
from pipelines.quality.promise import Check, at_least
from pipelines.quality.repair import repair_broken
from pipelines.quality.scope import Scope, scopes_of
from pipelines.quality.suites import SUITES, chosen_suites
from pipelines.quality.validation import plan_record, validate_suites
from pipelines.reports.queues import expect_topic
from pipelines.store.create import make_tables
from pipelines.store.damaged import DamagedTable, damaged_tables, is_a_store
from pipelines.store.store import Store
from pipelines.views.read_only_sql import spark_faults
from schemas import REJECTED_MESSAGES

# How many broken promises the run's last sentence names.
PROMISES_TOLD = 3


class FailOn(StrEnum):
    """From which severity on a broken promise is a failure."""

    critical = "critical"
    warning = "warning"
    info = "info"


class FailedTo(StrEnum):
    """Where messages go that do not meet a team's expectations."""

    quarantine = "quarantine"
    retry = "retry"
    dead_letter = "dead-letter"


@dataclass(frozen=True)
class ContentOptions:
    """A team's own expectations, and where messages go that do not meet them.

    expectations  MODULE:NAME
    group         the group whose retries or dead letters get these messages
    """

    expectations: str
    topic: str | None
    failed_to: FailedTo | None
    group: str | None

    def expect_sense(self) -> None:
        """Raises BadInput for options that contradict each other."""
        if self.topic is None:
            raise BadInput("--expectations needs --topic: the topic whose messages they are about")
        needs_group = self.failed_to in (FailedTo.retry, FailedTo.dead_letter)
        if needs_group and self.group is None:
            raise BadInput(f"--failed-to {self.failed_to} needs --group: the group that gets the messages")
        if self.group is not None and not needs_group:
            raise BadInput("--group goes with --failed-to retry or dead-letter")


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
            metavar="N", min=-1, help="Check segments with appends after N; else after the last sound append."
        ),
    ] = None,
    full: Annotated[
        bool, typer.Option("--full", help="Check the whole log, also what was found sound before.")
    ] = False,
    repair: Annotated[
        bool,
        typer.Option(
            "--repair",
            help="Fix what is derived from the log; cut off a last append that differs from its plan.",
        ),
    ] = False,
    cut_damaged: Annotated[
        bool,
        typer.Option(
            "--cut-damaged",
            help="Give up the rows of data files that are gone or damaged and keep the rest; see --dry-run before.",
        ),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="--cut-damaged: list what would be lost and write nothing.")
    ] = False,
    expectations: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:NAME", help="Instead: a function that returns expectations of a topic's messages."
        ),
    ] = None,
    topic: Annotated[str | None, typer.Option(help="--expectations: whose messages.")] = None,
    failed_to: Annotated[
        FailedTo | None, typer.Option(help="--expectations: where failed messages go; else nowhere.")
    ] = None,
    group: Annotated[
        str | None, typer.Option(help="--failed-to retry or dead-letter: the group that gets them.")
    ] = None,
    output: Annotated[
        Output, typer.Option(help="A table to read, or a JSON object a promise.")
    ] = Output.table,
) -> dict[str, Any]:
    """Check every promise of the tables; exit status 3 where one does not hold."""
    if full and since_append_seq is not None:
        raise BadInput("--full and --since-append-seq are given; expected one of them, or neither")
    if dry_run and not cut_damaged:
        raise BadInput("--dry-run goes with --cut-damaged: validate itself changes no message")
    if dry_run and repair:
        raise BadInput("--dry-run and --repair are given; expected one of them: a dry run writes nothing")
    if cut_damaged and (suite or expectations is not None):
        raise BadInput("--cut-damaged goes with neither --suite nor --expectations: it is about files")
    after = -1 if full else since_append_seq
    if expectations is not None:
        if suite or repair:
            raise BadInput("--expectations goes with neither --suite nor --repair: it is a suite of its own")
        content = ContentOptions(expectations, topic, failed_to, group)
        content.expect_sense()
        make_tables(run.store)
        findings, scopes, counts = _validate_content(run, content, after)
    elif topic is not None or failed_to is not None or group is not None:
        raise BadInput("--topic, --failed-to and --group go with --expectations MODULE:NAME")
    else:
        names = chosen_suites(suite or ())
        with ThreadPoolExecutor(1) as beside:
            beside.submit(load)  # while Java starts
            damaged, was_repaired = _damaged(run, repair, cut_damaged and not dry_run)
        if damaged:
            findings = findings_of(damaged)
            if dry_run:
                findings += losses_found(run.store, damaged)
            show_findings(findings, output, run.quiet)
            run.end_with(EXIT_BROKEN_PROMISE, damage_left(damaged))
            broken = [finding for finding in findings if finding.promise != WOULD_LOSE]
            return {"checked": len(broken), "broken": len(broken), "damaged_files": broken[0].broken}
        if dry_run:
            return {"checked": 0, "broken": 0, "damaged_files": 0}
        make_tables(run.store)  # of an older version
        findings, scopes, counts = _validate_suites(run, names, after, repair)
        if was_repaired:
            counts["repaired"] = counts.get("repaired", 0) + 1
        findings = [*holes_found(run.store.snapshot()), *findings]
    show_findings(findings, output, run.quiet)
    return {**_judged(run, findings, scopes, fail_on), **counts}


def _damaged(run: Run, repair: bool, cut: bool) -> tuple[list[DamagedTable], bool]:
    """The tables whose files are damaged, after fixing what can be fixed, and whether anything was."""
    store = Store(run.spark, run.store_uri)  # one with a damaged log of settings cannot be opened
    if not is_a_store(store):
        Store.open(run.spark, run.store_uri)  # raises BadInput
    before = damaged = damaged_tables(store)
    if damaged and (repair or cut):
        repair_files(run, store, damaged, partial(dispatch_store, run))
        damaged = damaged_tables(store)
    if damaged and cut:
        cut_damaged_files(run, damaged, partial(dispatch_store, run), run.now_ms)
        damaged = damaged_tables(store)
    return damaged, bool(before) and not damaged


def _validate_suites(
    run: Run, names: Sequence[str], after: int | None, repair: bool
) -> tuple[list[Finding], dict[str, Scope], dict[str, Any]]:
    """The findings, scopes and further counts of suites; with `repair`, after fixing what can be fixed."""
    suites = {name: [promise.sentence for promise in SUITES[name].promises] for name in names}
    scopes = scopes_of(run.store.snapshot(), suites, after)
    validator = Validator()
    findings = _validate(run, validator, scopes, run.run_id)
    if not repair:
        return findings, scopes, {}
    broken_before = {finding.promise for finding in findings if finding.broken}
    if repair_broken(run, findings, partial(dispatch_store, run)):
        scopes = scopes_of(run.store.snapshot(), suites, after)  # a cut is a commit of the log
        findings = _validate(run, validator, scopes, f"{run.run_id}:repaired")
    broken_after = {finding.promise for finding in findings if finding.broken}
    return findings, scopes, {"repaired": len(broken_before - broken_after)}


def _validate(run: Run, validator: Validator, scopes: Mapping[str, Scope], run_id: str) -> list[Finding]:
    checks = sum(len(SUITES[name].checks) for name in scopes)
    with run.progress("validating", checks, "checks") as advance:
        findings = validate_suites(validator, run.store.snapshot(), scopes, advance)
    run.commit(partial(plan_record, findings=findings, scopes=scopes, run_id=run_id, now_ms=run.now_ms))
    return findings


def _validate_content(
    run: Run, options: ContentOptions, after: int | None
) -> tuple[list[Finding], dict[str, Scope], dict[str, Any]]:
    """The findings, scopes and further counts of a team's expectations; failed messages go to --failed-to."""
    topic = options.topic or ""
    expected = expectations_named(options.expectations)
    # The expectations make columns, which need a session: opening the store starts one.
    at = run.store.snapshot()
    expect_topic(at, topic)
    suite = f"{options.expectations} {topic}"
    given, validator = expected(), Validator()
    # Which part of the log is checked depends on the expectations' sentences.
    sentences = [
        each.sentence for each in content_check(suite, given, messages_of(at, topic), validator).promises
    ]
    scopes = scopes_of(at, {suite: sentences}, after)
    messages = scopes[suite].of(messages_of(at, topic))
    content = content_check(suite, given, messages, validator)
    with spark_faults():  # a message may have a value that a column cannot take
        findings = validator.findings(content)
    counts: dict[str, Any] = {}
    if options.failed_to is not None and any(finding.broken for finding in findings):
        counts = _send_failed(run, content, messages, options.failed_to, options.group or "")
    run.commit(partial(plan_record, findings=findings, scopes=scopes, run_id=run.run_id, now_ms=run.now_ms))
    return findings, scopes, counts


def _send_failed(
    run: Run, content: Check, messages: DataFrame, failed_to: FailedTo, group: str
) -> dict[str, Any]:
    """Send failed messages to `failed_to`, each once however often it is found; returns how many went."""
    failed = failed_messages(content)
    if failed_to == FailedTo.quarantine:
        committed = run.commit(lambda at: plan_quarantine(at, content.suite, failed, messages))
        return {"quarantined": committed.counts.get(REJECTED_MESSAGES.name, 0)}
    requests = send_back_requests(failed, is_given_up=failed_to == FailedTo.dead_letter)
    sent = send_requests(run, group, requests, content.suite)
    return {name: sent[name] for name in ("sent_back", "dead_lettered", "already")}


def _judged(
    run: Run, findings: Sequence[Finding], scopes: Mapping[str, Scope], fail_on: FailOn
) -> dict[str, Any]:
    """The counts of the result; ends the run with exit status 3 for a broken promise of severity `fail_on` or worse."""
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


if __name__ == "__main__":
    main(validate)
