"""The expected error of a run's means, from the errors seen on measured servers that resemble the simulated ones.

All measured runs (``metrics.measured``) contribute. Servers that differ in relevant traits (``DIFFERENT``) weigh less,
all runs of one server together weigh as much as one, and the levels of the quantiles are raised to allow for the small
number of servers. Errors are converted to errors of step times: those of runs whose load amplified them
(``metrics.amplified``) are reduced accordingly, and the result is amplified as in the simulated run. The E2E error
follows from both: each measured run's TTFT and ITL errors are applied to this run's TTFT and decode shares. If no
server with the same engine, and prompts as fresh, has the same tensor parallelism or size of the model, the errors are
those of servers whose value of that trait was left out of the fit, too.
``benchmarks/accuracy.py --calibration`` checks how often the bands hold, leaving out one server at a time.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Final

from blis_tui.classes import NamedTuple, dataclass
from blis_tui.engine.portable_math import power
from blis_tui.metrics.measured import CACHED_SHARE, LEFT_OUT, LOADS, measured, medians, nearest, traits_of
from blis_tui.metrics.unmeasured import STEP_METRICS, TWICE, WAIT_METRICS, server_reason, unmeasured

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

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
        "size": 0.7,
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
        "size": 0.7,
        "load": 0.5,
    },
}
"""Weight factor of a server that differs in a trait; several differences multiply. For loads, the factor applies per
class of distance; for tensor parallelism, per doubling."""
COMPARED: Final = ("fitted", "roofline", "trained-physics")
"""Step-time models without expected errors whose errors on measured servers are in docs/accuracy.md."""
LIKE: Final = "operators"
"""The step-time model whose measurements tell which servers were measured."""
_AT_LEAST: Final = 0.01
"""Minimum weight of every server, so that the bands also hold where few servers are near."""
MIN_NEAR_WEIGHT: Final = 0.1
"""A server with a lower weight is not near; without any near server, no error is predicted."""
QUANTILE_RAISE: Final = 0.5
"""With n servers, quantile levels are raised by this fraction of 1/n; it is below 1 because runs of one server differ.
"""
_MEDIAN: Final = 0.5
_BAND: Final = 0.9
_WIDEST_MEDIAN: Final = 0.98


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """The error of one metric's mean, in percent; positive if the simulation is slower than the server."""

    median: float
    """Median of the absolute error, in percent."""
    low: float
    """Lower bound of the central 90 % of errors, in percent."""
    high: float
    """Upper bound of the central 90 % of errors, in percent."""
    servers: int
    """Number of measured servers behind the band; servers that resemble the simulated ones less count in part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedError:
    """The expected errors of a run's means, from measured servers like the simulated ones.

    None = not measured, or the run has no such mean.
    """

    ttft: Band | None
    """Expected error of the mean time to first token."""
    itl: Band | None
    """Expected error of the mean inter-token latency."""
    e2e: Band | None
    """Expected error of the mean end-to-end latency."""


class Expectation(NamedTuple):
    """The expected errors of a run's means, by metric."""

    bands: Mapping[str, Band]
    """Band of each metric; metrics without a known error are missing."""
    reasons: Mapping[str, str]
    """For each metric without a known error, what was not measured, and the nearest measurement."""

    @property
    def error(self) -> ExpectedError | None:
        """The bands; None if there are none."""
        return ExpectedError(**{name: self.bands.get(name) for name in STEP_METRICS}) if self.bands else None

    def without(self, metrics: Collection[str]) -> Expectation:
        """Return what is said of the other metrics; there is no mean of these that could be off."""
        return Expectation(
            {name: band for name, band in self.bands.items() if name not in metrics},
            {name: reason for name, reason in self.reasons.items() if name not in metrics},
        )


class ObservedLoad(NamedTuple):
    """What is known of the load of a pool's instances, before or after a run."""

    prompt_tokens: float
    """Mean prompt length."""
    answer_tokens: float = 0.0
    """Mean answer length."""
    cached_share: float = 0.0
    """Share of prompt tokens found in the prefix cache."""
    at_a_time: float | None = None
    """Requests waiting or running on an instance, on average; None = not known yet."""
    ttft_share: float | None = None
    """Share of TTFT in E2E; None = not known yet."""
    amplified: float = 1.0
    """Factor by which this load amplifies errors of step times in ITL; 1 if clients wait for answers."""
    strained: str = ""
    """Why small errors of step times would change waits a lot; empty = they would not."""


def expectation(experiment: Experiment, pool: Pool, seen: ObservedLoad) -> Expectation:
    """Return the expected errors of the means of a pool's requests."""
    known = measured(pool.latency.kind)
    if known is None:
        reason = f"`{pool.latency.kind}` step times"
        if pool.latency.kind in COMPARED:
            reason += " (docs/accuracy.md compares them with others)"
        return Expectation({}, dict.fromkeys(STEP_METRICS, reason))
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
    return error_bands(traits, known.runs, seen, reasons)


