"""Settings: what is taken, what it becomes, and what a person reads when it is refused."""

import pytest

from pipelines.errors import BadInput
from pipelines.rocketmq.settings import SETTINGS, Settings, delay_levels_ms, host
from tests.conftest import PROJECT

pytestmark = pytest.mark.quick


def refusal(**settings: str) -> str:
    with pytest.raises(BadInput) as refused:
        Settings.of(settings)
    return str(refused.value)


def test_defaults_are_rocketmqs_but_for_three():
    settings = Settings.of({})
    assert settings.segment_bytes == 1_073_741_824
    assert settings.max_message_bytes == 4_194_304
    assert settings.max_record_bytes == 4_259_840
    assert settings["transactionCheckInterval"] == 30_000
    assert settings["autoCreateTopicEnable"] is True
    assert len(settings.delay_levels_ms) == 18
    assert settings.delay_levels_ms[-1] == 7_200_000
    # ours: no horizon for timers, SQL92 allowed, no uploaded code
    assert (
        settings["timerMaxDelaySec"],
        settings["enablePropertyFilter"],
        settings["filterSupportUpload"],
    ) == (
        0,
        True,
        False,
    )


def test_every_default_is_a_value_its_own_parser_takes():
    for name, setting in SETTINGS.items():
        text = str(setting.default).lower() if isinstance(setting.default, bool) else str(setting.default)
        assert setting.parse(text) == setting.default, name


def test_a_time_zone_is_one_that_there_is():
    assert [Settings.of({"timeZone": zone})["timeZone"] for zone in ("Asia/Tokyo", "+05:30")] == [
        "Asia/Tokyo",
        "+05:30",
    ]
    assert refusal(timeZone="Europe/Berln") == (
        'setting timeZone is "Europe/Berln"; expected a time zone like Europe/Berlin, UTC or +02:00; '
        "did you mean Europe/Berlin?"
    )
    assert "expected a time zone" in refusal(timeZone="+19:00")


def test_values_are_typed():
    settings = Settings.of({"mappedFileSizeCommitLog": "65536", "slaveReadEnable": "TRUE", "brokerId": " 3 "})
    assert settings.segment_bytes == 65_536
    assert settings["slaveReadEnable"] is True
    assert settings["brokerId"] == 3
    assert settings.given["brokerId"] == " 3 "


def test_a_name_that_has_no_effect_here_is_kept_and_listed():
    settings = Settings.of({"flushDiskType": "SYNC_FLUSH", "maxMessageSize": "100"})
    assert settings.without_effect == ["flushDiskType"]
    assert settings.given["flushDiskType"] == "SYNC_FLUSH"


def test_each_setting_is_read_by_some_code():
    code = "".join(
        file.read_text()
        for folder in ("pipelines", "jobs")
        for file in (PROJECT / folder).rglob("*.py")
        if file.name not in ("settings.py", "setting_names.py")
    )
    settings = (PROJECT / "pipelines" / "rocketmq" / "settings.py").read_text().partition("KNOWN_NAMES = ")[2]
    for name in SETTINGS:
        assert f'["{name}"]' in code or f'"{name}"' in settings, name


def test_passwords_are_not_kept():
    given = Settings.of({"objectStoreSecretKey": "s3cret"}).given
    assert given == {"objectStoreSecretKey": "(not kept)"}


