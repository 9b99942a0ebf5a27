"""Park messages that have to wait: by level, until a time, or until their transaction ends.

The rules at a put are docs/rocketmq/delay-retry-transaction.md 1.2, 2.2, 3.4 and 5.2. A message that waits goes
from its ordinary topic to a parking topic of the store's own; properties keep its real topic and queue.
"""

from collections.abc import Callable
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipelines.delay.level_lists import TIME_OF_DAY_PATTERN, levels_of, list_until, rest_of, seconds_until
from pipelines.log.park import (
    LEVEL_LIST,
    LEVEL_REPLACES,
    TIME_OF_DAY,
    clamped_level,
    half_due_ms,
    immunity_ms,
    immunity_seconds,
    level_delay_ms,
    level_pairs,
    timer_out_ms,
)
from pipelines.produce.inputs import Input
from pipelines.rocketmq.names import HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from pipelines.rocketmq.properties import PROPERTY_END, property_value, without
from pipelines.rocketmq.record import property_pair
from pipelines.rocketmq.settings import Settings
from pipelines.rocketmq.times import FIRST_MS, LAST_MS, within_reach

DIVERTING_COLUMNS = (
    "delay_level", "delay_ms", "deliver_at_ms", "deliver_at_time", "deliver_through", "cancel_unique_key", "transaction",
    "producer_group",
)  # fmt: skip
YEARS = "milliseconds since 1970, up to the year 9999"
TIMER_REQUESTS = ("TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS")
_HALF_REPLACES = ("TRAN_MSG", "PGROUP", "REAL_TOPIC", "REAL_QID", "__transactionId__")
_TIMER_REPLACES = ("REAL_TOPIC", "REAL_QID", "TIMER_OUT_MS")


# Properties that parking adds: the same message, put later, may be parked differently, or not at all.
GAINED_BY_PARKING = ("DELAY", LEVEL_LIST, "TIMER_OUT_MS", "REAL_TOPIC", "REAL_QID", "__transactionId__")


def may_divert(source: Input) -> bool:
    """Whether the input has a column by which a message can request to wait."""
    return "properties_raw" in source.columns or any(name in source.columns for name in DIVERTING_COLUMNS)


def with_diversion(
    rows: DataFrame, source: Input, settings: Settings, now_ms: int, has_begun: bool = False
) -> DataFrame:
    """The rows with where and until when each message is parked; `parked_topic` is null for one that does not wait.

    has_begun  whether the log holds messages of the batch: a cancel that was accepted with them is parked whenever the rest
               is put, because without its timer it would come to consumers as a message
    rows   typed input rows with `stored_properties` (without a UNIQ_KEY that the put makes)
    adds   `parked_topic` (string), `parked_queue` (int); `due_at_ms` (long, epoch milliseconds), or `due_after_ms` (long,
           milliseconds after its append); `diverting_pairs` (string): properties it gains besides REAL_QID and
           __transactionId__; `is_half` (boolean); `level_list` (array<int>), `list_seconds` (int);
           `requested_level` (int), `requested_time` (long, epoch milliseconds)
    drops  from `stored_properties` what these replace
    """
    requested = _Requested(source, settings, now_ms)
    levels = settings.delay_levels_ms
    topic = F.col("topic")
    listed = rows.withColumns(
        {"list_seconds": requested.list_seconds, "level_list": requested.level_list}
    ).withColumns(
        {"requested_level": requested.level, "requested_time": requested.time, "is_half": requested.is_half}
    )
    is_delayed = ~F.col("is_half") & (F.coalesce("requested_level", F.lit(0)) > 0)
    is_later = F.coalesce(F.col("requested_time") > now_ms, F.lit(False))
    if has_begun:
        is_later = is_later | (F.col("requested_time").isNotNull() & _cancels(source))
    is_timed = ~F.col("is_half") & ~is_delayed & is_later & requested.may_be_timed
    level = clamped_level(F.col("requested_level"), levels)
    out_ms = timer_out_ms(F.col("requested_time"), settings["timerPrecisionMs"])
    pairs = F.concat(
        F.when(F.col("is_half") | is_delayed, F.lit("")).otherwise(requested.timer_pairs),
        requested.cancel_pair,
        requested.time_of_day_pair,
        F.when(F.col("is_half"), F.concat(requested.half_pairs, property_pair("REAL_TOPIC", topic)))
        .when(is_delayed, level_pairs(level, rest_of(F.col("level_list"), F.lit(1)), topic))
        .when(
            is_timed,
            F.concat(
                property_pair("TIMER_OUT_MS", out_ms.cast("string")), property_pair("REAL_TOPIC", topic)
            ),
        )
        .otherwise(F.lit("")),
    )
    stored = F.col("stored_properties")
    cleaned = stored
    if "properties_raw" in source.columns:
        cleaned = (
            F.when(F.col("is_half"), without(stored, *_HALF_REPLACES))
            .when(is_delayed, without(stored, *LEVEL_REPLACES))
            .when(is_timed, without(stored, *_TIMER_REPLACES))
            .when(pairs != "", _closed(stored))
            .otherwise(stored)
        )
    born = (
        F.coalesce("born_timestamp", F.lit(now_ms)) if "born_timestamp" in source.columns else F.lit(now_ms)
    )
    half_due = half_due_ms(born, immunity_seconds(stored), settings["transactionTimeOut"])
    return listed.withColumns(
        {
            "parked_topic": F.when(F.col("is_half"), HALF_TOPIC)
            .when(is_delayed, SCHEDULE_TOPIC)
            .when(is_timed, TIMER_TOPIC),
            "parked_queue": F.when(is_delayed, level - 1).otherwise(F.lit(0)),
            "due_at_ms": F.when(F.col("is_half"), half_due).when(
                is_timed, out_ms + F.lit(settings["timerPrecisionMs"])
            ),
            "due_after_ms": F.when(is_delayed, level_delay_ms(F.col("requested_level"), levels)),
            "diverting_pairs": pairs,
            "stored_properties": cleaned,
        }
    )


