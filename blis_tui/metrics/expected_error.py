"""How far off means are expected to be: what was seen on measured servers that are like the simulated ones.

Of all measured runs (``metrics.measured``), servers that differ in what matters (``DIFFERENT``) count less, all runs of
one server count as one, and the levels of the quantiles are raised as far as so few servers demand. Errors are taken as
errors of steps: those of runs whose load made them grow (``metrics.amplified``) are divided, and those of the simulated
run multiplied by that. E2E follows from both: what its times to first token and its decodes would be off with each
measured run's two errors. How often that holds is judged with one server left out at a time:
``benchmarks/accuracy.py --calibration``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.classes import NamedTuple, dataclass
from blis_tui.engine.portable_math import power
from blis_tui.metrics.measured import CACHED_SHARE, LOADS, measured, nearest, traits_of
from blis_tui.metrics.unmeasured import STEPS, WAITS, unmeasured

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from blis_tui.metrics.measured import Known, Measured, Traits
    from blis_tui.spec.model import Experiment, Pool

DIFFERENT: Final[Mapping[str, Mapping[str, float]]] = {
    "ttft": {
        "engine": 0.1,
        "gpu": 0.7,
        "family": 0.1,
        "precision": 0.7,
        "kv_cache": 0.7,
        "tensor_parallel": 0.7,
        "fresh": 0.2,
        "long": 0.7,
        "load": 0.7,
    },
    "itl": {
        "engine": 0.5,
        "gpu": 0.7,
        "family": 0.1,
        "precision": 0.5,
        "kv_cache": 0.7,
        "tensor_parallel": 0.7,
        "fresh": 0.2,
        "long": 0.5,
        "load": 0.5,
    },
}
"""What a server counts that differs in one of these; in several, the product. Of loads, that of each class between; of
tensor parallelism, that of each doubling."""
_AT_LEAST: Final = 0.01
"""What every server counts: so does the whole hold where few are near."""
NEAR: Final = 0.1
"""A server that counts less is not near; without one that is, nothing is said."""
RAISED: Final = 0.5
"""Of n servers, levels are raised by this part of one in n: runs of one server differ, too, so they count for more."""
_MEDIAN: Final = 0.5
_BAND: Final = 0.9
_WIDEST_MEDIAN: Final = 0.98


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """The error of one metric's mean, in percent: above 0 where the simulation is slower than the server."""

    median: float
    """In percent: half of the absolute errors are below it."""
    low: float
    """In percent: nine of ten errors lie between this one ..."""
    high: float
    """... and this one, in percent."""
    servers: int
    """How many measured servers that rests on; those that are less like the simulated ones count in part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedError:
    """What measured servers that are like the simulated ones let expect of a run's means; None = not measured."""

    ttft: Band | None
    """Of the mean time to first token."""
    itl: Band | None
    """Of the mean inter-token latency."""
    e2e: Band | None
    """Of the mean end-to-end latency."""


class Expectation(NamedTuple):
    """What is expected of a run's means, metric by metric."""

    bands: Mapping[str, Band]
    """Metric -> its band; those of which nothing is known are missing."""
    reasons: Mapping[str, str]
    """Metric -> why nothing is known of it, and what was measured that is nearest."""

    @property
    def error(self) -> ExpectedError | None:
        """The bands; None = there are none."""
        return ExpectedError(**{name: self.bands.get(name) for name in STEPS}) if self.bands else None


class Seen(NamedTuple):
    """What is known of the load of a pool's instances, before a run or after it."""

    prompt_tokens: float
    """Of a prompt, in the mean."""
    answer_tokens: float = 0.0
    """Of an answer, in the mean."""
    cached_share: float = 0.0
    """Of prompt tokens, that came out of the prefix cache."""
    at_a_time: float | None = None
    """Requests that an instance has, waiting or running; None = not known yet."""
    ttft_share: float | None = None
    """Of E2E, that is TTFT; None = not known yet."""
    amplified: float = 1.0
    """How many times errors of steps are in ITL under this load; 1 where clients wait for answers."""
    strained: str = ""
    """Why small errors of steps would change waits a lot; empty = they would not."""


