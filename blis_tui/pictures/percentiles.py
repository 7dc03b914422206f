"""Latencies by percentile, on an axis that expands the tail."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from blis_tui.engine.portable_math import ln
from blis_tui.metrics.stats import percentile_ms
from blis_tui.pictures.panels import MS_AXIS, PALETTE, Panel, line_of, panels_layout, trace
from blis_tui.pictures.parts import View

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from blis_tui.metrics.stats import HistogramSamples
    from blis_tui.spec.model import Expectation

    Curve = Sequence[tuple[int, float]]
    """Percentiles in hundredths of a percent, and their values in milliseconds."""

OF: Final = 10_000
"""The unit of percentiles, as a fraction of 1: hundredths of a percent."""
GRID: Final = (*range(0, 9_900, 100), *range(9_900, 9_990, 10), *range(9_990, 10_000))
"""Percentiles of a curve's points: each percent, tenths above 99 %, hundredths above 99.9 %."""
_TICKS: Final = (0, 5_000, 9_000, 9_500, 9_900, 9_990, 9_999)
_PERCENTILE: Final = re.compile(r"latency\.(\w+)\.p(\d+)")

NAMES: Final = {
    "ttft_ms": "Time to first token",
    "itl_ms": "Inter-token latency",
    "tpot_ms": "Time per output token",
    "e2e_ms": "End-to-end latency",
}
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
    return [(one, _value(ordered, one)) for one in GRID if (OF - one) * count >= OF]


def _value(ordered: Sequence[float] | HistogramSamples, hundredths: int) -> float:
    # Use the report's fraction, so that results are equal to the last bit.
    percent, rest = divmod(hundredths, 100)
    return percentile_ms(ordered, hundredths, OF) if rest else percentile_ms(ordered, percent)


def percentile_axis() -> dict[str, object]:
    """Return Plotly's settings of the axis."""
    places = [place(one) for one in _TICKS]
    return {
        "tickvals": places,
        "ticktext": [name_of(one) for one in _TICKS],
        "tickangle": 0,
        "title": {"text": "percentile"},
    }


def curves_view(curves: Mapping[str, Mapping[str, Curve]], limits: Sequence[Expectation] = ()) -> View:
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
                    x=[place(one) for one, _ in points],
                    y=[round(value, 4) for _, value in points],
                    customdata=[name_of(one) for one, _ in points],
                    hovertemplate="%{customdata}: %{y:,.2f} ms<extra>%{fullData.name}</extra>",
                    line=line_of(color),
                )
            )
        traces += [_mark(number, *found) for limit in limits if (found := _bound(limit, name)) is not None]
    panels = [Panel(NAMES[name], percentile_axis(), MS_AXIS) for name in latencies]
    return View(traces, {**panels_layout(panels, 2), "showlegend": len(groups) > 1})


def _bound(limit: Expectation, latency: str) -> tuple[int, float] | None:
    """Return the percentile of a latency that an expectation bounds from above, and the bound; None = none."""
    found = _PERCENTILE.fullmatch(limit.metric)
    if found is None or found[1] != latency or limit.max is None:
        return None
    return int(found[2]), limit.max


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
