"""The page about a store, from rows made by hand: what it tells, and that nothing in the rows can break out of it."""

import json
import re
from html.parser import HTMLParser

import pytest

from pipelines.reports.page.ask import ROWS_SHOWN, Found
from pipelines.reports.page.log import MOST_BUCKETS, bucket_ms
from pipelines.reports.page.overview import Overview, sections
from pipelines.reports.page.render import render
from tests.reports.page_rows import EMPTY, FULL, NASTY, NOW, found

pytestmark = pytest.mark.quick


class Read(HTMLParser):
    """What a browser would see: every tag with its attributes, the text of every script, the text a person reads."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.words: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_data(self, data):
        if self.cdata_elem == "script":
            self.scripts.append((self.tags[-1][1], data))
        elif self.cdata_elem is None:
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def page_of(rows, version=None) -> str:
    return render(Overview("/stores/<b>orders", NOW, sections(found(rows), NOW)), version)


@pytest.fixture(scope="module")
def full() -> str:
    return page_of(FULL)


def test_what_a_person_should_look_at_comes_first(full):
    told = Read(full).text
    assert "Needs attention 3 messages not dispatched yet: run dispatch." in told
    assert "2 delayed messages overdue, by up to 2 min: run deliver." in told
    assert "3 dead letters not redriven" in told
    assert "1 transaction pending for more than a day" in told
    assert "The last run of deliver failed" in told
    assert "1 expectation not met at the newest check." in told
    assert "has not reported for 1 h and lacks 1.0 kB; run replicate." in told
    assert "The one that is furthest on lacks 0 bytes." in told
    assert told.index("Needs attention") < told.index("Messages stored from")


def test_what_expires_next(full):
    told = Read(full).text
    assert "1 segment is old enough; the next one is at 2026-11-21 10:00:00 UTC." in told
    told = Read(page_of({**FULL, "settings": []})).text
    assert "No segment expires by itself" in told


def test_an_empty_store_reads_well():
    told = Read(page_of(EMPTY)).text
    for sentence in (
        "Nothing needs attention.",
        "The log is empty: nothing has been put yet.",
        "No group has read anything yet.",
        "No delayed or timed message is waiting.",
        "No transaction is pending.",
        "The log has no segment that could expire.",
        "Nothing has failed: no retries, no dead letters, no rejected input.",
        "No run has written anything yet.",
        "All settings have their defaults.",
        "have not been checked yet: run validate.",
    ):
        assert sentence in told


def test_nothing_of_a_row_becomes_markup_or_script(full):
    read = Read(full)
    assert NASTY in Read(full).text
    assert not [tag for tag, _ in read.tags if tag in ("img", "b", "iframe", "object")]
    assert not [name for _, attributes in read.tags for name in attributes if name.startswith("on")]
    run = [attributes for attributes, _ in read.scripts if attributes.get("type") is None]
    (own,) = run
    assert own["nonce"]
    # What is data stays data: every chart's rows are whole JSON.
    data = [
        json.loads(text) for attributes, text in read.scripts if attributes.get("type") == "application/json"
    ]
    assert any(NASTY in json.dumps(spec, ensure_ascii=False).replace('\\"', '"') for spec in data)


@pytest.mark.parametrize("version", [None, "1"])
def test_nothing_is_loaded_from_anywhere(version):
    page = page_of(FULL, version)
    read = Read(page)
    loading = [
        (tag, attributes[name])
        for tag, attributes in read.tags
        for name in ("src", "href", "srcset", "data", "action", "poster")
        if attributes.get(name) and not (tag == "a" and attributes[name].startswith("#"))
    ]
    assert loading == [("link", "data:,")]
    styles = "".join(re.findall(r"<style>(.*?)</style>", page, re.DOTALL))
    assert styles
    assert "url(" not in styles
    assert "@import" not in styles
    policy = next(attributes["content"] for tag, attributes in read.tags if "http-equiv" in attributes)
    assert policy.startswith("default-src 'none'; script-src 'nonce-")
    assert ("connect-src 'none'" in policy) == (version is None)


def test_every_number_leads_to_the_sql_that_was_run(full):
    read = Read(full)
    ids = [attributes["id"] for _, attributes in read.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    links = [attributes["href"][1:] for tag, attributes in read.tags if tag == "a"]
    assert set(links) <= set(ids)
    answers = found(FULL)
    assert {f"sql-{name}" for name in answers} <= set(ids)
    words = read.text
    for answer in answers.values():
        assert " ".join(answer.question.sql.split()) in words


def test_a_long_list_says_that_it_was_cut():
    topics = [
        {"topic": f"t{n}", "queues": 1, "messages": 1, "largest_queue": 1, "last_message_ms": 1}
        | {"topics": ROWS_SHOWN, "topics_with_messages": ROWS_SHOWN}
        for n in range(ROWS_SHOWN)
    ]
    assert "Only the first 200" in Read(page_of({**FULL, "topics": topics})).text
    assert "Only the first 200" not in Read(page_of({**FULL, "topics": topics[1:]})).text


def test_the_section_of_checks_is_left_out_where_there_is_no_table_of_them():
    without = {name: one for name, one in found(FULL).items() if not name.startswith("quality")}
    assert "Quality" not in [section.title for section in sections(without, NOW)]


@pytest.mark.parametrize("range_ms", [0, 999, 179_000, 180_000, 86_400_000, 10 * 365 * 86_400_000, 2**53])
def test_a_chart_over_time_has_a_bounded_number_of_bars(range_ms):
    assert range_ms // bucket_ms(range_ms) + 1 <= MOST_BUCKETS


def test_a_chart_has_the_rows_of_its_answer():
    (growth,) = [section for section in sections(found(FULL), NOW) if section.anchor == "throughput"]
    messages, sizes = growth.charts
    for chart, name in ((messages, "messages"), (sizes, "bytes")):
        values = chart.spec["data"]["values"]
        assert [value[name] for value in values] == [row[name] for row in FULL["throughput"]]
        assert len(values) <= MOST_BUCKETS
    assert Found(growth.questions[0], FULL["throughput"]).total("messages") == sum(
        value["messages"] for value in messages.spec["data"]["values"]
    )
