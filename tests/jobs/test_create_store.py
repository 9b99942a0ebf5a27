"""`commitlake create_store` as a user types it."""

import pytest

from pipelines.store.store import Store

CONF = "brokerName = broker-b\nmappedFileSizeCommitLog=65536\nflushDiskType=SYNC_FLUSH\n"


@pytest.fixture
def conf(tmp_path):
    file = tmp_path / "broker.conf"
    file.write_text(CONF)
    return file


@pytest.mark.slow
def test_a_store_is_made_from_a_broker_conf(commitlake, spark, conf, tmp_path):
    run = commitlake(
        "create_store", "--store", tmp_path / "store", "--broker-conf", conf, "--set", "brokerName=broker-c"
    )
    assert (run.exit_status, run.result["status"], run.result["settings"]) == (0, "ok", 3)
    assert "kept, but without effect here: flushDiskType" in run.stderr
    store = Store.open(spark, str(tmp_path / "store"))
    assert store.settings.segment_bytes == 65_536
    assert store.settings["brokerName"] == "broker-c"  # --set wins
    assert {row.topic for row in store.topics.collect()} >= {"broker-c", "TBW102", "SCHEDULE_TOPIC_XXXX"}
    assert store.subscription_groups.count() == 8


def test_made_again_with_the_same_settings_nothing_happens(commitlake, store):
    before = store.job_runs.count()
    run = commitlake("create_store", "--store", store.uri)
    assert (run.exit_status, run.result["status"]) == (0, "ok")
    assert store.job_runs.count() == before


def test_a_creation_that_was_cut_short_goes_on(commitlake, new_store, tmp_path):
    store = new_store(maxMessageSize="100")
    for table in ("topics", "subscription_groups"):  # as if the run had ended after the settings
        for file in (tmp_path / "store1" / table / "_delta_log").iterdir():
            if f"{1:020d}" in file.name:  # the version that holds the rows, and its checksums
                file.unlink()
    assert store.topics.count() == 0
    run = commitlake("create_store", "--store", store.uri, "--set", "maxMessageSize=100")
    assert run.exit_status == 0
    assert (store.topics.count(), store.subscription_groups.count()) == (13, 8)


def test_made_again_with_other_settings_it_is_refused(commitlake, store):
    run = commitlake("create_store", "--store", store.uri, "--set", "mappedFileSizeCommitLog=4096")
    assert (run.exit_status, run.result["status"]) == (2, "failed")
    assert run.stderr.strip() == (
        f"error: there is a store at {store.uri} with other settings: mappedFileSizeCommitLog is 1073741824, "
        "requested 4096. Nothing was changed; give the same settings, or another --store; `commitlake settings` changes "
        "this one's"
    )


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--set", "maxMesageSize=1"],
         'setting "maxMesageSize" is not known; the nearest known name is maxMessageSize'),
        (["--set", "maxMessageSize"], '--set is "maxMessageSize"; expected name=value'),
        (["--set", "maxMessageSize=big"],
         'setting maxMessageSize is "big"; expected a whole number from 1 to 2147483647'),
        (["--set", "timeZone=ROC"],  # of Python's tables, and not of Java's
         'setting timeZone is "ROC"; expected a time zone that this Java knows too, like Europe/Berlin, UTC or +02:00; '
         "name another one with the same times, or update Java"),
    ],
)  # fmt: skip
def test_what_a_user_reads_when_a_setting_is_wrong(commitlake, tmp_path, arguments, sentence):
    run = commitlake("create_store", "--store", tmp_path / "store", *arguments)
    assert (run.exit_status, run.result["status"]) == (2, "failed")
    assert run.stderr.strip() == f"error: {sentence}"
    assert not (tmp_path / "store").exists()


def test_a_broker_conf_that_is_not_there(commitlake, tmp_path):
    run = commitlake("create_store", "--store", tmp_path / "store", "--broker-conf", tmp_path / "none.conf")
    assert run.exit_status == 2
    assert "none.conf' does not exist" in run.stderr
