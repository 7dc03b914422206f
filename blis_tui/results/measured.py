"""Measured servers with the simulation's errors for each, and properties that none of them had.

For each step-time model, ``measured_errors.json`` has the errors of a run's means on measured servers, and
``median_errors.json`` the medians by GPU. The coefficients
for each server were fitted without it (``benchmarks/leave_out.py`` fits them, ``benchmarks/accuracy.py`` writes the
file). The errors thus tell what to expect of a server that was not measured.

Properties of an experiment that no measured server had, for which measured errors say nothing.

There are two kinds. The duration of steps determines ITL, and through it everything else: whatever changes the kind of
steps (adapters, drafts, tiers, a pipeline) leaves no error known. The way in which requests reach their steps
(admission, routing, queue order, instances that come and go) affects TTFT and E2E only: steps are composed alike, so
the error of ITL is still known.

Each measured server was a single instance that served all arrivals first come, first served. Several equal instances
count as several such servers if the router ignores their state (round-robin). A router that considers it decides
differently if step times are wrong, and no cluster was measured.
"""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from blis_tui.base.classes import NamedTuple
from blis_tui.engine.kv.capacity import parameters
from blis_tui.model.defaults import CHAT, host_us, kernels
from blis_tui.model.machine import MXFP4_BYTES, NVFP4_BYTES
from blis_tui.workload.arrivals import CLOSED_LOOP

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from blis_tui.model import Client, Experiment, Model, Pool


ENGINES: Final[Mapping[str, str]] = {"vllm-v1": "vllm", "tensorrt-llm": "trtllm"}
"""Batching rule -> the measured engine with that rule."""
LONG_TOKENS: Final = 2048
"""Prompts are classified by whether they are longer; all measured ones are well above or below."""
LOADS: Final = ("few", "some", "many")
"""Classes of the number of requests per instance."""
_AT_A_TIME: Final = (8.0, 64.0)
"""Upper bounds of the first and the second class."""
SIZES: Final = ("below 4B", "4B to 16B", "16B to 64B", "64B to 90B", "90B to 256B", "above 256B")
"""Classes of the number of a model's parameters, of the experts all."""
_BILLIONS: Final = (4.0, 16.0, 64.0, 90.0, 256.0)
"""Upper bounds of the classes but the last, excluded. 70B and 109B are apart, so that each can be left out."""
LEFT_OUT: Final = ("tensor_parallel", "size")
"""Traits whose measured values are also left out of the fit one by one, to know the errors of servers with another one.
"""
CACHED_SHARE: Final = (0.05, 0.9)
"""Prompts are fresh up to the first share of cached tokens, and cached from the second one on. None were measured
between."""


class ServerTraits(NamedTuple):
    """The traits of a server, and of its load, that affect errors."""

    engine: str
    gpu: str
    family: str
    """``dense``, ``moe`` or ``mla``."""
    precision: str
    """Precision of the weights; of the routed experts if there are any."""
    kv_cache: str
    """Precision of the KV cache: ``fp8``, or ``bf16`` for any 16-bit format."""
    tensor_parallel: int
    fresh: bool
    """Whether prompts are computed, instead of being found in the prefix cache again and again."""
    long: bool
    """Whether prompts are longer than ``LONG_TOKENS``."""
    size: str
    """One of ``SIZES``."""
    load: str = ""
    """One of ``LOADS``; empty = unknown (before a run), in which case it is ignored."""


class Measured(NamedTuple):
    """One measured run."""

    server: str
    traits: ServerTraits
    errors: Mapping[str, float]
    """Metric -> simulated / measured - 1, of the means, with coefficients fitted without the server. TTFT is missing if
    the load was near the server's capacity, because then its error is one of waits instead of step times."""
    amplified: float
    """Factor by which the load amplified errors of step times: see ``itl_amplification``."""
    trust: str
    """The authors' rating of the measurement; empty = none given."""
    ttft_share: float
    """Measured share of TTFT in E2E."""
    without: Mapping[str, Mapping[str, float]] = {}
    """Trait of ``LEFT_OUT`` -> the errors with coefficients fitted without any server that has this one's value of it.
    Not all runs have been simulated so."""

    @property
    def e2e_error(self) -> float | None:
        """The error of E2E, the sum of TTFT and decode time."""
        if "ttft" not in self.errors:
            return None
        first, rest = (1.0 + self.errors[metric] for metric in ("ttft", "itl"))
        return self.ttft_share * first + (1.0 - self.ttft_share) * rest - 1.0


