"""URIs with a password or a key are refused, and shown without it."""

import pytest

from pipelines.errors import BadInput
from pipelines.store.lock import is_same_directory
from pipelines.uris import expect_no_secret, without_user

pytestmark = pytest.mark.quick


@pytest.mark.parametrize(
    "uri",
    [
        "/data/store", "store", "C:/store", "file:///a@b:c/store", "hdfs://name/store", "hdfs://me@name:8020/store",
        "abfss://box@account.dfs.core.windows.net/store", "s3a://bucket/a:b@c",
    ],
)  # fmt: skip
def test_a_uri_without_a_secret_is_taken_as_it_is(uri: str) -> None:
    assert expect_no_secret(uri) == uri == without_user(uri)


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("s3a://KEY:SECRET@bucket/store", "s3a://***@bucket/store"),
        ("S3A://KEY@bucket/store", "S3A://***@bucket/store"),
        ("hdfs://me:pass@name/store", "hdfs://***@name/store"),
        ("abfss://a:b@account/store", "abfss://***@account/store"),
    ],
)
def test_one_with_a_secret_is_refused_and_not_shown(uri: str, shown: str) -> None:
    assert without_user(uri) == shown
    with pytest.raises(BadInput) as refused:
        expect_no_secret(uri)
    assert str(refused.value).startswith(shown)
    assert "SECRET" not in str(refused.value)


@pytest.mark.parametrize("job", ["dispatch", "import_store", "put_messages", "backup"])
def test_no_command_keeps_or_shows_one(job: str, commitlake, store) -> None:
    secret = "s3a://KEY:SECRET@bucket/there"
    where = {
        "dispatch": ("--store", secret),
        "import_store": ("--store", store.uri, "--from", secret),
        "put_messages": ("--store", store.uri, "--input", secret),
        "backup": ("--store", store.uri, "--to", secret),
    }[job]
    run = commitlake(job, *where)
    assert run.exit_status == 2, run.stderr
    assert "SECRET" not in run.stderr + str(run.result)
    assert "s3a://***@bucket/there has a password or a key" in run.stderr


def test_a_store_whose_name_is_not_text_is_refused(commitlake, tmp_path) -> None:
    run = commitlake("query", "--store", f"{tmp_path}/x\udcff", "by-id", "0" * 32)
    assert run.exit_status == 2
    assert "has bytes that are not UTF-8" in run.stderr


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ("s3a://b/x", "s3://b/x/", True),
        ("hdfs://node:8020/a", "hdfs://Node/a/.", True),
        ("hdfs://node:9000/a", "hdfs://node/a", False),
        ("s3a://b/x", "s3a://b/y", False),
        ("s3a://b/x#1", "s3a://b/x", False),
        ("s3a://b/x%20y", "s3a://b/x y", False),
        ("/b/x", "s3a://b/x", False),
    ],
)
def test_a_store_elsewhere_is_known_by_any_spelling(one: str, other: str, is_same: bool) -> None:
    assert is_same_directory(one, other) == is_same
