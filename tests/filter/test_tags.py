"""TAG filters, with the traps of RocketMQ's parser (docs/rocketmq/consume-filter-ha.md 4.1)."""

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pipelines.filter import FilterSyntaxError
from pipelines.filter.tags import TagFilter
from pipelines.rocketmq.hashing import java_hash_of
from tests.model import log as model

pytestmark = pytest.mark.quick


@pytest.mark.parametrize("expression", [None, "", "*"])
def test_everything(expression: str | None) -> None:
    assert TagFilter.parse(expression) == TagFilter(matches_all=True)


@pytest.mark.parametrize(
    ("expression", "tags"),
    [
        ("TagA", {"TagA"}),
        ("TagA||TagB", {"TagA", "TagB"}),
        (" TagA ||\tTag B\n|| TagA", {"TagA", "Tag B"}),
        ("|| TagA ||", {"TagA"}),
        (" * ", {"*"}),  # a tag of that name
        ("* || TagA", {"*", "TagA"}),
        ("TagA|TagB", {"TagA|TagB"}),
        ("TagA|||TagB", {"TagA", "|TagB"}),
        ("|||", {"|"}),
        ("\u3000TagA\u00a0", {"\u3000TagA\u00a0"}),  # blanks that Java's trim() leaves
        ("  ", set()),  # matches nothing
        ("|| ", set()),
    ],
)
def test_a_list_of_tags(expression: str, tags: set[str]) -> None:
    assert TagFilter.parse(expression) == TagFilter(frozenset(tags))


@pytest.mark.parametrize("expression", ["||", "||||"])
def test_nothing_but_separators_is_refused(expression: str) -> None:
    with pytest.raises(FilterSyntaxError, match=r"expected tags with \|\| between them, or \* for all"):
        TagFilter.parse(expression)


@pytest.mark.parametrize("text", ["", "Aa", "BB", "TagA", "文", "😀", "polygenelubricants"])
def test_the_hash_is_javas(text: str) -> None:
    assert java_hash_of(text) == model.java_hash(text)


def test_the_queue_matches_by_hash_and_the_message_by_its_tag(spark: SparkSession) -> None:
    asked = TagFilter.parse("Aa || polygenelubricants")
    rows = spark.createDataFrame(
        [
            ("Aa", 2112),
            ("BB", 2112),  # the same hash
            ("polygenelubricants", -(2**31)),
            ("TagA", java_hash_of("TagA")),
            (None, 0),
            (None, 2**32 + 2112),  # a delivery time, of which a broker compares the lower half
        ],
        "tags string, tags_code long",
    )
    matched = rows.select(asked.matches_code(F.col("tags_code")), asked.matches_tags(F.col("tags")))
    assert [tuple(row) for row in matched.collect()] == [
        (True, True),
        (True, False),
        (True, True),
        (False, False),
        (False, False),
        (True, False),
    ]


@pytest.mark.parametrize(("expression", "matches"), [("*", True), ("  ", False)])
def test_all_and_nothing(spark: SparkSession, expression: str, matches: bool) -> None:
    asked = TagFilter.parse(expression)
    rows = spark.createDataFrame([("TagA", java_hash_of("TagA")), (None, 0)], "tags string, tags_code long")
    matched = rows.select(asked.matches_code(F.col("tags_code")), asked.matches_tags(F.col("tags")))
    assert [tuple(row) for row in matched.collect()] == [(matches, matches)] * 2
