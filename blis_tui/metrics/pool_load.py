"""The expected errors of a run's means, from the load that its report describes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.classes import NamedTuple
from blis_tui.engine.latency.model import StepLoad
from blis_tui.engine.portable_math import ln
from blis_tui.metrics.expected_error import Expectation, ObservedLoad, expectation
from blis_tui.metrics.measured import measured
from blis_tui.metrics.unmeasured import STEP_METRICS
from blis_tui.units import plural
from blis_tui.workload.arrivals import CLOSED_LOOP

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from blis_tui.engine.latency.model import StepTimeModel
    from blis_tui.spec.model import Experiment, Pool, Workload


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
    whole, found, first = _of_all(document), dict[str, PoolLoad](), 0
    for pool in experiment.pools:
        members = _list(document["instances"])[first : first + pool.instances]
        first += pool.instances
        found[pool.name] = _with_members(whole, members)
    return found


def _with_members(load: PoolLoad, members: Sequence[Mapping[str, object]]) -> PoolLoad:
    """Return the load, completed with the figures of a pool's instances."""
    steps = busy_us = decoded = running = 0
    kv_share = 0.0
    for one in members:
        steps += int(_figure(one, "steps"))
        busy_us += int(_figure(one, "busy_us"))
        decoded += int(_figure(one, "output_tokens") - _figure(one, "completed"))
        running = max(running, int(_figure(one, "peak_running")))
        kv_share = max(kv_share, _figure(one, "kv.peak_used") / max(1.0, _figure(one, "kv.blocks")))
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
        overloaded=any(one.get("id") == "overload" for one in _list(document["warnings"])),
        steps=0,
        busy_us=0,
        decoded_tokens=0,
        running=0,
        kv_share=0.0,
        without_mean=tuple(name for name in STEP_METRICS if not _figure(document, f"latency.{name}_ms.mean")),
    )


def _unserved(document: Mapping[str, object]) -> str:
    lost = 0
    for name in ("timed_out", "dropped_unservable", "rejected", "lost"):
        lost += int(_figure(document, f"requests.{name}"))
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
    found = {}
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
        found[pool.name] = expectation(experiment, pool, seen).without(load.without_mean)
    return found


def clients_wait(workload: Workload) -> bool:
    """Return whether every client sends its next request only after the answer to the previous one."""
    return bool(workload.clients) and all(one.arrivals.kind == CLOSED_LOOP for one in workload.clients)


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
