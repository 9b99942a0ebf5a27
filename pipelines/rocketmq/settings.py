"""Settings of a store: broker.conf names, typed, with RocketMQ's defaults unless docs/ says otherwise.

A real broker.conf goes in as it is. Names that act here are parsed and checked; other names RocketMQ knows
are kept and can be listed as without effect; a name it does not know is refused with the nearest one it does
(docs/rocketmq/store.md 8, delay-retry-transaction.md 8, consume-filter-ha.md 7).
"""

import difflib
import ipaddress
import re
import zoneinfo
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from pipelines.errors import BadInput
from pipelines.rocketmq.setting_names import OLD_SPELLINGS, ROCKETMQ_NAMES, SECRET_NAMES

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1
MAX_UNPACKED_BYTES = 64 * 1024 * 1024
DEFAULT_DELAY_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
CONSUME_QUEUE_UNIT_BYTES = 20
# A record may be this much longer than maxMessageSize: topic, properties and fixed fields (store.md 1.10).
RECORD_OVERHEAD_BYTES = 65_536
# Longer waits exceed every calendar, and 64 bits.
LONGEST_WAIT_MS = 10_000 * 366 * 86_400_000
UNIT_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


@dataclass(frozen=True)
class Setting:
    """A setting whose value is checked: what it does, its default, and how its text becomes a value.

    parse  raises ValueError with what was expected
    """

    default: Any
    meaning: str
    parse: Callable[[str], Any]


def whole_number(at_least: int, at_most: int = INT_MAX) -> Callable[[str], int]:
    """A parser of whole numbers, as Java reads them, from `at_least` to `at_most`; it raises ValueError otherwise."""

    def parse(text: str) -> int:
        expected = f"a whole number from {at_least} to {at_most}"
        if not re.fullmatch(r"[+-]?[0-9]+", text.strip()):
            raise ValueError(expected)
        number = int(text)
        if not at_least <= number <= at_most:
            raise ValueError(expected)
        return number

    return parse


