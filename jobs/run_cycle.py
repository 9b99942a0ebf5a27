"""Run one round of the jobs a store needs: put an input, dispatch, deliver what is due, end and check transactions."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Any

import typer

from jobs.check_transactions import Checker, Outcomes, check_halves, who_is_asked
from jobs.deliver import deliver_due
from jobs.dispatch import dispatch_store
from jobs.end_transactions import carry_out
from jobs.launch.job import job, main
from jobs.launch.run import Run
from jobs.launch.ticks import expect_sense, repeat
from jobs.put_messages import BatchId, ForceClock, Format, OnBad, expect_clock_near
from pipelines.log.append_ids import expect_batch_id
from pipelines.produce.put_input import PutOptions, put_input
from pipelines.store.role import expect_master
from pipelines.store.snapshot import Snapshot
from pipelines.transaction.requests import read_end_requests
from schemas import COMMITLOG

# A step that ends or checks transactions: from the last append before the first round to its counts.
Settle = Callable[[int], dict[str, Any]]

# The most rounds of --until-quiet. A message with a list of levels takes a level a round, so rounds soon append nothing,
# unless messages become due as fast as rounds run.
MOST_ROUNDS = 100


@job
def run_cycle(
    run: Run,
    input_: Annotated[
        str | None,
        typer.Option("--input", metavar="PATH", help="Put these messages first: a file or directory."),
    ] = None,
    format_: Format = "jsonl",
    batch_id: BatchId = None,
    on_bad: OnBad = "reject",
    ends: Annotated[
        str | None,
        typer.Option(metavar="PATH", help="End these transactions: the input of end_transactions."),
    ] = None,
    checker: Checker = None,
    outcomes: Outcomes = None,
    until_quiet: Annotated[
        bool, typer.Option("--until-quiet", help="Repeat the round until it appends nothing.")
    ] = False,
    force_clock: ForceClock = False,
    every: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", min=0.1, help="Begin a round every SECONDS, in one session."),
    ] = None,
    for_: Annotated[
        float | None,
        typer.Option(
            "--for",
            metavar="SECONDS",
            min=0,
            help="--every: begin no further round then; else until SIGTERM.",
        ),
    ] = None,
) -> dict[str, Any]:
    """Put an input, dispatch, deliver what is due, end and check transactions, dispatch."""
    expect_batch_id(batch_id)
    expect_sense(every, for_)
    expect_master(run.store.snapshot())
    # Everything that may be refused is checked before anything is put.
    settle: list[tuple[str, Settle]] = []
    if ends is not None:
        requests = read_end_requests(run.spark, ends)
        settle.append(("end_transactions", lambda _: carry_out(run, requests)))
    if checker is not None or outcomes is not None:
        asked = who_is_asked(run, checker, outcomes)
        settle.append(("check_transactions", partial(check_halves, run, asked)))
    counts: dict[str, Any] = {}
    if input_ is not None:
        if not force_clock:
            expect_clock_near(run)
        counts["put_messages"] = put_input(run, PutOptions(input_, format_, batch_id, on_bad))
        put = counts["put_messages"]
        put.pop("batch_id")
        run.say(
            f"put: {put['appended']:,} messages appended, {put['already']:,} were there already, "
            f"{put['rejected']:,} rejected; the log ends at byte {put['next_offset']:,}"
        )
    most = MOST_ROUNDS if until_quiet else 1
    if every is None:
        rounds = _rounds(run, counts, settle, most)
        return {**counts, "rounds": rounds}

    def tick() -> int:
        run.store.read_settings_again()
        return _rounds(run, counts, settle, most)

    ticks = repeat(run, every, for_, tick)
    return {**counts, "rounds": sum(ticks), "ticks": len(ticks)}


def _rounds(run: Run, counts: dict[str, Any], settle: Sequence[tuple[str, Settle]], most: int) -> int:
    """Run rounds until one appends nothing, at most `most`; returns how many.

    What a check puts back in one of them waits for the next call: where transactionCheckInterval is short, each round
    would check it again, and --until-quiet would not end before the half is given up.
    """
    before_all = _appends(run.store.snapshot())
    for number in range(1, most + 1):
        appends = _appends(run.store.snapshot())
        _round(run, counts, settle, before_all)
        if _appends(run.store.snapshot()) == appends:
            return number
    return most


def _round(run: Run, counts: dict[str, Any], settle: Sequence[tuple[str, Settle]], before_all: int) -> None:
    """Run one round.

    settle      steps that end and check transactions, each with the name of its counts
    before_all  the last append before the first round
    """
    _add(counts, "dispatch", dispatch_store(run))
    delivered = deliver_due(run)
    _add(counts, "deliver", delivered)
    run.say(
        f"deliver: {delivered['delivered']:,} messages back in their topics, {delivered['skipped']:,} skipped"
    )
    for step, work in settle:
        found = work(before_all)
        _add(counts, step, found)
        run.say(
            f"{step}: {', '.join(f'{count:,} {name}' for name, count in found.items())}".replace("_", " ")
        )
    dispatched = dispatch_store(run)
    _add(counts, "dispatch", dispatched)
    run.say(
        f"dispatch: {counts['dispatch']['queue_entries']:,} queue entries and "
        f"{counts['dispatch']['index_entries']:,} keys, up to byte {dispatched['dispatched_to']:,}"
    )


# What a later round finds again: an offset, a time, the requests that each round refuses.
FOUND_AGAIN = ("dispatched_to", "next_due_ms", "refused")


def _add(counts: dict[str, Any], step: str, found: dict[str, Any]) -> None:
    """Add the counts of a step to those of earlier rounds; of FOUND_AGAIN the last one counts."""
    before = counts.get(step, {})
    counts[step] = {
        name: value if name in FOUND_AGAIN else before.get(name, 0) + value for name, value in found.items()
    }


def _appends(at: Snapshot) -> int:
    return at.number(COMMITLOG)


if __name__ == "__main__":
    main(run_cycle)
