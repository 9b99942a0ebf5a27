"""`commitlake sql`: one query that reads."""

import base64
import json
import time

import pytest
from delta.tables import DeltaTable

from pipelines.views.read_only_sql import QuerySession
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


def test_bytes_are_base64_in_one_line(commitlake, golden_a):
    run = run_sql(commitlake, golden_a, "SELECT CAST(repeat('x', 99) AS BINARY) AS body", "--output", "csv")
    assert run.lines == ["body", base64.b64encode(b"x" * 99).decode()]


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("DATE'9999-12-31' + 1", "+10000-01-01"),
        ("DATE'0000-12-31'", "0000-12-31"),
        ("array(TIMESTAMP_NTZ'9999-12-31 23:59:59' + INTERVAL '1' SECOND)", "[+10000-01-01 00:00:00]"),
        ("map('at', named_struct('day', DATE'9999-12-31' + 1))", "{at -> {+10000-01-01}}"),
        ("make_interval(1, 2)", "1 years 2 months"),
        ("INTERVAL '1-2' YEAR TO MONTH", "INTERVAL '1-2' YEAR TO MONTH"),
        ("map('a', array(1, 2))", "a=1 2"),
    ],
)
def test_a_table_shows_values_that_python_has_not(commitlake, golden_a, value, shown):
    run = run_sql(commitlake, golden_a, f"SELECT {value} AS value")
    assert run.exit_status == 0, run.stderr
    assert shown in run.stderr


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
        ("SELECT * FROM nowhere", "there is no table or view nowhere in a store"),
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


@pytest.mark.parametrize("output", ["table", "json"])
def test_a_value_that_a_query_cannot_take_is_bad_input(commitlake, golden_a, output):
    query = "SELECT CAST(topic AS INT) FROM messages"
    run = run_sql(commitlake, golden_a, query, "--output", output)
    assert run.exit_status == 2
    assert "CAST_INVALID_INPUT" in run.stderr
    assert len(run.stderr.strip().splitlines()) == 1


FILE = "`/etc/hosts`"
DOES_MORE = [
    ("INSERT OVERWRITE DIRECTORY '{there}' USING parquet SELECT 1", "takes one query"),
    ("INSERT OVERWRITE LOCAL DIRECTORY '{there}' STORED AS ORC SELECT 1", "takes one query"),
    ("RESTORE TABLE delta.`{there}` TO VERSION AS OF 0", "this is RestoreTableStatement"),
    ("CREATE OR REPLACE TABLE delta.`{there}` SHALLOW CLONE delta.`{there}`", "takes one query"),
    ("COPY INTO delta.`{there}` FROM 'x'", "Syntax error"),
    ("CACHE TABLE messages", "this is CacheTable"),
    ("REFRESH TABLE messages", "this is RefreshTable"),
    ("ADD JAR '{there}'", "this is AddJarsCommand"),
    ("SELECT reflect('java.lang.System', 'getProperty', 'user.home')", "this is a call of reflect"),
    (
        "SELECT 1 LIMIT int(java_method('java.lang.Integer', 'parseInt', '1'))",
        "this is a call of java_method",
    ),
    ("SELECT * FROM VALUES (try_reflect('java.lang.System', 'exit', 1)) AS t(a)", "a call of try_reflect"),
    ("SELECT IDENTIFIER('ref' || 'lect')('a', 'b')", "this is ExpressionWithUnresolvedIdentifier"),
    ("SELECT transform(array(1), x -> reflect('a', 'b', x))", "a call of reflect"),
    ("SELECT (SELECT max(reflect('a', 'b')) FROM topics)", "a call of reflect"),
    ("SELECT * FROM topics LATERAL VIEW reflect('a', 'b') t AS x", "a call of reflect"),
    ("FROM topics |> WHERE reflect('a', 'b') = 'c'", "a call of reflect"),
    (
        "SELECT from_avro(body, '{{}}', map('avroSchemaUrl', 'file:///x')) FROM messages",
        "a call of from_avro",
    ),
    ("SELECT from_protobuf(body, 'M', '/etc/hosts') FROM messages", "a call of from_protobuf"),
    (
        "SELECT from_xml(body_text, 'a INT', map('rowValidationXSDPath', 'x')) FROM messages",
        "call of from_xml",
    ),
    ("SELECT no_such_function(1)", "which is not a function of Spark's own"),
    ("SELECT * FROM table_changes('messages', 0)", "this is a call of table_changes"),
    (f"SELECT * FROM text.{FILE}", "there is no table or view text./etc/hosts"),
    (f"WITH a AS (SELECT * FROM csv.{FILE}) SELECT * FROM a", "there is no table or view csv./etc/hosts"),
    ("SELECT * FROM topics WHERE EXISTS (SELECT 1 FROM delta.`{there}`)", "there is no table or view delta."),
    ("SELECT * FROM a, (WITH a AS (SELECT 1) SELECT * FROM a)", "there is no table or view a in a store"),
    ("SELECT * FROM IDENTIFIER('top' || 'ics')", "this is PlanWithUnresolvedIdentifier"),
    ("SELECT * FROM default.topics", "there is no table or view default.topics"),
    ("SELECT " + "(" * 3_000 + "1" + ")" * 3_000, "nested too deeply"),
    ("SELECT " + "1 + " * 20_000 + "1", "TOO_COMPLEX"),
]