class Known(NamedTuple):
    """The measurements available for a step-time model, and the settings they cover."""

    settings: Mapping[str, object]
    varied: tuple[str, ...]
    coefficients: Mapping[str, str]
    """Measured engine -> the coefficients used to judge it."""
    batching: Mapping[str, Mapping[str, tuple[object, ...]]]
    """Measured engine -> setting of its batching rule -> the simulated values."""
    hardware: Mapping[str, Mapping[str, float]]
    """GPU -> the figures of its document that determine step times and KV blocks."""
    limits: Mapping[str, tuple[int, int]]
    """Engine limit -> its smallest and its largest value on the measured servers."""
    most_tokens: int
    """Largest mean length of a request, prompt and answer together."""
    least_at_a_time: float
    """Smallest mean number of requests at a time on a server."""
    most_at_a_time: float
    """Largest mean number of requests at a time on a server."""
    runs: tuple[Measured, ...]


@cache
def _read(name: str) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", json.loads(Path(__file__).with_name(name).read_text("utf-8")))


def medians(kind: str) -> Mapping[str, Mapping[str, float]]:
    """Return a step-time model's median errors on measured vLLM servers: GPU -> metric -> percent."""
    errors: Mapping[str, Mapping[str, float]] = _read("median_errors.json").get(kind, {})
    return errors


class Unseen(NamedTuple):
    """Measured servers of a kind that no fit has seen, and of which too few were measured to quote a band of errors."""

    servers: str
    """Models and GPUs."""
    runs: int
    ttft: float
    """Median absolute error of the mean TTFT in percent."""
    itl: float
    """The same of ITL."""


def unseen(kind: str, batching: str, model: Model) -> Unseen | None:
    """Return the unseen servers of a model's family with a batching rule; None = there are none.

    Args:
        kind: the step-time model; ``operators`` alone was compared with them.
        batching: the batching rule.
        model: the model; those whose layers have a state are a family of their own.
    """
    family = "linear" if model.linear is not None else family_of(model)
    entry = _read("unseen_errors.json").get(f"{family}, {batching}") if kind == COMPARED_WITH_UNSEEN else None
    return None if entry is None else Unseen(**entry)


COMPARED_WITH_UNSEEN: Final = "operators"


def family_of(model: Model) -> str:
    """Return a model's family: ``dense``, ``moe`` or ``mla``."""
    return "mla" if model.kv_lora_rank else "moe" if model.num_experts else "dense"


@cache
def measured(kind: str) -> Known | None:
    """Return the measurements of a step-time model; None if there are none."""
    document = _read("measured_errors.json").get(kind)
    if document is None:
        return None
    runs = (Measured(server, ServerTraits(*traits), *rest) for server, traits, *rest in document["runs"])
    return Known(
        settings=document["settings"],
        varied=tuple(document["varied"]),
        coefficients=document["coefficients"],
        batching={
            engine: {name: tuple(values) for name, values in settings.items()}
            for engine, settings in document["batching"].items()
        },
        hardware=document["hardware"],
        limits={name: (low, high) for name, (low, high) in document["limits"].items()},
        most_tokens=document["most_tokens"],
        least_at_a_time=document["least_at_a_time"],
        most_at_a_time=document["most_at_a_time"],
        runs=tuple(runs),
    )