@pytest.mark.parametrize(
    ("misspelt", "meant"),
    [
        ("maxMesageSize", "maxMessageSize"),
        ("MAPPEDFILESIZECOMMITLOG", "mappedFileSizeCommitLog"),
        ("fileReserveTime", "fileReservedTime"),
        ("flushdisktype", "flushDiskType"),
        ("mapedFileSizeCommitLogs", "mappedFileSizeCommitLog"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest_known_one(misspelt, meant):
    assert (
        refusal(**{misspelt: "1"}) == f'setting "{misspelt}" is not known; the nearest known name is {meant}'
    )


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("mappedFileSizeCommitLog", "0", "a whole number from 100 to 2147483647"),
        ("mappedFileSizeCommitLog", "1GB", "a whole number from 100 to 2147483647"),
        ("mappedFileSizeCommitLog", "2147483648", "a whole number from 100 to 2147483647"),
        ("maxMessageSize", "-5", "a whole number from 1 to 2147483647"),
        ("autoCreateTopicEnable", "yes", "true or false"),
        ("brokerRole", "MASTER", "one of ASYNC_MASTER, SYNC_MASTER, SLAVE"),
        ("deleteWhen", "24", 'hours from 00 to 23 separated by ";"'),
        ("topicReservedTime", "a:1;b", 'TOPIC:HOURS, several separated by ";"; one is "b"'),
        ("storeHost", "broker:10911", "an address and a port, 10.0.0.1:10911 or [2001:db8::1]:10911"),
        ("brokerName", " ", "some text"),
    ],
)
def test_a_value_that_cannot_be_is_refused(name, text, expected):
    assert refusal(**{name: text}) == f'setting {name} is "{text}"; expected {expected}'


def test_bytes_that_are_not_text_are_refused():
    assert refusal(brokerName="\udcff") == "setting brokerName is '\\udcff'; expected text in UTF-8"


def test_everything_wrong_is_said_at_once():
    said = refusal(maxMessageSize="x", brokerRol="SLAVE")
    assert 'maxMessageSize is "x"' in said
    assert "the nearest known name is brokerRole" in said


@pytest.mark.parametrize(
    ("text", "levels"),
    [
        ("1s 5s 1m", (1_000, 5_000, 60_000)),
        ("1h 2d  ", (3_600_000, 172_800_000)),  # trailing spaces are ignored
        ("0s -1s 5s 5s", (0, -1_000, 5_000, 5_000)),
    ],
)
def test_delay_levels(text, levels):
    assert delay_levels_ms(text) == levels


@pytest.mark.parametrize(
    ("text", "level", "token"),
    [
        ("1s  5s", 2, ""),
        (" 1s", 1, ""),
        ("1s,5s", 1, "1s,5s"),
        ("1s\t5s", 1, "1s\t5s"),
        ("1s 5S", 2, "5S"),
        ("1s 5", 2, "5"),
        ("1.5h", 1, "1.5h"),
        ("1s 2w", 2, "2w"),
        ("", 1, ""),
    ],
)
def test_vector_9_delay_levels_a_broker_would_not_start_with_are_refused(text, level, token):
    expected = f'whole numbers with a unit s, m, h or d, one space between them; level {level} is "{token}"'
    assert refusal(messageDelayLevel=text) == f'setting messageDelayLevel is "{text}"; expected {expected}'


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, "127.0.0.1:10911"),
        ({"brokerIP1": "10.0.0.7"}, "10.0.0.7:10911"),
        ({"brokerIP1": "10.0.0.7", "listenPort": "20911"}, "10.0.0.7:20911"),
        ({"listenPort": "20911"}, "127.0.0.1:20911"),
        ({"brokerIP1": "2001:db8::7"}, "[2001:db8::7]:10911"),
        ({"brokerIP1": "a.name.example", "storeHost": "10.0.0.8:1"}, "10.0.0.8:1"),
    ],
)
def test_store_host(given, expected):
    assert Settings.of(given).store_host == expected


def test_a_broker_known_by_name_only_needs_a_store_host():
    assert refusal(brokerIP1="a.name.example") == (
        'brokerIP1 is "a.name.example"; records hold an address, not a name: set storeHost to ip:port'
    )


def test_hosts_are_written_in_one_way():
    assert host("[2001:DB8:0:0::1]:080") == "[2001:db8::1]:80"


def test_queue_files_hold_whole_units():
    assert Settings.of({"mappedFileSizeConsumeQueue": "6001"}).queue_file_bytes == 6_020


@pytest.mark.parametrize(
    ("asked", "taken"), [("1000", 1000), ("999", 500), ("150", 100), ("7", 100), ("5000", 1000)]
)
def test_timer_precision_is_one_of_four(asked, taken):
    assert Settings.of({"timerPrecisionMs": asked})["timerPrecisionMs"] == taken


def test_the_old_spelling_of_the_segment_size_acts():
    settings = Settings.of({"mapedFileSizeCommitLog": "4096"})
    assert settings.segment_bytes == 4_096
    assert settings.without_effect == []


def test_a_default_said_aloud_is_no_difference():
    stored = Settings.of({"fileReservedTime": "72", "flushDiskType": "SYNC_FLUSH"})
    assert stored.differences(Settings.of({"flushDiskType": "SYNC_FLUSH"})) == []
    assert stored.differences(Settings.of({"fileReservedTime": "48"})) == [
        "fileReservedTime is 72, requested 48",
        "flushDiskType is SYNC_FLUSH, requested none",
    ]
