"""Which messages a group selects: by tag, by SQL92 over properties, by a Python class of the user."""

from pipelines.filter.errors import FilterSyntaxError
from pipelines.filter.sql92 import sql92_condition

__all__ = ["FilterSyntaxError", "sql92_condition"]
