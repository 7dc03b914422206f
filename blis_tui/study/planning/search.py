"""Searches for the boundary between what holds and what does not, as coroutines.

A search yields the probes that it needs next (``Wanted``) and is sent one verdict for each, in order. It does not know
simulations, so it can be tested with any function.
"""

from __future__ import annotations

from math import inf, sqrt
from typing import TYPE_CHECKING, Final, TypeAlias

from blis_tui.base.classes import NamedTuple, dataclass
from blis_tui.base.units import plural
from blis_tui.study.samples import MIN_SERVED_SHARE
from blis_tui.study.steady import SECTION

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Sequence

    from blis_tui.model import Expectation
    from blis_tui.study.study_rows import Row


_FAR: Final = 4096.0
"""Maximum factor between the first guess and a rate to try."""
_STEP: Final = 1.2
"""Factor of the first two steps away from a guess; each later one is the square of the previous."""
_FAILED_BEFORE_IDLE: Final = 3
"""After this many failing rates in a row, the search asks whether any rate holds at all."""
_MARGIN: Final = 1 / 3
"""Share of the precision by which the answer stays below the highest rate that holds in the long run."""
_NEAR: Final = 0.5
"""Above this share of a bound, figures rise so steeply that the failing rate is close to the holding one."""
_NEARLY: Final = 0.25
"""A size at which a smaller share of the requests than this is beyond a bound is nearly enough. To try two or four more
would take a run until it holds, and another one of a size between. That a percentile is little above its bound shows
less: a TPOT falls slowly with the load, and 1.1 times the bound may need twice as many instances."""
_MOST_STEPS_OF_ONE: Final = 3
"""How often that may be wrong."""


@dataclass(frozen=True, slots=True)
class Probe:
    """A value to try: a rate, or a number of instances."""

    value: float
    """The value; a rate of 0 means requests that come one by one."""
    seed: int
    """Index of the seed."""
    quick: bool = False
    """Whether to look only for what breaks at once: such a probe holds unless it certainly fails."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of a probe."""

    holds: bool
    of_bound: float | None = None
    """If it holds: the figure with the least margin, as a fraction of its bound; None = not known."""
    nearly: bool = False
    """If it does not: whether few requests are beyond the bounds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Knee:
    """Two rates: at the lower one everything holds with every seed, at the higher one with none."""

    holds: float | None
    """None = no rate holds, however low."""
    fails: float | None
    """None = no rate that was tried fails; 0 = not even requests that come one by one hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallestSize:
    """The smallest size that holds with every seed."""

    holds: int | None
    """None = none up to the largest allowed one."""
    fails: int | None
    """The size below, which fails with at least one seed; None = there is none."""


class Wanted(NamedTuple):
    """What a search waits for."""

    probes: Sequence[Probe]
    """Probes whose verdicts it needs."""
    likely: Probe | None = None
    """The probe that it probably needs next, which may be tried meanwhile where nothing else has to be."""


RateSearch: TypeAlias = "Generator[Wanted, list[Verdict], Knee]"
SizeSearch: TypeAlias = "Generator[Wanted, list[Verdict], SmallestSize]"


class _Known:
    """Verdicts by value and seed."""

    def __init__(self, seeds: int) -> None:
        self.seeds = seeds
        self._verdicts: dict[Probe, Verdict] = {}

    def ask(
        self, wanted: Iterable[Probe], likely: Probe | None = None
    ) -> Generator[Wanted, list[Verdict], list[Verdict]]:
        """Return the verdicts of some probes; unknown ones are requested together.

        ``likely`` is what will probably be asked for next.
        """
        probes = list(wanted)
        new = [probe for probe in dict.fromkeys(probes) if probe not in self._verdicts]
        if new:
            verdicts = yield Wanted(new, None if likely in self._verdicts else likely)
            self._verdicts.update(zip(new, verdicts, strict=True))
        return [self._verdicts[probe] for probe in probes]

    def one(
        self, value: float, *, quick: bool = False, likely: Probe | None = None
    ) -> Generator[Wanted, list[Verdict], Verdict]:
        """Return the verdict with the first seed; what breaks at once need not be run for longer."""
        at_once = self._verdicts.get(Probe(value, 0, quick=True))
        if at_once is not None and not at_once.holds:
            return at_once
        return (yield from self.ask([Probe(value, 0, quick)], likely))[0]

    def share(self, value: float) -> Generator[Wanted, list[Verdict], float]:
        """Return the share of the seeds with which a value holds."""
        verdicts = yield from self.ask(Probe(value, seed) for seed in range(self.seeds))
        return len([verdict for verdict in verdicts if verdict.holds]) / self.seeds


