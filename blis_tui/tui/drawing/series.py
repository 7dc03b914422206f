"""Figures over time, for strips and plots, read from the tape's overview."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import NamedTuple, dataclass
from blis_tui.base.units import count_text, percent_text, span_text
from blis_tui.tui.drawing.lines import cells_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from textual.content import Content

    from blis_tui.cluster.snapshot import InstanceSnapshot
    from blis_tui.debugger.event_store import EventStore, StepRow
    from blis_tui.debugger.overview import Bucket, Overview
    from blis_tui.tui.view import View

PAST: Final = "$primary"
"""Colour up to the present position."""
FULL: Final = "$warning"
"""Colour of a nearly full cache."""
FUTURE: Final = "$text-muted 70% dim"
"""Colour of the known future."""
NEARLY_FULL: Final = 90
"""Percentage of KV blocks in use from which a cache counts as nearly full."""
_S: Final = 1_000_000
_RATE_US: Final = _S
"""Interval before a position over which a rate is computed."""
LEVELS: Final = "▁▂▃▄▅▆▇█"
"""Bars of increasing height: the lowest is for 0, all other values get at least the second."""


@dataclass(frozen=True, slots=True)
class Series:
    """A figure with a value at every time.

    ``read`` takes its value from a time bucket: the maximum, or with ``rate`` a count. ``now`` is its value at the
    position; None if there is none yet.
    """

    name: str
    about: str
    """What an interval shows, in a few words."""
    unit: str
    """``count``, ``share`` (of the KV blocks), ``us`` or ``per s``."""
    read: Callable[[Bucket], int]
    now: Callable[[View], float | None]
    rate: bool = False
    changes: str = ""
    """The breakpoint that stops where it changes."""


def kv_blocks(view: View) -> int:
    """Return the number of blocks of all instances."""
    return sum(instance.kv.total_blocks for instance in view.moment.state.instances)


def _ttft(view: View) -> float | None:
    latest = view.tape.latencies.ttfts_us(view.moment.event, 1, view.moment.settled, view.moment.time_us)
    return latest[0] if latest else None


def _latest_step(figure: str) -> Callable[[View], float | None]:
    """Return a function that reads a figure of the last step whose results are in effect."""
    read: Callable[[StepRow], float] = attrgetter(figure)

    def of_step(view: View) -> float | None:
        tape = view.tape
        last = tape.next_step(view.moment.settled + 1, back=True)
        return read(tape.step(tape.row(last).step)) if last else None

    return of_step


def _over_instances(figure: str) -> Callable[[View], float]:
    """Return a function that sums an integer figure over all instances."""
    read: Callable[[InstanceSnapshot], int] = attrgetter(figure)
    return lambda view: sum(read(instance) for instance in view.moment.state.instances)


def _count(name: str, about: str, figure: str, changes: str) -> Series:
    """Return a series of counts; its value at the position is the rate in the second before it, or since the start."""
    read: Callable[[Bucket], int] = attrgetter(figure)

    def per_second(view: View) -> float | None:
        now_us = view.moment.time_us
        if not now_us:
            return None
        start_us = max(0, now_us - _RATE_US)
        first = view.tape.at_time(start_us) + 1 if start_us else 1
        return read(view.tape.between(first, view.moment.settled)) * _S / (now_us - start_us)

    return Series(name, f"{about}, per second", "per s", read, per_second, rate=True, changes=changes)


def _level(name: str, about: str, unit: str, figure: str, now: Callable[[View], float | None], changes: str) -> Series:
    return Series(name, about, unit, attrgetter(figure), now, changes=changes)


_AFTER: Final = "of all instances, maximum after a step"
WAITING: Final = _level(
    "waiting", f"waiting requests {_AFTER}", "count", "waiting_max", _over_instances("waiting_count"), "change waiting"
)
RUNNING: Final = _level(
    "running", f"running requests {_AFTER}", "count", "running_max", _over_instances("running_count"), "change running"
)
KV_USE: Final = _level(
    "KV in use",
    f"used share of the KV blocks {_AFTER}",
    "share",
    "kv_used_max",
    _over_instances("kv.used_blocks"),
    "change kv.used",
)
SERIES: Final = (
    WAITING,
    RUNNING,
    KV_USE,
    _level(
        "batch tokens", "tokens of one step, maximum", "count", "batch_tokens_max", _latest_step("batch_tokens"), "step"
    ),
    _level("step time", "duration of one step, maximum", "us", "step_us_max", _latest_step("duration_us"), "step"),
    _level("TTFT", "time to first token as clients measure it, maximum", "us", "ttft_us_max", _ttft, "first-token"),
    _count("preemptions", "running requests preempted", "preemptions", "preempted"),
    _count("arrivals", "requests that arrived", "arrivals", "arrived"),
    _count("completions", "requests completed", "completions", "completed"),
    _count("tokens", "tokens computed for prompts and answers", "tokens", "step"),
)
"""All figures that can be drawn over time."""


COMPANIONS: Final[Mapping[str, str]] = {
    "waiting": "running",
    "running": "waiting",
    "arrivals": "completions",
    "completions": "arrivals",
}
"""Figures with the same unit that belong together: the second is drawn over the first."""
BY_NAME: Final = {series.name: series for series in SERIES}


def sample(series: Series, overview: Overview, end_us: int, cells: int, known_us: int) -> list[float | None]:
    """Return the figure in ``cells`` equal intervals from 0 to ``end_us``; None where unknown.

    Args:
        series: the figure.
        overview: its source.
        end_us: end of the last interval.
        cells: number of intervals.
        known_us: end of the recorded time.
    """
    values = [series.read(bucket) for bucket in overview.buckets]
    return stretched(values, overview.width_us, end_us, cells, known_us, rate=series.rate)


def stretched(
    values: Sequence[int], width: int, end_us: int, cells: int, known_us: int, *, rate: bool = False
) -> list[float | None]:
    """Do the same for a value per bucket of ``width`` microseconds; ``rate``: whether it is a count."""
    drawn: list[float | None] = []
    for cell in range(cells):
        start, end = cell * end_us // cells, max((cell + 1) * end_us // cells, cell * end_us // cells + 1)
        if start > known_us:
            drawn += [None] * (cells - cell)
            break
        first, last = start // width, min((end - 1) // width, len(values) - 1)
        if rate:
            drawn.append(_weighted(values, width, start, end) * _S / max(min(end, known_us) - start, 1))
        elif first < len(values):
            drawn.append(max(values[first : last + 1]))
        else:
            # Nothing changed after the last bucket, so its value still holds.
            drawn.append(values[-1] if values else 0)
    return drawn


class _Stretch(NamedTuple):
    """An interval whose figures are counted again: its column, its events, and its past part."""

    cell: int
    first: int
    last: int
    us: int


def _recounted(view: View, end_us: int, cells: int) -> Iterator[_Stretch]:
    """Yield the interval of the position, and earlier ones in the same bucket of the overview."""
    tape, now_us = view.tape, view.moment.time_us
    if not view.moment.event:
        return
    width = tape.overview.width_us
    here = min(now_us * cells // end_us, cells - 1)
    for cell in range(min(now_us // width * width * cells // end_us, here), here + 1):
        start_us, stop_us = -(-cell * end_us // cells), -(-(cell + 1) * end_us // cells)
        last = view.moment.settled if cell == here else tape.at_time(stop_us - 1)
        past_us = max(min(stop_us, now_us + 1) - start_us, 1)
        yield _Stretch(cell, tape.at_time(start_us - 1) + 1, last, past_us)


def course(series: Series, view: View, end_us: int, cells: int) -> list[float | None]:
    """Return the figure like ``sample``, but without anything later than the present position.

    A bucket of the overview may extend beyond the position. So the interval of the position is limited to the past, and
    the intervals in the same bucket are counted again.
    """
    tape, now_us = view.tape, view.moment.time_us
    values = sample(series, tape.overview, end_us, cells, tape.time_us(view.moment.frontier))
    for stretch in _recounted(view, end_us, cells):
        value = series.read(tape.between(stretch.first, stretch.last, now_us))
        values[stretch.cell] = value * _S / stretch.us if series.rate else value
    return values


def courses_of_instances(
    view: View, values: Sequence[Sequence[int]], end_us: int, cells: int, *, requests: bool
) -> list[list[float | None]]:
    """Return a figure of each instance, as ``course`` does for all.

    Args:
        view: the view.
        values: for each instance, its maximum in each bucket of the overview.
        end_us: end of the last interval.
        cells: number of intervals.
        requests: whether it is the number of requests; otherwise that of KV blocks in use.
    """
    tape = view.tape
    known_us = tape.time_us(view.moment.frontier)
    courses = [stretched(row, tape.overview.width_us, end_us, cells, known_us) for row in values]
    here = min(view.moment.time_us * cells // end_us, cells - 1)
    for cell, first, last, _ in _recounted(view, end_us, cells):
        most: dict[int, int] = {}
        for on, load in _loads(tape, first, last, requests=requests):
            if load > most.get(on, -1):
                most[on] = load
        for index, instance in enumerate(view.moment.state.instances):
            now = instance.waiting_count + instance.running_count if requests else instance.kv.used_blocks
            value = max(most.get(index, 0), now) if cell == here else most.get(index, -1)
            # Without a step in the interval, the previous value still holds.
            courses[index][cell] = value if value >= 0 else courses[index][max(cell - 1, 0)]
    return courses


def _loads(tape: EventStore, first: int, last: int, *, requests: bool) -> Iterator[tuple[int, ...]]:
    """Return the instance and its requests, or its KV blocks in use, after each step of a range of events."""
    if not requests:
        return ((on, used) for _, on, used in tape.steps_in(first, last, "kv_used_blocks"))
    return ((on, waiting + running) for _, on, waiting, running in tape.steps_in(first, last, "waiting", "running"))


def _weighted(values: Sequence[int], width: int, start: int, end: int) -> float:
    """Return the counts of the buckets in an interval, with partial buckets weighted by their overlap."""
    total = 0.0
    for place in range(start // width, min((end - 1) // width + 1, len(values))):
        total += values[place] * (min(end, (place + 1) * width) - max(start, place * width)) / width
    return total


def strip(values: Sequence[float | None], top: float) -> str:
    """Return one character per value: a bar relative to ``top``, a blank where unknown."""
    steps = len(LEVELS) - 1
    chars: list[str] = []
    for value in values:
        if value is None:
            chars.append(" ")
        elif value <= 0 or top <= 0:
            chars.append(LEVELS[0])
        else:
            chars.append(LEVELS[min(max(int(value * steps / top + 0.5), 1), steps)])
    return "".join(chars)


def coloured(series: Series, values: Sequence[float | None], top: float, here: int) -> Content:
    """Return a strip in colours: dimmed after column ``here``, a nearly full cache highlighted."""
    styles: list[str] = []
    for cell, value in enumerate(values):
        full = series.unit == "share" and value is not None and value * 100 >= top * NEARLY_FULL
        styles.append(FUTURE if cell > here else (FULL if full else PAST))
    return cells_text(strip(values, top), styles)


def top_of(series: Series, values: Sequence[float | None], view: View) -> float:
    """Return the value of a full bar: all blocks for a share of them, else the maximum."""
    if series.unit == "share":
        return kv_blocks(view)
    return max((value for value in values if value is not None), default=0)


def value_text(series: Series, value: float | None, view: View) -> str:
    """Return a value with its unit; a dash if there is none."""
    if value is None:
        return "-"
    if series.unit == "share":
        return percent_text(int(value), kv_blocks(view))
    return quantity_text(series.unit, value)


def quantity_text(unit: str, value: float) -> str:
    """Return a duration, a rate or a count as text."""
    if unit == "us":
        return span_text(int(value + 0.5))
    return rate_text(value) if unit == "per s" else count_text(int(value + 0.5))


def rate_text(value: float) -> str:
    """Return a rate with three significant digits: ``1.25/s``, ``4,210/s``."""
    for digits, limit in ((2, 9.995), (1, 99.95)):
        if 0 < value < limit:
            return f"{value:.{digits}f}/s"
    return f"{value:,.0f}/s"
