"""A broker's config files, as it writes them and as they are found after a crash."""

import re
from pathlib import Path

import pytest

from pipelines.broker_files.broker_config import BrokerConfig, parse_fastjson
from pipelines.broker_files.directory import BrokerDirectory
from pipelines.broker_files.export_note import NOTE
from pipelines.errors import BadInput
from pipelines.rocketmq.settings import Settings


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (tmp_path / "config").mkdir()
    return tmp_path / "config"


def read(config: Path) -> BrokerConfig:
    return BrokerConfig.read(BrokerDirectory(str(config.parent)))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{1:14,2:10}", {"1": 14, "2": 10}),
        ('{"1":14}', {"1": 14}),
        ('{\n\t"t":{0:1 , -1 : 2\n\t}}', {"t": {"0": 1, "-1": 2}}),
        ('{"a{1:2":"{3:4,5:6}","b":[1,2,3]}', {"a{1:2": "{3:4,5:6}", "b": [1, 2, 3]}),
        ('{"quoted \\",1:":{7:8}}', {'quoted ",1:': {"7": 8}}),
    ],
)
def test_integer_keys_stand_without_quotes(text: str, value: object):
    assert parse_fastjson(text) == value


def test_no_config_at_all(config: Path):
    found = read(config)
    assert (found.topics, found.groups, found.consumer_offsets, found.subscriptions, found.floors) == (
        None,
        None,
        {},
        [],
        {},
    )


@pytest.mark.parametrize("damaged", ["", '{"offsetTable":{1:', "{}"])
def test_a_damaged_file_falls_back_to_its_backup(config: Path, damaged: str):
    (config / "delayOffset.json").write_text(damaged)
    (config / "delayOffset.json.bak").write_text('{"offsetTable":{3:7}}')
    assert read(config).floors == {"schedule:3": 7}


def test_a_backup_alone(config: Path):
    (config / "topics.json.bak").write_text(
        '{"topicConfigTable":{"T":{"topicName":"T","perm":4,"readQueueNums":2}}}'
    )
    topics = read(config).topics
    assert topics is not None
    assert (topics["T"].perm, topics["T"].read_queue_nums, topics["T"].write_queue_nums) == (4, 2, 16)


def test_both_damaged(config: Path):
    (config / "topics.json").write_text("{")
    (config / "topics.json.bak").write_text("[]")
    with pytest.raises(BadInput, match=r"cannot read config/topics.json \(.*nor config/topics.json.bak"):
        read(config)


def test_offsets_of_groups_and_of_light_queues(config: Path):
    (config / "consumerOffset.json").write_text('{"offsetTable":{"T@G":{0:5,1:6},"%RETRY%G@G":{0:1}}}')
    (config / "lmqConsumerOffset.json").write_text('{"lmqOffsetTable":{"%LMQ%q@G":9},"offsetTable":{}}')
    assert read(config).consumer_offsets == {
        ("G", "T", 0): 5,
        ("G", "T", 1): 6,
        ("G", "%RETRY%G", 0): 1,
        ("G", "%LMQ%q", 0): 9,
    }


def test_a_short_timer_checkpoint_is_refused(config: Path):
    (config / "timercheck").write_bytes(b"\0" * 10)
    with pytest.raises(BadInput, match="timercheck has 10 bytes"):
        read(config)


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("topics.json", '{"topicConfigTable":{"T":{"readQueueNums":4294967296}}}'),
        ("topics.json", '{"topicConfigTable":{"T":{"writeQueueNums":"four"}}}'),
        ("topics.json", '{"topicConfigTable":{"T":{"attributes":{"a":1}}}}'),
        ("subscriptionGroup.json", '{"subscriptionGroupTable":{"G":{"retryMaxTimes":1.5}}}'),
        ("subscriptionGroup.json", '{"subscriptionGroupTable":{"G":{"consumeEnable":1}}}'),
        ("consumerOffset.json", '{"offsetTable":{"T@G":{0:9223372036854775808}}}'),
        ("consumerOffset.json", '{"offsetTable":{"T@G":{2147483648:1}}}'),
        ("consumerFilter.json", '{"filterDataByTopic":{"T":{"groupFilterData":{"G":{"expression":[1]}}}}}'),
        ("delayOffset.json", '{"offsetTable":{1:true}}'),
        ("topics.json", '{"topicConfigTable":' + "[" * 100_000),
    ],
)
def test_values_no_broker_writes_are_refused_with_their_file(config: Path, file: str, content: str):
    (config / file).write_text(content)
    with pytest.raises(BadInput, match=rf"cannot read config/{file} \("):
        read(config)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("", "is not JSON"),
        ("[]", r"holds \[\], expected a JSON object"),
        ('{"end_offset":null}', "has end_offset null, expected a whole number from 0 on"),
        ('{"end_offset":9223372036854775808}', "has end_offset 9223372036854775808, expected"),
        ('{"end_offset":5,"under_way_to":"6"}', 'has under_way_to "6", expected a whole number from 0 on'),
        ('{"timer":["a",2]}', "has timer .*, expected a list of whole numbers"),
        ('{"subscriptions":[1]}', r"has subscriptions \[1\], expected lists of group, topic and tags"),
        ('{"subscriptions":[["g","t"]]}', "has subscriptions .*, expected lists of group, topic and tags"),
    ],
)
def test_a_note_that_no_export_writes_is_refused(config: Path, content: str, complaint: str):
    (config.parent / NOTE).write_text(content)
    with pytest.raises(BadInput, match=f"/{NOTE} {complaint}.*. Restore the file"):
        read(config)


@pytest.mark.parametrize(
    ("file", "content", "sentence"),
    [
        (
            "topics.json",
            '{"topicConfigTable":{"T":{"readQueueNums":2147483647}}}',
            "topic T (topics.json) has 2147483647",
        ),
        (
            "topics.json",
            '{"topicConfigTable":{"T":{"writeQueueNums":1025}}}',
            "topic T (topics.json) has 1025 queues",
        ),
        (
            "subscriptionGroup.json",
            '{"subscriptionGroupTable":{"G":{"retryQueueNums":1025}}}',
            "of group G (subscr",
        ),
    ],
)
def test_more_queues_than_a_topic_may_have_are_refused(config: Path, file: str, content: str, sentence: str):
    (config / file).write_text(content)
    found = read(config)
    with pytest.raises(BadInput, match=re.escape(sentence)):
        found.expect_few_queues(Settings())
    if "1025" in content:
        found.expect_few_queues(Settings.of({"maxTopicQueueNums": "1025"}))