def _closed(properties: Column) -> Column:
    """Properties that pairs can be added to: a last pair that is not closed would take them for its value."""
    is_open = (properties != "") & ~properties.endswith(PROPERTY_END)
    return F.when(is_open, F.concat(properties, F.lit(PROPERTY_END))).otherwise(properties)


class _Requested:
    """The requests of each row to wait, from the columns that the input has; each property is a column."""

    def __init__(self, source: Input, settings: Settings, now_ms: int) -> None:
        self._has = source.columns.__contains__
        self._settings = settings
        self._now_ms = now_ms

    def _raw(self, name: str) -> Column:
        """A property from `properties_raw`; null where the input has none."""
        if not self._has("properties_raw"):
            return F.lit(None).cast("string")
        return property_value(F.col("properties_raw"), name)

    @property
    def list_seconds(self) -> Column:
        """Seconds from now until deliver_at_time; null without."""
        if not self._has("deliver_at_time"):
            return F.lit(None).cast("int")
        return seconds_until(F.col("deliver_at_time"), self._now_ms, self._settings["timeZone"])

    @property
    def level_list(self) -> Column:
        lists = []
        if self._has("deliver_through"):
            lists.append(levels_of(F.col("deliver_through")))
        if self._has("deliver_at_time"):
            lists.append(levels_of(list_until(F.col("list_seconds"), self._settings.delay_levels_ms)))
        return F.coalesce(*lists) if lists else F.lit(None).cast("array<int>")

    @property
    def level(self) -> Column:
        levels = [F.get(F.col("level_list"), F.lit(0)), self._raw("DELAY").try_cast("int")]
        if self._has("delay_level"):
            levels.append(F.col("delay_level"))
        return F.coalesce(*levels)

    @property
    def time(self) -> Column:
        """The requested delivery time, epoch milliseconds: the first request that is there wins (2.1)."""
        now = F.lit(self._now_ms)
        times = [
            now + within_reach(self._raw("TIMER_DELAY_SEC").try_cast("long")) * 1000,
            now + within_reach(self._raw("TIMER_DELAY_MS").try_cast("long")),
            self._raw("TIMER_DELIVER_MS").try_cast("long"),
        ]
        if self._has("delay_ms"):
            times.append(now + within_reach(F.col("delay_ms")))
        if self._has("deliver_at_ms"):
            times.append(F.col("deliver_at_ms"))
        return within_reach(F.coalesce(*times))

    @property
    def may_be_timed(self) -> Column:
        """Whether the row may go into the timer: one that came out of it never goes in again (2.1)."""
        return self._raw("TIMER_OUT_MS").isNull()

    @property
    def is_half(self) -> Column:
        raw = F.coalesce(self._raw("TRAN_MSG") == "true", F.lit(False))
        return (
            F.coalesce(_is_true(F.col("transaction")), F.lit(False)) | raw
            if self._has("transaction")
            else raw
        )

    @property
    def timer_pairs(self) -> Column:
        pairs = []
        if self._has("delay_ms"):
            pairs.append(property_pair("TIMER_DELAY_MS", F.col("delay_ms").cast("string")))
        if self._has("deliver_at_ms"):
            pairs.append(property_pair("TIMER_DELIVER_MS", F.col("deliver_at_ms").cast("string")))
        return _joined(pairs)

    @property
    def time_of_day_pair(self) -> Column:
        return self._pair_of("deliver_at_time", lambda time: property_pair(TIME_OF_DAY, time))

    @property
    def cancel_pair(self) -> Column:
        return self._pair_of(
            "cancel_unique_key",
            lambda key: property_pair("TIMER_DEL_UNIQKEY", F.concat(F.col("topic"), F.lit("+"), key)),
        )

    @property
    def half_pairs(self) -> Column:
        raw_group = property_pair("PGROUP", self._raw("PGROUP"))
        group = self._pair_of("producer_group", lambda group: property_pair("PGROUP", group))
        return F.concat(F.lit("TRAN_MSG\x01true\x02"), group, F.coalesce(raw_group, F.lit("")))

    def _pair_of(self, name: str, pair: Callable[[Column], Column]) -> Column:
        return F.coalesce(pair(F.col(name)), F.lit("")) if self._has(name) else F.lit("")