def known_for(kind: str, experiment: Experiment, metrics: Iterable[str], most: float) -> bool:
    """Return whether a step-time model's median error on such servers is known, and small.

    Args:
        kind: the step-time model.
        experiment: the experiment whose pools are asked about.
        metrics: the means that matter; E2E is judged by TTFT and ITL.
        most: the largest median error in percent.
    """
    known = measured(LIKE)
    if known is None:
        return False
    names = dict.fromkeys(one for metric in metrics for one in (("ttft", "itl") if metric == "e2e" else (metric,)))
    for pool in experiment.pools:
        traits = traits_of(experiment, pool, prompt_tokens=0.0, cached_share=0.0)
        off = medians(kind).get(traits.gpu, {})
        if not traits.engine or server_reason(pool, traits, known):
            return False
        if any(off.get(name, inf) > most for name in names):
            return False
    return True


def _of_load(seen: ObservedLoad, known: Known) -> Iterable[tuple[str, tuple[str, ...]]]:
    """Yield the properties of the load that no measured server had."""
    tokens = seen.prompt_tokens + seen.answer_tokens
    if tokens > known.most_tokens:
        yield f"requests of {tokens:,.0f} tokens (measured: up to {known.most_tokens:,})", STEP_METRICS
    if seen.at_a_time is not None and seen.at_a_time > known.most_at_a_time:
        at_a_time = f"{seen.at_a_time:,.0f} concurrent requests per instance"
        yield f"{at_a_time} (measured: up to {known.most_at_a_time:,.0f})", STEP_METRICS
    if seen.at_a_time is not None and seen.at_a_time < known.least_at_a_time / TWICE:
        count = f"{seen.at_a_time:.2g}"
        at_a_time = f"{count} concurrent request{'' if count == '1' else 's'} per instance"
        yield f"{at_a_time} (measured: {known.least_at_a_time:,.0f} and more)", STEP_METRICS
    if CACHED_SHARE[0] < seen.cached_share < CACHED_SHARE[1]:
        share = f"{100 * seen.cached_share:.0f} % of prompt tokens from the prefix cache"
        yield f"{share} (measured: none, or all but their last block)", WAIT_METRICS
    if seen.strained:
        yield seen.strained, WAIT_METRICS


def error_bands(
    traits: Traits, runs: Sequence[Measured], seen: ObservedLoad, reasons: Mapping[str, str] | None = None
) -> Expectation:
    """Return the expected errors of a server, derived from measured runs of others.

    Args:
        traits: traits of the server.
        runs: measured runs of other servers.
        seen: the server's load.
        reasons: for metrics without a known error, the reason.
    """
    why, bands = dict(reasons or {}), dict[str, Band]()
    measured_runs, runs = runs, as_new(traits, runs)
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
        if metric not in why and max((like for _, like in there), default=0.0) < MIN_NEAR_WEIGHT:
            why[metric] = "no server similar to this one"
        if metric in why or (metric == "e2e" and seen.ttft_share is None):
            continue
        bands[metric] = _band([_error(one, metric, seen) for one, _ in there], *_run_weights(there))
    near = nearest(measured_runs, _likenesses("itl", traits, measured_runs)) if why else ""
    return Expectation(bands, {name: f"{reason}; nearest: {near}" for name, reason in why.items()})


def as_new(traits: Traits, runs: Sequence[Measured]) -> Sequence[Measured]:
    """Return measured runs with the errors that they would have had if they had been as new to the fit as a server.

    Which way they would have been off depends on what one takes for coefficients that nothing tells, so that each
    counts with both signs. Traits in which the server is new do not make servers less like it: their errors do.

    Args:
        traits: the server's traits.
        runs: measured runs of others. If the server is new, those that were not simulated as if they were, and those
            of the other kind of prompts (fresh, or cached), say nothing of it.
    """
    like = [one.traits for one in runs if (one.traits.engine, one.traits.fresh) == (traits.engine, traits.fresh)]
    new = [name for name in LEFT_OUT if getattr(traits, name) not in {getattr(one, name) for one in like}]
    if not new:
        return runs
    shared = {name: getattr(traits, name) for name in new}
    found: list[Measured] = []
    for one in runs:
        if one.traits.fresh == traits.fresh and all(name in one.without for name in new):
            errors = _largest([one.errors, *(one.without[name] for name in new)])
            mirrored = {metric: 1.0 / (1.0 + error) - 1.0 for metric, error in errors.items()}
            as_like = one._replace(traits=one.traits._replace(**shared))
            found += [as_like._replace(errors=errors), as_like._replace(errors=mirrored)]
    return found


