"""How far off the means of a run are expected to be, by what its report says of the load."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.classes import NamedTuple
from blis_tui.engine.latency.model import StepLoad
from blis_tui.engine.portable_math import ln
from blis_tui.metrics.expected_error import Expectation, Seen, expectation
from blis_tui.metrics.measured import measured
from blis_tui.units import plural
from blis_tui.workload.arrivals import CLOSED_LOOP

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from blis_tui.engine.latency.model import StepTimeModel
    from blis_tui.spec.model import Experiment, Pool, Workload


KNEE: Final = 3.0
"""Where errors of steps grow more than so many times, a load is near what can be served."""
FULL: Final = 0.8
"""Likewise where batches or KV caches were ever fuller than that: slower steps would fill them, and requests wait."""


class PoolLoad(NamedTuple):
    """What a report says of the load of a pool; what it says of all pools together stands for each."""

    prompt_tokens: float
    """Of a prompt, in the mean."""
    answer_tokens: float
    """Likewise."""
    cached_share: float
    """Of prompt tokens."""
    at_a_time: float
    """Requests that an instance had, waiting or running; steps serve no more of them than ``max_num_seqs``."""
    ttft_share: float | None
    """Of the mean E2E, that is TTFT."""
    unserved: str
    """What became of requests that is in no measured mean; empty = all were served."""
    overloaded: bool
    """Whether the report warns of that."""
    steps: int
    busy_us: int
    decoded_tokens: int
    running: int
    """In the largest batch."""
    kv_share: float
    """Of the KV blocks of an instance, at the peak."""


def pool_loads(experiment: Experiment, document: Mapping[str, object]) -> dict[str, PoolLoad]:
    """The load of each pool.

    Args:
        experiment: what was simulated.
        document: its report, as JSON has it.
    """
    whole, found, first = _of_all(document), dict[str, PoolLoad](), 0
    for pool in experiment.pools:
        members = _list(document["instances"])[first : first + pool.instances]
        first += pool.instances
        found[pool.name] = _with_members(whole, members)
    return found


def _with_members(load: PoolLoad, members: Sequence[Mapping[str, object]]) -> PoolLoad:
    """With what the instances of a pool did."""
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
    """What is said of all pools together."""
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
    )


def _unserved(document: Mapping[str, object]) -> str:
    lost = 0
    for name in ("timed_out", "dropped_unservable", "rejected", "lost"):
        lost += int(_figure(document, f"requests.{name}"))
    total = int(_figure(document, "requests.total"))
    return f"{lost:,} of {plural(total, 'request')} were not served (measured: all were)" if lost else ""


def _figure(document: Mapping[str, object], path: str) -> float:
    """A figure of a report; 0 where it has none."""
    value: object = document
    for step in path.split("."):
        value = value.get(step) if isinstance(value, dict) else None
    return float(value) if isinstance(value, int | float) else 0.0


def _list(value: object) -> list[dict[str, object]]:
    """A list of a report."""
    return value if isinstance(value, list) else []


def expectations(
    experiment: Experiment, loads: Mapping[str, PoolLoad], model_of: Callable[[Pool], StepTimeModel]
) -> dict[str, Expectation]:
    """What is expected of the means of a run, for each pool.

    Args:
        experiment: what was simulated.
        loads: of its pools.
        model_of: makes a pool's step-time model, where it is needed.
    """
    found = {}
    for pool in experiment.pools:
        load, seen = loads[pool.name], Seen(0.0)
        if measured(pool.latency.kind) is not None:
            waits = clients_wait(experiment.workload)
            amplified = 1.0 if waits else amplified_in(load, model_of(pool))
            seen = Seen(
                prompt_tokens=load.prompt_tokens,
                answer_tokens=load.answer_tokens,
                cached_share=load.cached_share,
                at_a_time=min(load.at_a_time, pool.engine.max_num_seqs or load.at_a_time),
                ttft_share=load.ttft_share,
                amplified=amplified,
                strained=load.unserved or ("" if waits else strained(pool, load, amplified)),
            )
        found[pool.name] = expectation(experiment, pool, seen)
    return found


def clients_wait(workload: Workload) -> bool:
    """Whether all clients send their next request when they have the answer to the one before."""
    return bool(workload.clients) and all(one.arrivals.kind == CLOSED_LOOP for one in workload.clients)


def amplified_in(load: PoolLoad, model: StepTimeModel) -> float:
    """How many times errors of steps are in inter-token latencies under that load, if clients do not wait."""
    return amplification(
        model,
        steps=load.steps,
        busy_us=load.busy_us,
        decoded_tokens=load.decoded_tokens,
        context_tokens=load.prompt_tokens + load.answer_tokens / 2,
    )


def strained(pool: Pool, load: PoolLoad, amplified: float) -> str:
    """Why small errors of steps would change waits a lot."""
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


# By how much an error of step times grows under a load that does not wait for its answers.
#
# Where requests come whatever becomes of others, longer steps mean more requests at a time, and more requests make
# longer steps still. Let a step take ``s D(N) + s λ T p``: the decode of ``N`` requests, and the prompts that come
# while it lasts, all of it in error by the factor ``s``. By Little's law ``N`` is proportional to the step's duration
# ``T``, so
#
# d ln T / d ln s = 1 / ((1 - λ p) (1 - ε)), ε = d ln D / d ln N
#
# ``λ p`` is the share of the time that goes to prompts; all that is in the formula is known after a run. Users of a
# closed loop wait: their number is given, and errors do not grow. ``benchmarks/amplified.py`` compares the formula
# with runs of faster and slower steps.

_APART: Final = 1.25
"""Batches so many times larger and smaller show how a step's duration grows."""
MOST: Final = 99.0
"""What is said where there is no end to it."""


def amplification(
    model: StepTimeModel, *, steps: int, busy_us: int, decoded_tokens: int, context_tokens: float
) -> float:
    """How many times a small relative error of steps is in the mean inter-token latency; at least 1.

    Args:
        model: of the steps.
        steps: how many there were.
        busy_us: what they took.
        decoded_tokens: what they generated, first tokens apart.
        context_tokens: of a request that decodes, in the mean.
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
    """What a step takes that decodes for a mean number of requests."""
    below = int(requests)
    share = requests - below
    ends = [model.step_time_us(StepLoad([], size, int(size * context_tokens))) for size in (below, below + 1)]
    return (1.0 - share) * ends[0] + share * ends[1]
