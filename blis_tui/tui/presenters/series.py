"""Figures over time: what can be drawn as a strip or a plot, read from the tape's overview."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Final

from blis_tui.classes import NamedTuple, dataclass
from blis_tui.tui.presenters.lines import cells_text
from blis_tui.units import count_text, percent_text, span_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from textual.content import Content

    from blis_tui.cluster.snapshot import InstanceSnapshot
    from blis_tui.debugger.overview import Bucket, Overview
    from blis_tui.debugger.tape import StepRow
    from blis_tui.tui.view import View

PAST: Final = "$primary"
"""Colour of what is drawn up to the present position."""
FULL: Final = "$warning"
"""Colour of what is nearly full."""
FUTURE: Final = "$text-muted 70% dim"
"""Colour of what is known but has not happened at the present position."""
NEARLY_FULL: Final = 90
"""Percent of the KV blocks in use from which on a cache is called nearly full."""
_S: Final = 1_000_000
_RATE_US: Final = _S
"""A rate at a position is that of the second before it."""
LEVELS: Final = "▁▂▃▄▅▆▇█"
"""Nothing at all is the lowest; whatever is more than nothing is at least the second."""


@dataclass(frozen=True, slots=True)
class Series:
    """A figure that has a value at every time.

    ``read`` takes it from a bucket of time: the largest value in it, or with ``rate`` a count. ``now`` is its value at
    the position, None when there is none yet.
    """

    name: str
    about: str
    """What is shown of a stretch of time, in a few words."""
    unit: str
    """``count``, ``share`` (of the KV blocks), ``us`` or ``per s``."""
    read: Callable[[Bucket], int]
    now: Callable[[View], float | None]
    rate: bool = False


def kv_blocks(view: View) -> int:
    """All blocks of all instances."""
    return sum(instance.kv.total_blocks for instance in view.moment.state.instances)


def _ttft(view: View) -> float | None:
    latest = view.tape.latencies.ttfts_us(view.moment.event, 1, view.moment.settled, view.moment.time_us)
    return latest[0] if latest else None


def _latest_step(figure: str) -> Callable[[View], float | None]:
    """A figure of the last step whose results are past."""
    read: Callable[[StepRow], float] = attrgetter(figure)

    def of_step(view: View) -> float | None:
        tape = view.tape
        last = tape.next_step(view.moment.settled + 1, back=True)
        return read(tape.step(tape.row(last).step)) if last else None

    return of_step


def _over_instances(figure: str) -> Callable[[View], float]:
    """A figure of all instances together, a whole number each."""
    read: Callable[[InstanceSnapshot], int] = attrgetter(figure)
    return lambda view: sum(read(one) for one in view.moment.state.instances)


def _count(name: str, about: str, figure: str) -> Series:
    """Something counted; at the position, its rate in the second before it, or since the start."""
    read: Callable[[Bucket], int] = attrgetter(figure)

    def per_second(view: View) -> float | None:
        now_us = view.moment.time_us
        if not now_us:
            return None
        start_us = max(0, now_us - _RATE_US)
        first = view.tape.at_time(start_us) + 1 if start_us else 1
        return read(view.tape.between(first, view.moment.settled)) * _S / (now_us - start_us)

    return Series(name, f"{about}, per second", "per s", read, per_second, rate=True)


def _level(name: str, about: str, unit: str, figure: str, now: Callable[[View], float | None]) -> Series:
    return Series(name, about, unit, attrgetter(figure), now)


_AFTER: Final = "of all instances, maximum after a step"
WAITING: Final = _level(
    "waiting", f"waiting requests {_AFTER}", "count", "waiting_max", _over_instances("waiting_count")
)
RUNNING: Final = _level(
    "running", f"running requests {_AFTER}", "count", "running_max", _over_instances("running_count")
)
KV_USE: Final = _level(
    "KV in use", f"used share of the KV blocks {_AFTER}", "share", "kv_used_max", _over_instances("kv.used_blocks")
)
SERIES: Final = (
    WAITING,
    RUNNING,
    KV_USE,
    _level("batch tokens", "tokens of one step, maximum", "count", "batch_tokens_max", _latest_step("batch_tokens")),
    _level("step time", "duration of one step, maximum", "us", "step_us_max", _latest_step("duration_us")),
    _level("TTFT", "time to first token as clients measure it, maximum", "us", "ttft_us_max", _ttft),
    _count("preemptions", "running requests preempted", "preemptions"),
    _count("arrivals", "requests that arrived", "arrivals"),
    _count("completions", "requests completed", "completions"),
    _count("tokens", "tokens computed for prompts and answers", "tokens"),
)
"""Everything that can be drawn over time."""


COMPANIONS: Final[Mapping[str, str]] = {
    "waiting": "running",
    "running": "waiting",
    "arrivals": "completions",
    "completions": "arrivals",
}
"""Figures of one unit that say more together: the second is drawn over the first."""
BY_NAME: Final = {series.name: series for series in SERIES}


def sample(series: Series, overview: Overview, end_us: int, cells: int, known_us: int) -> list[float | None]:
    """The figure in so many equal stretches of time from 0 to ``end_us``; None where nothing is known yet.

    Args:
        series: the figure.
        overview: where to read it.
        end_us: the time at which the last stretch ends.
        cells: how many stretches.
        known_us: the time up to which anything is known.
    """
    values = [series.read(bucket) for bucket in overview.buckets]
    return stretched(values, overview.width_us, end_us, cells, known_us, rate=series.rate)


def stretched(
    values: Sequence[int], width: int, end_us: int, cells: int, known_us: int, *, rate: bool = False
) -> list[float | None]:
    """As :func:`sample`, for a value of each bucket, which is ``width`` microseconds wide; ``rate``: it is a count."""
    found: list[float | None] = []
    for cell in range(cells):
        start, end = cell * end_us // cells, max((cell + 1) * end_us // cells, cell * end_us // cells + 1)
        if start > known_us:
            found += [None] * (cells - cell)
            break
        first, last = start // width, min((end - 1) // width, len(values) - 1)
        if rate:
            found.append(_weighted(values, width, start, end) * _S / max(min(end, known_us) - start, 1))
        elif first < len(values):
            found.append(max(values[first : last + 1]))
        else:
            # Nothing changed any more after the last bucket: what is left of it still holds.
            found.append(values[-1] if values else 0)
    return found


class _Stretch(NamedTuple):
    """A stretch of time whose figures are counted anew: its column, its events, and how much of it is past."""

    cell: int
    first: int
    last: int
    us: int


def _recounted(view: View, end_us: int, cells: int) -> Iterator[_Stretch]:
    """The stretch in which the position lies, and those before it that share its bucket of the overview."""
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
    """The figure as ``sample`` has it, but up to the present position of nothing later.

    A bucket of the overview may hold more than is past. So the stretch in which the position lies shows what was until
    then, and those that share its bucket are counted anew.
    """
    tape, now_us = view.tape, view.moment.time_us
    values = sample(series, tape.overview, end_us, cells, tape.time_us(view.moment.frontier))
    for one in _recounted(view, end_us, cells):
        value = series.read(tape.between(one.first, one.last, now_us))
        values[one.cell] = value * _S / one.us if series.rate else value
    return values


def courses_of_instances(
    view: View, values: Sequence[Sequence[int]], end_us: int, cells: int, *, requests: bool
) -> list[list[float | None]]:
    """A figure of each instance, as ``course`` has that of all.

    Args:
        view: what to show.
        values: of each instance, its largest value in each bucket of the overview.
        end_us: the time at which the last stretch ends.
        cells: how many stretches.
        requests: whether it is the number of requests there; else of KV blocks in use.
    """
    tape = view.tape
    known_us = tape.time_us(view.moment.frontier)
    found = [stretched(one, tape.overview.width_us, end_us, cells, known_us) for one in values]
    here = min(view.moment.time_us * cells // end_us, cells - 1)
    for cell, first, last, _ in _recounted(view, end_us, cells):
        most: dict[int, int] = {}
        for event in range(first, last + 1):
            row = tape.row(event)
            if row.step >= 0:
                step = tape.step(row.step)
                value = step.waiting + step.running if requests else step.kv_used_blocks
                most[row.instance] = max(most.get(row.instance, 0), value)
        for index, instance in enumerate(view.moment.state.instances):
            now = instance.waiting_count + instance.running_count if requests else instance.kv.used_blocks
            value = max(most.get(index, 0), now) if cell == here else most.get(index, -1)
            # Without a step in it, what was before still holds.
            found[index][cell] = value if value >= 0 else found[index][max(cell - 1, 0)]
    return found


def _weighted(values: Sequence[int], width: int, start: int, end: int) -> float:
    """The counts of the buckets in a stretch of time, of the ones at its edges only the share that lies in it."""
    total = 0.0
    for place in range(start // width, min((end - 1) // width + 1, len(values))):
        total += values[place] * (min(end, (place + 1) * width) - max(start, place * width)) / width
    return total


def strip(values: Sequence[float | None], top: float) -> str:
    """One character for each value: a bar up to ``top``, a blank where nothing is known."""
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
    """A strip in colours: what lies behind column ``here`` is dimmed, a nearly full cache stands out."""
    styles: list[str] = []
    for cell, value in enumerate(values):
        full = series.unit == "share" and value is not None and value * 100 >= top * NEARLY_FULL
        styles.append(FUTURE if cell > here else (FULL if full else PAST))
    return cells_text(strip(values, top), styles)


def top_of(series: Series, values: Sequence[float | None], view: View) -> float:
    """The value that a full bar stands for: all blocks for a share of them, else the largest value."""
    if series.unit == "share":
        return kv_blocks(view)
    return max((value for value in values if value is not None), default=0)


def value_text(series: Series, value: float | None, view: View) -> str:
    """A value with its unit; a dash when there is none."""
    if value is None:
        return "-"
    if series.unit == "share":
        return percent_text(int(value), kv_blocks(view))
    return quantity_text(series.unit, value)


def quantity_text(unit: str, value: float) -> str:
    """A duration, a rate or a count."""
    if unit == "us":
        return span_text(int(value + 0.5))
    return rate_text(value) if unit == "per s" else count_text(int(value + 0.5))


def rate_text(value: float) -> str:
    """Something per second, with three digits that count: ``1.25/s``, ``4,210/s``."""
    for digits, limit in ((2, 9.995), (1, 99.95)):
        if 0 < value < limit:
            return f"{value:.{digits}f}/s"
    return f"{value:,.0f}/s"