def _joined(pairs: list[Column]) -> Column:
    return F.concat(*[F.coalesce(pair, F.lit("")) for pair in pairs]) if pairs else F.lit("")


def _is_true(value: Column) -> Column:
    return F.lower(value.cast("string")) == "true"


def diversion_complaints(
    source: Input, settings: Settings, now_ms: int, has_begun: bool = False, is_whole: bool = False
) -> list[Column]:
    """Why a row cannot wait as it requests: sentences, each null where it can.

    has_begun, is_whole  as in AcceptRules
    """
    has = source.columns.__contains__
    complaints: list[Column] = []
    given = [name for name in ("delay_level", "deliver_through", "deliver_at_time") if has(name)]
    if len(given) > 1:
        count = sum((F.when(F.col(name).isNotNull(), 1).otherwise(0) for name in given), F.lit(0))
        complaints.append(
            F.when(count > 1, F.lit(f"{' and '.join(given)} are given together; one is enough"))
        )
    if has("deliver_through"):
        text = F.col("deliver_through")
        complaints.append(
            F.when(
                text.isNotNull() & levels_of(text).isNull(),
                F.format_string(
                    'deliver_through is "%s"; expected level numbers separated by commas: 8,7,12', text
                ),
            )
        )
    if has("deliver_at_time"):
        complaints += _time_of_day_complaints(settings, is_whole)
    complaints += _timer_complaints(source, settings, now_ms, has_begun)
    complaints += _far_complaints(source, now_ms)
    if has("cancel_unique_key"):
        time = F.col("requested_time")
        complaints.append(
            F.when(
                F.col("cancel_unique_key").isNotNull() & time.isNull(),
                F.lit("cancel_unique_key needs deliver_at_ms: the time of the message to cancel"),
            )
        )
    if has("transaction"):
        text = F.col("transaction").cast("string")
        complaints.append(
            F.when(
                text.isNotNull() & ~F.lower(text).isin("true", "false"),
                F.format_string('transaction is "%s"; expected true or false', text),
            )
        )
    complaints += _half_complaints(source)
    if has("batch"):
        waits = F.col("parked_topic").isNotNull()
        complaints.append(
            F.when(
                F.col("batch").isNotNull() & waits,
                F.lit("a message of a batch cannot be delayed, timed or transactional; put it on its own"),
            )
        )
    return complaints


def _time_of_day_complaints(settings: Settings, is_whole: bool) -> list[Column]:
    text = F.col("deliver_at_time")
    is_wrong = text.isNotNull() & ~text.rlike(TIME_OF_DAY_PATTERN)
    has_no_list = text.isNotNull() & F.col("level_list").isNull()
    wrong = F.when(
        is_wrong,
        F.format_string('deliver_at_time is "%s"; expected a time from 00:00:00 to 23:59:59', text),
    )
    if is_whole:
        return [wrong]  # the seconds from now have changed since the message was put
    return [
        wrong,
        F.when(
            has_no_list,
            F.format_string(
                "deliver_at_time is %s, %d seconds from now, which no levels of messageDelayLevel add up to: "
                + settings["messageDelayLevel"].replace("%", "%%"),
                text,
                F.col("list_seconds"),
            ),
        ),
    ]