def expectation(experiment: Experiment, pool: Pool, seen: Seen) -> Expectation:
    """What is expected of the means of a pool's requests."""
    known = measured(pool.latency.kind)
    if known is None:
        reason = "expected error unknown: docs/accuracy.md compares it with other models"
        return Expectation({}, dict.fromkeys(STEPS, reason))
    traits = traits_of(
        experiment,
        pool,
        prompt_tokens=seen.prompt_tokens,
        cached_share=seen.cached_share,
        at_a_time=seen.at_a_time,
    )
    reasons = unmeasured(experiment, pool, traits, known)
    for reason, spoils in _of_load(seen, known):
        for metric in spoils:
            reasons.setdefault(metric, reason)
    return bands_of(traits, known.runs, seen, reasons)


def _of_load(seen: Seen, known: Known) -> Iterable[tuple[str, tuple[str, ...]]]:
    """What of the load no measured server had."""
    tokens = seen.prompt_tokens + seen.answer_tokens
    if tokens > known.most_tokens:
        yield f"requests of {tokens:,.0f} tokens (measured: up to {known.most_tokens:,})", STEPS
    if seen.at_a_time is not None and seen.at_a_time > known.most_at_a_time:
        at_a_time = f"{seen.at_a_time:,.0f} concurrent requests per instance"
        yield f"{at_a_time} (measured: up to {known.most_at_a_time:,.0f})", STEPS
    if CACHED_SHARE[0] < seen.cached_share < CACHED_SHARE[1]:
        share = f"{100 * seen.cached_share:.0f} % of prompt tokens from the prefix cache"
        yield f"{share} (measured: none, or all but their last block)", WAITS
    if seen.strained:
        yield seen.strained, WAITS


def bands_of(
    traits: Traits, runs: Sequence[Measured], seen: Seen, reasons: Mapping[str, str] | None = None
) -> Expectation:
    """What these runs let expect of another server.

    Args:
        traits: of the server.
        runs: of others.
        seen: its load.
        reasons: metric -> why nothing is known of it.
    """
    why, bands = dict(reasons or {}), dict[str, Band]()
    likeness = {metric: _likenesses(metric, traits, runs) for metric in DIFFERENT}
    decodes = seen.ttft_share is not None and seen.ttft_share <= 0.5
    by = {"ttft": "ttft", "itl": "itl", "e2e": "itl" if decodes else "ttft"}
    for metric, weighed_by in by.items():
        needed = ("ttft", "itl") if metric == "e2e" else (metric,)
        there = [
            (one, like)
            for one, like in zip(runs, likeness[weighed_by], strict=True)
            if all(name in one.errors for name in needed)
        ]
        if metric not in why and max((like for _, like in there), default=0.0) < NEAR:
            why[metric] = "no server similar to this one"
        if metric in why or (metric == "e2e" and seen.ttft_share is None):
            continue
        bands[metric] = _band([_error(one, metric, seen) for one, _ in there], *_weighed(there))
    near = nearest(runs, likeness["itl"]) if why else ""
    return Expectation(bands, {name: f"not measured: {reason}; nearest: {near}" for name, reason in why.items()})


def _error(one: Measured, metric: str, seen: Seen) -> float:
    """What a metric would be off here, if steps were off as in that run."""
    if metric != "e2e":
        return _grown(one.errors[metric], seen.amplified / one.amplified)
    share = seen.ttft_share or 0.0
    first, rest = _error(one, "ttft", seen), _error(one, "itl", seen)
    return 1.0 / (share / (1.0 + first) + (1.0 - share) / (1.0 + rest)) - 1.0


def _grown(error: float, times: float) -> float:
    """An error whose logarithm is so many times as large."""
    return error if times == 1.0 else power(1.0 + error, times) - 1.0


def _weighed(there: Sequence[tuple[Measured, float]]) -> tuple[list[float], float]:
    """What each run counts, by its likeness, and how many servers that are (Kish's effective number)."""
    of_server: dict[str, int] = {}
    for one, _ in there:
        of_server[one.server] = of_server.get(one.server, 0) + 1
    weights = [(like + _AT_LEAST) / of_server[one.server] for one, like in there]
    total = squares = 0.0
    shares = dict.fromkeys(of_server, 0.0)
    for (one, _), weight in zip(there, weights, strict=True):
        shares[one.server] += weight
    for share in shares.values():
        total += share
        squares += share * share
    return weights, total * total / squares


