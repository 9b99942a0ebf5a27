"""Class filters: where they come from, and what they say of rows of the log (docs/rocketmq/consume-filter-ha.md 4.6)."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from pipelines.consume.class_pages import find_class_filter, plan_upload
from pipelines.errors import BadInput
from pipelines.filter.class_filters import (
    UploadedClass,
    expect_uploads,
    load_class_filter,
    source_crc,
    verdicts,
)
from pipelines.rocketmq.settings import Settings
from pipelines.store.commit import commit
from pipelines.store.store import Store
from schemas import COMMITLOG

SOURCE = """
from __future__ import annotations

from dataclasses import dataclass

LARGE = 3

@dataclass
class Seen:
    group: str
    body: bytes

class Large:
    def match(self, message, context) -> bool:
        if message.body == b"oops":
            raise ValueError(f"{message.topic} has an oops")
        if message.body == b"none":
            return None
        seen = Seen(context.group, message.body)
        return seen.group == "readers" and len(seen.body) > LARGE and message.tags == "A"

class NoFilter:
    pass

class WantsMore:
    def __init__(self, size):
        self.size = size

not_a_class = 3
"""


def upload(class_name: str = "Large", source: str = SOURCE) -> UploadedClass:
    return UploadedClass.of("orders", "readers", class_name, source)


def log_rows(spark: SparkSession, *bodies: str) -> DataFrame:
    """Rows of the log with tag A, one a body, 100 bytes apart."""
    known = {"topic": "orders", "queue_id": 0, "sys_flag": 0, "properties": "TAGS\x01A\x02"}
    rows = [{**known, "physical_offset": 100 * at, "body": body.encode()} for at, body in enumerate(bodies)]
    return spark.createDataFrame(
        [tuple(row.get(name) for name in COMMITLOG.names) for row in rows], COMMITLOG.columns
    )


def said(rows: DataFrame) -> list[tuple]:
    return sorted(tuple(row) for row in rows.collect())


def test_an_uploaded_class_sees_whole_messages_on_the_executors(spark: SparkSession) -> None:
    answers = verdicts(log_rows(spark, "abc", "abcd"), upload().load(), "readers")
    assert said(answers) == [(0, False, None), (100, True, None)]
    assert answers.columns == ["physical_offset", "match", "error"]


def test_an_error_is_no_verdict(spark: SparkSession) -> None:
    answers = verdicts(log_rows(spark, "abcd", "oops", "none"), upload().load(), "readers")
    assert said(answers) == [
        (0, True, None),
        (100, None, "ValueError: orders has an oops"),
        (200, None, "match returned None; expected True or False"),
    ]


def test_two_sources_with_classes_of_one_name_are_two_filters(spark: SparkSession) -> None:
    rows = log_rows(spark, "abc")
    larger, smaller = upload(), upload(source=SOURCE.replace("LARGE = 3", "LARGE = 2"))
    assert said(
        verdicts(rows, larger.load(), "readers").union(verdicts(rows, smaller.load(), "readers"))
    ) == [
        (0, False, None),
        (0, True, None),
    ]


def test_a_class_of_a_module(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "filters_of_a_test.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    large = load_class_filter("--filter", "filters_of_a_test:Large")
    assert said(verdicts(log_rows(spark, "abcd"), large, "readers")) == [(0, True, None)]
    with pytest.raises(BadInput, match="--filter filters_of_a_test:NoFilter has no method match"):
        load_class_filter("--filter", "filters_of_a_test:NoFilter")


@pytest.mark.quick
def test_a_source_that_was_changed_is_not_run() -> None:
    uploaded = upload()
    changed = replace(uploaded, source="raise SystemExit(7)")
    with pytest.raises(
        BadInput, match=f"has CRC {source_crc(changed.source)}; recorded .* is {uploaded.crc}, so it was"
    ):
        changed.load()


@pytest.mark.quick
@pytest.mark.parametrize(
    ("class_name", "source", "complaint"),
    [
        ("Large", "class Large:\nmatch", "source of class filter Large does not run: IndentationError: .*; fix it"),
        ("Large", "import no_such_module", "does not run: ModuleNotFoundError: .*no_such_module"),
        ("Missing", SOURCE, "source of class filter Missing has no class of that name"),
        ("not_a_class", SOURCE, "source of class filter not_a_class has no class of that name"),
        ("NoFilter", SOURCE, r"class filter NoFilter has no method match\(self, message, context\)"),
        ("WantsMore", SOURCE, "class filter WantsMore cannot be made: TypeError: .*size.*; expected a class that is made"),
    ],
)  # fmt: skip
def test_an_upload_that_is_no_filter_is_refused(class_name: str, source: str, complaint: str) -> None:
    with pytest.raises(BadInput, match=complaint):
        upload(class_name, source)


@pytest.mark.quick
def test_uploads_are_refused_unless_the_store_takes_them() -> None:
    expect_uploads(Settings.of({"filterSupportUpload": "true"}))
    with pytest.raises(BadInput, match=r"takes no source of class filters \(filterSupportUpload is false\)"):
        expect_uploads(Settings.of({}))


@pytest.mark.quick
def test_an_upload_in_the_tables_is_not_run_where_the_store_takes_none(
    new_store: Callable[..., Store],
) -> None:
    for takes in ("true", "false"):
        store = new_store(filterSupportUpload=takes)
        commit(store, lambda at: plan_upload(at, upload()))  # as somebody with access to the tables would
        if takes == "true":
            assert find_class_filter(store.snapshot(), "readers", "orders", "Large")
            continue
        with pytest.raises(BadInput, match=r"filterSupportUpload is false"):
            find_class_filter(store.snapshot(), "readers", "orders", "Large")


def test_the_crc_is_rocketmqs() -> None:
    assert source_crc("") == 0
    assert (
        source_crc("123456789") == 0xCBF43926 & 0x7FFFFFFF
    )  # the check value of CRC-32, without its highest bit
