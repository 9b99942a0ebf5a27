"""The tables of a store: one file each, with the columns, their meaning, and the key."""

from schemas.claims import CLAIMS
from schemas.commitlog import COMMITLOG
from schemas.consume_queue import CONSUME_QUEUE
from schemas.consumer_offsets import CONSUMER_OFFSETS
from schemas.cut_rows import CUT_ROWS
from schemas.cuts import CUTS
from schemas.epochs import EPOCHS
from schemas.filter_classes import FILTER_CLASSES
from schemas.floors import FLOORS
from schemas.holes import HOLES
from schemas.in_flight import IN_FLIGHT
from schemas.job_runs import JOB_RUNS
from schemas.message_index import MESSAGE_INDEX
from schemas.parked import PARKED
from schemas.progress import PROGRESS
from schemas.queue_bounds import QUEUE_BOUNDS
from schemas.queue_locks import QUEUE_LOCKS
from schemas.rejected_messages import REJECTED_MESSAGES
from schemas.replicas import REPLICAS
from schemas.store_settings import STORE_SETTINGS
from schemas.subscription_groups import SUBSCRIPTION_GROUPS
from schemas.subscriptions import SUBSCRIPTIONS
from schemas.table import Table
from schemas.topics import TOPICS
from schemas.validations import VALIDATIONS

# These tables are derived from the log: after they are dropped, `dispatch --rebuild` makes equal ones.
DERIVED = (CONSUME_QUEUE, MESSAGE_INDEX, PARKED, CLAIMS)

TABLES = (
    COMMITLOG,
    *DERIVED,
    PROGRESS,
    STORE_SETTINGS,
    TOPICS,
    SUBSCRIPTION_GROUPS,
    SUBSCRIPTIONS,
    CONSUMER_OFFSETS,
    IN_FLIGHT,
    QUEUE_LOCKS,
    QUEUE_BOUNDS,
    CUTS,
    CUT_ROWS,
    HOLES,
    FLOORS,
    FILTER_CLASSES,
    REJECTED_MESSAGES,
    REPLICAS,
    EPOCHS,
    JOB_RUNS,
    VALIDATIONS,
)
TABLES_BY_NAME = {table.name: table for table in TABLES}

__all__ = [
    "CLAIMS", "COMMITLOG", "CONSUMER_OFFSETS", "CONSUME_QUEUE", "CUTS", "CUT_ROWS", "DERIVED", "EPOCHS", "FILTER_CLASSES",
    "FLOORS", "HOLES", "IN_FLIGHT", "JOB_RUNS", "MESSAGE_INDEX", "PARKED", "PROGRESS", "QUEUE_BOUNDS", "QUEUE_LOCKS",
    "REJECTED_MESSAGES", "REPLICAS", "STORE_SETTINGS", "SUBSCRIPTIONS", "SUBSCRIPTION_GROUPS", "TABLES", "TABLES_BY_NAME",
    "TOPICS", "VALIDATIONS", "Table",
]  # fmt: skip
