"""Damage as a disk or a person does it: files of a store that nobody has opened yet are removed or cut short."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pipelines.consume import ConsumeStatus

Damage = Callable[[Path], object]


def data_files(store: Path, table: str) -> list[Path]:
    """All data files that the table's commits have added, in their order."""
    actions = [
        json.loads(line) for commit in commits(store, table) for line in commit.read_text().splitlines()
    ]
    return [store / table / action["add"]["path"] for action in actions if "add" in action]


def commits(store: Path, table: str) -> list[Path]:
    return sorted((store / table / "_delta_log").glob("*.json"))


def checkpoint(store: Path, table: str) -> Path:
    (found,) = (store / table / "_delta_log").glob("*.checkpoint.parquet")
    return found


def cut_short(file: Path, by: int = 40) -> None:
    file.write_bytes(file.read_bytes()[:-by])


def lose_data(table: str, index: int) -> Damage:
    return lambda store: data_files(store, table)[index].unlink()


def cut_data(table: str, index: int) -> Damage:
    return lambda store: cut_short(data_files(store, table)[index], by=100)


def lose_commit(table: str, index: int) -> Damage:
    return lambda store: commits(store, table)[index].unlink()


def cut_commit(table: str, index: int) -> Damage:
    return lambda store: cut_short(commits(store, table)[index])


def empty_commit(table: str, index: int) -> Damage:
    return lambda store: commits(store, table)[index].write_bytes(b"")


def and_checksums_without_files(damage: Damage) -> Damage:
    """The log has so many files that its checksum files do not list them."""

    def both(store: Path) -> None:
        for file in (store / "commitlog" / "_delta_log").glob("0*.crc"):
            content = json.loads(file.read_text())
            del content["allFiles"]
            file.write_text(json.dumps(content))
            file.with_name(f".{file.name}.crc").unlink()
        damage(store)

    return both


def lose_checkpoint(table: str) -> Damage:
    return lambda store: checkpoint(store, table).unlink()


def cut_checkpoint(table: str) -> Damage:
    return lambda store: cut_short(checkpoint(store, table))


def lose_table(table: str) -> Damage:
    return lambda store: shutil.rmtree(store / table)


def accept(message: Any) -> ConsumeStatus:
    """A listener that takes every message."""
    return ConsumeStatus.CONSUME_SUCCESS
