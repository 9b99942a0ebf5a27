"""broker.conf is read as Java reads it."""

import pytest
from pyspark.sql import SparkSession

from pipelines.errors import BadInput
from pipelines.rocketmq.broker_conf import read_broker_conf

pytestmark = pytest.mark.quick


def test_a_broker_conf_is_read_as_java_reads_it(spark: SparkSession) -> None:
    text = r"""
# a comment
  ! another
brokerName = broker-b
deleteWhen:04
fileReservedTime 48
namesrvAddr=10.0.0.1:9876;\
            10.0.0.2:9876
storePathRootDir=C:\\store
haMasterAddress=10.0.0.1:10912
regionId=caf\u00e9 \ud83d\ude00
brokerClusterName = first
brokerClusterName=last = wins
with\ space\=sign = x
lonely
 = a value without a name
"""
    assert read_broker_conf(spark, text, "broker.conf") == {
        "brokerName": "broker-b",
        "deleteWhen": "04",
        "fileReservedTime": "48",
        "namesrvAddr": "10.0.0.1:9876;10.0.0.2:9876",
        "storePathRootDir": r"C:\store",
        "regionId": "café 😀",
        "brokerClusterName": "last = wins",
        "with space=sign": "x",
        "lonely": "",
    }


def test_a_comment_does_not_go_on_and_a_line_that_goes_on_has_no_comments(spark: SparkSession) -> None:
    text = "# text \\\na=1\nb=x\\\n#y\n"
    assert read_broker_conf(spark, text, "broker.conf") == {"a": "1", "b": "x#y"}


def test_an_escape_that_java_refuses_is_named_with_its_file(spark: SparkSession) -> None:
    with pytest.raises(
        BadInput, match=r"^b\.conf is not a broker\.conf that Java can read: Malformed .uxxxx"
    ):
        read_broker_conf(spark, r"regionId=caf\u00g9", "b.conf")