@pytest.mark.parametrize(("statement", "sentence"), DOES_MORE)
def test_what_does_more_than_read_the_store_is_refused(commitlake, golden_a, tmp_path, statement, sentence):
    there = tmp_path / "there"
    there.mkdir()
    (there / "kept").touch()
    run = run_sql(commitlake, golden_a, statement.format(there=there))
    assert (run.exit_status, [file.name for file in there.iterdir()]) == (2, ["kept"])
    assert sentence in run.stderr


@pytest.mark.parametrize(
    "statement",
    [
        "WITH a AS (SELECT 1 AS x), b AS (SELECT x + 1 AS x FROM a) SELECT * FROM a JOIN b USING (x) RIGHT JOIN topics",
        "WITH RECURSIVE r(n) AS (VALUES (1) UNION ALL SELECT n + 1 FROM r WHERE n < 5) SELECT sum(n) FROM r",
        "SELECT topic, grouping(topic), count(DISTINCT tags) FILTER (WHERE tags > '') FROM Messages GROUP BY CUBE (topic)",
        "SELECT k, explode(array(v)) FROM messages LATERAL VIEW OUTER explode(properties) p AS k, v LIMIT 3",
        "SELECT * FROM topics, LATERAL (SELECT max(queue_offset) FROM messages m WHERE m.topic = topics.topic) LIMIT 3",
        "SELECT * FROM (SELECT topic, perm FROM topics) PIVOT (count(*) FOR perm IN (6, 4 AS read_only))",
        "SELECT * FROM (SELECT 1 AS a, 2 AS b) UNPIVOT (v FOR n IN (a, b)) ORDER BY ALL",
        "SELECT lag(queue_offset) OVER (PARTITION BY topic ORDER BY queue_offset) FROM messages LIMIT 3 OFFSET 1",
        "SELECT * FROM range(3) UNION SELECT 7 EXCEPT SELECT 1 INTERSECT ALL SELECT 2",
        "SELECT CASE topic WHEN 'a' THEN 1 END, topic LIKE ANY ('a%', 'b'), topic RLIKE '^a', INTERVAL 1 DAY FROM topics",
        "SELECT parse_json('{\"a\": 1}'):a::int, uuid() IS NOT NULL, xxhash64('a'), TRY_CAST('a' AS INT), current_date",
        "FROM topics |> WHERE perm > 1 |> AGGREGATE count(*) AS n GROUP BY perm |> ORDER BY n |> LIMIT 2",
        "SELECT /*+ BROADCAST(topics) */ * FROM topics TABLESAMPLE (50 PERCENT)",
        "TABLE topics",
        "VALUES (1, 'a')",
    ],
)
def test_whatever_reads_is_taken(golden_a, statement):
    QuerySession(golden_a.spark, golden_a.snapshot()).rows(statement).collect()


def test_a_query_leaves_nothing_in_the_callers_session(golden_a):
    spark, name = golden_a.spark, "spark.sql.runSQLOnFiles"
    before = spark.conf.get(name), {table.name for table in spark.catalog.listTables()}
    QuerySession(spark, golden_a.snapshot()).rows("SELECT count(*) FROM messages JOIN topics USING (topic)")
    assert before == (spark.conf.get(name), {table.name for table in spark.catalog.listTables()})


def test_variables_of_the_environment_are_not_put_into_a_query(golden_a):
    rows = QuerySession(golden_a.spark, golden_a.snapshot()).rows("SELECT '${env:HOME}' AS home")
    assert rows.first().home == "${env:HOME}"


def test_more_rows_than_the_limit_are_said(commitlake, golden_a):
    query = "SELECT * FROM range(5) ORDER BY id"
    run = run_sql(commitlake, golden_a, query, "--output", "json", "--limit", 3)
    assert [json.loads(line)["id"] for line in run.lines] == [0, 1, 2]
    assert (run.result["rows"], run.result["complete"]) == (3, False)
    assert "--limit N shows more" in run.stderr
    assert run_sql(commitlake, golden_a, query, "--limit", 5).result["complete"] is True


def test_a_query_that_takes_too_long_is_stopped(commitlake, golden_a):
    endless = "SELECT count(*) FROM range(1000000000000) a JOIN range(1000000) b ON a.id % 7 = b.id % 5"
    begun = time.monotonic()
    run = run_sql(commitlake, golden_a, endless, "--timeout", 2)
    assert (run.exit_status, time.monotonic() - begun < 60) == (1, True)
    assert "took longer than 2 s and was stopped" in run.stderr
    assert run_sql(commitlake, golden_a, "SELECT 1", "--timeout", 60).result["rows"] == 1


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
        ("9223372036854775808", "expected epoch milliseconds of the years 1970 to 9999"),
        ("99999999999999999999999", "expected a timestamp"),
        ("²²²²²", "expected a timestamp"),
    ],
)
def test_a_time_that_cannot_be_read(commitlake, store, time, sentence):
    run = run_sql(commitlake, store, "SELECT 1", "--as-of", time)
    assert run.exit_status == 2
    assert sentence in run.stderr