def _band(errors: Sequence[float], weights: Sequence[float], count: float) -> Band:
    """Another server is one more: of n known ones, the quantile that it is below with this chance lies higher."""
    more = 1.0 + RAISED / count
    inside, tail = min(_WIDEST_MEDIAN, _MEDIAN * more), max(0.0, (1.0 - _BAND * more) / 2)
    median = _quantile(zip(map(abs, errors), weights, strict=True), inside)
    low, high = (_quantile(zip(errors, weights, strict=True), level) for level in (tail, 1.0 - tail))
    percents = (round(100 * value, 1) for value in (median, low, high))
    return Band(**dict(zip(("median", "low", "high"), percents, strict=True)), servers=int(count + 0.5))


def _likenesses(metric: str, traits: Traits, runs: Sequence[Measured]) -> list[float]:
    """Those of all runs; many are of one server under one kind of load."""
    of = {other: _likeness(metric, traits, other) for other in dict.fromkeys(one.traits for one in runs)}
    return [of[one.traits] for one in runs]


def _likeness(metric: str, one: Traits, other: Traits) -> float:
    """What a server counts, by what it has in common with another one: at most 1."""
    weight = 1.0
    for (name, cost), mine, theirs in zip(DIFFERENT[metric].items(), one, other, strict=True):
        assert name in one._fields  # noqa: S101  (in the same order)
        if mine == theirs:
            continue
        times = 1
        if name == "load":
            times = _classes_apart(one.load, other.load)
        elif name == "tensor_parallel":
            times = abs((one.tensor_parallel - 1).bit_length() - (other.tensor_parallel - 1).bit_length())
        for _ in range(times):
            weight *= cost
    return weight


def _classes_apart(one: str, other: str) -> int:
    """How many classes of loads are between two; 0 where one is unknown."""
    return abs(LOADS.index(one) - LOADS.index(other)) if one and other else 0


def _quantile(weighted: Iterable[tuple[float, float]], level: float) -> float:
    """The smallest value that at least this share of the weight is not above."""
    pairs = sorted(weighted)
    total = reached = 0.0
    for _, weight in pairs:
        total += weight
    for value, weight in pairs:
        reached += weight
        if reached >= level * total:
            return value
    return pairs[-1][0]


class SlowerServer(NamedTuple):
    """How many times as long what a server does takes than it is simulated, where few measured ones took longer."""

    steps: float
    """Its steps; from the errors of ITL. At least 1."""
    first_tokens: float
    """Times to first token, beside what longer steps do to them; from the errors of TTFT. At least 1."""


def slower_server(
    experiment: Experiment, pool: Pool, seen: Seen, confidence: float, metrics: Sequence[str] = ("itl",)
) -> SlowerServer | str:
    """How much slower a server is that only ``1 - confidence`` of measured ones were slower than.

    Args:
        experiment: what is simulated.
        pool: whose instances.
        seen: their load, as far as it is known.
        confidence: the share of measured servers that were no slower.
        metrics: those that it is asked for; each has to be known, or nothing is.

    Returns:
        A text where it is not known: why.
    """
    known = measured(pool.latency.kind)
    found = expectation(experiment, pool, seen)
    reason = next((found.reasons[name] for name in ("itl", *metrics) if name in found.reasons), "")
    if reason or known is None:
        return reason
    traits = traits_of(
        experiment, pool, prompt_tokens=seen.prompt_tokens, cached_share=seen.cached_share, at_a_time=seen.at_a_time
    )
    times = {}
    for metric in ("itl", "ttft"):
        there = [(one, _likeness(metric, traits, one.traits)) for one in known.runs if metric in one.errors]
        weights, count = _weighed(there)
        level = confidence * (1.0 + RAISED / count)
        if level > 1.0:
            return f"{count:.0f} measured servers are too few for a confidence of {100 * confidence:g} %"
        errors = [_grown(one.errors[metric], 1.0 / one.amplified) for one, _ in there]
        times[metric] = max(1.0, 1.0 / (1.0 + _quantile(zip(errors, weights, strict=True), 1.0 - level)))
    later = times["ttft"] / times["itl"] if "ttft" in metrics else 1.0
    return SlowerServer(round(times["itl"], 3), round(max(1.0, later), 3))
