"""What a report says of the step times behind its figures: whose they are, and how far off its means may be."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Final, NamedTuple

from blis_tui.classes import dataclass
from blis_tui.metrics.amplified import amplification
from blis_tui.metrics.expected_error import Expectation, ExpectedError, Seen, expectation
from blis_tui.metrics.measured import measured
from blis_tui.metrics.stats import WHERE_IT_APPLIES
from blis_tui.workload.arrivals import CLOSED_LOOP

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from blis_tui.engine.latency.model import StepTimeModel
    from blis_tui.spec.model import Experiment, Pool, Workload

KNEE: Final = 3.0
"""Where errors of steps grow more than so many times, a load is near what can be served."""
FULL: Final = 0.8
"""Likewise where batches or KV caches were ever fuller than that: slower steps would fill them, and requests wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTime:
    """What the instances of a pool run, and how their steps are timed."""

    model: str
    hardware: str
    tensor_parallel: int
    pipeline_parallel: int | None = field(default=None, metadata=WHERE_IT_APPLIES)
    """Left out where there is one stage."""
    kind: str
    """The step-time model, chosen where the experiment says ``auto``."""
    expected_error_percent: ExpectedError | None = field(default=None, metadata=WHERE_IT_APPLIES)
    """With ``report: full``, of what was compared with servers like that, with the coefficients it has. Otherwise left
    out: later versions know better, and nothing else depends on it."""
    not_measured: Mapping[str, str] | None = field(default=None, metadata=WHERE_IT_APPLIES)
    """Likewise: metric -> why nothing is known of its error."""


def step_times(experiment: Experiment, found: Mapping[str, Expectation] | None = None) -> dict[str, StepTime]:
    """What the figures of each pool rest on, by name; with what is expected of them, where that is to be told."""
    return {
        pool.name: StepTime(
            model=pool.model.name,
            hardware=pool.hardware.name,
            tensor_parallel=pool.tensor_parallel,
            pipeline_parallel=stages if (stages := pool.engine.pipeline_parallel) > 1 else None,
            kind=pool.latency.kind,
            expected_error_percent=None if found is None else found[pool.name].error,
            not_measured=None if found is None else found[pool.name].reasons or None,
        )
        for pool in experiment.pools
    }


class PoolLoad(NamedTuple):
    """What a report says of the load of a pool; what it says of all pools together stands for each."""

    prompt_tokens: float
    """Of a prompt, in the mean."""
    answer_tokens: float
    """Likewise."""
    cached_share: float
    """Of prompt tokens."""
    at_a_time: float
    """Requests that an instance had, waiting or running."""
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
        own: dict[str, float] = {"steps": 0, "busy_us": 0, "decoded_tokens": 0, "running": 0, "kv_share": 0.0}
        for one in members:
            own["steps"] += _figure(one, "steps")
            own["busy_us"] += _figure(one, "busy_us")
            own["decoded_tokens"] += _figure(one, "output_tokens") - _figure(one, "completed")
            own["running"] = max(own["running"], _figure(one, "peak_running"))
            used = _figure(one, "kv.peak_used") / max(1.0, _figure(one, "kv.blocks"))
            own["kv_share"] = max(own["kv_share"], used)
        share = own.pop("kv_share")
        found[pool.name] = whole._replace(**{name: int(value) for name, value in own.items()}, kv_share=share)
    return found


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
    return f"{lost:,} of {total:,} requests were not served (measured: all were)" if lost else ""


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
                at_a_time=load.at_a_time,
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
        return "a load above what can be served, where waits depend on how long it lasts"
    near = "a load near what can be served, where slower steps make requests wait"
    places = pool.engine.max_num_seqs
    if places and load.running > FULL * places:
        return f"{near} (batches of {load.running:,}; max_num_seqs {places:,})"
    if load.kv_share > FULL:
        return f"{near} (a KV cache {100 * load.kv_share:.0f} % full)"
    if amplified > KNEE:
        return f"{near} (1 % longer steps make tokens {amplified:.1f} % later)"
    return ""
