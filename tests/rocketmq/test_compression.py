"""Compressed bodies are unpacked up to a limit (docs/rocketmq/consume-filter-ha.md 1.6)."""

import tracemalloc
import zlib

import lz4.frame
import pyarrow as pa
import pytest

from pipelines.rocketmq.compression import BodyTooLarge, unpacked

pytestmark = pytest.mark.quick
MIB = 1024 * 1024
PACKED = [
    pytest.param(0x301, zlib.compress, id="zlib"),
    pytest.param(0x101, lz4.frame.compress, id="lz4"),
    pytest.param(0x201, lambda body: pa.Codec("zstd").compress(body, asbytes=True), id="zstd"),
    pytest.param(0x001, zlib.compress, id="no codec named: zlib"),
]


@pytest.mark.parametrize(("sys_flag", "pack"), PACKED)
def test_a_body_up_to_the_limit_is_whole(sys_flag, pack):
    body = b"0123456789" * 100_000
    assert unpacked(pack(body), sys_flag, len(body)) == body
    assert unpacked(pack(b""), sys_flag, 1) == b""
    assert unpacked(body, 0, 1) == body  # as it was sent


@pytest.mark.parametrize(("sys_flag", "pack"), PACKED)
def test_a_larger_one_is_refused_before_it_fills_the_memory(sys_flag, pack):
    bomb = pack(bytes(256 * MIB))
    tracemalloc.start()
    before = pa.total_allocated_bytes()
    with pytest.raises(BodyTooLarge, match=f"of {len(bomb)} bytes unpacks to more than {MIB} "):
        unpacked(bomb, sys_flag, MIB)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak + pa.total_allocated_bytes() - before < 8 * MIB


@pytest.mark.parametrize(("sys_flag", "pack"), PACKED)
def test_half_a_body_is_not_taken_for_one(sys_flag, pack):
    packed = pack(bytes(range(256)) * 1_000)
    with pytest.raises(Exception):  # noqa: B017, PT011  each library has its own
        unpacked(packed[: len(packed) // 2], sys_flag, 10 * MIB)
