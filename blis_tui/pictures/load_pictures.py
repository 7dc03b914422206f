"""Pictures of the load over time: a line per instance, or for many instances a line per pool and a heat map."""

from __future__ import annotations

from math import fsum
from typing import TYPE_CHECKING, Final

from blis_tui.classes import NamedTuple
from blis_tui.pictures.panels import Panel, line_of, panels_layout, trace
from blis_tui.pictures.parts import Picture, View, label
from blis_tui.plain_page import Table
from blis_tui.units import plural

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from blis_tui.pictures.load import InstanceLoad, LoadTable, Slice

LINES: Final = 7
"""Maximum number of instances with lines of their own, which is the number of colours."""
_SECONDS: Final = {"title": {"text": "simulated seconds"}, "rangemode": "tozero"}


class _Measure(NamedTuple):
    """A figure of an instance: its title, its field, and the format of its values."""

    title: str
    field: str
    format: str = ",.1f"
    suffix: str = ""

    def values(self, one: InstanceLoad) -> tuple[list[float], list[float]]:
        """Return the means and the peaks."""
        found: Sequence[Slice] = getattr(one, self.field)
        scale = 100 / one.kv_blocks if self.field == "kv_used" else 1
        return [round(each.mean * scale, 3) for each in found], [round(each.peak * scale, 3) for each in found]


MEASURES: Final = (
    _Measure("Requests waiting", "waiting"),
    _Measure("Requests running", "running"),
    _Measure("KV cache in use", "kv_used", ",.1f", " %"),
    _Measure("Batch tokens: computed in a step, prompts and answers", "step_tokens", ",.0f"),
)


class _Line(NamedTuple):
    """A line in all panels: its name, and for each panel its values and further hover text."""

    name: str
    x: Sequence[float]
    """Starts of its slices in seconds, and the end."""
    values: Sequence[Sequence[float]]
    peaks: Sequence[Sequence[float]]


def load_pictures(load: LoadTable, end_us: int) -> list[Picture]:
    """Return the load over time, as one picture for few instances and two for many."""
    x = _edges(load, end_us)
    if len(x) < 2:
        return []
    few = len(load.instances) <= LINES
    lines = [_instance_line(one, x) for one in load.instances] if few else _pool_lines(load.instances, x)
    more = {"Requests in the gateway's queue": load.held, "Instances at work": load.at_work}
    note = f"Means over {load.slice_us / 1e6:,g} s each; peaks are in the hover text. Zooming into one zooms all."
    pictures = [_lines_picture("load", "Load over time", "instance" if few else "pool", lines, more, note)]
    return pictures if few else [*pictures, _heat_map(load.instances, x[:-1])]


def compared_load_picture(loads: Mapping[str, tuple[LoadTable, int]]) -> Picture:
    """Return the load of several runs over time, each the mean of its instances.

    Args:
        loads: name of a run -> its load and its end in microseconds, which must be positive.
    """
    lines = [_mean_line(name, load.instances, _edges(load, end_us)) for name, (load, end_us) in loads.items()]
    note = "Means over the instances of each run; peaks of any of them are in the hover text."
    return _lines_picture("runs-load", "Load over time, compared", "run", lines, {}, note)


def _edges(load: LoadTable, end_us: int) -> list[float]:
    slices = len(load.instances[0].waiting) if load.instances else 0
    return [*(number * load.slice_us / 1e6 for number in range(slices)), end_us / 1e6]


def _instance_line(one: InstanceLoad, x: Sequence[float]) -> _Line:
    both = [measure.values(one) for measure in MEASURES]
    return _Line(f"instance {one.instance}", x, [means for means, _ in both], [peaks for _, peaks in both])


def _pool_lines(instances: Sequence[InstanceLoad], x: Sequence[float]) -> list[_Line]:
    pools: dict[str, list[InstanceLoad]] = {}
    for one in instances:
        pools.setdefault(one.pool, []).append(one)
    return [_mean_line(f"pool {name}, mean of {plural(len(own), 'instance')}", own, x) for name, own in pools.items()]


def _mean_line(name: str, instances: Sequence[InstanceLoad], x: Sequence[float]) -> _Line:
    """Return the mean over instances, and the highest peak of any."""
    members = [_instance_line(one, x) for one in instances]
    means, peaks = [], []
    for number in range(len(MEASURES)):
        means.append([_mean(values) for values in zip(*(one.values[number] for one in members), strict=True)])
        peaks.append([max(values) for values in zip(*(one.peaks[number] for one in members), strict=True)])
    return _Line(name, x, means, peaks)


