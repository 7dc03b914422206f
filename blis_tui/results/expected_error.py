"""The expected error of a run's means, from the errors seen on measured servers under a like load.

All measured runs (``results.measured``) contribute. Servers that differ in relevant traits (``DIFFERENT``) weigh less,
all runs of one server together weigh as much as one, and the levels of the quantiles are raised to allow for the small
number of servers. Errors are converted to errors of step times: those of runs whose load amplified them
(``itl_amplification``) are reduced accordingly, and the result is amplified as in the simulated run. The E2E error
follows from both: each measured run's TTFT and ITL errors are applied to this run's TTFT and decode shares. If no
server with the same engine, and prompts as fresh, has the same tensor parallelism or size of the model, the errors are
those of servers whose value of that trait was left out of the fit, too.
``benchmarks/accuracy.py --calibration`` checks how often the bands hold, leaving out one server at a time.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import NamedTuple, dataclass
from blis_tui.base.portable_math import ln, power, whole_sum
from blis_tui.base.units import plural
from blis_tui.engine.latency.model import StepLoad
from blis_tui.results.measured import (
    CACHED_SHARE,
    LEFT_OUT,
    LOADS,
    STEP_METRICS,
    TWICE,
    WAIT_METRICS,
    measured,
    medians,
    nearest,
    server_reason,
    traits_of,
    unmeasured,
    unseen,
)
from blis_tui.workload.arrivals import CLOSED_LOOP

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from blis_tui.engine.latency.model import StepTimeModel
    from blis_tui.model import Experiment, Pool, Workload
    from blis_tui.results.measured import Known, Measured, ServerTraits


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
    return _with_unseen(error_bands(traits, known.runs, seen, reasons), experiment, pool)


def _with_unseen(expected: Expectation, experiment: Experiment, pool: Pool) -> Expectation:
    """Add to the reasons how far servers of the same family and rule were off that no fit has seen."""
    servers = unseen(pool.latency.kind, experiment.policy.batching.kind, pool.model)
    if servers is None:
        return expected
    about = (
        f"no fit has seen {servers.servers}, which was {servers.ttft:g} % off in TTFT and {servers.itl:g} % in ITL"
        f" (medians of {plural(servers.runs, 'run')})"
    )
    return expected._replace(reasons={name: f"{reason}; {about}" for name, reason in expected.reasons.items()})


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
    names = dict.fromkeys(name for metric in metrics for name in (("ttft", "itl") if metric == "e2e" else (metric,)))
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
    traits: ServerTraits, runs: Sequence[Measured], seen: ObservedLoad, reasons: Mapping[str, str] | None = None
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
            (run, like)
            for run, like in zip(runs, likeness[weighed_by], strict=True)
            if all(name in run.errors for name in needed)
        ]
        if metric not in why and max((like for _, like in there), default=0.0) < MIN_NEAR_WEIGHT:
            why[metric] = "no server similar to this one"
        if metric in why or (metric == "e2e" and seen.ttft_share is None):
            continue
        bands[metric] = _band([_error(run, metric, seen) for run, _ in there], *_run_weights(there))
    near = nearest(measured_runs, _likenesses("itl", traits, measured_runs)) if why else ""
    return Expectation(bands, {name: f"{reason}; nearest: {near}" for name, reason in why.items()})


def as_new(traits: ServerTraits, runs: Sequence[Measured]) -> Sequence[Measured]:
    """Return measured runs with the errors that they would have had if they had been as new to the fit as a server.

    Which way they would have been off depends on what one takes for coefficients that nothing tells, so that each
    counts with both signs. Traits in which the server is new do not make servers less like it: their errors do.

    Args:
        traits: the server's traits.
        runs: measured runs of others. If the server is new, those that were not simulated as if they were, and those
            of the other kind of prompts (fresh, or cached), say nothing of it.
    """
    like = [run.traits for run in runs if (run.traits.engine, run.traits.fresh) == (traits.engine, traits.fresh)]
    new = [
        name
        for name in LEFT_OUT
        if getattr(traits, name) not in {getattr(server_traits, name) for server_traits in like}
    ]
    if not new:
        return runs
    shared = {name: getattr(traits, name) for name in new}
    counted: list[Measured] = []
    for run in runs:
        if run.traits.fresh == traits.fresh and all(name in run.without for name in new):
            errors = _largest([run.errors, *(run.without[name] for name in new)])
            mirrored = {metric: 1.0 / (1.0 + error) - 1.0 for metric, error in errors.items()}
            as_like = run._replace(traits=run.traits._replace(**shared))
            counted += [as_like._replace(errors=errors), as_like._replace(errors=mirrored)]
    return counted


def _largest(errors: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return, of each metric, the error that is farthest off."""
    return {metric: max((error[metric] for error in errors), key=abs) for metric in errors[0]}


