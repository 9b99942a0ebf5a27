"""Views: each once as SQL, over whatever gives the tables' rows."""

import pytest

from pipelines.rocketmq.properties import properties_map
from pipelines.store.store import Store
from pipelines.views.messages import properties_sql
from pipelines.views.read import VIEWS
from pipelines.views.view import View
from schemas import COMMITLOG
from tests.reports.golden import cases

NAME_END, END = "\x01", "\x02"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        (f"A{NAME_END}v{END}", {"A": "v"}),
        (f"A{NAME_END}v", {"A": "v"}),  # the last 0x02 may be missing
        (f"A{NAME_END}{END}{NAME_END}v{END}AB{NAME_END}{END}bad{END}", {}),
        (f"K{NAME_END}v{NAME_END}w{END}", {"K": f"v{NAME_END}w"}),
        (f"A{NAME_END}1{END}B{NAME_END}2{END}A{NAME_END}3{END}", {"A": "3", "B": "2"}),
        (f"A{NAME_END}1{END}A{NAME_END}{END}", {"A": "1"}),
        (f"🚀{NAME_END}中文{END}", {"🚀": "中文"}),
        (f"{END}{END}", {}),
        (None, None),
    ],
)
def test_properties_are_decoded_as_a_broker_does(spark, text, expected):
    rows = spark.createDataFrame([(text,)], "text string")
    (row,) = rows.select(properties_map(rows.text).alias("column")).collect()
    (same,) = rows.selectExpr(f"{properties_sql('text')} AS sql").collect()
    assert row.column == expected
    assert same.sql == expected


def test_a_view_says_what_it_reads():
    assert View("v", "", "SELECT * FROM {messages} AS m JOIN {topics} AS t ON true").reads == (
        "messages",
        "topics",
    )


def test_every_view_reads_tables_and_earlier_views_only():
    known = {table.name for table in __import__("schemas").TABLES}
    for view in VIEWS.values():
        assert set(view.reads) <= known
        known.add(view.name)


@pytest.mark.slow
def test_every_view_can_be_read_of_an_empty_store(store: Store):
    for name in VIEWS:
        rows = getattr(store, name)
        assert rows.where("topic NOT LIKE '%\\\\_%'").count() >= 0, name
    assert store.messages.columns[: len(COMMITLOG.names)] == COMMITLOG.names


def test_messages_are_what_the_brokers_own_decoder_reads(golden_a: Store):
    wanted = {message["commitLogOffset"]: message for message in cases("a", "message")}
    rows = golden_a.messages.select(
        "physical_offset", "message_id", "properties", "tags", "unique_key", "keys"
    ).collect()
    assert len(rows) == 958
    for row in rows:
        message = wanted[row.physical_offset]
        properties = message["properties"]
        assert (row.message_id, row.properties) == (message["msgId"], properties)
        assert (row.tags, row.unique_key) == (properties.get("TAGS"), properties.get("UNIQ_KEY"))
        assert row["keys"] == [word for word in properties.get("KEYS", "").split(" ") if word]


def test_a_body_is_text_where_it_is_utf8_and_not_compressed(golden_a: Store):
    rows = golden_a.messages.select("sys_flag", "body", "body_text").collect()
    for row in rows:
        try:
            text = bytes(row.body).decode() if not row.sys_flag & 1 else None
        except UnicodeDecodeError:
            text = None
        assert row.body_text == text
    assert {row.body_text is None for row in rows} == {True, False}


def test_status_of_a_brokers_queues(golden_a: Store):
    found = {
        (row.topic, row.queue_id): (row.min_offset, row.max_offset) for row in golden_a.topic_status.collect()
    }
    for queue in cases("a", "queue"):
        assert found[queue["topic"], queue["queueId"]] == (queue["min"], queue["max"])


def test_retries_and_dead_letters_have_their_group(golden_a: Store):
    assert {row["group"] for row in golden_a.retries.collect()} == {"CG_ORDER"}
    assert golden_a.retries.count() == 42
    assert {row.original_topic for row in golden_a.dead_letters.collect()} == {"OrderTopic"}
    assert golden_a.dead_letters.count() == 21