def _mean(values: Sequence[float]) -> float:
    return round(fsum(values) / len(values), 3)


def _lines_picture(
    name: str, title: str, whose: str, lines: Sequence[_Line], more: Mapping[str, Sequence[Slice] | None], note: str
) -> Picture:
    panels: list[Panel] = []
    traces: list[Mapping[str, object]] = []
    for number, measure in enumerate(MEASURES):
        panels.append(Panel(measure.title, _SECONDS, {"rangemode": "tozero", "ticksuffix": measure.suffix}))
        for color, line in enumerate(lines):
            peaks = line.peaks[number]
            hover = f"%{{y:{measure.format}}} (peak %{{customdata:{measure.format}}})<extra>{label(line.name)}</extra>"
            settings = {"customdata": [*peaks, peaks[-1]], "hovertemplate": hover}
            traces.append(_step_line(line.name, number, color, line.x, line.values[number], settings))
    for course_title, course in more.items():
        if course is not None:
            means = [round(one.mean, 3) for one in course]
            settings = {"hovertemplate": "%{y:,.1f}<extra></extra>"}
            traces.append(_step_line(course_title, len(panels), len(lines), lines[0].x, means, settings))
            panels.append(Panel(course_title, _SECONDS, {"rangemode": "tozero"}))
    layout = {**panels_layout(panels, shared_x=True), "hovermode": "x unified", "showlegend": len(lines) > 1}
    return Picture(
        name=name,
        title=title,
        description=f"Over simulated time, for each {whose}: requests waiting and running, use of the KV cache and"
        f" tokens in a step. At most {_highest(lines, 0):,.0f} requests wait and {_highest(lines, 1):,.0f} run at an"
        f" instance, and {_highest(lines, 2):,.1f} % of a KV cache are in use.",
        views={"": View(traces, layout)},
        height=150 * len(panels) + 70,
        table=_table(lines),
        note=note,
    )


def _step_line(
    name: str, panel: int, color: int, x: Sequence[float], values: Sequence[float], settings: Mapping[str, object]
) -> dict[str, object]:
    line = {**line_of(color, 1.6), "shape": "hv"}
    return trace(panel, name, x=[*x], y=[*values, values[-1]], line=line, **settings)


def _highest(lines: Sequence[_Line], measure: int) -> float:
    return max(max(line.peaks[measure]) for line in lines)


def _table(lines: Sequence[_Line]) -> Table:
    """Return means and peaks of the whole run."""
    head = ["", *(f"{one.title.split(':')[0].lower()}, {what}" for one in MEASURES for what in ("mean", "peak"))]
    rows = []
    for line in lines:
        cells = [line.name]
        for number, measure in enumerate(MEASURES):
            found = line.values[number]
            both = (_mean(found), max(line.peaks[number]))
            cells.extend(f"{value:{measure.format}}{measure.suffix}" for value in both)
        rows.append(cells)
    return Table(caption="Means of the slices, and the highest peaks", head=head, rows=rows)


def _heat_map(instances: Sequence[InstanceLoad], edges: Sequence[float]) -> Picture:
    names = [f"{one.pool} {one.instance}" for one in instances]
    views = {}
    for measure in MEASURES:
        title = measure.title.split(":")[0]
        trace: dict[str, object] = {
            "type": "heatmap",
            "x": [*edges],
            "y": [label(name) for name in names],
            "colorscale": "Viridis",
            "z": [measure.values(one)[0] for one in instances],
            "zmin": 0,
            "colorbar": {"title": {"text": title, "side": "right"}, "ticksuffix": measure.suffix, "thickness": 14},
            "hovertemplate": f"%{{y}} at %{{x:,.1f}} s: %{{z:{measure.format}}}{measure.suffix}<extra></extra>",
        }
        layout = {
            "xaxis": _SECONDS,
            "yaxis": {"autorange": "reversed", "type": "category", "showgrid": False},
            "margin": {"l": 80, "r": 16, "t": 16, "b": 48},
        }
        views[title] = View([trace], layout)
    return Picture(
        name="instances",
        title="Instances over time",
        description=f"A heat map of {plural(len(instances), 'instance')} over simulated time.",
        views=views,
        height=min(max(260, 90 + 16 * len(instances)), 900),
        note="A row for each instance. One that is always brighter than the others gets more than its share.",
    )
