"""RocketMQ's own store classes open an export of a golden store, and answer as the broker did that wrote it."""

import gzip
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.broker_files.conftest import DATA
from tests.conftest import PROJECT, JobRun
from tests.expiry.test_expire import FOUR, messages, old_store
from tests.export.test_export_store import broker_and_export  # noqa: F401
from tests.life import Life

JARS = PROJECT / ".setup" / "rocketmq"  # made by scripts/test_jars.sh

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not JARS.exists() and os.environ.get("CI") != "true",
        reason="there is no RocketMQ; scripts/test_jars.sh",
    ),
]


def asked(export: Path, segment_bytes: int, questions: Iterable[tuple[Any, ...]]) -> list[str]:
    """What RocketMQ answers about a store directory; it runs on a copy, which its recovery may write to."""
    lines = "".join("\t".join(map(str, question)) + "\n" for question in questions)
    program = Path(__file__).parent / "OpenExport.java"
    options = [str(export), str(segment_bytes), "6000", "200", "1000"]
    run = subprocess.run(
        ["java", "-Xmx512m", "-cp", f"{JARS}/*", str(program), *options],
        input=lines, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    return [line.removeprefix("ANSWER\t") for line in run.stdout.splitlines() if line.startswith("ANSWER\t")]


@pytest.fixture(scope="module")
def answers(broker_and_export: tuple[Path, Path, JobRun]) -> dict[str, list[dict[str, Any]]]:  # noqa: F811
    name = "a" if "exported-a" in str(broker_and_export[1]) else "b"
    found: dict[str, list[dict[str, Any]]] = {}
    with gzip.open(DATA / f"store-{name}.answers.jsonl.gz", "rt", encoding="utf-8") as lines:
        for line in lines:
            answer = json.loads(line)
            found.setdefault(answer["kind"], []).append(answer)
    return found


@pytest.fixture(scope="module")
def ask(
    broker_and_export: tuple[Path, Path, JobRun],  # noqa: F811
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[[list[tuple[Any, ...]]], list[str]]:
    export = broker_and_export[1]
    copy = tmp_path_factory.mktemp("opened") / "store"
    shutil.copytree(export, copy)
    segment_bytes = next((copy / "commitlog").iterdir()).stat().st_size
    return lambda questions: asked(copy, segment_bytes, questions)


def test_every_answer_is_the_brokers(
    ask: Callable[[list[tuple[Any, ...]]], list[str]], answers: dict[str, list[dict[str, Any]]]
) -> None:
    expected: list[tuple[tuple[Any, ...], str]] = []
    store = answers["store"][0]
    expected.append((("store",), f"{store['minPhyOffset']}\t{store['maxPhyOffset']}"))
    for one in answers["message"]:
        answer = f"{one['topic']}\t{one['queueOffset']}\t{one['bodyCRC']}"
        expected.append((("message", one["commitLogOffset"]), answer))
    for one in answers["queue"]:
        expected.append((("queue", one["topic"], one["queueId"]), f"{one['min']}\t{one['max']}"))
    for one in answers["offsetByTime"]:
        for boundary in ("lower", "upper"):
            question = ("time", one["topic"], one["queueId"], one["timestamp"], boundary.upper())
            expected.append((question, str(one[boundary])))
    for one in answers["pull"]:
        offsets = ",".join(map(str, one["queueOffsets"]))
        question = ("pull", one["topic"], one["queueId"], one["offset"], one["maxMsgNums"])
        expected.append((question, f"{one['status']}\t{one['next']}\t{one['min']}\t{one['max']}\t{offsets}"))
    for one in answers["queryByKey"]:
        expected.append(
            (("key", one["topic"], one["key"], one["maxNum"]), ",".join(map(str, one["offsets"])))
        )
    found = ask([question for question, _ in expected])
    assert len(found) == len(expected)
    differing = [
        (question, answer, was)
        for (question, answer), was in zip(expected, found, strict=True)
        if answer != was
    ]
    assert differing == []


def test_a_queue_whose_messages_have_expired_takes_new_ones(
    life: Callable[..., Life], tmp_path: Path
) -> None:
    """Its files have no entry; what their last unit says must not pass for the end of all that is in the queue."""
    settings = {"mappedFileSizeCommitLog": "4096", "mappedFileSizeConsumeQueue": "6000"}
    one = old_store(
        life, *[{"topic": "OLD", "queue_id": 0} for _ in range(5)], *messages(40), **settings,
        maxHashSlotNum="200", maxIndexNum="1000",
    )  # fmt: skip
    assert one.job("maintain", FOUR).result["segments_expired"] > 0
    one.job("export_store", FOUR, "--to", tmp_path / "export")
    questions = [("queue", "OLD", 0), ("put", "OLD", 0), ("queue", "OLD", 0), ("pull", "OLD", 0, 5, 32)]
    assert asked(tmp_path / "export", 4096, questions) == [
        "5\t5", "PUT_OK\t5", "5\t6", "FOUND\t6\t5\t6\t5"
    ]  # fmt: skip