def one_of(*words: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text.strip() not in words:
            raise ValueError(f"one of {', '.join(words)}")
        return text.strip()

    return parse


def true_or_false(text: str) -> bool:
    # Java takes anything but "true" as false; here a typing error in a switch is refused.
    if text.strip().lower() not in ("true", "false"):
        raise ValueError("true or false")
    return text.strip().lower() == "true"


def words(text: str) -> str:
    if not text.strip():
        raise ValueError("some text")
    return text.strip()


def hours_of_day(text: str) -> str:
    """The text, checked: RocketMQ's `04` or `04;16`, whole hours, local time."""
    if not all(re.fullmatch(r"[01]?[0-9]|2[0-3]", hour) for hour in text.strip().split(";")):
        raise ValueError('hours from 00 to 23 separated by ";"')
    return text.strip()


def topic_hours(text: str) -> dict[str, int]:
    """Hours by topic; raises ValueError for other text.

    >>> topic_hours("orders:8760;%RETRY%shipping:720"), topic_hours("")
    ({'orders': 8760, '%RETRY%shipping': 720}, {})
    """
    hours = {}
    for entry in text.strip().split(";") if text.strip() else ():
        topic_and_hours = re.fullmatch(r"\s*([%|A-Za-z0-9_-]+):([0-9]{1,8})\s*", entry)
        if not topic_and_hours:
            raise ValueError(f'TOPIC:HOURS, several separated by ";"; one is "{entry}"')
        hours[topic_and_hours[1]] = int(topic_and_hours[2])
    return hours


def topic_hours_list(text: str) -> str:
    topic_hours(text)
    return text


def delay_levels_ms(text: str) -> tuple[int, ...]:
    """Milliseconds of levels 1, 2, …; raises ValueError for what a broker would not start with.

    >>> delay_levels_ms("1s 5s 1m")
    (1000, 5000, 60000)
    """
    levels = []
    for number, token in enumerate(text.rstrip(" ").split(" "), start=1):
        amount = re.fullmatch(r"([+-]?[0-9]+)([smhd])", token)
        if not amount:
            raise ValueError(
                f'whole numbers with a unit s, m, h or d, one space between them; level {number} is "{token}"'
            )
        wait_ms = int(amount[1]) * UNIT_MS[amount[2]]
        if abs(wait_ms) > LONGEST_WAIT_MS:
            raise ValueError(f'waits of at most 10,000 years; level {number} is "{token}"')
        levels.append(wait_ms)
    return tuple(levels)


def delay_level_list(text: str) -> str:
    delay_levels_ms(text)
    return text


def timer_precision_ms(text: str) -> int:
    """Milliseconds of a slot: RocketMQ knows 100, 200, 500 and 1000 and takes the next lower one (100 below that)."""
    requested = whole_number(1)(text)
    return max((known for known in (100, 200, 500, 1000) if known <= requested), default=100)


def host(text: str) -> str:
    """`ip:port`, an IPv6 address in brackets; raises ValueError for names, because records hold addresses.

    >>> host("10.0.0.1:10911"), host("[2001:db8:0::1]:10911")
    ('10.0.0.1:10911', '[2001:db8::1]:10911')
    """
    expected = "an address and a port, 10.0.0.1:10911 or [2001:db8::1]:10911"
    address, colon, port = text.strip().rpartition(":")
    if not colon:
        raise ValueError(expected)
    is_bracketed = address.startswith("[") and address.endswith("]")
    try:
        ip = ipaddress.ip_address(address[1:-1] if is_bracketed else address)
        whole_number(0, 65_535)(port)
    except ValueError:
        raise ValueError(expected) from None
    if (ip.version == 6) != is_bracketed:
        raise ValueError(expected)
    return f"[{ip}]:{int(port)}" if is_bracketed else f"{ip}:{int(port)}"


def time_zone(text: str) -> str:
    """A zone by its name, `Europe/Berlin`, or by its offset from UTC, `+02:00`: as Java's ZoneId takes them."""
    name = text.strip()
    offset = re.fullmatch(r"[+-]([0-9]{2}):([0-5][0-9])", name)
    if offset and int(offset[1]) * 60 + int(offset[2]) <= 18 * 60:
        return name
    if name not in (known := _zone_names()):
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise ValueError(f"a time zone like Europe/Berlin, UTC or +02:00{hint}")
    return name


@cache
def _zone_names() -> frozenset[str]:
    # Files of the system's tables that name no place.
    return frozenset(zoneinfo.available_timezones() - {"Factory", "localtime"})


SETTINGS: Mapping[str, Setting] = {
    # 100 bytes: the shortest record (91, a topic of one byte) and the 8 bytes that stay free after it.
    "mappedFileSizeCommitLog": Setting(
        1_073_741_824, "bytes of a log segment; fixed once messages are there", whole_number(100)
    ),
    "mappedFileSizeConsumeQueue": Setting(6_000_000, "bytes of an exported queue file", whole_number(1)),
    "maxHashSlotNum": Setting(5_000_000, "hash slots of an exported index file", whole_number(1)),
    "maxIndexNum": Setting(20_000_000, "entries of an exported index file, one unused", whole_number(2)),
    "maxMessageSize": Setting(4_194_304, "bytes of the largest body", whole_number(1)),
    "messageDelayLevel": Setting(DEFAULT_DELAY_LEVELS, "how long each delay level waits", delay_level_list),
    # A name of this store's own. In RocketMQ retries wait by messageDelayLevel too, so that a table made for other delays
    # changes what they wait (docs/rocketmq/delay-retry-transaction.md 3.5, defect 7).
    "retryDelayLevel": Setting(
        DEFAULT_DELAY_LEVELS,
        "how long each level of the ladder of retries waits; the first retry takes the third",
        delay_level_list,
    ),
    "timerMaxDelaySec": Setting(0, "how far ahead a timed message may be; 0: no limit", whole_number(0)),
    "timerPrecisionMs": Setting(1_000, "milliseconds of a timer slot", timer_precision_ms),
    "transactionTimeOut": Setting(
        6_000, "milliseconds until a half message is checked", whole_number(0, LONG_MAX)
    ),
    "transactionCheckMax": Setting(15, "checks before a half message is given up", whole_number(0)),
    "transactionCheckInterval": Setting(
        30_000, "milliseconds until a half message is checked again", whole_number(1, LONG_MAX)
    ),
    "fileReservedTime": Setting(72, "hours a segment is kept", whole_number(0)),
    # A name of this store's own: a broker keeps all topics equally long.
    "topicReservedTime": Setting(
        "", "hours that a topic's messages are kept at least, as orders:8760;audit:720", topic_hours_list
    ),
    "deleteWhen": Setting("04", "hours of the day at which segments expire", hours_of_day),
    "autoCreateTopicEnable": Setting(True, "whether a put may make a topic", true_or_false),
    "defaultTopicQueueNums": Setting(8, "queues of TBW102, which new topics copy", whole_number(1, 65_535)),
    "maxTopicQueueNums": Setting(
        1_024, "queues a topic may have, as in RocketMQ's tools", whole_number(1, 65_535)
    ),
    "autoCreateSubscriptionGroup": Setting(True, "whether a consumer may make a group", true_or_false),
    "brokerName": Setting("broker-a", "name of this broker", words),
    "brokerClusterName": Setting("DefaultCluster", "name of its cluster", words),
    "brokerId": Setting(
        0, "0 for a master; a slave's is its --replica-id where none is given", whole_number(0, LONG_MAX)
    ),
    "brokerRole": Setting(
        "ASYNC_MASTER",
        "master or slave; a slave refuses what its master does not have",
        one_of("ASYNC_MASTER", "SYNC_MASTER", "SLAVE"),
    ),
    # In a broker.conf it is an address. Here it is kept up by replicate and promote.
    "haMasterAddress": Setting("", "of a slave: the URI of its master", str.strip),
    "haMaxGapNotInSync": Setting(
        268_435_456, "bytes a slave may lack and still be in sync", whole_number(0, LONG_MAX)
    ),
    "brokerPermission": Setting(
        6, "what clients may do: 4 to read, 2 to write, 6 for both, as a topic's perm", whole_number(0, 7)
    ),
    "brokerIP1": Setting("127.0.0.1", "address of storeHost", words),
    "listenPort": Setting(10_911, "port of storeHost", whole_number(0, 65_535)),
    "storeHost": Setting("127.0.0.1:10911", "address in each record; else brokerIP1:listenPort", host),
    "enablePropertyFilter": Setting(True, "whether SQL92 subscriptions are allowed", true_or_false),
    "slaveReadEnable": Setting(False, "whether consumers may read from a slave", true_or_false),
    "accessMessageInMemoryMaxRatio": Setting(
        40, "percent of the memory that a lag must exceed to be read from a slave", whole_number(0, 100)
    ),
    "inSyncReplicas": Setting(
        1, "copies, this one included, that a SYNC_MASTER's put waits for", whole_number(1)
    ),
    "minInSyncReplicas": Setting(
        1, "copies in sync, this one included, without which a SYNC_MASTER takes no put", whole_number(1)
    ),
    "allAckInSyncStateSet": Setting(
        False, "whether consumers see only what all copies in sync have", true_or_false
    ),
    "enableElectUncleanMaster": Setting(
        False, "whether a slave that is not in sync may be elected", true_or_false
    ),
    "brokerElectionPriority": Setting(
        INT_MAX, "of slaves that have the same, the one with the lower number is elected", whole_number(0)
    ),
    "clockAheadMaxSec": Setting(
        86_400, "how far --now of a put may be ahead of the log's last message; 0: no limit", whole_number(0)
    ),
    "maxUnpackedBytes": Setting(
        MAX_UNPACKED_BYTES, "bytes that a compressed body may unpack to", whole_number(1)
    ),
    "timeZone": Setting("UTC", "time zone of deliver_at_time and deleteWhen", time_zone),
    "filterSupportUpload": Setting(False, "whether source text of filters is taken and run", true_or_false),
}

# What decides how a broker recovers its log: an import reads the log as that broker would, and nothing else reads these.
OF_AN_IMPORT = (
    "checkCRCOnRecover", "dLegerSelfId", "enableDLegerCommitLog", "forceVerifyPropCRC", "messageIndexEnable",
    "messageIndexSafe", "readOnlyCommitLogStorePaths", "storePathCommitLog", "storePathDLedgerCommitLog", "storePathRootDir",
)  # fmt: skip
# What decides which files a broker opens in place of those of its usual store, which an export has.
OF_ANOTHER_STORE = ("enableControllerMode", "messageStorePlugIn", "rocksdbCQDoubleWriteEnable", "storeType")
KNOWN_NAMES = frozenset(ROCKETMQ_NAMES) | SETTINGS.keys()


def _is_text(text: str) -> bool:
    """Whether a table can have it: of an argument's bytes that are not UTF-8 Python makes halves of surrogate pairs."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


@dataclass(frozen=True)
class Settings:
    """The settings of one store: `settings["maxMessageSize"]` is the typed value, given or default.

    given  text of each setting that was given, by name, also of names without effect: the store keeps these
    """

    given: Mapping[str, str] = field(default_factory=dict)
    _values: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of(cls, given: Mapping[str, str]) -> "Settings":
        """The settings, checked. Raises one BadInput that lists every name and value that is wrong."""
        complaints = []
        values = {}
        for name, text in given.items():
            if name not in KNOWN_NAMES:
                nearest = nearest_name(name)
                complaints.append(f'setting "{name}" is not known; the nearest known name is {nearest}')
            if not _is_text(text):
                complaints.append(f"setting {name} is {text!r}; expected text in UTF-8")
                continue
            acting = OLD_SPELLINGS.get(name, name)
            if acting in SETTINGS and not (acting != name and acting in given):
                try:
                    values[acting] = SETTINGS[acting].parse(text)
                except ValueError as expected:
                    complaints.append(f'setting {name} is "{text}"; expected {expected}')
        if not complaints and "storeHost" not in values:
            try:
                values["storeHost"] = _default_store_host(values)
            except ValueError as expected:
                complaints.append(str(expected))
        if complaints:
            raise BadInput("; ".join(complaints))
        kept = {name: "(not kept)" if name in SECRET_NAMES else text for name, text in given.items()}
        return cls(kept, values)

    def __getitem__(self, name: str) -> Any:
        return self._values[name] if name in self._values else SETTINGS[name].default

    def text(self, name: str) -> str:
        """A setting as one writes it in a broker.conf: as given, else its default; "" where it has none here."""
        acting = OLD_SPELLINGS.get(name, name)
        default = SETTINGS[acting].default if acting in SETTINGS else ""
        text = str(default).lower() if isinstance(default, bool) else str(default)
        return self.given.get(name, self.given.get(acting, text))

    @property
    def without_effect(self) -> list[str]:
        """Names that were given and that RocketMQ knows, but that no job reads."""
        return [name for name in self._not_acting if name not in OF_AN_IMPORT]

    @property
    def of_an_import(self) -> list[str]:
        """Names that were given and that act when a broker's log is imported, and at no other time."""
        return [name for name in self._not_acting if name in OF_AN_IMPORT]

    @property
    def not_acting_told(self) -> list[str]:
        """Lines about what was given and does not act in this store's life."""
        return [
            f"{what}: {', '.join(names)}"
            for what, names in (
                ("kept, but without effect here", self.without_effect),
                ("kept, and read by import_store alone", self.of_an_import),
            )
            if names
        ]

    @property
    def _not_acting(self) -> list[str]:
        return sorted(name for name in self.given if OLD_SPELLINGS.get(name, name) not in SETTINGS)

    def differences(self, requested: "Settings") -> list[str]:
        """Where `requested` has another value, in words; a default that was given explicitly does not differ."""
        acting = [(name, self[name], requested[name]) for name in sorted(SETTINGS)]
        kept = sorted(set(self._not_acting) | set(requested._not_acting))
        others = [(name, self.given.get(name, "not set"), requested.given.get(name, "none")) for name in kept]
        return [
            f"{name} is {here}, requested {there}" for name, here, there in acting + others if here != there
        ]

    @property
    def segment_bytes(self) -> int:
        return int(self["mappedFileSizeCommitLog"])

    @property
    def queue_file_bytes(self) -> int:
        """Size of a consume queue file: whole units of 20 bytes, rounded up as a broker does."""
        units = -(-int(self["mappedFileSizeConsumeQueue"]) // CONSUME_QUEUE_UNIT_BYTES)
        return units * CONSUME_QUEUE_UNIT_BYTES

    @property
    def max_message_bytes(self) -> int:
        return int(self["maxMessageSize"])

    @property
    def max_record_bytes(self) -> int:
        return self.max_message_bytes + RECORD_OVERHEAD_BYTES

    @property
    def delay_levels_ms(self) -> tuple[int, ...]:
        """Milliseconds of each delay level, level 1 first."""
        return delay_levels_ms(self["messageDelayLevel"])

    @property
    def retry_levels_ms(self) -> tuple[int, ...]:
        """Milliseconds of the ladder's level 1 first: what retries wait."""
        return delay_levels_ms(self["retryDelayLevel"])

    @property
    def topic_hours(self) -> dict[str, int]:
        """Hours that the messages of some topics are kept at least, by topic."""
        return topic_hours(self["topicReservedTime"])

    @property
    def store_host(self) -> str:
        return str(self["storeHost"])


def _default_store_host(values: Mapping[str, Any]) -> str:
    address = values.get("brokerIP1", SETTINGS["brokerIP1"].default)
    port = values.get("listenPort", SETTINGS["listenPort"].default)
    try:
        return host(f"[{address}]:{port}" if ":" in address else f"{address}:{port}")
    except ValueError:
        raise ValueError(
            f'brokerIP1 is "{address}"; records hold an address, not a name: set storeHost to ip:port'
        ) from None


def nearest_name(name: str) -> str:
    """The known name that is spelt most like this one; case does not count.

    >>> nearest_name("maxmesagesize")
    'maxMessageSize'
    """
    by_lower_case = {known.lower(): known for known in sorted(KNOWN_NAMES)}
    nearest = by_lower_case[difflib.get_close_matches(name.lower(), by_lower_case, n=1, cutoff=0)[0]]
    return OLD_SPELLINGS.get(nearest, nearest)