def _error(run: Measured, metric: str, seen: ObservedLoad) -> float:
    """Return the error of a metric here if step times had the same error as in that run."""
    if metric != "e2e":
        return _grown(run.errors[metric], seen.amplified / run.amplified)
    share = seen.ttft_share or 0.0
    first, rest = _error(run, "ttft", seen), _error(run, "itl", seen)
    return 1.0 / (share / (1.0 + first) + (1.0 - share) / (1.0 + rest)) - 1.0


def _grown(error: float, times: float) -> float:
    """Return an error whose logarithm is ``times`` as large."""
    return error if times == 1.0 else power(1.0 + error, times) - 1.0


def _run_weights(there: Sequence[tuple[Measured, float]]) -> tuple[list[float], float]:
    """Return the weight of each run by its likeness, and the effective number of servers (Kish)."""
    of_server: dict[str, int] = {}
    for run, _ in there:
        of_server[run.server] = of_server.get(run.server, 0) + 1
    weights = [(like + _AT_LEAST) / of_server[run.server] for run, like in there]
    total = squares = 0.0
    shares = dict.fromkeys(of_server, 0.0)
    for (run, _), weight in zip(there, weights, strict=True):
        shares[run.server] += weight
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


def _likenesses(metric: str, traits: ServerTraits, runs: Sequence[Measured]) -> list[float]:
    """Return the likeness of each run, computed once for runs with equal traits."""
    of = {other: _likeness(metric, traits, other) for other in dict.fromkeys(run.traits for run in runs)}
    return [of[run.traits] for run in runs]


def _likeness(metric: str, server_traits: ServerTraits, other: ServerTraits) -> float:
    """Return the weight of a server from its likeness to another one, at most 1."""
    weight = 1.0
    for (name, cost), mine, theirs in zip(DIFFERENT[metric].items(), server_traits, other, strict=True):
        assert name in server_traits._fields  # noqa: S101  (both lists have the same order)
        if mine == theirs:
            continue
        times = 1
        if name == "load":
            times = _classes_apart(server_traits.load, other.load)
        elif name == "tensor_parallel":
            times = abs((server_traits.tensor_parallel - 1).bit_length() - (other.tensor_parallel - 1).bit_length())
        for _ in range(times):
            weight *= cost
    return weight


def _classes_apart(load: str, other: str) -> int:
    """Return how many load classes lie between two classes; 0 if one is unknown."""
    return abs(LOADS.index(load) - LOADS.index(other)) if load and other else 0


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
    expected = expectation(experiment, pool, seen)
    reason = next((expected.reasons[name] for name in ("itl", *metrics) if name in expected.reasons), "")
    if reason or known is None:
        return f"nothing like it was measured: {reason}"
    traits = traits_of(
        experiment, pool, prompt_tokens=seen.prompt_tokens, cached_share=seen.cached_share, at_a_time=seen.at_a_time
    )
    times, runs = {}, as_new(traits, known.runs)
    for metric in ("itl", "ttft"):
        there = [(run, _likeness(metric, traits, run.traits)) for run in runs if metric in run.errors]
        weights, count = _run_weights(there)
        level = confidence * (1.0 + QUANTILE_RAISE / count)
        if level > 1.0:
            return f"{count:.0f} measured servers are too few for a confidence of {100 * confidence:g} %"
        errors = [_grown(run.errors[metric], 1.0 / run.amplified) for run, _ in there]
        times[metric] = max(1.0, 1.0 / (1.0 + _quantile(zip(errors, weights, strict=True), 1.0 - level)))
    later = times["ttft"] / times["itl"] if "ttft" in metrics else 1.0
    return SlowerServer(round(times["itl"], 3), round(max(1.0, later), 3))


KNEE: Final = 3.0
"""Amplification of step-time errors above which a load is near what can be served."""
FULL: Final = 0.8
"""Batch or KV cache occupancy above which slower steps would fill them, so that requests wait."""


