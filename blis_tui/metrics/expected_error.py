"""How far off step times are expected to be: what was measured on servers that are like the simulated ones.

``measured_errors.json`` has, for each step-time model, the errors of a run's means on measured servers
(``benchmarks/accuracy.py`` writes it). Of these, servers that differ in what matters (``DIFFERENT``) count less, all
runs of one server count as one, and the levels of the quantiles are raised as far as so few servers demand. How often
that holds is judged with one server left out at a time: ``benchmarks/accuracy.py --calibration``.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from blis_tui.classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from blis_tui.spec.model import Experiment, Pool

ENGINES: Final[Mapping[str, str]] = {"vllm-v1": "vllm", "tensorrt-llm": "trtllm"}
"""Batching rule -> the measured engine that plans like that."""
_COEFFICIENTS: Final[Mapping[str, str]] = {"vllm": "vllm", "trtllm": "tensorrt-llm"}
"""Measured engine -> whose coefficients of ``operators`` it was judged with."""
LONG_TOKENS: Final = 2048
"""Prompts are told apart by whether they are longer: the measured ones are far from it on either side."""
DIFFERENT: Final[Mapping[str, float]] = {
    "engine": 0.2,
    "gpu": 0.5,
    "family": 0.3,
    "precision": 0.5,
    "tensor_parallel": 0.7,
    "fresh": 0.2,
    "long": 0.5,
    "load": 0.7,
}
"""What a server counts that differs in one of these; in several, the product. Of loads, that of each class between."""
LOADS: Final = ("few", "some", "many")
"""Classes of how many requests an instance has at a time."""
_AT_A_TIME: Final = (8.0, 64.0)
"""The most of the first class, and of the second."""
_AT_LEAST: Final = 0.02
"""What every server counts: so does the whole hold where few are near."""
_MEDIAN: Final = 0.5
_BAND: Final = 0.9
_WIDEST_MEDIAN: Final = 0.98
METRICS: Final = ("e2e", "ttft", "itl")


class Traits(NamedTuple):
    """What matters of a server, and of its load."""

    engine: str
    gpu: str
    family: str
    """``dense``, ``moe`` or ``mla``."""
    precision: str
    """Of the weights, those of routed experts where there are any."""
    tensor_parallel: int
    fresh: bool
    """Whether prompts are computed, and do not come out of the prefix cache again and again."""
    long: bool
    """Whether prompts have more than ``LONG_TOKENS``."""
    load: str = ""
    """Which of ``LOADS``; empty = unknown, as before anything runs: then it does not count."""


class Measured(NamedTuple):
    """One measured run."""

    server: str
    traits: Traits
    errors: Mapping[str, float]
    """Metric -> simulated / measured - 1, of the means."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """The error of one metric, in percent: above 0 where the simulation is slower than the server."""

    median: float
    """Half of the absolute errors are below it."""
    low: float
    """Nine of ten errors lie between this one ..."""
    high: float
    """... and this one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedError:
    """What measured servers that are like the simulated ones let expect of a run's means, in percent."""

    servers: int
    """How many measured servers it rests on; those that are less like them count in part."""
    e2e: Band | None
    ttft: Band | None
    itl: Band | None


class _Known(NamedTuple):
    """What was compared of a step-time model."""

    settings: Mapping[str, object]
    varied: tuple[str, ...]
    runs: tuple[Measured, ...]


@cache
def measured(kind: str) -> _Known | None:
    """What was compared of a step-time model, and with which settings; None = nothing."""
    found = json.loads(Path(__file__).with_name("measured_errors.json").read_text(encoding="utf-8")).get(kind)
    if found is None:
        return None
    runs = (Measured(server, Traits(*traits), errors) for server, traits, errors in found["runs"])
    return _Known(found["settings"], tuple(found["varied"]), tuple(runs))


def expected_error(traits: Traits, runs: Sequence[Measured]) -> ExpectedError:
    """What these runs let expect of another server."""
    bands = {metric: _band(traits, [one for one in runs if metric in one.errors], metric) for metric in METRICS}
    servers = max((count for _, count in bands.values()), default=0.0)
    return ExpectedError(servers=int(servers + 0.5), **{metric: band for metric, (band, _) in bands.items()})


def _weighed(traits: Traits, runs: Sequence[Measured]) -> tuple[list[float], float]:
    """What each run counts, and how many servers that are."""
    of_server: dict[str, int] = {}
    for one in runs:
        of_server[one.server] = of_server.get(one.server, 0) + 1
    weights = [_likeness(traits, one.traits) / of_server[one.server] for one in runs]
    total = squares = 0.0
    shares = dict.fromkeys(of_server, 0.0)
    for one, weight in zip(runs, weights, strict=True):
        shares[one.server] += weight
    for share in shares.values():
        total += share
        squares += share * share
    return weights, total * total / squares


def _band(traits: Traits, runs: Sequence[Measured], metric: str) -> tuple[Band | None, float]:
    """The band of a metric, and how many servers it rests on."""
    if not runs:
        return None, 0.0
    weights, count = _weighed(traits, runs)
    # Another server is one more: of n known ones, the quantile that it is below with this chance lies so much higher.
    more = 1.0 + 1.0 / count
    inside, tail = min(_WIDEST_MEDIAN, _MEDIAN * more), max(0.0, (1.0 - _BAND * more) / 2)
    errors = [one.errors[metric] for one in runs]
    median = _quantile(zip(map(abs, errors), weights, strict=True), inside)
    low, high = (_quantile(zip(errors, weights, strict=True), level) for level in (tail, 1.0 - tail))
    return Band(median=round(median * 100, 1), low=round(low * 100, 1), high=round(high * 100, 1)), count