def search_rate(guess: float, *, precision: float, seeds: int, quick: bool = False) -> RateSearch:
    """Find the rate up to which everything holds.

    First one seed brackets and bisects. Then the other seeds are tried at both ends, which move apart until every seed
    holds at the lower and none at the upper one. The interval between is the noise of the workload, or the precision.
    Where probes are of the long run, a third of the interval is kept as a margin below the rate that holds: just below
    the knee, ten minutes of bursts are as often too much as not.

    Args:
        guess: the rate to begin with, such as the capacity.
        precision: maximum width of the interval, relative to its lower end.
        seeds: how many runs must agree at an end.
        quick: whether probes are of the long run. Quick ones, which find what certainly fails, come first then.
    """
    known, margin = _Known(seeds), 0.0
    if quick:
        margin = _MARGIN * precision
        precision -= margin
        ends = yield from _narrowed(known, guess, max(precision, _STEP - 1), quick=True)
        if isinstance(ends, Knee) and ends.fails is not None:
            return ends
        guess = ends.holds or guess if isinstance(ends, Knee) else ends[0]
    ends = yield from _narrowed(known, guess, precision)
    if isinstance(ends, Knee):
        return ends
    low, high = ends
    yield from known.ask(Probe(end, seed) for end in (low, high) for seed in range(seeds))
    lowest = yield from _expand_rate(known, low, 1 / (1 + precision), holds=True)
    highest = yield from _expand_rate(known, high, 1 + precision, holds=False)
    if margin and lowest is not None:
        lowest = yield from _expand_rate(known, rounded(lowest / (1 + margin)), 1 / (1 + precision), holds=True)
    return Knee(holds=lowest, fails=highest)


def _narrowed(
    known: _Known, guess: float, precision: float, *, quick: bool = False
) -> Generator[Wanted, list[Verdict], tuple[float, float] | Knee]:
    """Return a rate that holds and one that does not with the first seed, no farther apart than the precision."""
    ends = yield from _bracket(known, guess, precision, quick=quick)
    if isinstance(ends, Knee):
        return ends
    low, high = ends
    while high / low > 1 + precision and (middle := _between(low, high)) is not None:
        if (yield from known.one(middle, quick=quick)).holds:
            low = middle
        else:
            high = middle
    return low, high


def _expand_rate(
    known: _Known, rate: float, step: float, *, holds: bool
) -> Generator[Wanted, list[Verdict], float | None]:
    """Move from a rate in growing steps until every seed holds (or none does); None = not even far away.

    Only seeds that disagree are tried again, because what holds at a rate holds at a lower one. Before a rate is
    returned, however, all seeds have been tried at it.
    """
    end = rate
    while True:
        verdicts = yield from known.ask(Probe(rate, seed) for seed in range(known.seeds))
        astray = [seed for seed, verdict in enumerate(verdicts) if verdict.holds != holds]
        if not astray:
            return rate
        end = rate
        while astray and 1 / _FAR < end / rate < _FAR:
            end, step = rounded(end * step), step * step
            verdicts = yield from known.ask(Probe(end, seed) for seed in astray)
            astray = [seed for seed, verdict in zip(astray, verdicts, strict=True) if verdict.holds != holds]
        if astray:
            return None
        if not holds:
            return end
        rate = end


def _bracket(
    known: _Known, guess: float, precision: float, *, quick: bool
) -> Generator[Wanted, list[Verdict], tuple[float, float] | Knee]:
    """Return a rate that holds and one that does not, with the first seed."""
    low = high = None
    rate, factor = rounded(guess), _STEP
    tried = 0
    while low is None or high is None:
        tried += 1
        verdict = yield from known.one(rate, quick=quick)
        if verdict.holds:
            low = rate
            if rate > guess * _FAR:
                return Knee(holds=low, fails=None)
            near = verdict.of_bound is not None and verdict.of_bound > _NEAR
            following = rate * (1 + 0.95 * precision if near else factor)  # below the precision, as rates are rounded
        else:
            high = rate
            if tried == _FAILED_BEFORE_IDLE and low is None and not (yield from known.one(0.0)).holds:
                return Knee(holds=None, fails=0.0)
            if rate < guess / _FAR:
                return Knee(holds=None, fails=high)
            following = rate / factor
        rate, factor = rounded(following), factor if tried == 1 else factor * factor
    return low, high


def _between(low: float, high: float) -> float | None:
    """Return the geometric mean; None if no rounded rate lies between."""
    middle = rounded(sqrt(low * high))
    return middle if low < middle < high else None


def rounded(rate: float) -> float:
    """Round a rate to three significant digits."""
    return float(f"{rate:.3g}")


def search_size(
    guess: int, *, most: int, seeds: int, least: int = 1, quick: bool = False, near: bool = False
) -> SizeSearch:
    """Find the smallest size from which on everything holds.

    Args:
        guess: the size to begin with.
        most: the largest size to try.
        seeds: how many runs must hold.
        least: the smallest possible size.
        quick: whether to begin with quick probes, which find the sizes that certainly fail.
        near: whether the smallest possible size is likely to hold, so that nothing has to be found quickly.
    """
    known = _Known(seeds)
    low, high = least - 1, least
    if not (quick and near):
        low, high = yield from _size_boundary(known, min(max(guess, least), most), least, most, quick=quick)
    if quick:
        low, high = yield from _climbed(known, low, high, most, guess)
    while high <= most and (yield from known.share(high)) < 1:
        low, high = high, high + 1
    return SmallestSize(holds=high if high <= most else None, fails=low if low >= least else None)


