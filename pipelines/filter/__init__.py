"""Which messages a group asked for: by tag, by SQL92 over properties, by a class of its own."""

from pipelines.filter.errors import FilterSyntaxError
from pipelines.filter.sql92 import sql92_condition

__all__ = ["FilterSyntaxError", "sql92_condition"]
