"""The load of each instance over time, accumulated from records during a run, and its pictures."""

from __future__ import annotations

from array import array
from collections import deque
from math import fsum
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import NamedTuple
from blis_tui.base.html import Table
from blis_tui.base.units import plural
from blis_tui.cluster.records import Dispatched, GatewayTick, Held, InstanceChanged, Lost, Retried
from blis_tui.engine.records import Completed, Dropped, Preempted, Prefilled, Queued, Scheduled, StepFinished, TimedOut
from blis_tui.pictures.page import Panel, Picture, PictureView, label, line_of, panels_layout, trace

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from blis_tui.engine.records import Record
    from blis_tui.model import Experiment
    from blis_tui.runs.simulation import Simulation

    _AtInstance = Queued | Scheduled | Preempted | Completed | Prefilled | TimedOut | Dropped | Lost | Retried


_FEW_INSTANCES: Final = 16
_SLICES: Final = 512
_SLICES_OF_MANY: Final = 128
_GONE: Final = ("terminated", "failed")
_AT_WORK: Final = ("active", "draining", "warming-up")


class InstanceLoad(NamedTuple):
    """An instance over time: its description, and its figures in each slice."""

    instance: int
    pool: str
    kv_blocks: int
    """Number of KV blocks."""
    waiting: Sequence[Slice]
    running: Sequence[Slice]
    kv_used: Sequence[Slice]
    """KV blocks in use."""
    step_tokens: Sequence[Slice]
    """Prompt and output tokens computed per step."""


class LoadTable(NamedTuple):
    """All instances over time; slices have equal length, except for the last one."""

    slice_us: int
    instances: Sequence[InstanceLoad]
    held: Sequence[Slice] | None
    """Requests in the gateway's queue; None = there is no gateway."""
    at_work: Sequence[Slice] | None
    """Instances that can serve; None if none comes or goes."""


class _Instance:
    """An instance during the run."""

    def __init__(self, pool: str, limit: int) -> None:
        self.pool = pool
        self.waiting = LoadTimeSeries(limit)
        self.running = LoadTimeSeries(limit)
        self.kv_used = LoadTimeSeries(limit)
        self.step_tokens = Slices(limit)
        self.state = "active"
        self.due: deque[tuple[int, int]] = deque()
        """KV blocks in use at the ends of unfinished steps: time and number."""

    def settle(self, now_us: int) -> None:
        """Apply the ends of steps up to now."""
        while self.due and self.due[0][0] <= now_us:
            self.kv_used.set(*self.due.popleft())


