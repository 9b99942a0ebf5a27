"""Tables for a person hold names and values of messages: no control character of theirs reaches the terminal."""

import pytest

from jobs.launch.findings import show_findings
from jobs.launch.listings import list_groups, list_settings
from jobs.launch.output import Output
from pipelines.quality.expectations import Finding
from pipelines.quality.promise import Promise
from pipelines.rocketmq.settings import Settings
from pipelines.store.groups import SubscriptionGroupConfig

ODD, AS_SHOWN = "or\x1b[31mders\u202e[/a]", "or\\x1b[31mders\\u202e[/a]"


def test_findings(capsys: pytest.CaptureFixture[str]) -> None:
    found = Finding("log", Promise("complaint", "it holds", "critical"), 1, 1, (ODD,))
    show_findings([found], Output.table, quiet=False)
    expect_shown(capsys)


def test_settings(capsys: pytest.CaptureFixture[str]) -> None:
    list_settings(Settings.of({"brokerName": ODD}), ["brokerName"], Output.table, quiet=False)
    expect_shown(capsys)


def test_groups(capsys: pytest.CaptureFixture[str]) -> None:
    list_groups([SubscriptionGroupConfig(ODD)], Output.table, quiet=False)
    expect_shown(capsys)


def expect_shown(capsys: pytest.CaptureFixture[str]) -> None:
    printed = capsys.readouterr().err
    assert AS_SHOWN in printed
    assert not {"\x1b", "\u202e"} & {*printed}
