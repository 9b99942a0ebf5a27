"""`commitlake sql`: one query that reads."""

import json

import pytest
from delta.tables import DeltaTable

from schemas import TOPICS


def run_sql(commitlake, store, *arguments):
    return commitlake("sql", "--store", store.uri, *arguments)


def test_rows_as_json_lines(commitlake, golden_a):
    run = run_sql(
        commitlake,
        golden_a,
        "SELECT tags, count(*) AS n, max(store_time) AS last FROM messages WHERE topic = 'PayTopic' GROUP BY 1 ORDER BY 2",
        "--output",
        "json",
    )
    rows = [json.loads(line) for line in run.lines]
    assert run.exit_status == 0
    assert run.result["rows"] == len(rows) > 1
    assert sum(row["n"] for row in rows) == 217


def test_rows_as_csv(commitlake, golden_a):
    query = (
        "SELECT topic, x'00ff' AS body, array(1, 2) AS a, null AS nothing FROM topics WHERE topic = 'TxTopic'"
    )
    run = run_sql(commitlake, golden_a, query, "--output", "csv")
    assert run.lines == ["topic,body,a,nothing", 'TxTopic,AP8=,"[1,2]",']


def test_a_table_shows_columns_of_one_name_apart(commitlake, golden_a):
    run = run_sql(commitlake, golden_a, "SELECT 1 AS a, 2 AS a, '订单' AS b")
    assert run.lines == []
    assert "a_2" in run.stderr
    assert "订单" in run.stderr


@pytest.mark.parametrize(
    ("statement", "sentence"),
    [
        ("INSERT INTO commitlog SELECT * FROM commitlog", "this is InsertIntoStatement"),
        ("WITH a AS (SELECT 1) INSERT INTO commitlog SELECT * FROM a", "this is InsertIntoStatement"),
        ("FROM topics INSERT INTO a SELECT * INSERT INTO b SELECT *", "this is InsertIntoStatement"),
        ("DROP TABLE commitlog", "takes one query"),
        ("CREATE TABLE t AS SELECT 1", "takes one query"),
        ("DELETE FROM commitlog", "takes one query"),
        ("BEGIN SELECT 1; END", "takes one query"),
        ("SELECT 1; SELECT 2", "PARSE_SYNTAX_ERROR"),
        ("SELECT TRANSFORM(a) USING 'cat' FROM VALUES (1) AS t(a)", "takes one query"),
        ("OPTIMIZE delta.`/tmp/x`", "takes one query"),
        ("SET spark.sql.ansi.enabled = false", "takes one query"),
        ("EXECUTE IMMEDIATE 'DROP TABLE commitlog'", "takes one query"),
        ("CALL spark_catalog.system.clear('commitlog')", "this is Call"),
        ("SELECT nope FROM messages", "`nope` cannot be resolved"),
        ("SELECT * FROM nowhere", "TABLE_OR_VIEW_NOT_FOUND"),
        ("SELEC 1", "Syntax error"),
        ("SELECT 1 / 0", "DIVIDE_BY_ZERO"),
        ("", "Syntax error"),
    ],
)
def test_anything_but_a_query_gets_one_line(commitlake, golden_a, statement, sentence):
    run = run_sql(commitlake, golden_a, statement)
    assert run.exit_status == 2
    assert sentence in run.stderr
    assert len(run.stderr.strip().splitlines()) == 1


def test_as_of_a_past_time(commitlake, store):
    commitlake("topics", "--store", store.uri, "create", "Later")
    count = "SELECT count(*) AS n FROM topics WHERE topic = 'Later'"
    *_, before, _ = DeltaTable.forPath(store.spark, store.path(TOPICS)).history().orderBy("version").collect()
    before_ms = int(before.timestamp.timestamp() * 1_000) + 1
    now = run_sql(commitlake, store, count, "--output", "json")
    then = run_sql(commitlake, store, count, "--output", "json", "--as-of", before_ms)
    assert json.loads(now.lines[0]) == {"n": 1}
    assert json.loads(then.lines[0]) == {"n": 0}


@pytest.mark.parametrize(
    ("time", "sentence"),
    [
        ("yesterday-ish", "expected a timestamp"),
        ("1999-01-01", "the store"),
        ("1000000", "there is nothing to read"),
    ],
)
def test_a_time_that_cannot_be_read(commitlake, store, time, sentence):
    run = run_sql(commitlake, store, "SELECT 1", "--as-of", time)
    assert run.exit_status == 2
    assert sentence in run.stderr