def _likeness(one: Traits, other: Traits) -> float:
    weight = 1.0
    for (name, cost), mine, theirs in zip(DIFFERENT.items(), one, other, strict=True):
        assert name in Traits._fields  # noqa: S101  (in the same order)
        if name == "load":
            for _ in range(_apart(one.load, other.load)):
                weight *= cost
        elif mine != theirs:
            weight *= cost
    return weight + _AT_LEAST


def _apart(one: str, other: str) -> int:
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


def expectation(
    experiment: Experiment, pool: Pool, prompt_tokens: float, at_a_time: float | None = None
) -> ExpectedError | str:
    """What is expected of a pool's step times; a text = why nothing is known, and what was measured that is nearest.

    Args:
        experiment: what is simulated.
        pool: whose step times.
        prompt_tokens: how long prompts are in the mean.
        at_a_time: how many requests an instance has in the mean, waiting or running; None = that is not known yet.
    """
    found = _comparable(experiment, pool, prompt_tokens, at_a_time)
    return found if isinstance(found, str) else expected_error(*found)


def slower_steps(experiment: Experiment, pool: Pool, prompt_tokens: float, confidence: float) -> float | str:
    """How many times as long a pool's steps take where only ``1 - confidence`` of measured servers were slower.

    From the errors of mean inter-token latencies. At least 1; a text = why that is not known.
    """
    found = _comparable(experiment, pool, prompt_tokens)
    if isinstance(found, str):
        return found
    traits, runs = found[0], [one for one in found[1] if "itl" in one.errors]
    weights, count = _weighed(traits, runs)
    level = confidence * (1.0 + 1.0 / count)
    if level > 1.0:
        return f"{count:.0f} measured servers do not tell what {100 * confidence:g} % of servers are not slower than"
    error = _quantile(((one.errors["itl"], weight) for one, weight in zip(runs, weights, strict=True)), 1.0 - level)
    return max(1.0, round(1.0 / (1.0 + error), 3))


def _comparable(
    experiment: Experiment, pool: Pool, prompt_tokens: float, at_a_time: float | None = None
) -> tuple[Traits, Sequence[Measured]] | str:
    """What matters of a pool, and what its step-time model was compared with; a text = why that says nothing of it."""
    known = measured(pool.latency.kind)
    if known is None:
        return "no error is expected or ruled out: docs/accuracy.md compares it with others"
    traits = traits_of(experiment, pool, prompt_tokens, at_a_time)
    missing = _missing(experiment, pool, traits, known)
    return f"not measured: {missing}; nearest: {_nearest(traits, known.runs)}" if missing else (traits, known.runs)


def _missing(experiment: Experiment, pool: Pool, traits: Traits, known: _Known) -> str:
    """What no measured server has; empty = nothing."""
    if not traits.engine:
        rules = ", ".join(f"`{rule}`" for rule in ENGINES)
        return f"`{experiment.policy.batching.kind}` batching (measured: {rules})"
    if pool.engine.enforce_eager:
        return "`enforce_eager` (measured: CUDA graphs)"
    if pool.engine.expert_parallel:
        return "`engine.expert_parallel` (measured: experts of one instance, `latency.expert_parallel`)"
    expected = {**known.settings, "engine": _COEFFICIENTS[traits.engine]}
    for name, own in pool.latency.settings.items():
        value = list(own) if isinstance(own, tuple) else own
        if name not in known.varied and value != expected.get(name):
            return f"{name} {value} beside this engine and these step times"
    for name, noun in (("engine", "engine"), ("gpu", "GPU"), ("family", "family")):
        there = dict.fromkeys(str(getattr(one.traits, name)) for one in known.runs)
        if (mine := getattr(traits, name)) not in there:
            return f"{noun} {mine} (measured: {', '.join(there)})"
    return ""


def _nearest(traits: Traits, runs: Sequence[Measured]) -> str:
    """The measured server that is most like that; the first of several."""
    return max(runs, key=lambda one: _likeness(traits, one.traits)).server


def traits_of(experiment: Experiment, pool: Pool, prompt_tokens: float, at_a_time: float | None = None) -> Traits:
    """What matters of a pool's instances, and of what they are asked: prompts of so many tokens, so many at a time."""
    model, workload = pool.model, experiment.workload
    weight = (model.expert_weight_bytes or model.weight_bytes) if model.num_experts else model.weight_bytes
    family = "mla" if model.kv_lora_rank else "moe" if model.num_experts else "dense"
    return Traits(
        engine=ENGINES.get(experiment.policy.batching.kind, ""),
        gpu=pool.hardware.name,
        family=family,
        precision="fp4" if weight < 1.0 else "fp8" if weight < 2.0 else "bf16",
        tensor_parallel=pool.tensor_parallel,
        fresh=not any(client.repeated_prompts for client in workload.clients),
        long=prompt_tokens > LONG_TOKENS,
        load="" if at_a_time is None else LOADS[bisect_left(_AT_A_TIME, at_a_time)],
    )