class LoadObserver:
    """Subscribes to a run and accumulates its load over time.

    Args:
        simulation: a simulation that has not begun.

    Requests count as waiting from their queue entry, and as running from their first step to their last token. KV
    blocks are counted after each step.
    """

    def __init__(self, simulation: Simulation) -> None:
        experiment: Experiment = simulation.experiment
        self._limit = _SLICES if experiment.instances <= _FEW_INSTANCES else _SLICES_OF_MANY
        self._instances: dict[int, _Instance] = {}
        self._runs: dict[tuple[str, int], bool] = {}
        """Requests at instances, and whether they run."""
        self._held = None if experiment.policy.gateway is None else LoadTimeSeries(self._limit)
        self._at_work = LoadTimeSeries(self._limit) if experiment.cluster.varies else None
        for pool in experiment.pools:
            for _ in range(pool.instances):
                self._instances[len(self._instances)] = _Instance(pool.name, self._limit)
        if self._at_work is not None:
            self._at_work.value = len(self._instances)
        tell: dict[type[Record], Callable[..., None]] = {
            Queued: lambda record: self._move(record, runs=False),
            Scheduled: lambda record: self._move(record, runs=True),
            Preempted: lambda record: self._move(record, runs=False),
            **dict.fromkeys((Completed, Prefilled, TimedOut, Dropped, Lost, Retried), self._leave),
            StepFinished: self._step,
            InstanceChanged: self._change,
            **dict.fromkeys((Held, Dispatched, GatewayTick), self._hold),
        }
        for kind, callback in tell.items():
            simulation.subscribe(kind, callback)

    def table(self, simulation: Simulation, end_us: int) -> LoadTable:
        """Return the load until ``end_us``; no events may follow."""
        for instance in self._instances.values():
            instance.settle(end_us)
        courses = [
            course
            for observed in self._instances.values()
            for course in (observed.waiting, observed.running, observed.kv_used)
        ]
        courses += [
            load_time_series for load_time_series in (self._held, self._at_work) if load_time_series is not None
        ]
        for course in courses:
            course.set(end_us, course.value)
        slices = [
            *(course.slices for course in courses),
            *(observed.step_tokens for observed in self._instances.values()),
        ]
        slice_us = max((sliced.slice_us for sliced in slices), default=FIRST_US)
        count = -(-end_us // slice_us)
        loads = [
            InstanceLoad(
                number,
                observed.pool,
                simulation.cluster.instances[number].pool.total,
                observed.waiting.slices.slices(slice_us, count),
                observed.running.slices.slices(slice_us, count),
                observed.kv_used.slices.slices(slice_us, count),
                observed.step_tokens.slices(slice_us, count),
            )
            for number, observed in sorted(self._instances.items())
        ]
        held = None if self._held is None else self._held.slices.slices(slice_us, count)
        at_work = None if self._at_work is None else self._at_work.slices.slices(slice_us, count)
        return LoadTable(slice_us, loads, held, at_work)

    # ---- records ----

    def _move(self, record: _AtInstance, *, runs: bool) -> None:
        where = (record.request_id, record.instance)
        self._count(record, -1)
        self._runs[where] = runs
        self._count(record, 1)

    def _leave(self, record: _AtInstance) -> None:
        self._count(record, -1)
        self._runs.pop((record.request_id, record.instance), None)

    def _count(self, record: _AtInstance, change: int) -> None:
        runs = self._runs.get((record.request_id, record.instance))
        if runs is not None:
            instance = self._instances[record.instance]
            course = instance.running if runs else instance.waiting
            course.set(record.time_us, course.value + change)

    def _step(self, record: StepFinished) -> None:
        instance = self._instances[record.instance]
        instance.settle(record.time_us)
        tokens = record.decode_requests
        for chunk in record.chunks:
            tokens += chunk.new_tokens
        instance.step_tokens.add(record.time_us, tokens)
        instance.due.append((record.time_us + record.duration_us, record.kv_used_blocks))

    def _hold(self, record: Held | Dispatched | GatewayTick) -> None:
        if self._held is not None:
            self._held.set(record.time_us, record.waiting)

    def _change(self, record: InstanceChanged) -> None:
        instance = self._instances.setdefault(record.instance, _Instance(record.pool, self._limit))
        if self._at_work is not None:
            was = record.before in _AT_WORK
            self._at_work.set(record.time_us, self._at_work.value + (record.state in _AT_WORK) - was)
        if record.state in _GONE:
            instance.due.append((record.time_us, 0))


# Figures over simulated time, accumulated in time slices for a run of unknown length.

FIRST_US: Final = 1_000
"""Initial length of slices; it doubles whenever there would be too many."""


class Slice(NamedTuple):
    """Mean and peak of a figure in a time slice."""

    mean: float
    peak: int


class Slices:
    """Integers over time: the weighted mean and the peak in equal slices, at most ``limit`` of them.

    Attributes:
        slice_us: length of a slice.
    """

    def __init__(self, limit: int) -> None:
        self.slice_us = FIRST_US
        self._limit = limit
        self._amount = array("q")
        self._weight = array("q")
        self._peak = array("q")

    def add(self, time_us: int, value: int) -> None:
        """Count a value at a moment."""
        self._count(self._reach(time_us), value, 1)

    def last(self, start_us: int, end_us: int, value: int) -> None:
        """Count a value over an interval, weighted by its duration in each slice."""
        if end_us <= start_us:
            return
        last = self._reach(end_us - 1)
        slice_us = self.slice_us
        for at in range(start_us // slice_us, last + 1):
            until_us = end_us if at == last else (at + 1) * slice_us
            self._count(at, value, until_us - start_us)
            start_us = until_us

    def _reach(self, time_us: int) -> int:
        """Return the index of the slice with a time, and create it if needed."""
        while time_us >= self._limit * self.slice_us:
            self._halve()
        at = time_us // self.slice_us
        missing = at + 1 - len(self._amount)
        if missing > 0:
            for counts in (self._amount, self._weight, self._peak):
                counts.extend([0] * missing)
        return at

    def _count(self, at: int, value: int, weight: int) -> None:
        self._amount[at] += value * weight
        self._weight[at] += weight
        self._peak[at] = max(self._peak[at], value)

    def slices(self, slice_us: int, count: int) -> list[Slice]:
        """Return ``count`` slices of a length that doubling the current one reaches; 0 where nothing was counted."""
        while self.slice_us < slice_us:
            self._halve()
        slices = [
            Slice(amount / weight if weight else 0.0, peak)
            for amount, weight, peak in zip(self._amount, self._weight, self._peak, strict=True)
        ]
        return (slices + [Slice(0.0, 0)] * count)[:count]

    def _halve(self) -> None:
        """Merge pairs of slices."""
        self.slice_us *= 2
        odd = len(self._amount) % 2
        for counts in (self._amount, self._weight, self._peak):
            counts.extend([0] * odd)
        self._amount = array("q", (a + b for a, b in zip(self._amount[::2], self._amount[1::2], strict=True)))
        self._weight = array("q", (a + b for a, b in zip(self._weight[::2], self._weight[1::2], strict=True)))
        self._peak = array("q", (max(a, b) for a, b in zip(self._peak[::2], self._peak[1::2], strict=True)))


class LoadTimeSeries:
    """An integer that keeps its value until it changes, in slices."""

    def __init__(self, limit: int) -> None:
        self.slices = Slices(limit)
        self.value = 0
        self._since_us = 0

    def set(self, time_us: int, value: int) -> None:
        """Set the value from a time on."""
        self.slices.last(self._since_us, time_us, self.value)
        self._since_us = max(self._since_us, time_us)
        self.value = value


LINES: Final = 7
"""Maximum number of instances with lines of their own, which is the number of colours."""
_SECONDS: Final = {"title": {"text": "simulated seconds"}, "rangemode": "tozero"}


class _Measure(NamedTuple):
    """A figure of an instance: its title, its field, and the format of its values."""

    title: str
    field: str
    format: str = ",.1f"
    suffix: str = ""

    def values(self, instance_load: InstanceLoad) -> tuple[list[float], list[float]]:
        """Return the means and the peaks."""
        slices: Sequence[Slice] = getattr(instance_load, self.field)
        scale = 100 / instance_load.kv_blocks if self.field == "kv_used" else 1
        return [round(each.mean * scale, 3) for each in slices], [round(each.peak * scale, 3) for each in slices]


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
    lines = (
        [_instance_line(instance_load, x) for instance_load in load.instances]
        if few
        else _pool_lines(load.instances, x)
    )
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


def _instance_line(instance_load: InstanceLoad, x: Sequence[float]) -> _Line:
    both = [measure.values(instance_load) for measure in MEASURES]
    return _Line(f"instance {instance_load.instance}", x, [means for means, _ in both], [peaks for _, peaks in both])


def _pool_lines(instances: Sequence[InstanceLoad], x: Sequence[float]) -> list[_Line]:
    pools: dict[str, list[InstanceLoad]] = {}
    for instance_load in instances:
        pools.setdefault(instance_load.pool, []).append(instance_load)
    return [_mean_line(f"pool {name}, mean of {plural(len(own), 'instance')}", own, x) for name, own in pools.items()]


def _mean_line(name: str, instances: Sequence[InstanceLoad], x: Sequence[float]) -> _Line:
    """Return the mean over instances, and the highest peak of any."""
    members = [_instance_line(instance_load, x) for instance_load in instances]
    means, peaks = [], []
    for number in range(len(MEASURES)):
        means.append([_mean(values) for values in zip(*(member.values[number] for member in members), strict=True)])
        peaks.append([max(values) for values in zip(*(member.peaks[number] for member in members), strict=True)])
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
            means = [round(point.mean, 3) for point in course]
            settings = {"hovertemplate": "%{y:,.1f}<extra></extra>"}
            traces.append(_step_line(course_title, len(panels), len(lines), lines[0].x, means, settings))
            panels.append(Panel(course_title, _SECONDS, {"rangemode": "tozero"}))
    layout = {**panels_layout(panels, shared_x=True), "hovermode": "x unified", "showlegend": len(lines) > 1}
    return Picture(
        name=name,
        title=title,
        description=f"Over simulated time, for each {whose}: requests waiting and running, use of the KV cache and"
        f" tokens in a step. The most requests at an instance are {_highest(lines, 0):,.0f} that wait and"
        f" {_highest(lines, 1):,.0f} that run, and {_highest(lines, 2):,.1f} % of a KV cache are in use.",
        views={"": PictureView(traces, layout)},
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
    head = [
        "",
        *(f"{measure.title.split(':')[0].lower()}, {what}" for measure in MEASURES for what in ("mean", "peak")),
    ]
    rows = []
    for line in lines:
        cells = [line.name]
        for number, measure in enumerate(MEASURES):
            values = line.values[number]
            both = (_mean(values), max(line.peaks[number]))
            cells.extend(f"{value:{measure.format}}{measure.suffix}" for value in both)
        rows.append(cells)
    return Table(caption="Means of the slices, and the highest peaks", head=head, rows=rows)


def _heat_map(instances: Sequence[InstanceLoad], edges: Sequence[float]) -> Picture:
    names = [f"{instance_load.pool} {instance_load.instance}" for instance_load in instances]
    views = {}
    for measure in MEASURES:
        title = measure.title.split(":")[0]
        trace: dict[str, object] = {
            "type": "heatmap",
            "x": [*edges],
            "y": [label(name) for name in names],
            "colorscale": "Viridis",
            "z": [measure.values(instance_load)[0] for instance_load in instances],
            "zmin": 0,
            "colorbar": {"title": {"text": title, "side": "right"}, "ticksuffix": measure.suffix, "thickness": 14},
            "hovertemplate": f"%{{y}} at %{{x:,.1f}} s: %{{z:{measure.format}}}{measure.suffix}<extra></extra>",
        }
        layout = {
            "xaxis": _SECONDS,
            "yaxis": {"autorange": "reversed", "type": "category", "showgrid": False},
            "margin": {"l": 80, "r": 16, "t": 16, "b": 48},
        }
        views[title] = PictureView([trace], layout)
    return Picture(
        name="instances",
        title="Instances over time",
        description=f"A heat map of {plural(len(instances), 'instance')} over simulated time.",
        views=views,
        height=min(max(260, 90 + 16 * len(instances)), 900),
        note="A row for each instance. One that is always brighter than the others gets more than its share.",
    )
