"""All the tables of a store, read as of one version, and the one place that writes them."""

from pipelines.store.store import Store

__all__ = ["Store"]
