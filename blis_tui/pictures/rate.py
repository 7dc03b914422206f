"""Figures of a study's points over the arrival rate, with the knee of each line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.classes import NamedTuple
from blis_tui.pictures.panels import bound_line, line_of, spread_line, star, value_axis
from blis_tui.pictures.parts import Picture, View, label
from blis_tui.pictures.points import coordinate
from blis_tui.plain_page import Table
from blis_tui.study.names import value_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.pictures.points import Points
    from blis_tui.study.summary import PointSummary

LINES: Final = 14
"""Maximum number of lines."""

_NOTE: Final = (
    "Stars are knees: up to that rate every point meets all bounds, and none is overloaded. The true knee lies"
    " between a star and the next point, or, where the star is hollow, beyond the last one. Bars reach from the lowest"
    " to the highest seed."
)


class Line(NamedTuple):
    """Points that differ only in their rate, sorted by rate."""

    name: str
    rates: tuple[float, ...]
    members: tuple[PointSummary, ...]

    @property
    def knee(self) -> int | None:
        """Return the index of the highest rate up to which every point meets all bounds without overload, or None."""
        good = 0
        for one in self.members:
            if one.ok is False or one.status != "done" or any("overload" in row.warnings for row in one.rows):
                break
            good += 1
        return good - 1 if good else None

    @property
    def holds_throughout(self) -> bool:
        """Return whether the knee, if there is one, lies beyond the highest tried rate."""
        return self.knee == len(self.members) - 1

    def knee_text(self) -> str:
        """Return the highest rate before the knee, as text."""
        if self.knee is None:
            return "none"
        return f"{self.rates[self.knee]:g}" + (" or more" if self.holds_throughout else "")


def rate_path(points: Points) -> str | None:
    """Return the path of the arrival rate, if one varies."""
    return next((path for path in points.varied if path.rsplit(".", 1)[-1] == "rate_per_s"), None)


def lines_of(points: Points, path: str) -> list[Line]:
    """Return the points as lines over a path of numbers, those with the highest knee first."""
    others = [one for one in points.varied if one != path]
    found: dict[tuple[str, ...], list[tuple[float, PointSummary]]] = {}
    for one in points.all:
        rate = one.coordinates[path]
        if isinstance(rate, int | float) and one.status in ("done", "stopped"):
            found.setdefault(tuple(coordinate(one, other) for other in others), []).append((float(rate), one))
    lines = []
    for members in found.values():
        members.sort(key=lambda pair: pair[0])
        first = members[0][1]
        name = ", ".join(f"{points.names[other]} {value_text(first.coordinates[other])}" for other in others)
        lines.append(Line(name or "all", tuple(rate for rate, _ in members), tuple(one for _, one in members)))
    return sorted(lines, key=lambda line: -1.0 if line.knee is None else -line.rates[line.knee] - 1.0)


def rate_picture(points: Points) -> Picture | None:
    """Return latency against rate, a line per configuration; None if no axis is a rate."""
    path = rate_path(points)
    lines = [] if path is None else lines_of(points, path)
    if path is None or not lines:
        return None
    shown = lines[:LINES]
    knees = [(line.name, line.knee_text()) for line in lines]
    beyond = "" if len(shown) == len(lines) else f" Of {len(lines)} lines those with the highest knees are drawn."
    return Picture(
        name="rate",
        title="Latency against rate",
        description="Figures over the rate of arrivals, a line for each configuration. Knees: "
        + "; ".join(f"{name} at {rate}" for name, rate in knees[:8])
        + ".",
        views={metric: _view(points, path, shown, metric) for metric in points.latencies},
        height=440,
        table=Table(caption="The knee of each line", head=("", f"highest {label(path)}"), rows=knees),
        note=_NOTE + beyond,
    )


def _view(points: Points, path: str, lines: Sequence[Line], metric: str) -> View:
    traces: list[dict[str, object]] = []
    everything: list[float] = []
    for color, line in enumerate(lines):
        placed = [
            (rate, mean, one.values(metric))
            for rate, one in zip(line.rates, line.members, strict=True)
            if one.status == "done" and (mean := one.mean(metric)) is not None
        ]
        everything += [mean for _, mean, _ in placed]
        bars = [(min(values), max(values)) for _, _, values in placed]
        own: dict[str, object] = {"name": label(line.name), "legendgroup": label(line.name)}
        over = spread_line(
            [rate for rate, _, _ in placed],
            [mean for _, mean, _ in placed],
            [low for low, _ in bars],
            [high for _, high in bars],
            shown=any(len(values) > 1 for _, _, values in placed),
        )
        hover = "%{y:,.4~g} at %{x:,g}/s<extra>%{fullData.name}</extra>"
        traces.append({**over, **own, "line": line_of(color), "hovertemplate": hover})
        if line.knee is not None and (value := line.members[line.knee].mean(metric)) is not None:
            knee = star(line.rates[line.knee], value, color, 15, hollow=line.holds_throughout)
            traces.append({**knee, **own, "showlegend": False, "hovertemplate": f"knee: {hover}"})
    bound = points.bound(metric)
    layout: dict[str, object] = {
        "xaxis": {"title": {"text": label(path)}, "rangemode": "tozero"},
        "yaxis": value_axis(metric, everything),
        "shapes": [] if bound is None else [bound_line("y", bound)],
        "showlegend": len(lines) > 1,
    }
    return View(traces, layout)
