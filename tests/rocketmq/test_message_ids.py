"""Message ids: the same digits as a broker makes, in SQL, as a column and in Python."""

import gzip
import ipaddress
import json

import pytest
from pyspark.sql import functions as F

from pipelines.rocketmq.message_ids import (
    host_hex,
    is_message_id,
    message_id,
    message_id_of,
    offset_in_id,
    offset_of_id,
)
from tests.reports.golden import DATA


def test_message_ids_of_ipv4_and_ipv6_hosts(spark):
    with gzip.open(DATA / "allocation-hash-id.jsonl.gz", "rt") as lines:
        golden = [case for case in map(json.loads, lines) if case["kind"] == "msgId"]
    asked = []
    for case in golden:
        ip = ipaddress.ip_address(case["ip"])
        for written in {str(ip), case["ip"], ip.exploded}:
            host = f"[{written}]" if ip.version == 6 else written
            asked.append((f"{host}:{case['port']}", case["msgId"][:-16]))
    assert len(golden) >= 50
    for written in (
        "::",
        "::1",
        "1::",
        "fe80::1:2",
        "::ffff:10.0.0.1",
        "2001:db8:0:0:1::",
        "1:2:3:4:5:6:1.2.3.4",
    ):
        digits = ipaddress.ip_address(written).packed.hex().upper()
        asked.append((f"[{written}]:10911", digits + "00002A9F"))
    rows = spark.createDataFrame(asked, "host string, expected string")
    wrong = rows.selectExpr("*", f"{host_hex('host')} AS found").where("found IS DISTINCT FROM expected")
    assert wrong.collect() == []


@pytest.mark.parametrize("host", ["127.0.0.1:10911", "[2001:db8::1]:10911"])
def test_an_id_holds_the_offset_wherever_it_is_made_or_read(spark, host):
    offsets = [0, 256, 2**40 + 17, 2**63 - 1]
    rows = spark.createDataFrame(
        [(host, offset) for offset in offsets], "store_host string, physical_offset long"
    )
    found = rows.select(message_id().alias("id"), "physical_offset").withColumn(
        "read", offset_in_id(F.col("id"))
    )
    for row in found.collect():
        assert row.id == message_id_of(host, row.physical_offset)
        assert is_message_id(row.id)
        assert (row.read, offset_of_id(row.id)) == (row.physical_offset, row.physical_offset)
