"""The page about a store: its queries, the order of its sections, and what a person should read first."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pipelines.reports.page import failures, log, readers, replicas, upkeep, waiting
from pipelines.reports.page.ask import Found, ask
from pipelines.reports.page.parts import Section
from pipelines.spark_internals.delta_log import is_delta_table
from pipelines.store.snapshot import Snapshot
from schemas import EPOCHS, REPLICAS, TABLES


@dataclass(frozen=True)
class Worry:
    """Something that a person should act on, and the section with more about it."""

    text: str
    anchor: str


@dataclass(frozen=True)
class Overview:
    """The content of the page.

    store   where the store is
    now_ms  the moment from which ages and due times are counted, epoch milliseconds
    """

    store: str
    now_ms: int
    sections: Sequence[Section]

    @property
    def worries(self) -> list[Worry]:
        return [Worry(text, section.anchor) for section in self.sections for text in section.worries]


def overview(at: Snapshot, now_ms: int) -> Overview:
    """The overview of a store; everything is aggregated in Spark."""
    found = ask(at, [log.LOG])
    questions = [
        log.HEAD, log.UNSEEN, log.GROUPS, log.throughput(found["log"]),
        readers.TOPICS, readers.LAG,
        *waiting.questions(now_ms),
        failures.DEAD_LETTERS, failures.RETRIES, failures.REASONS, failures.REJECTED,
        upkeep.SEGMENTS, upkeep.JOBS, upkeep.RUNS, upkeep.GIVEN_SETTINGS,
    ]  # fmt: skip
    if _is_validated(at):
        questions += [upkeep.NEWEST_VALIDATION, upkeep.VALIDATIONS_BEFORE]
    if not (at.is_empty(REPLICAS) and at.is_empty(EPOCHS)):
        questions += [replicas.REPLICAS, replicas.EPOCHS]
    found |= ask(at, questions)
    return Overview(at.store.uri, now_ms, sections(found, now_ms))


def sections(found: Mapping[str, Found], now_ms: int) -> list[Section]:
    """The page's sections in the order in which a person reads them, from the rows of all queries."""
    told = [
        log.glance(found, now_ms),
        log.growth(found),
        readers.topics(found, now_ms),
        readers.groups(found, now_ms),
        waiting.delays(found, now_ms),
        failures.failures(found, now_ms),
        waiting.transactions(found, now_ms),
    ]
    told.append(upkeep.retention(found, now_ms))
    if upkeep.NEWEST_VALIDATION.name in found:
        told.append(upkeep.quality(found, now_ms))
    if replicas.REPLICAS.name in found:
        told.append(replicas.replicas(found, now_ms))
    return [*told, upkeep.job_runs(found, now_ms), upkeep.settings(found, now_ms)]


def _is_validated(at: Snapshot) -> bool:
    """Whether the store has a table of checks; an older one may not."""
    table = next((table for table in TABLES if table.name == "validations"), None)
    return table is not None and is_delta_table(at.store.spark, at.store.path(table))
