"""Names in SQL text: whatever is in one, it stays one name."""

import pytest
from pyspark.sql import functions as F

from pipelines.store.commit import commit
from pipelines.store.plan import Plan
from pipelines.store.sql_text import delta_table, quoted_name, text_literal
from pipelines.store.store import Store
from schemas import CONSUMER_OFFSETS

NAMES = (
    "orders", "T') OR ('1' = '1", "it's", "a\\b", "a\\", "\\'", "\\u0041", "two\nlines", 'say "so"', "${spark.app.name}",
    "50%_off", "a\0b", "消息 😀", "",
)  # fmt: skip


@pytest.mark.parametrize("is_escaped", ["false", "true"])
def test_a_text_literal_is_the_text_however_spark_reads_escapes(spark, is_escaped):
    before = spark.conf.get("spark.sql.parser.escapedStringLiterals")
    spark.conf.set("spark.sql.parser.escapedStringLiterals", is_escaped)
    try:
        listed = ", ".join(
            f"{text_literal(name)} AS {quoted_name(f'n`{at}')}" for at, name in enumerate(NAMES)
        )
        read_as_query = spark.sql(f"SELECT {listed}").first()
        read_as_expression = spark.range(1).select(*[F.expr(text_literal(name)) for name in NAMES]).first()
    finally:
        spark.conf.set("spark.sql.parser.escapedStringLiterals", before)
    assert tuple(read_as_query) == tuple(read_as_expression) == NAMES


@pytest.mark.slow
def test_what_is_replaced_is_what_is_named_and_nothing_else(store: Store):
    """One name a commit, as consumers record their offsets; a name that ends its text would take the others' rows along."""
    spark = store.spark
    names = [name for name in NAMES if name and "\0" not in name]

    def rows(offset: int, *groups: str):
        return spark.createDataFrame(
            [(group, "T", 0, "", offset, 0, 0) for group in groups], CONSUMER_OFFSETS.columns
        ).coalesce(1)

    for name in names:
        commit(store, lambda at, n=name: Plan((at.append(CONSUMER_OFFSETS, rows(1, n), key=n),)))
    for name in ("T') OR ('1' = '1", "a\\b", "two\nlines"):
        where = f"`group` = {text_literal(name)}"
        commit(store, lambda at, n=name, w=where: Plan((at.replace(CONSUMER_OFFSETS, rows(2, n), w, key=n),)))
    found = {row.group: row.next_offset for row in store.consumer_offsets.collect()}
    assert found == {name: 2 if name in ("T') OR ('1' = '1", "a\\b", "two\nlines") else 1 for name in names}


def test_a_directory_with_a_backtick_is_one_table(spark, tmp_path):
    path = str(tmp_path / "a`b")
    spark.range(3).write.format("delta").save(path)
    assert spark.sql(f"SELECT * FROM {delta_table(path)}").count() == 3
