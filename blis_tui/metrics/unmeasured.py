"""Properties of an experiment that no measured server had, for which measured errors say nothing.

There are two kinds. The duration of steps determines ITL, and through it everything else: whatever changes the kind of
steps (adapters, drafts, tiers, a pipeline) leaves no error known. The way in which requests reach their steps
(admission, routing, queue order, instances that come and go) affects TTFT and E2E only: steps are composed alike, so
the error of ITL is still known.

Each measured server was a single instance that served all arrivals first come, first served. Several equal instances
count as several such servers if the router ignores their state (round-robin). A router that considers it decides
differently if step times are wrong, and no cluster was measured.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Final

from blis_tui.classes import NamedTuple
from blis_tui.engine.kv.capacity import parameters
from blis_tui.metrics.measured import ENGINES, SIZES
from blis_tui.workload.arrivals import CLOSED_LOOP

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from blis_tui.metrics.measured import Known, Traits
    from blis_tui.spec.model import Client, Experiment, Pool

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


def unmeasured(experiment: Experiment, pool: Pool, traits: Traits, known: Known) -> dict[str, str]:
    """Return, for each metric without a known error, the property that no measured server had.

    Args:
        experiment: the simulated experiment.
        pool: the pool.
        traits: traits of its instances and their load.
        known: the measurements of its step-time model.
    """
    found: dict[str, str] = {}
    for reason, spoils in _reasons(experiment, pool, traits, known):
        for metric in spoils:
            found.setdefault(metric, reason)
        if len(found) == len(STEP_METRICS):
            break
    return found


def _reasons(experiment: Experiment, pool: Pool, traits: Traits, known: Known) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the reasons with the metrics they affect, those that affect the most first."""
    if reason := _of_server(experiment, pool, traits, known):
        yield reason, STEP_METRICS
        return
    for one in OF_POOL:
        if reason := one.reason(pool):
            yield reason, one.spoils
    lifecycle = experiment.cluster.lifecycle
    if lifecycle is not None and lifecycle.warm_up_factor != 1.0:
        yield (
            f"`cluster.lifecycle.warm_up_factor: {lifecycle.warm_up_factor:g}` (measured: warm instances)",
            STEP_METRICS,
        )
    for one in OF_EXPERIMENT:
        if reason := one.reason(experiment):
            yield reason, one.spoils
    yield from _of_batching(experiment, known, traits.engine)
    if reason := _of_routing(experiment):
        yield reason, WAIT_METRICS
    for name, (low, high) in known.limits.items():
        value = getattr(pool.engine, name)
        if not low <= value <= high:
            yield f"`engine.{name}: {value:,}` (measured: {low:,} to {high:,})", WAIT_METRICS
    for client in experiment.workload.clients:
        for one in OF_CLIENT:
            if reason := one.reason(client):
                yield reason, one.spoils
        if reason := _of_arrivals(client):
            yield reason, WAIT_METRICS
        if client.max_output_tokens is not None and traits.engine == "trtllm":
            yield "`workload.clients.max_output_tokens` (measured: answers as long as declared)", WAIT_METRICS


def _of_server(experiment: Experiment, pool: Pool, traits: Traits, known: Known) -> str:
    """Return what differs in engine, coefficients, GPU, model, or number of GPUs."""
    if not traits.engine:
        rules = ", ".join(f"`{rule}`" for rule in ENGINES)
        return f"`{experiment.policy.batching.kind}` batching (measured: {rules})"
    expected = {**known.settings, "engine": known.coefficients[traits.engine], "steps": None}
    for name, own in pool.latency.settings.items():
        value = list(own) if isinstance(own, tuple) else own
        if name == "steps" and value == 1.0:
            continue  # its value is multiplied by zero
        if name not in known.varied and value != expected.get(name):
            return f"{name} {value} beside this engine and these step times"
    return server_reason(pool, traits, known)


def server_reason(pool: Pool, traits: Traits, known: Known) -> str:
    """Return what differs in GPU, model or number of GPUs, whatever the step-time model; empty if nothing does."""
    for name, noun in (("gpu", "GPU"), ("family", "family"), ("precision", "precision of the weights")):
        there = dict.fromkeys(str(getattr(one.traits, name)) for one in known.runs)
        if (mine := getattr(traits, name)) not in there:
            return f"{noun} {mine} (measured: {', '.join(there)})"
    for name, value in known.hardware[traits.gpu].items():
        if (mine := getattr(pool.hardware, name)) != value:
            return f"`hardware.{name}: {mine:g}` on {traits.gpu} (measured: {value:g})"
    if pool.model.other_layers:
        return f"{pool.model.other_layers}, simulated as full attention (measured: full attention, windows)"
    sizes = [one for one in SIZES if any(one == run.traits.size for run in known.runs)]
    if traits.size not in sizes:
        return f"a model of {parameters(pool.model) / 1e9:.1f}B parameters (measured: {', '.join(sizes)})"
    most = max(one.traits.tensor_parallel for one in known.runs)
    if traits.tensor_parallel > TWICE * most:
        return f"tensor parallelism {traits.tensor_parallel} (measured: up to {most})"
    return ""


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
