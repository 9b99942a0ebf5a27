"""Charts of aggregates. Colours are the page's own CSS variables, so that light and dark need no second chart."""

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from pipelines.reports.page.words import moment

Rows = Sequence[Mapping[str, Any]]

# A chart has room for at least this many buckets: fewer are narrow bars on the left and not one block.
LEAST_BUCKETS = 30
BARS_SHOWN = 10
HEIGHT = 180
# The font of the page, by name: the library measures labels with it.
FONT = "system-ui, sans-serif"

MUTED, LINE, ACCENT, SECOND, BAD = (
    "var(--muted)",
    "var(--line)",
    "var(--accent)",
    "var(--second)",
    "var(--bad)",
)

# Hours of the day as numbers, in UTC as all times on the page.
TIME_AXIS = alt.Axis(
    tickCount=6,
    labelOverlap=True,
    format={
        "milliseconds": "%H:%M:%S.%L", "seconds": "%H:%M:%S", "minutes": "%H:%M", "hours": "%H:%M",
        "day": "%-d %b", "date": "%-d %b", "week": "%-d %b", "month": "%b %Y", "quarter": "%b %Y", "year": "%Y",
    },
)  # fmt: skip

# The look of every chart; sent to the browser once.
CONFIG = {
    "background": "transparent",
    "font": FONT,
    "view": {"stroke": None},
    "mark": {"color": ACCENT},
    "bar": {"cornerRadiusEnd": 2},
    "axis": {
        "labelColor": MUTED, "titleColor": MUTED, "titleFontWeight": "normal", "labelFontSize": 12, "titleFontSize": 12,
        "gridColor": LINE, "domainColor": LINE, "tickColor": LINE, "labelFont": FONT, "titleFont": FONT,
    },
    "axisX": {"grid": False},
    "axisY": {"domain": False, "ticks": False},
    "legend": {"labelColor": MUTED, "title": None, "orient": "top", "labelFontSize": 12, "labelFont": FONT},
    "range": {"category": [ACCENT, SECOND, BAD]},
}  # fmt: skip


def over_time(rows: Rows, value: str, label: str, bucket_ms: int) -> dict[str, Any]:
    """Bars over time, from rows with `start_ms` and a value for each bucket; a bucket without a row is a gap, a zero."""
    values = [_bucket(row["start_ms"], bucket_ms, value, row[value]) for row in rows]
    first = values[0]["start"]
    if values[-1]["end"] < first + LEAST_BUCKETS * bucket_ms:
        values.append(_bucket(first + (LEAST_BUCKETS - 1) * bucket_ms, bucket_ms, value, 0))
    time = alt.Scale(type="utc", nice=False)
    return _spec(
        alt.Chart(alt.Data(values=values))
        .mark_rect()
        .encode(
            x=alt.X("start:T", scale=time, title=None, axis=TIME_AXIS),
            x2="end:T",
            y=_amount(value, label),
            y2=alt.datum(0),
            tooltip=[alt.Tooltip("when:N", title="from (UTC)"), alt.Tooltip(f"{value}:Q", format=",")],
        ),
        HEIGHT,
    )


def by_name(rows: Rows, name: str, value: str, label: str, titles: Mapping[str, str]) -> dict[str, Any]:
    """A bar each for the first rows, in their order.

    titles  what the tooltip calls the columns it shows
    """
    values = [dict(row) for row in rows[:BARS_SHOWN]]
    return _spec(
        alt.Chart(alt.Data(values=values))
        .mark_bar()
        .encode(
            y=alt.Y(
                f"{name}:N",
                sort=None,
                title=None,
                scale=alt.Scale(paddingInner=0.35),
                axis=alt.Axis(labelLimit=180),
            ),
            x=alt.X(f"{value}:Q", title=label, axis=alt.Axis(format="~s", tickMinStep=1, tickCount=5)),
            tooltip=[alt.Tooltip(f"{column}:N", title=title) for column, title in titles.items()],
        ),
        max(60, 26 * len(values) + 40),
    )


def by_step(
    rows: Rows, step: str, steps: Sequence[str], value: str, label: str, colour: str | None = None
) -> dict[str, Any]:
    """A bar for every step, in the order of `steps`, stacked by `colour`."""
    encoding: dict[str, Any] = {
        "x": alt.X(
            f"{step}:N",
            sort=None,
            scale=alt.Scale(domain=list(steps)),
            title=None,
            axis=alt.Axis(labelAngle=0),
        ),
        "y": _amount(value, label),
        "tooltip": [
            alt.Tooltip(f"{one}:{kind}") for one, kind in ((step, "N"), (colour, "N"), (value, "Q")) if one
        ],
    }
    if colour is not None:
        encoding["color"] = alt.Color(f"{colour}:N")
    return _spec(
        alt.Chart(alt.Data(values=[dict(row) for row in rows])).mark_bar().encode(**encoding), HEIGHT
    )


def runs(rows: Rows) -> dict[str, Any]:
    """A point for every run of a job: when, which, how long, and whether it failed."""
    values = [
        {
            "started": row["started_ms"],
            "when": moment(row["started_ms"]),
            "job": row["job"],
            "seconds": row["seconds"],
            "status": row["status"],
        }
        for row in rows
    ]
    status = alt.Scale(domain=["ok", "failed"], range=[ACCENT, BAD])
    return _spec(
        alt.Chart(alt.Data(values=values))
        .mark_circle(opacity=0.75)
        .encode(
            x=alt.X("started:T", scale=alt.Scale(type="utc", padding=12), title=None, axis=TIME_AXIS),
            y=alt.Y("job:N", title=None, axis=alt.Axis(grid=True)),
            size=alt.Size("seconds:Q", scale=alt.Scale(range=[30, 400]), legend=None),
            color=alt.Color("status:N", scale=status),
            tooltip=[
                alt.Tooltip("job:N"),
                alt.Tooltip("when:N", title="started (UTC)"),
                alt.Tooltip("seconds:Q", format=",.1f"),
                alt.Tooltip("status:N"),
            ],
        ),
        max(80, 30 * len({row["job"] for row in rows}) + 40),
    )


def _bucket(start_ms: int, width_ms: int, value: str, amount: int) -> dict[str, Any]:
    return {"start": start_ms, "end": start_ms + width_ms, "when": moment(start_ms), value: amount}


def _amount(value: str, label: str) -> alt.Y:
    return alt.Y(
        f"{value}:Q",
        title=label,
        scale=alt.Scale(zero=True),
        axis=alt.Axis(format="~s", tickCount=4, tickMinStep=1),
    )


def _spec(chart: Any, height: int) -> dict[str, Any]:
    fitted = chart.properties(
        width="container", height=height, autosize=alt.AutoSizeParams(type="fit", contains="padding")
    )
    # The page has its own configuration; Altair's would be added to it.
    return {name: value for name, value in fitted.to_dict().items() if name != "config"}
