"""Brokers' directories: the two a real broker wrote, and small ones made byte by byte."""

import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

DATA = Path(__file__).parent.parent / "data"
GOLDEN_CONF = """
mappedFileSizeConsumeQueue=6000
maxHashSlotNum=200
maxIndexNum=1000
messageDelayLevel=1s 2s 3s 4s 5s 6s 7s 8s 9s 10s 12s 14s 16s 18s 20s 1m 1h 2h
brokerName=broker-a
transactionTimeOut=2000
transactionCheckMax=3
"""


@pytest.fixture(scope="session")
def golden_broker(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """storePathRootDir of store a or b, unpacked once; read only."""
    unpacked: dict[str, Path] = {}

    def broker(name: str) -> Path:
        if name not in unpacked:
            directory = tmp_path_factory.mktemp(f"broker-{name}")
            with tarfile.open(DATA / f"store-{name}.tar.gz") as archive:
                archive.extractall(directory, filter="data")
            unpacked[name] = directory / "store"
        return unpacked[name]

    return broker
