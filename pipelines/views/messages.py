"""The views of the log's rows: `messages`, on which most others are built, and `message_lineage`."""

from collections.abc import Mapping

from pipelines.rocketmq.message_ids import message_id_sql
from pipelines.rocketmq.times import timestamp_sql
from pipelines.views.view import View
from schemas import COMMITLOG

# A name ends at the next 0x01, a value at the next 0x02; pieces without a name or a value are dropped, and of
# a name that comes twice the last value counts (docs/rocketmq/store.md 1.8).
_PIECES = r"""
    filter(split({text}, '\u0002'),
           piece -> instr(piece, '\u0001') > 1 AND instr(piece, '\u0001') < length(piece))
"""
_NAME = r"substring_index({piece}, '\u0001', 1)"
_VALUE = r"substring({piece}, instr({piece}, '\u0001') + 1)"


def properties_sql(text: str) -> str:
    """SQL for a map<string,string> of the properties stored in the expression `text`."""
    pieces = _PIECES.format(text=text).strip()
    name, value = _NAME.format(piece="piece"), _VALUE.format(piece="piece")
    later = "slice({all}, place + 2, size({all}))".format(all="pieces")
    # Almost no message has a name twice; only then is every piece compared with those after it.
    return f"""
    transform(array({pieces}), pieces ->
        IF(size(array_distinct(transform(pieces, piece -> {name}))) = size(pieces),
           map_from_entries(transform(pieces, piece -> struct({name}, {value}))),
           map_from_entries(transform(
               filter(pieces, (piece, place) ->
                   NOT exists({later}, other -> {_NAME.format(piece="other")} = {name})),
               piece -> struct({name}, {value})))))[0]
    """.strip()


def _log_columns(replaced: Mapping[str, str]) -> str:
    return ",\n    ".join(
        f"{replaced[name]} AS {name}" if name in replaced else name for name in COMMITLOG.columns.names
    )


MESSAGES = View(
    "messages",
    "The log's rows as a person reads them: properties as a map, tags, keys, ids and real times.",
    rf"""
SELECT
    {_log_columns({"properties": "properties"})},
    properties['TAGS'] AS tags,
    coalesce(filter(split(properties['KEYS'], ' '), word -> word <> ''), array()) AS keys,
    {message_id_sql("store_host", "physical_offset")} AS message_id,
    properties['UNIQ_KEY'] AS unique_key,
    {timestamp_sql("store_timestamp")} AS store_time,
    {timestamp_sql("born_timestamp")} AS born_time,
    IF(sys_flag & 1 = 0, try_validate_utf8(CAST(body AS STRING)), NULL) AS body_text
FROM (
    SELECT
    {_log_columns({"properties": properties_sql("log.properties")})}
    FROM {{commitlog}} AS log
) AS decoded
""",
)

# What a broker's own copies tell of the message they are copies of: its unique key, which all have; the half of a commit
# (docs/rocketmq/delay-retry-transaction.md 5.4); the message that was sent back first (4.2).
_OF_THE_HALF = "IF(sys_flag & 12 = 8, prepared_transaction_offset, NULL)"
_OF_THE_FIRST = """
    IF(properties['ORIGIN_MESSAGE_ID'] RLIKE '^([0-9A-Fa-f]{{32}}|[0-9A-Fa-f]{{56}})$',
       try_cast(conv(right(properties['ORIGIN_MESSAGE_ID'], 16), 16, 10) AS BIGINT), NULL)
""".strip()
_INFERRED = f"""least(
        min(physical_offset) OVER (PARTITION BY coalesce(unique_key, CAST(physical_offset AS STRING))),
        IF({_OF_THE_HALF} < physical_offset, {_OF_THE_HALF}, NULL),
        IF({_OF_THE_FIRST} < physical_offset, {_OF_THE_FIRST}, NULL))"""


def _lineage(origin: str, condition: str) -> str:
    return f"""
SELECT
    {origin} AS origin_offset,
    physical_offset,
    source_offset,
    purpose,
    claim,
    topic,
    queue_id,
    queue_offset,
    store_time,
    {timestamp_sql("due_ms")} AS due_time,
    reconsume_times,
    message_id,
    unique_key
FROM {{messages}} AS copies
WHERE {condition}
""".strip()


# Imported rows are apart: only they pay for the search, and statistics of files show where there are none.
_IS_IMPORTED = "append_id LIKE 'import:%'"
_IS_ORIGINAL = f"NOT {_IS_IMPORTED} AND origin_offset IS NULL"
_IS_MADE_HERE = f"NOT {_IS_IMPORTED} AND origin_offset IS NOT NULL"

MESSAGE_LINEAGE = View(
    "message_lineage",
    "Every row with the first row of its chain: all copies of a message share an origin_offset. That of an imported row, "
    "and of its copies here, is inferred from what a broker's copies have in common.",
    f"""
WITH imported AS ({_lineage(_INFERRED, _IS_IMPORTED)}),
first_of_imported AS (
    SELECT physical_offset AS copy_offset, origin_offset AS first_offset
    FROM imported
    WHERE origin_offset < physical_offset
)
SELECT *, false AS inferred FROM ({_lineage("physical_offset", _IS_ORIGINAL)}) AS originals
UNION ALL
SELECT coalesce(first_offset, origin_offset), made_here.* EXCEPT (origin_offset), first_offset IS NOT NULL
FROM ({_lineage("origin_offset", _IS_MADE_HERE)}) AS made_here
LEFT JOIN first_of_imported ON origin_offset = copy_offset
UNION ALL
SELECT *, origin_offset < physical_offset FROM imported
""",
)