def _size_boundary(
    known: _Known, size: int, least: int, most: int, *, quick: bool
) -> Generator[Wanted, list[Verdict], tuple[int, int]]:
    """Return the largest size known to fail with the first seed, and the smallest known to hold, next to it."""
    low, high, step = least - 1, most + 1, 1
    tried = 0
    while high - low > 1:
        smaller = max(size - step, low + 1) if low < least else (low + size) // 2
        likely = Probe(smaller, 0, quick) if smaller < size else Probe(size, 0)
        if (yield from known.one(size, quick=quick, likely=likely)).holds:
            high = size
            size = smaller
        else:
            low = size
            size = min(size + step, most) if high > most else (size + high) // 2
        tried += 1
        step *= 2 if tried > 1 else 1
    return low, high


def _climbed(
    known: _Known, low: int, size: int, most: int, guess: int
) -> Generator[Wanted, list[Verdict], tuple[int, int]]:
    """Go up from a size that does not break at once, to one that holds; return it with the size below, which fails.

    That a size fails is known much sooner than that it holds, so it is approached from below: in steps that double, but
    by one from a size that is nearly enough. About how many are enough (``guess``) only says what is likely.
    """
    step, steps_of_one = 1, 0
    while size <= most:
        following = min(size + step, most) if size < guess else (low + size) // 2
        likely = Probe(following, 0) if low < following != size else None
        verdict = yield from known.one(size, likely=likely)
        if verdict.holds:
            break
        nearly = verdict.nearly and steps_of_one < _MOST_STEPS_OF_ONE
        low, size = size, most + 1 if size == most else min(size + (1 if nearly else step), most)
        step, steps_of_one = (1, steps_of_one + 1) if nearly else (2 * step, steps_of_one)
    high = size
    while high - low > 1:
        middle = (low + high) // 2
        if (yield from known.one(middle)).holds:
            high = middle
        else:
            low = middle
    return low, high


# How a run answers the planner: whether it holds, and with what margin.


@dataclass(frozen=True, slots=True, kw_only=True)
class Margin:
    """The relation of a figure to its bound."""

    metric: str
    value: float
    bound: float
    of_bound: float
    """The figure divided by an upper bound, or a lower bound divided by the figure; below 1 = the bound holds."""


def margins(row: Row, bounds: tuple[Expectation, ...]) -> tuple[Margin, ...]:
    """Return the margins of a run's figures, the tightest first; figures without a value are left out."""
    distances = []
    for expectation in bounds:
        value = row.figures.get(expectation.metric)
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        for bound, upper in ((expectation.max, True), (expectation.min, False)):
            if bound is not None:
                part, whole = (value, bound) if upper else (bound, value)
                share = part / whole if whole else (inf if part > 0 else 0.0)
                distances.append(Margin(metric=expectation.metric, value=float(value), bound=bound, of_bound=share))
    return tuple(sorted(distances, key=lambda margin: -margin.of_bound))


def verdict_of(row: Row, bounds: tuple[Expectation, ...]) -> Verdict:
    """Return whether a run holds, and how narrowly."""
    if row.status != "done" or failure_reason(row):
        beyond, limit = row.figures.get(f"{SECTION}.beyond"), row.figures.get(f"{SECTION}.beyond_limit")
        nearly = isinstance(beyond, float) and isinstance(limit, float) and limit < beyond < _NEARLY
        return Verdict(holds=False, nearly=nearly)
    return Verdict(holds=True, of_bound=next((margin.of_bound for margin in margins(row, bounds)), None))


def failure_reason(row: Row) -> str:
    """Return why a run does not hold; empty if it does."""
    if not row.ok:
        return row.why or row.status
    if row.in_long_run:  # which is about all of this
        return ""
    total, completed = row.figures.get("requests.total"), row.figures.get("requests.completed")
    if isinstance(total, int) and isinstance(completed, int) and completed < MIN_SERVED_SHARE * total:
        return f"only {completed:,} of {plural(total, 'request')} completed (latencies cover only these)"
    if "overload" in row.warnings:
        return "overloaded: more requests arrive than are served, so they wait longer and longer"
    return ""


def hopeless_idle(row: Row, bounds: tuple[Expectation, ...]) -> str:
    """Return why no load can hold, given a run whose requests each found an idle cluster; empty if some still may.

    On an idle cluster, latencies are the shortest and attainments the highest that there are. What is served per
    second, however, is next to nothing there, and what a token costs the most: such bounds show nothing.
    """
    reason = failure_reason(row)
    broken = [margin for margin in margins(row, bounds) if margin.of_bound > 1]
    if broken and not any(_best_when_idle(margin) for margin in broken):
        return ""
    return reason


def _best_when_idle(broken: Margin) -> bool:
    """Return whether a figure that breaks its bound on an idle cluster breaks it under any load."""
    if broken.value < broken.bound:
        return broken.metric.rpartition(".")[2] == "attainment"
    return not broken.metric.startswith("cost.")
