"""Replicas of the store."""

from schemas.table import Table, columns

REPLICAS = Table(
    "replicas",
    "One row per replica: how far it has come.",
    columns(
        ("replica_id", "string", "name of the replica"),
        ("uri", "string", "where its store is"),
        ("role", "string", "its broker role"),
        ("acked_offset", "long", "physical offset up to which it has the log"),
        ("in_sync", "boolean", "whether it counts for in-sync replicas"),
        ("updated_timestamp", "long", "when it last reported, epoch milliseconds"),
    ),
    key=("replica_id",),
)
