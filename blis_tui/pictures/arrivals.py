"""Latencies by percentile and over arrival time, and the rates of arrivals."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import NamedTuple
from blis_tui.base.html import Table
from blis_tui.base.portable_math import ln
from blis_tui.base.units import plural
from blis_tui.engine.request import RequestState
from blis_tui.model.latencies import LATENCIES
from blis_tui.pictures.page import MS_AXIS, PALETTE, Panel, Picture, PictureView, label, line_of, panels_layout, trace
from blis_tui.results.stats import of_samples, percentile_ms

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from blis_tui.model import Expectation
    from blis_tui.results.request_log import RequestNumbers, RequestTable
    from blis_tui.results.stats import HistogramSamples

    Curve = Sequence[tuple[int, float]]
    """Percentiles in hundredths of a percent, and their values in milliseconds."""


OF: Final = 10_000
"""The unit of percentiles, as a fraction of 1: hundredths of a percent."""
GRID: Final = (*range(0, 9_900, 100), *range(9_900, 9_990, 10), *range(9_990, 10_000))
"""Percentiles of a curve's points: each percent, tenths above 99 %, hundredths above 99.9 %."""
_TICKS: Final = (0, 5_000, 9_000, 9_500, 9_900, 9_990, 9_999)
_PERCENTILE: Final = re.compile(r"latency\.(\w+)\.p(\d+)")

NAMES: Final = {latency.field: latency.title for latency in LATENCIES if latency.has_curve}
"""Latencies of a report that have curves."""


def place(hundredths: int) -> float:
    """Return the position of a percentile on the axis, on which each further nine takes equal space."""
    return round(-ln(1 - hundredths / OF) / ln(10.0), 4) + 0.0


def name_of(hundredths: int) -> str:
    """Return the usual name of a percentile: p99, p99.9."""
    return f"p{hundredths / 100:.12g}"


def curve(ordered: Sequence[float] | HistogramSamples) -> Curve:
    """Return the percentiles of samples, computed like the report's; those beyond the second-largest are left out.

    Args:
        ordered: ascending microseconds.
    """
    count = len(ordered)
    return [(share, _value(ordered, share)) for share in GRID if (OF - share) * count >= OF]


def _value(ordered: Sequence[float] | HistogramSamples, hundredths: int) -> float:
    # Use the report's fraction, so that results are equal to the last bit.
    percent, rest = divmod(hundredths, 100)
    return percentile_ms(ordered, hundredths, OF) if rest else percentile_ms(ordered, percent)


def percentile_axis() -> dict[str, object]:
    """Return Plotly's settings of the axis."""
    places = [place(tick) for tick in _TICKS]
    return {
        "tickvals": places,
        "ticktext": [name_of(tick) for tick in _TICKS],
        "tickangle": 0,
        "title": {"text": "percentile"},
    }


def curves_view(curves: Mapping[str, Mapping[str, Curve]], limits: Sequence[Expectation] = ()) -> PictureView:
    """Return a panel for each latency.

    Args:
        curves: latency (a key of ``NAMES``) -> group of requests -> its curve.
        limits: expectations; upper bounds of percentiles are marked.
    """
    latencies = [name for name in NAMES if any(curves.get(name, {}).values())]
    groups = [*dict.fromkeys(group for name in latencies for group in curves[name])]
    traces: list[Mapping[str, object]] = []
    for number, name in enumerate(latencies):
        for color, group in enumerate(groups):
            points = curves[name].get(group, ())
            traces.append(
                trace(
                    number,
                    group,
                    x=[place(share) for share, _ in points],
                    y=[round(value, 4) for _, value in points],
                    customdata=[name_of(share) for share, _ in points],
                    hovertemplate="%{customdata}: %{y:,.2f} ms<extra>%{fullData.name}</extra>",
                    line=line_of(color),
                )
            )
        traces += [_mark(number, *bound) for limit in limits if (bound := _bound(limit, name)) is not None]
    panels = [Panel(NAMES[name], percentile_axis(), MS_AXIS) for name in latencies]
    return PictureView(traces, {**panels_layout(panels, 2), "showlegend": len(groups) > 1})


def _bound(limit: Expectation, latency: str) -> tuple[int, float] | None:
    """Return the percentile of a latency that an expectation bounds from above, and the bound; None = none."""
    match = _PERCENTILE.fullmatch(limit.metric)
    if match is None or match[1] != latency or limit.max is None:
        return None
    return int(match[2]), limit.max


def _mark(panel: int, percent: int, limit_ms: float) -> dict[str, object]:
    return trace(
        panel,
        "expected at most",
        mode="markers",
        showlegend=False,
        x=[place(100 * percent)],
        y=[limit_ms],
        marker={"symbol": "triangle-down-open", "size": 12, "color": PALETTE[1], "line": {"width": 2}},
        hovertemplate=f"p{percent} is expected to be at most %{{y:,}} ms<extra></extra>",
    )