def _cancels(source: Input) -> Column:
    """Whether a row cancels a timed message."""
    cancels = []
    if "cancel_unique_key" in source.columns:
        cancels.append(F.col("cancel_unique_key").isNotNull())
    if "properties" in source.columns:
        cancels.append(F.coalesce(F.col("properties")["TIMER_DEL_UNIQKEY"].isNotNull(), F.lit(False)))
    if "properties_raw" in source.columns:
        cancels.append(property_value(F.col("properties_raw"), "TIMER_DEL_UNIQKEY").isNotNull())
    return reduce(Column.__or__, cancels, F.lit(False))


def _timer_complaints(source: Input, settings: Settings, now_ms: int, has_begun: bool) -> list[Column]:
    """Sentences about timed messages that RocketMQ refuses (2.2)."""
    complaints = []
    if "properties_raw" in source.columns:
        for name in ("DELAY", *TIMER_REQUESTS):
            value = property_value(F.col("properties_raw"), name)
            is_wrong = value.isNotNull() & value.try_cast("int" if name == "DELAY" else "long").isNull()
            complaints.append(
                F.when(is_wrong, F.format_string(f"property {name} is %s; expected a whole number", value))
            )
    time, now = F.col("requested_time"), F.lit(now_ms)
    is_timed = ~F.col("is_half") & (F.coalesce("requested_level", F.lit(0)) <= 0) & time.isNotNull()
    if not has_begun:
        complaints.append(
            F.when(
                is_timed & _cancels(source) & (time <= now),
                F.format_string(
                    f"it cancels a message of %d, which is not after now ({now_ms}); that message is due already",
                    time,
                ),
            )
        )
    horizon = settings["timerMaxDelaySec"] * 1000
    if horizon:
        complaints.append(
            F.when(
                is_timed & (time - now > horizon),
                F.format_string(
                    f"it is timed for %d, more than {horizon} ms (timerMaxDelaySec) after now ({now_ms})",
                    time,
                ),
            )
        )
    return complaints


def out_of_years(name: str) -> Column:
    """A sentence where a column's time is out of YEARS, as one in nanoseconds is."""
    return F.when(
        ~F.col(name).between(FIRST_MS, LAST_MS),
        F.format_string(f"{name} is %d; expected {YEARS}", F.col(name)),
    )


def _far_complaints(source: Input, now_ms: int) -> list[Column]:
    """Sentences about times and delays that end out of YEARS: RocketMQ would store the message and never deliver it."""
    complaints = []
    if "deliver_at_ms" in source.columns:
        complaints.append(out_of_years("deliver_at_ms"))
    if "delay_ms" in source.columns:
        delay = F.col("delay_ms")
        complaints.append(
            F.when(
                ~delay.between(FIRST_MS - now_ms, LAST_MS - now_ms),
                F.format_string(f"delay_ms is %d, which from now ({now_ms}) leads out of {YEARS}", delay),
            )
        )
    time = F.col("requested_time")
    is_far = ~F.col("is_half") & (F.coalesce("requested_level", F.lit(0)) <= 0) & (time > LAST_MS)
    complaints.append(F.when(is_far, F.format_string(f"it is timed for %d; expected {YEARS}", time)))
    # Only with a half's own property: born_timestamp has its own complaint.
    immunity = immunity_seconds(F.col("stored_properties"))
    due = F.col("due_at_ms")
    complaints.append(
        F.when(
            F.col("is_half") & immunity_ms(immunity).isNotNull() & ~due.between(FIRST_MS, LAST_MS),
            F.format_string(
                f"CHECK_IMMUNITY_TIME_IN_SECONDS is %s: its transaction would be checked at %d; expected {YEARS}",
                immunity,
                due,
            ),
        )
    )
    return complaints


def _half_complaints(source: Input) -> list[Column]:
    """Sentences about half messages: one needs the group that ends it, and cannot wait for a time as well (2.6, 5.1)."""
    groups = []
    if "producer_group" in source.columns:
        groups.append(F.when(F.col("producer_group") != "", F.col("producer_group")))
    if "properties_raw" in source.columns:
        groups.append(property_value(F.col("properties_raw"), "PGROUP"))
    group = F.coalesce(*groups) if groups else F.lit(None).cast("string")
    waits = (F.coalesce("requested_level", F.lit(0)) > 0) | F.col("requested_time").isNotNull()
    return [
        F.when(
            F.col("is_half") & waits,
            F.lit("a transactional message cannot be delayed or timed; its real topic would be lost"),
        ),
        F.when(
            F.col("is_half") & group.isNull(),
            F.lit("transaction is true and producer_group is missing; it names who ends the transaction"),
        ),
        F.when(
            F.col("is_half") & group.contains("\x02"),
            F.lit("producer_group has a byte 0x02; it separates properties"),
        ),
    ]
