"""The built-in plug-ins of each plug point: their names in documents, and their modules.

A plug-in is imported when it is requested by name.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

from blis_tui.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


SHIPPED: Final[Mapping[str, Mapping[str, str]]] = {
    "policy.admission": {
        "always-admit": "blis_tui.cluster.policies.admission",
        "reject-all": "blis_tui.cluster.policies.admission",
        "tier-shed": "blis_tui.cluster.policies.admission",
        "token-bucket": "blis_tui.cluster.policies.admission",
        "gaie-legacy": "blis_tui.cluster.policies.admission",
    },
    "policy.routing": {
        "least-estimated-ttft": "blis_tui.cluster.policies.routing",
        "least-loaded": "blis_tui.cluster.policies.routing",
        "power-of-two": "blis_tui.cluster.policies.routing",
        "round-robin": "blis_tui.cluster.policies.routing",
        "session-affinity": "blis_tui.cluster.policies.routing",
        "weighted": "blis_tui.cluster.policies.weighted",
        "always-busiest": "blis_tui.cluster.policies.routing",
    },
    "policy.routing.scorers": {
        "active-requests": "blis_tui.cluster.policies.scoring",
        "kv-utilization": "blis_tui.cluster.policies.scoring",
        "load-aware": "blis_tui.cluster.policies.scoring",
        "load-balance": "blis_tui.cluster.policies.scoring",
        "lora-affinity": "blis_tui.cluster.policies.scoring",
        "no-hit-lru": "blis_tui.cluster.policies.scoring",
        "precise-prefix-cache": "blis_tui.cluster.policies.scoring",
        "prefix-affinity": "blis_tui.cluster.policies.scoring",
        "queue-depth": "blis_tui.cluster.policies.scoring",
        "running-requests": "blis_tui.cluster.policies.scoring",
        "vllm-dp": "blis_tui.cluster.policies.scoring",
    },
    "policy.gateway.saturation": {
        "concurrency": "blis_tui.cluster.policies.saturation",
        "never": "blis_tui.cluster.policies.saturation",
        "utilization": "blis_tui.cluster.policies.saturation",
    },
    "cluster.disaggregation.decider": {
        "always": "blis_tui.cluster.policies.deciders",
        "direct-to-decode": "blis_tui.cluster.policies.deciders",
        "never": "blis_tui.cluster.policies.deciders",
        "prefix-threshold": "blis_tui.cluster.policies.deciders",
    },
    "policy.scheduling": {
        "fcfs": "blis_tui.engine.scheduling.orders",
        "priority-fcfs": "blis_tui.engine.scheduling.orders",
        "sjf": "blis_tui.engine.scheduling.orders",
        "lof": "blis_tui.engine.scheduling.radix_order",
        "lpm": "blis_tui.engine.scheduling.radix_order",
        "reverse-priority": "blis_tui.engine.scheduling.orders",
    },
    "policy.priority": {
        "constant": "blis_tui.engine.scheduling.priority",
        "slo-based": "blis_tui.engine.scheduling.priority",
        "slo-class": "blis_tui.engine.scheduling.priority",
        "inverted-slo": "blis_tui.engine.scheduling.priority",
    },
    "policy.batching": {
        "blis": "blis_tui.engine.batching.blis",
        "llm-serving-sim": "blis_tui.engine.batching.llm_serving_sim",
        "nano": "blis_tui.engine.batching.nano",
        "sglang": "blis_tui.engine.batching.sglang",
        "tensorrt-llm": "blis_tui.engine.batching.tensorrt_llm",
        "vllm-v1": "blis_tui.engine.batching.vllm_v1",
    },
    "policy.preemption.victim": {
        "tail": "blis_tui.engine.preemption.victims",
        "priority": "blis_tui.engine.preemption.victims",
        "cheapest-recompute": "blis_tui.engine.preemption.victims",
    },
    "policy.preemption.restore": {
        "recompute": "blis_tui.engine.preemption.restore",
        "swap": "blis_tui.engine.preemption.restore",
        "auto": "blis_tui.engine.preemption.restore",
    },
    "latency": {
        "auto": "blis_tui.engine.latency.auto",
        "fitted": "blis_tui.engine.latency.fitted",
        "operators": "blis_tui.engine.latency.operators",
        "recorded": "blis_tui.engine.latency.recorded",
        "roofline": "blis_tui.engine.latency.roofline",
        "trained-physics": "blis_tui.engine.latency.trained_physics",
        "blackbox": "blis_tui.engine.latency.blackbox",
        "crossmodel": "blis_tui.engine.latency.crossmodel",
        "roofline-phases": "blis_tui.engine.latency.roofline",
        "trained-roofline": "blis_tui.engine.latency.trained_roofline",
    },
    "workload.clients.arrivals": {
        "poisson": "blis_tui.workload.arrivals",
        "constant": "blis_tui.workload.arrivals",
        "gamma": "blis_tui.workload.arrivals",
        "weibull": "blis_tui.workload.arrivals",
        "closed-loop": "blis_tui.workload.interactive",
    },
    "workload.clients.lengths": {
        "constant": "blis_tui.workload.lengths",
        "uniform": "blis_tui.workload.lengths",
        "gaussian": "blis_tui.workload.lengths",
        "lognormal": "blis_tui.workload.lengths",
        "exponential": "blis_tui.workload.lengths",
        "until-eos": "blis_tui.workload.lengths",
        "pareto-lognormal": "blis_tui.workload.lengths",
        "empirical": "blis_tui.workload.lengths",
    },
    "workload.clients.reasoning.ratio": {
        "constant": "blis_tui.workload.ratios",
        "uniform": "blis_tui.workload.ratios",
        "gaussian": "blis_tui.workload.ratios",
        "beta": "blis_tui.workload.ratios",
        "empirical": "blis_tui.workload.ratios",
    },
    "workload.trace.format": {
        "azure": "blis_tui.workload.formats.azure",
        "burstgpt": "blis_tui.workload.formats.burstgpt",
        "mooncake": "blis_tui.workload.formats.mooncake",
        "otel": "blis_tui.workload.formats.otel",
        "requests": "blis_tui.workload.formats.requests",
        "sharegpt": "blis_tui.workload.formats.sharegpt",
        "tracev2": "blis_tui.workload.formats.tracev2",
        "vllm-bench": "blis_tui.workload.formats.vllm_bench",
    },
}
"""Plug point -> name -> module. Generated by ``make docs``."""


def are_plugins(words: Iterable[str]) -> bool:
    """Whether the words include all names of some plug point."""
    given = set(words)
    return any(given.issuperset(names) for names in SHIPPED.values())


@cache
def builtin() -> Registry:
    """Return the registry of built-in plug-ins."""
    return Registry(shipped=SHIPPED)