def traits_of(
    experiment: Experiment, pool: Pool, *, prompt_tokens: float, cached_share: float, at_a_time: float | None = None
) -> ServerTraits:
    """Return the traits of a pool's instances and of their load.

    Args:
        experiment: the simulated experiment.
        pool: the pool.
        prompt_tokens: mean prompt length.
        cached_share: share of prompt tokens found in the prefix cache.
        at_a_time: requests per instance; None = not known.
    """
    model = pool.model
    weight = (model.expert_weight_bytes or model.weight_bytes) if model.num_experts else model.weight_bytes
    return ServerTraits(
        engine=ENGINES.get(experiment.policy.batching.kind, ""),
        gpu=pool.hardware.name,
        family=family_of(model),
        precision=_precision(weight),
        kv_cache="fp8" if model.kv_cache_bytes < 2.0 else "bf16",
        tensor_parallel=pool.tensor_parallel,
        fresh=cached_share <= CACHED_SHARE[0],
        long=prompt_tokens > LONG_TOKENS,
        size=SIZES[bisect_right(_BILLIONS, parameters(model) / 1e9)],
        load="" if at_a_time is None else LOADS[bisect_left(_AT_A_TIME, at_a_time)],
    )


def _precision(weight_bytes: float) -> str:
    """Return the precision of weights; of 4 bits, MXFP4 alone was measured."""
    if weight_bytes < 1.0:
        return {MXFP4_BYTES: "fp4", NVFP4_BYTES: "nvfp4"}.get(weight_bytes, f"{8 * weight_bytes:g} bits")
    return "fp8" if weight_bytes < 2.0 else "bf16"


def nearest(runs: Sequence[Measured], likeness: Sequence[float]) -> str:
    """Return the measured server with the highest likeness; the first one in case of a tie."""
    return runs[max(range(len(runs)), key=likeness.__getitem__)].server


STEP_METRICS: Final = ("ttft", "itl", "e2e")
"""Metrics without a known error if steps are of another kind."""
WAIT_METRICS: Final = ("ttft", "e2e")
"""Metrics without a known error if requests reach their steps in another way."""


class MeasuredSetting(NamedTuple):
    """A key of an experiment, and its value on the measured servers."""

    key: str
    measured: object
    spoils: tuple[str, ...]
    """The metrics whose error is not known with another value."""
    attribute: str = ""
    """The attribute of the record that holds the value, if not the key."""

    def reason(self, record: object) -> str:
        """Return the property that no measured server had; empty if there is none."""
        value = attrgetter(self.attribute or self.key)(record)
        if value == self.measured:
            return ""
        if not isinstance(value, bool | int | float | str):
            return f"`{self.key}` (measured: without it)"
        return f"`{self.key}: {_value_text(value)}` (measured: {_value_text(self.measured)})"


OF_EXPERIMENT: Final = (
    MeasuredSetting("cluster.disaggregation", None, STEP_METRICS),
    MeasuredSetting("cluster.failures", (), STEP_METRICS),
    MeasuredSetting("policy.preemption.restore", "recompute", STEP_METRICS, "policy.preemption_restore"),
    MeasuredSetting("policy.admission", "always-admit", WAIT_METRICS, "policy.admission.kind"),
    MeasuredSetting("policy.scheduling", "fcfs", WAIT_METRICS, "policy.scheduling.kind"),
    MeasuredSetting("policy.preemption.victim", "tail", WAIT_METRICS, "policy.preemption_victim"),
    MeasuredSetting("policy.preemption.recompute", None, WAIT_METRICS, "policy.preemption_recompute"),
    MeasuredSetting("policy.tenant_budgets", None, WAIT_METRICS),
    MeasuredSetting("policy.deferral", "none", WAIT_METRICS),
    MeasuredSetting("policy.gateway", None, WAIT_METRICS),
    MeasuredSetting("cluster.admission_latency_us", 0, WAIT_METRICS),
    MeasuredSetting("cluster.routing_latency_us", 0, WAIT_METRICS),
    MeasuredSetting("cluster.lifecycle", None, WAIT_METRICS),
    MeasuredSetting("cluster.nodes", (), WAIT_METRICS),
    MeasuredSetting("cluster.autoscaler", None, WAIT_METRICS),
)
OF_POOL: Final = (
    MeasuredSetting("engine.enforce_eager", False, STEP_METRICS),
    MeasuredSetting("engine.cudagraph_mode", "FULL_AND_PIECEWISE", STEP_METRICS),
    MeasuredSetting("engine.block_size_tokens", 16, STEP_METRICS),
    MeasuredSetting("engine.pipeline_parallel", 1, STEP_METRICS),
    MeasuredSetting("engine.data_parallel", 1, STEP_METRICS),
    MeasuredSetting("engine.expert_parallel", False, STEP_METRICS),
    MeasuredSetting("engine.speculative", None, STEP_METRICS),
    MeasuredSetting("engine.lora", None, STEP_METRICS),
    MeasuredSetting("engine.encoder", None, STEP_METRICS),
    MeasuredSetting("engine.kv_tiers", None, STEP_METRICS),
    MeasuredSetting("engine.front_end", None, WAIT_METRICS),
    MeasuredSetting("engine.long_prefill_token_threshold", 0, WAIT_METRICS),
)
OF_CLIENT: Final = (
    MeasuredSetting("workload.clients.multimodal", None, WAIT_METRICS, "multimodal"),
    MeasuredSetting("workload.clients.network", None, WAIT_METRICS, "network"),
)
_LOAD_BLIND_ROUTERS: Final = ("round-robin",)
"""Routing policies that ignore the state of instances."""
_OF_STEPS: Final = ("async_scheduling", "disable_overlap_scheduler")
"""Batching settings that change the time between steps; the other settings change which requests are in which step."""
TWICE: Final = 2
"""Up to this multiple of the largest measured tensor parallelism, and down to this part of the smallest measured number
of requests at a time, errors are those of servers that were left out."""
_CALM: Final = ("poisson", "constant", CLOSED_LOOP)
"""Arrivals without bursts, as on the measured servers."""


