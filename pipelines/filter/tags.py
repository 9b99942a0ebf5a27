"""TAG filters: `TagA || TagB` (docs/rocketmq/consume-filter-ha.md 4.1).

A broker compares hashes of tags, which are in its consume queue; the client then compares the strings.
"""

from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F

from pipelines.filter.errors import FilterSyntaxError
from pipelines.rocketmq.hashing import java_hash_of

ALL = "*"
SEPARATOR = "||"
# The characters that Java's trim() removes: fewer than Python's strip().
BLANKS = "".join(map(chr, range(0x21)))
INT_BITS = 0xFFFFFFFF


@dataclass(frozen=True)
class TagFilter:
    """The tags that a group selects; without tags and `matches_all` it matches nothing."""

    tags: frozenset[str] = frozenset()
    matches_all: bool = False

    @classmethod
    def parse(cls, expression: str | None) -> "TagFilter":
        """The filter of an expression. Only exactly `*`, or no expression, matches all; elsewhere `*` is a tag of that name.

        Raises FilterSyntaxError for an expression of nothing but separators.

        >>> sorted(TagFilter.parse("TagA || *|B").tags)
        ['*|B', 'TagA']
        """
        if not expression or expression == ALL:
            return cls(matches_all=True)
        parts = expression.split(SEPARATOR)
        if not any(parts):
            raise FilterSyntaxError(
                f"expected tags with {SEPARATOR} between them, or {ALL} for all messages; found only {expression}"
            )
        return cls(frozenset(part.strip(BLANKS) for part in parts) - {""})

    @property
    def codes(self) -> frozenset[int]:
        """The hash of each tag, as the consume queue has it."""
        return frozenset(map(java_hash_of, self.tags))

    def matches_code(self, tags_code: Column) -> Column:
        """Whether an entry of the consume queue may match: different tags can have one hash.

        tags_code  long; its lower 32 bits are compared, as a broker does
        """
        if self.matches_all:
            return F.lit(True)
        # Not a cast to int: it would fail on delivery times, which entries of the schedule topic have as their tags code.
        return tags_code.bitwiseAND(INT_BITS).isin([code & INT_BITS for code in sorted(self.codes)])

    def matches_tags(self, tags: Column) -> Column:
        """Whether a message matches.

        tags  string, its property TAGS; null where it has none
        """
        if self.matches_all:
            return F.lit(True)
        return F.coalesce(tags.isin(sorted(self.tags)), F.lit(False))