class PoolLoad(NamedTuple):
    """The load of a pool, from the report; figures that exist only for all pools together apply to each."""

    prompt_tokens: float
    """Mean prompt length."""
    answer_tokens: float
    """Mean answer length."""
    cached_share: float
    """Share of prompt tokens found in the prefix cache."""
    at_a_time: float
    """Requests waiting or running per instance, on average; steps serve at most ``max_num_seqs`` of them."""
    ttft_share: float | None
    """Share of TTFT in the mean E2E."""
    unserved: str
    """Outcome of requests that no measured mean includes; empty = all were served."""
    overloaded: bool
    """Whether the report warns of overload."""
    steps: int
    busy_us: int
    decoded_tokens: int
    running: int
    """Requests in the largest batch."""
    kv_share: float
    """Peak share of an instance's KV blocks in use."""
    without_mean: tuple[str, ...] = ()
    """Metrics of which the run has no mean, because no request completed or all answers have one token."""


def pool_loads(experiment: Experiment, document: Mapping[str, object]) -> dict[str, PoolLoad]:
    """Return the load of each pool.

    Args:
        experiment: the simulated experiment.
        document: its report as plain data.
    """
    whole, loads, first = _of_all(document), dict[str, PoolLoad](), 0
    for pool in experiment.pools:
        members = _list(document["instances"])[first : first + pool.instances]
        first += pool.instances
        loads[pool.name] = _with_members(whole, members)
    return loads


def _with_members(load: PoolLoad, members: Sequence[Mapping[str, object]]) -> PoolLoad:
    """Return the load, completed with the figures of a pool's instances."""
    steps = busy_us = decoded = running = 0
    kv_share = 0.0
    for member in members:
        steps += int(_figure(member, "steps"))
        busy_us += int(_figure(member, "busy_us"))
        decoded += int(_figure(member, "output_tokens") - _figure(member, "completed"))
        running = max(running, int(_figure(member, "peak_running")))
        kv_share = max(kv_share, _figure(member, "kv.peak_used") / max(1.0, _figure(member, "kv.blocks")))
    return load._replace(steps=steps, busy_us=busy_us, decoded_tokens=decoded, running=running, kv_share=kv_share)


def _of_all(document: Mapping[str, object]) -> PoolLoad:
    """Return the load of all pools together."""
    total, completed = (max(1.0, _figure(document, f"requests.{name}")) for name in ("total", "completed"))
    e2e_ms, ttft_ms = (_figure(document, f"latency.{name}.mean") for name in ("e2e_ms", "ttft_ms"))
    present_us = 1e3 * e2e_ms * _figure(document, "requests.completed")
    duration_us, instances = max(1.0, _figure(document, "duration_us")), len(_list(document["instances"]))
    tokens = {name: _figure(document, f"tokens.{name}") for name in ("input", "output", "cached")}
    return PoolLoad(
        prompt_tokens=tokens["input"] / total,
        answer_tokens=tokens["output"] / completed,
        cached_share=tokens["cached"] / max(1.0, tokens["input"]),
        at_a_time=present_us / duration_us / max(1, instances),
        ttft_share=min(1.0, ttft_ms / e2e_ms) if e2e_ms else None,
        unserved=_unserved(document),
        overloaded=any(warning.get("id") == "overload" for warning in _list(document["warnings"])),
        steps=0,
        busy_us=0,
        decoded_tokens=0,
        running=0,
        kv_share=0.0,
        without_mean=tuple(name for name in STEP_METRICS if not _figure(document, f"latency.{name}_ms.mean")),
    )


def _unserved(document: Mapping[str, object]) -> str:
    lost = whole_sum(
        [int(_figure(document, f"requests.{name}")) for name in ("timed_out", "dropped_unservable", "rejected", "lost")]
    )
    total = int(_figure(document, "requests.total"))
    verb = "was" if lost == 1 else "were"
    return f"{lost:,} of {plural(total, 'request')} {verb} not served (measured: all were)" if lost else ""


def _figure(document: Mapping[str, object], path: str) -> float:
    """Return a figure of a report; 0 if it has none."""
    value: object = document
    for step in path.split("."):
        value = value.get(step) if isinstance(value, dict) else None
    return float(value) if isinstance(value, int | float) else 0.0


def _list(value: object) -> list[dict[str, object]]:
    """Return a list of a report; empty if it is none."""
    return value if isinstance(value, list) else []