POINTS: Final = 3_000
"""Maximum number of requests drawn individually."""
_WINDOWS: Final = 40
_ROUND: Final = (1, 2, 5)
_MEASURES: Final = {"Time to first token": "ttft_us", "End-to-end latency": "e2e_us"}
_TIME: Final = {"title": {"text": "time of arrival, simulated seconds"}, "rangemode": "tozero"}
_HOVER: Final = "<b>%{customdata[0]}</b><br>%{y:,.2f} ms, arrived at %{x:,.3f} s<br>%{customdata[1]}<extra></extra>"


class Window(NamedTuple):
    """An interval of simulated time."""

    start_us: int
    end_us: int


def windows(end_us: int) -> list[Window]:
    """Return equal windows from 0 to a time (the last may extend beyond it), of a round length: 1, 2 or 5 and zeros."""
    length, turn = 1, 0
    while length * _WINDOWS < end_us:
        turn += 1
        length = _ROUND[turn % 3] * 10 ** (turn // 3)
    return [Window(start, start + length) for start in range(0, max(end_us, 1), length)]


def shown_rows(rows: Sequence[RequestNumbers], points: int = POINTS) -> list[RequestNumbers]:
    """Return the requests to draw individually: all, or some at equal distances plus the slowest of each part.

    Args:
        rows: requests in order of arrival.
        points: maximum number.
    """
    if len(rows) <= points:
        return [*rows]
    third = points // 3
    kept: dict[int, RequestNumbers] = {}
    for part in range(third):
        stretch = rows[len(rows) * part // third : len(rows) * (part + 1) // third]
        for picked in (stretch[0], max(stretch, key=lambda row: row.ttft_us), max(stretch, key=lambda row: row.e2e_us)):
            kept[picked.number] = picked
    return sorted(kept.values(), key=lambda row: (row.arrival_us, row.number))


def arrivals_picture(table: RequestTable, rows: Sequence[RequestNumbers]) -> Picture:
    """Return TTFT and E2E over arrival time.

    Args:
        table: provides the names of ``rows``.
        rows: requests in order of arrival, at least one.
    """
    drawn = shown_rows(rows)
    groups = sorted(dict.fromkeys(table.group(row)[0] for row in rows))
    several = len(groups) > 1
    last_us = rows[-1].arrival_us
    over = windows(last_us + 1)
    cells = [[f"{window.start_us / 1e6:,g} to {window.end_us / 1e6:,g}"] for window in over]
    head = ["arrived"]
    traces: list[Mapping[str, object]] = []
    for panel, measure in enumerate(_MEASURES.values()):
        short = measure.removesuffix("_us").upper()
        for color, group in enumerate(groups, several):  # colours as for percentiles: the first is for all requests
            name = group if several else "requests"
            traces.append(
                _points(panel, name, color, table, [row for row in drawn if table.group(row)[0] == group], measure)
            )
            members = [row for row in rows if table.group(row)[0] == group]
            for percentile in ("p90",) if several else ("p50", "p90"):
                values = percentile_over_time(members, over, measure, percentile)
                head.append(f"{short} {percentile}" + (f", {group}" if several else ""))
                for row_cells, value in zip(cells, values, strict=True):
                    row_cells.append("" if value is None else f"{value:,.2f}")
                line = {"dash": "solid" if percentile == "p50" or several else "dot", "width": 2}
                traces.append(
                    trace(
                        panel,
                        f"{name}, {percentile}",
                        x=[(window.start_us + window.end_us) / 2e6 for window in over],
                        y=[None if value is None else round(value, 4) for value in values],
                        line={**line_of(color if several else 1), **line},
                        hovertemplate=f"{percentile}: %{{y:,.2f}} ms<extra>{label(name)}</extra>",
                    )
                )
    panels = [Panel(title, _TIME, MS_AXIS) for title in _MEASURES]
    return Picture(
        name="arrivals",
        title="Latency over time of arrival",
        description=f"Each request's time to first token and end-to-end latency over its arrival, from 0 to "
        f"{last_us / 1e6:,.1f} s, with the median and the 90th percentile of those that arrived around the same time.",
        views={"": PictureView(traces, {**panels_layout(panels, shared_x=True), "hovermode": "closest"})},
        height=560,
        table=Table(
            caption="Milliseconds, by time of arrival in seconds",
            head=head,
            rows=cells,
        ),
        note=f"{_thinned(len(drawn), len(rows))}Lines: percentiles of the requests that arrived within the same"
        f" {over[0].end_us / 1e6:,g} s. Latencies that keep growing mean that more arrives than is served.",
    )


def _thinned(drawn: int, requests: int) -> str:
    """Return a note if not all requests are drawn."""
    note = (
        f"{drawn:,} of {plural(requests, 'request')} are drawn: some at equal intervals, and the slowest in between. "
    )
    return note if drawn < requests else ""


def _points(
    panel: int, name: str, color: int, table: RequestTable, rows: Sequence[RequestNumbers], measure: str
) -> dict[str, object]:
    seen = [row for row in rows if getattr(row, measure) >= 0]
    return trace(
        panel,
        name,
        mode="markers",
        marker={"color": PALETTE[color % len(PALETTE)], "size": 5, "opacity": 0.45},
        x=[row.arrival_us / 1e6 for row in seen],
        y=[getattr(row, measure) / 1e3 for row in seen],
        customdata=[[label(table.name(row.number)), _about(row)] for row in seen],
        hovertemplate=_HOVER,
    )


def _about(row: RequestNumbers) -> str:
    parts = [f"{plural(row.input_tokens, 'token')} in, {row.output_tokens:,} out"]
    if row.cached_tokens:
        parts.append(f"{row.cached_tokens:,} cached")
    if row.instance >= 0:
        parts.append(f"instance {row.instance}")
    if row.preemptions:
        parts.append(f"{plural(row.preemptions, 'preemption')}")
    return ", ".join(parts)


def percentile_over_time(
    rows: Sequence[RequestNumbers], over: Sequence[Window], measure: str, percentile: str
) -> list[float | None]:
    """Return a percentile of a figure in milliseconds, for the requests that arrived in each window."""
    length = over[0].end_us
    samples: list[list[int]] = [[] for _ in over]
    for row in rows:
        value: int = getattr(row, measure)
        if value >= 0:
            samples[min(row.arrival_us // length, len(over) - 1)].append(value)
    return [getattr(of_samples(sample), percentile) for sample in samples]


class Rates(NamedTuple):
    """Rates in a window, per second."""

    window: Window
    arrived: float
    completed: float
    output_tokens: float


def rates(rows: Sequence[RequestNumbers], end_us: int) -> list[Rates]:
    """Return arrivals, completions and output tokens per second of each window.

    A request's tokens are spread evenly between its first and its last; tokens of incomplete requests do not count. The
    last window ends at ``end_us``.
    """
    over = windows(end_us)
    length = over[0].end_us
    arrived, completed, tokens = [0] * len(over), [0] * len(over), [0.0] * len(over)
    last = len(over) - 1
    for row in rows:
        arrived[min(row.arrival_us // length, last)] += 1
        if row.state != RequestState.COMPLETED:
            continue
        completed[min(row.completed_us // length, last)] += 1
        took_us = row.completed_us - row.first_token_us
        if took_us <= 0:
            tokens[min(row.completed_us // length, last)] += row.output_tokens
            continue
        for at in range(row.first_token_us // length, min((row.completed_us - 1) // length, last) + 1):
            inside_us = min(row.completed_us, over[at].end_us) - max(row.first_token_us, over[at].start_us)
            tokens[at] += row.output_tokens * inside_us / took_us
    rate_windows = []
    for at, window in enumerate(over):
        seconds = max(min(window.end_us, end_us) - window.start_us, 1) / 1e6
        rate_windows.append(Rates(window, arrived[at] / seconds, completed[at] / seconds, tokens[at] / seconds))
    return rate_windows


def rates_picture(rows: Sequence[RequestNumbers], end_us: int) -> Picture:
    """Return requests and tokens per second over time."""
    rate_windows = rates(rows, end_us)
    x_axis = {"title": {"text": "simulated seconds"}, "rangemode": "tozero"}
    panels = [
        Panel(title, x_axis, {"rangemode": "tozero"}) for title in ("Requests per second", "Output tokens per second")
    ]
    edges = [window.window.start_us / 1e6 for window in rate_windows] + [end_us / 1e6]
    traces = []
    for number, (name, panel) in enumerate((("arrived", 0), ("completed", 0), ("output_tokens", 1))):
        values = [round(getattr(window, name), 4) for window in rate_windows]
        unit = "output tokens/s" if panel else f"requests/s {name}"
        traces.append(
            trace(
                panel,
                name.replace("_", " "),
                x=edges,
                y=[*values, *values[-1:]],
                line={**line_of(number), "shape": "hv"},
                hovertemplate=f"%{{y:,.2f}} {unit}<extra></extra>",
            )
        )
    peak = max(window.output_tokens for window in rate_windows)
    length = rate_windows[0].window.end_us / 1e6
    return Picture(
        name="throughput",
        title="Throughput over time",
        description=f"Requests that arrived and were completed, and output tokens, per second in slices of "
        f"{length:,g} s; at most {peak:,.0f} output tokens/s.",
        views={"": PictureView(traces, {**panels_layout(panels, shared_x=True), "hovermode": "x unified"})},
        height=440,
        table=Table(
            caption="Per second, in slices of simulated seconds",
            head=("from", "requests arrived", "requests completed", "output tokens"),
            rows=[
                (
                    f"{window.window.start_us / 1e6:,g}",
                    f"{window.arrived:,.2f}",
                    f"{window.completed:,.2f}",
                    f"{window.output_tokens:,.1f}",
                )
                for window in rate_windows
            ],
        ),
        note="A request's tokens count evenly between its first and its last.",
    )
