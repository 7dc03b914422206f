"""What this package brings for its plug points: the name that documents use, and the module that has it.

A plug-in is imported when it is asked for by name. A test compares this index with what the modules mark.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

from blis_tui.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


def _each(package: str, *names: str) -> dict[str, str]:
    """Every one in a module of its own, which is called like it."""
    return {name: f"blis_tui.{package}.{name.replace('-', '_')}" for name in names}


def _all(module: str, *names: str) -> dict[str, str]:
    """All of them in one module."""
    return dict.fromkeys(names, f"blis_tui.{module}")


SHIPPED: Final[Mapping[str, Mapping[str, str]]] = {
    "policy.admission": _each(
        "cluster.admission", "always-admit", "gaie-legacy", "reject-all", "tier-shed", "token-bucket"
    ),
    "policy.routing": _each(
        "cluster.routing",
        "always-busiest",
        "least-estimated-ttft",
        "least-loaded",
        "power-of-two",
        "round-robin",
        "session-affinity",
        "weighted",
    ),
    "policy.routing.scorers": _each(
        "cluster.scoring",
        "active-requests",
        "kv-utilization",
        "load-aware",
        "load-balance",
        "lora-affinity",
        "no-hit-lru",
        "precise-prefix-cache",
        "prefix-affinity",
        "queue-depth",
        "running-requests",
        "vllm-dp",
    ),
    "policy.gateway.saturation": _each("cluster.gateway", "concurrency", "never", "utilization"),
    "cluster.disaggregation.decider": _each(
        "cluster.deciders", "always", "direct-to-decode", "never", "prefix-threshold"
    ),
    "policy.scheduling": _all("engine.scheduling.orders", "fcfs", "priority-fcfs", "sjf", "reverse-priority"),
    "policy.priority": _all("engine.scheduling.priority", "constant", "slo-based", "inverted-slo", "slo-class"),
    "policy.batching": _each("engine.batching", "blis", "llm-serving-sim", "nano", "tensorrt-llm", "vllm-v1"),
    "policy.preemption.victim": _all("engine.preemption.victims", "tail", "priority", "cheapest-recompute"),
    "policy.preemption.restore": _all("engine.preemption.restore", "recompute", "swap", "auto"),
    "latency": _each(
        "engine.latency",
        "auto",
        "blackbox",
        "crossmodel",
        "fitted",
        "operators",
        "roofline",
        "trained-physics",
        "trained-roofline",
    ),
    "workload.clients.arrivals": {
        **_all("workload.arrivals", "poisson", "constant", "gamma", "weibull"),
        "closed-loop": "blis_tui.workload.closed_loop",
    },
    "workload.clients.lengths": _all(
        "workload.lengths",
        "constant",
        "uniform",
        "gaussian",
        "lognormal",
        "exponential",
        "pareto-lognormal",
        "empirical",
    ),
    "workload.clients.reasoning.ratio": _all("workload.ratios", "constant", "uniform", "gaussian", "beta", "empirical"),
    "workload.trace.format": _each(
        "workload.formats",
        "azure",
        "burstgpt",
        "mooncake",
        "otel",
        "requests",
        "sharegpt",
        "tracev2",
        "vllm-bench",
    ),
}
"""Plug point -> name -> module."""


def are_plugins(words: Iterable[str]) -> bool:
    """Whether these words are what documents may say at a plug point."""
    given = set(words)
    return any(given.issuperset(names) for names in SHIPPED.values())


@cache
def builtin() -> Registry:
    """This package's own plug-ins."""
    return Registry(shipped=SHIPPED)