def expectations(
    experiment: Experiment, loads: Mapping[str, PoolLoad], model_of: Callable[[Pool], StepTimeModel]
) -> dict[str, Expectation]:
    """Return the expected errors of a run's means, for each pool.

    Args:
        experiment: the simulated experiment.
        loads: the load of each pool.
        model_of: builds a pool's step-time model when needed.
    """
    expected = {}
    for pool in experiment.pools:
        load, seen = loads[pool.name], ObservedLoad(0.0)
        if measured(pool.latency.kind) is not None:
            waits = clients_wait(experiment.workload)
            amplified = 1.0 if waits else itl_amplification(load, model_of(pool))
            seen = ObservedLoad(
                prompt_tokens=load.prompt_tokens,
                answer_tokens=load.answer_tokens,
                cached_share=load.cached_share,
                at_a_time=min(load.at_a_time, pool.engine.max_num_seqs or load.at_a_time),
                ttft_share=load.ttft_share,
                amplified=amplified,
                strained=load.unserved or ("" if waits else strained(pool, load, amplified)),
            )
        expected[pool.name] = expectation(experiment, pool, seen).without(load.without_mean)
    return expected


def clients_wait(workload: Workload) -> bool:
    """Return whether every client sends its next request only after the answer to the previous one."""
    return bool(workload.clients) and all(client.arrivals.kind == CLOSED_LOOP for client in workload.clients)


def itl_amplification(load: PoolLoad, model: StepTimeModel) -> float:
    """Return the factor by which the load amplifies step-time errors in ITL, if clients do not wait."""
    return amplification(
        model,
        steps=load.steps,
        busy_us=load.busy_us,
        decoded_tokens=load.decoded_tokens,
        context_tokens=load.prompt_tokens + load.answer_tokens / 2,
    )


def strained(pool: Pool, load: PoolLoad, amplified: float) -> str:
    """Return why small errors of step times would change waits a lot; empty if they would not."""
    if load.overloaded:
        return "a load above capacity, where waits depend on how long it lasts"
    near = "a load near capacity, where slower steps make requests wait"
    places = pool.engine.max_num_seqs
    if places and load.running > FULL * places:
        return f"{near} (batches of {load.running:,}; max_num_seqs {places:,})"
    if load.kv_share > FULL:
        return f"{near} (a KV cache {100 * load.kv_share:.0f} % full)"
    if amplified > KNEE:
        return f"{near} (steps 1 % longer make ITL {amplified:.1f} % longer)"
    return ""


# Amplification of step-time errors under a load that does not wait for its answers.
#
# If requests arrive regardless of others, longer steps mean more requests at a time, and more requests make steps
# longer still. Let a step take ``s D(N) + s λ T p``: the decode of ``N`` requests, plus the prompts that arrive during
# the step, all wrong by the factor ``s``. By Little's law ``N`` is proportional to the step's duration ``T``, so
#
# d ln T / d ln s = 1 / ((1 - λ p) (1 - ε)), ε = d ln D / d ln N
#
# ``λ p`` is the share of the time spent on prompts; all quantities are known after a run. In a closed loop the number
# of users is fixed, so errors are not amplified. ``benchmarks/amplified.py`` compares the formula with runs of faster
# and slower steps.

_APART: Final = 1.25
"""Factor between the two batch sizes from which the growth of a step's duration is estimated."""
MOST: Final = 99.0
"""Value used if the amplification has no bound."""


def amplification(
    model: StepTimeModel, *, steps: int, busy_us: int, decoded_tokens: int, context_tokens: float
) -> float:
    """Return the factor by which a small relative error of step times grows in the mean ITL; at least 1.

    Args:
        model: the step-time model.
        steps: number of steps.
        busy_us: total duration of the steps.
        decoded_tokens: tokens generated, without first tokens.
        context_tokens: mean context length of a decoding request.
    """
    if not steps or not busy_us or not decoded_tokens:
        return 1.0
    batch = max(1.0, decoded_tokens / steps)
    larger, smaller = _APART * batch, max(1.0, batch / _APART)
    decode_us, longer_us, shorter_us = (_decode_us(model, size, context_tokens) for size in (batch, larger, smaller))
    prompts = min(1.0, max(0.0, 1.0 - steps * decode_us / busy_us))
    growth = max(0.0, ln(longer_us / shorter_us) / ln(larger / smaller))
    left = (1.0 - prompts) * (1.0 - growth)
    return MOST if left * MOST <= 1.0 else 1.0 / left


def _decode_us(model: StepTimeModel, requests: float, context_tokens: float) -> float:
    """Return the duration of a step that decodes a fractional number of requests, by interpolation."""
    below = int(requests)
    share = requests - below
    ends = [model.step_time_us(StepLoad([], size, int(size * context_tokens))) for size in (below, below + 1)]
    return (1.0 - share) * ends[0] + share * ends[1]