def _largest(errors: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return, of each metric, the error that is farthest off."""
    return {metric: max((one[metric] for one in errors), key=abs) for metric in errors[0]}


def _error(one: Measured, metric: str, seen: ObservedLoad) -> float:
    """Return the error of a metric here if step times had the same error as in that run."""
    if metric != "e2e":
        return _grown(one.errors[metric], seen.amplified / one.amplified)
    share = seen.ttft_share or 0.0
    first, rest = _error(one, "ttft", seen), _error(one, "itl", seen)
    return 1.0 / (share / (1.0 + first) + (1.0 - share) / (1.0 + rest)) - 1.0


def _grown(error: float, times: float) -> float:
    """Return an error whose logarithm is ``times`` as large."""
    return error if times == 1.0 else power(1.0 + error, times) - 1.0


def _run_weights(there: Sequence[tuple[Measured, float]]) -> tuple[list[float], float]:
    """Return the weight of each run by its likeness, and the effective number of servers (Kish)."""
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
    """Return the band, with quantile levels raised for a new server: with n known ones, its quantile lies higher."""
    more = 1.0 + QUANTILE_RAISE / count
    inside, tail = min(_WIDEST_MEDIAN, _MEDIAN * more), max(0.0, (1.0 - _BAND * more) / 2)
    median = _quantile(zip(map(abs, errors), weights, strict=True), inside)
    low, high = (_quantile(zip(errors, weights, strict=True), level) for level in (tail, 1.0 - tail))
    percents = (round(100 * value, 1) for value in (median, low, high))
    return Band(**dict(zip(("median", "low", "high"), percents, strict=True)), servers=int(count + 0.5))


def _likenesses(metric: str, traits: Traits, runs: Sequence[Measured]) -> list[float]:
    """Return the likeness of each run, computed once for runs with equal traits."""
    of = {other: _likeness(metric, traits, other) for other in dict.fromkeys(one.traits for one in runs)}
    return [of[one.traits] for one in runs]


def _likeness(metric: str, one: Traits, other: Traits) -> float:
    """Return the weight of a server from its likeness to another one, at most 1."""
    weight = 1.0
    for (name, cost), mine, theirs in zip(DIFFERENT[metric].items(), one, other, strict=True):
        assert name in one._fields  # noqa: S101  (both lists have the same order)
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
    """Return how many load classes lie between two classes; 0 if one is unknown."""
    return abs(LOADS.index(one) - LOADS.index(other)) if one and other else 0


def _quantile(weighted: Iterable[tuple[float, float]], level: float) -> float:
    """Return the weighted quantile: the smallest value at which the cumulative weight reaches ``level``."""
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
    """How much slower than simulated a server may be, at a given confidence."""

    steps: float
    """Factor on step times, from the errors of ITL; at least 1."""
    first_tokens: float
    """Factor on TTFT on top of longer steps, from the errors of TTFT; at least 1."""


def slower_server(
    experiment: Experiment, pool: Pool, seen: ObservedLoad, confidence: float, metrics: Sequence[str] = ("itl",)
) -> SlowerServer | str:
    """Return the slowdown that only ``1 - confidence`` of the measured servers exceed.

    Args:
        experiment: the simulated experiment.
        pool: the pool.
        seen: its load, as far as it is known.
        confidence: the share of measured servers that were no slower.
        metrics: the metrics of interest; the error of each must be known.

    Returns:
        The slowdown, or a text saying why it is not known.
    """
    known = measured(pool.latency.kind)
    found = expectation(experiment, pool, seen)
    reason = next((found.reasons[name] for name in ("itl", *metrics) if name in found.reasons), "")
    if reason or known is None:
        return f"nothing like it was measured: {reason}"
    traits = traits_of(
        experiment, pool, prompt_tokens=seen.prompt_tokens, cached_share=seen.cached_share, at_a_time=seen.at_a_time
    )
    times, runs = {}, as_new(traits, known.runs)
    for metric in ("itl", "ttft"):
        there = [(one, _likeness(metric, traits, one.traits)) for one in runs if metric in one.errors]
        weights, count = _run_weights(there)
        level = confidence * (1.0 + QUANTILE_RAISE / count)
        if level > 1.0:
            return f"{count:.0f} measured servers are too few for a confidence of {100 * confidence:g} %"
        errors = [_grown(one.errors[metric], 1.0 / one.amplified) for one, _ in there]
        times[metric] = max(1.0, 1.0 / (1.0 + _quantile(zip(errors, weights, strict=True), 1.0 - level)))
    later = times["ttft"] / times["itl"] if "ttft" in metrics else 1.0
    return SlowerServer(round(times["itl"], 3), round(max(1.0, later), 3))
