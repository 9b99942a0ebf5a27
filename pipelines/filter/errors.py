"""The error for a filter's text."""

from pipelines.errors import BadInput


class FilterSyntaxError(BadInput):
    """RocketMQ refuses the expression. Says what was expected, what was found, and where."""
