"""What this package brings for its plug points: the name that documents use, and the module that has it.

A plug-in is imported when it is asked for by name.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

from blis_tui.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


SHIPPED: Final[Mapping[str, Mapping[str, str]]] = {
    "policy.admission": {
        "always-admit": "blis_tui.cluster.admission.always_admit",
        "gaie-legacy": "blis_tui.cluster.admission.gaie_legacy",
        "reject-all": "blis_tui.cluster.admission.reject_all",
        "tier-shed": "blis_tui.cluster.admission.tier_shed",
        "token-bucket": "blis_tui.cluster.admission.token_bucket",
    },
    "policy.routing": {
        "always-busiest": "blis_tui.cluster.routing.always_busiest",
        "least-estimated-ttft": "blis_tui.cluster.routing.least_estimated_ttft",
        "least-loaded": "blis_tui.cluster.routing.least_loaded",
        "power-of-two": "blis_tui.cluster.routing.power_of_two",
        "round-robin": "blis_tui.cluster.routing.round_robin",
        "session-affinity": "blis_tui.cluster.routing.session_affinity",
        "weighted": "blis_tui.cluster.routing.weighted",
    },
    "policy.routing.scorers": {
        "active-requests": "blis_tui.cluster.scoring.active_requests",
        "kv-utilization": "blis_tui.cluster.scoring.kv_utilization",
        "load-aware": "blis_tui.cluster.scoring.load_aware",
        "load-balance": "blis_tui.cluster.scoring.load_balance",
        "lora-affinity": "blis_tui.cluster.scoring.lora_affinity",
        "no-hit-lru": "blis_tui.cluster.scoring.no_hit_lru",
        "precise-prefix-cache": "blis_tui.cluster.scoring.precise_prefix_cache",
        "prefix-affinity": "blis_tui.cluster.scoring.prefix_affinity",
        "queue-depth": "blis_tui.cluster.scoring.queue_depth",
        "running-requests": "blis_tui.cluster.scoring.running_requests",
        "vllm-dp": "blis_tui.cluster.scoring.vllm_dp",
    },
    "policy.gateway.saturation": {
        "concurrency": "blis_tui.cluster.gateway.concurrency",
        "never": "blis_tui.cluster.gateway.never",
        "utilization": "blis_tui.cluster.gateway.utilization",
    },
    "cluster.disaggregation.decider": {
        "always": "blis_tui.cluster.deciders.always",
        "direct-to-decode": "blis_tui.cluster.deciders.direct_to_decode",
        "never": "blis_tui.cluster.deciders.never",
        "prefix-threshold": "blis_tui.cluster.deciders.prefix_threshold",
    },
    "policy.scheduling": {
        "fcfs": "blis_tui.engine.scheduling.orders",
        "priority-fcfs": "blis_tui.engine.scheduling.orders",
        "sjf": "blis_tui.engine.scheduling.orders",
        "reverse-priority": "blis_tui.engine.scheduling.orders",
    },
    "policy.priority": {
        "constant": "blis_tui.engine.scheduling.priority",
        "slo-based": "blis_tui.engine.scheduling.priority",
        "inverted-slo": "blis_tui.engine.scheduling.priority",
        "slo-class": "blis_tui.engine.scheduling.priority",
    },
    "policy.batching": {
        "blis": "blis_tui.engine.batching.blis",
        "llm-serving-sim": "blis_tui.engine.batching.llm_serving_sim",
        "nano": "blis_tui.engine.batching.nano",
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
        "blackbox": "blis_tui.engine.latency.blackbox",
        "crossmodel": "blis_tui.engine.latency.crossmodel",
        "fitted": "blis_tui.engine.latency.fitted",
        "operators": "blis_tui.engine.latency.operators",
        "roofline": "blis_tui.engine.latency.roofline",
        "trained-physics": "blis_tui.engine.latency.trained_physics",
        "trained-roofline": "blis_tui.engine.latency.trained_roofline",
    },
    "workload.clients.arrivals": {
        "poisson": "blis_tui.workload.arrivals",
        "constant": "blis_tui.workload.arrivals",
        "gamma": "blis_tui.workload.arrivals",
        "weibull": "blis_tui.workload.arrivals",
        "closed-loop": "blis_tui.workload.closed_loop",
    },
    "workload.clients.lengths": {
        "constant": "blis_tui.workload.lengths",
        "uniform": "blis_tui.workload.lengths",
        "gaussian": "blis_tui.workload.lengths",
        "lognormal": "blis_tui.workload.lengths",
        "exponential": "blis_tui.workload.lengths",
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
"""Plug point -> name -> module. ``make docs`` writes it."""


def are_plugins(words: Iterable[str]) -> bool:
    """Whether these words are what documents may say at a plug point."""
    given = set(words)
    return any(given.issuperset(names) for names in SHIPPED.values())


@cache
def builtin() -> Registry:
    """This package's own plug-ins."""
    return Registry(shipped=SHIPPED)