def unmeasured(experiment: Experiment, pool: Pool, traits: ServerTraits, known: Known) -> dict[str, str]:
    """Return, for each metric without a known error, the property that no measured server had.

    Args:
        experiment: the simulated experiment.
        pool: the pool.
        traits: traits of its instances and their load.
        known: the measurements of its step-time model.
    """
    reasons: dict[str, str] = {}
    for reason, spoils in _reasons(experiment, pool, traits, known):
        for metric in spoils:
            reasons.setdefault(metric, reason)
        if len(reasons) == len(STEP_METRICS):
            break
    return reasons


def _reasons(
    experiment: Experiment, pool: Pool, traits: ServerTraits, known: Known
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the reasons with the metrics they affect, those that affect the most first."""
    if reason := _of_server(experiment, pool, traits, known):
        yield reason, STEP_METRICS
        return
    for measured_setting in OF_POOL:
        if reason := measured_setting.reason(pool):
            yield reason, measured_setting.spoils
    lifecycle = experiment.cluster.lifecycle
    if lifecycle is not None and lifecycle.warm_up_factor != 1.0:
        yield (
            f"`cluster.lifecycle.warm_up_factor: {lifecycle.warm_up_factor:g}` (measured: warm instances)",
            STEP_METRICS,
        )
    for measured_setting in OF_EXPERIMENT:
        if reason := measured_setting.reason(experiment):
            yield reason, measured_setting.spoils
    if experiment.workload.endpoint == CHAT and _known_to_differ(pool):
        yield f"`workload.endpoint: {CHAT}` (measured: completions)", WAIT_METRICS
    yield from _of_batching(experiment, known, traits.engine)
    if reason := _of_routing(experiment):
        yield reason, WAIT_METRICS
    for name, (low, high) in known.limits.items():
        value = getattr(pool.engine, name)
        if not low <= value <= high:
            yield f"`engine.{name}: {value:,}` (measured: {low:,} to {high:,})", WAIT_METRICS
    for client in experiment.workload.clients:
        for measured_setting in OF_CLIENT:
            if reason := measured_setting.reason(client):
                yield reason, measured_setting.spoils
        if reason := _of_arrivals(client):
            yield reason, WAIT_METRICS
        if client.max_output_tokens is not None and traits.engine == "trtllm":
            yield "`workload.clients.max_output_tokens` (measured: answers as long as declared)", WAIT_METRICS


def _of_server(experiment: Experiment, pool: Pool, traits: ServerTraits, known: Known) -> str:
    """Return what differs in engine, coefficients, GPU, model, or number of GPUs."""
    if not traits.engine:
        rules = ", ".join(f"`{rule}`" for rule in ENGINES)
        return f"`{experiment.policy.batching.kind}` batching (measured: {rules})"
    expected = {**known.settings, "engine": known.coefficients[traits.engine], "steps": None}
    batching = experiment.policy.batching.settings  # they are asked for by themselves
    asynchronous = batching.get("async_scheduling") is not False
    version = pool.engine.version or str(batching.get("version", ""))
    expected |= host_us(known.coefficients[traits.engine], version, asynchronous=asynchronous)
    expected |= kernels(known.coefficients[traits.engine], pool.engine.version)
    for name, own in pool.latency.settings.items():
        value = list(own) if isinstance(own, tuple) else own
        if name == "steps" and value == 1.0:
            continue  # its value is multiplied by zero
        if name == "request_us" and experiment.workload.endpoint == CHAT:
            continue  # the endpoint is asked by itself
        if name not in known.varied and value != expected.get(name):
            return f"{name} {value} beside this engine and these step times"
    return server_reason(pool, traits, known)


def server_reason(pool: Pool, traits: ServerTraits, known: Known) -> str:
    """Return what differs in GPU, model or number of GPUs, whatever the step-time model; empty if nothing does."""
    for name, noun in (("gpu", "GPU"), ("family", "family"), ("precision", "precision of the weights")):
        there = dict.fromkeys(str(getattr(run.traits, name)) for run in known.runs)
        if (mine := getattr(traits, name)) not in there:
            return f"{noun} {mine} (measured: {', '.join(there)})"
    for name, value in known.hardware[traits.gpu].items():
        if (mine := getattr(pool.hardware, name)) != value:
            return f"`hardware.{name}: {mine:g}` on {traits.gpu} (measured: {value:g})"
    if pool.model.linear is not None:
        return f"layers with a state of {pool.model.name} (measured: full attention, windows)"
    if pool.model.other_layers:
        return f"{pool.model.other_layers}, simulated as full attention (measured: full attention, windows)"
    sizes = [size for size in SIZES if any(size == run.traits.size for run in known.runs)]
    if traits.size not in sizes:
        return f"a model of {parameters(pool.model) / 1e9:.1f}B parameters (measured: {', '.join(sizes)})"
    most = max(run.traits.tensor_parallel for run in known.runs)
    if traits.tensor_parallel > TWICE * most:
        return f"tensor parallelism {traits.tensor_parallel} (measured: up to {most})"
    return ""


def _known_to_differ(pool: Pool) -> bool:
    """Return whether chat requests of a pool are known to take its API server another time than completions."""
    return pool.latency.kind == "operators" and pool.latency.settings.get("request_us") is not None


def _of_arrivals(client: Client) -> str:
    """Return how a client's arrivals are burstier than those measured."""
    kind, calm = client.arrivals.kind, "measured: Poisson arrivals, and users who wait for answers"
    cv = client.arrivals.settings.get("cv")
    if isinstance(cv, int | float):
        return f"`workload.clients.arrivals: {kind}` with a cv of {cv:g} ({calm})" if cv > 1.0 else ""
    return "" if kind in _CALM else f"`workload.clients.arrivals: {kind}` ({calm})"


def _of_batching(experiment: Experiment, known: Known, engine: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the settings of the batching rule that were not measured."""
    measured: Mapping[str, Sequence[object]] = known.batching[engine]
    for name, value in experiment.policy.batching.settings.items():
        if value not in measured.get(name, (None,)):
            there = ", ".join(map(_value_text, measured.get(name, ()))) or "without"
            reason = f"`policy.batching.{name}: {_value_text(value)}` (measured: {there})"
            yield reason, STEP_METRICS if name in _OF_STEPS else WAIT_METRICS


def _of_routing(experiment: Experiment) -> str:
    kind, instances = experiment.policy.routing.kind, experiment.instances
    if instances == 1 or kind in _LOAD_BLIND_ROUTERS:
        return ""
    return f"`policy.routing: {kind}` over {instances:,} instances (measured: one at a time)"


def _value_text(value: object) -> str:
    """Return a value as documents write it."""
    if value is None:
        return "none"
    return str(value).lower() if isinstance(value, bool) else f"{value:,}" if isinstance(value, int) else str(value)
