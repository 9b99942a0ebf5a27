"""Brokers' directories: the two a real broker wrote, and small ones made byte by byte."""

from pathlib import Path

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
