"""The page in a real browser: it works without a network, in both colours, and on a phone."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from scripts.picture_report import chromium, open_page, take_pictures
from tests.conftest import PROJECT
from tests.reports.page_rows import FULL, NASTY
from tests.reports.test_page import page_of

pytestmark = pytest.mark.slow
PHONE = {"width": 375, "height": 800}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def file(tmp_path_factory) -> Path:
    page = tmp_path_factory.mktemp("page") / "page.html"
    page.write_text(page_of(FULL), encoding="utf-8")
    return page


@pytest.fixture
def page(browser, file) -> Iterator[Page]:
    shown = browser.new_page()
    shown.said, shown.asked = [], []
    shown.on("console", lambda message: shown.said.append(message.text))
    shown.on("pageerror", lambda error: shown.said.append(str(error)))
    shown.on("dialog", lambda dialog: (shown.said.append(dialog.message), dialog.dismiss()))
    shown.on("request", lambda request: shown.asked.append(request.url))
    open_page(shown, file)
    yield shown
    shown.close()


def first_cells(page: Page, table: str) -> list[str]:
    return page.locator(f"#{table} tbody tr td:first-child").all_inner_texts()


def test_it_draws_its_charts_without_a_complaint_or_a_network(page, file):
    drawn = page.locator("figure .chart svg")
    assert drawn.count() == page.locator("figure").count() == 7
    # As many bars as there are buckets, and each can be seen.
    bars = page.locator("#throughput figure >> nth=0 >> css=g.mark-rect path")
    assert bars.count() == len(FULL["throughput"])
    assert all(
        box is not None and box["height"] > 1 for box in (bars.nth(n).bounding_box() for n in range(5))
    )
    assert page.said == []
    assert [url for url in page.asked if not url.startswith(("blob:", "data:"))] == [file.as_uri()]


def test_tables_sort_by_what_a_number_is_and_filter(page):
    assert first_cells(page, "topics-1")[:2] == [NASTY, "topic-38"]
    messages = page.locator("#topics-1 th", has_text="Messages")
    # A click is answered a moment later: expect() looks again until its time is over.
    cells = page.locator("#topics-1 tbody tr td:first-child")
    messages.click()
    expect(cells.first).to_have_text("topic-1")
    assert first_cells(page, "topics-1")[:3] == ["topic-1", "topic-2", "topic-3"]
    messages.click()
    expect(cells.first).to_have_text(NASTY)
    assert first_cells(page, "topics-1")[:3] == [NASTY, "topic-38", "topic-37"]
    page.locator("#topics .dt-search input").fill("topic-7")
    expect(cells).to_have_text(["topic-7"])
    page.locator("#topics .dt-search input").fill("no such topic")
    expect(page.locator("#topics-1")).to_contain_text("No row matches")
    assert page.said == []


def test_a_number_leads_to_its_sql(page):
    assert not page.locator("#sql-log").is_visible()
    page.locator("a.tile", has_text="Segments").click()
    page.locator("#sql-log").wait_for(state="visible")
    assert "count(DISTINCT segment)" in page.locator("#sql-log").inner_text()


def test_on_a_phone_nothing_is_wider_than_the_screen(browser, file):
    shown = browser.new_page(viewport=PHONE)
    open_page(shown, file)
    assert shown.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
    shown.locator("details.queries >> nth=0").click()
    shown.locator("td.code summary >> nth=0").click()
    assert shown.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
    shown.close()


@pytest.mark.nightly
def test_light_and_dark_are_two_pages_to_the_eye(browser, file, tmp_path):
    light, dark = take_pictures(browser, file, tmp_path)
    assert light.stat().st_size < 300_000 > dark.stat().st_size
    shown = browser.new_page(color_scheme="light")
    open_page(shown, file)

    def colours() -> tuple[str, ...]:
        return tuple(
            shown.evaluate(f"getComputedStyle(document.querySelector({element!r})).{style}")
            for element, style in (
                ("body", "backgroundColor"),
                ("body", "color"),
                ("#throughput g.mark-rect path", "fill"),
                ("#topics-1 td", "color"),
            )
        )

    by_day = colours()
    shown.emulate_media(color_scheme="dark")
    by_night = colours()
    assert all(one != other for one, other in zip(by_day, by_night, strict=True))
    shown.close()


@pytest.mark.nightly
def test_a_live_page_loads_itself_again_and_ends_with_control_c(browser, store):
    command = [
        sys.executable,
        "-c",
        "from jobs.launch.cli import main; main()",
        "report",
        "--store",
        store.uri,
        "--watch",
    ]
    environment = {**os.environ, "PYTHONPATH": str(PROJECT)}
    watching = subprocess.Popen(
        [*command, "--every", "1"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )
    try:
        address = next(
            line.split()[1] for line in watching.stderr if line.startswith("serving http://127.0.0.1:")
        )
        shown = browser.new_page()
        said: list[str] = []
        shown.on("console", lambda message: said.append(message.text))
        shown.goto(address)
        shown.wait_for_selector("body.ready", timeout=60_000)
        first = shown.locator("body").get_attribute("data-version")
        # Not by a function: the page forbids code from outside.
        shown.wait_for_selector(f"body.ready:not([data-version='{first}'])", timeout=180_000)
        assert said == []
        watching.send_signal(signal.SIGINT)
        out, _ = watching.communicate(timeout=60)
        shown.wait_for_selector("#live.stopped", timeout=30_000)
    finally:
        watching.kill()
    assert watching.returncode == 0
    assert '"status": "ok"' in out.splitlines()[-1]
