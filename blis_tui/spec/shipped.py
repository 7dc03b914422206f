"""What ships: its folders, and the built-in plug-ins of each plug point with their names in documents and modules.

A plug-in is imported when it is requested by name.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from blis_tui.model.plug_ins import Registry

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

SHIPPED: Final[Mapping[str, Mapping[str, str]]] = {
    "policy.admission": {
        "always-admit": "blis_tui.cluster.policies.entry",
        "reject-all": "blis_tui.cluster.policies.entry",
        "tier-shed": "blis_tui.cluster.policies.entry",
        "token-bucket": "blis_tui.cluster.policies.entry",
        "gaie-legacy": "blis_tui.cluster.policies.entry",
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
        "concurrency": "blis_tui.cluster.policies.entry",
        "never": "blis_tui.cluster.policies.entry",
        "utilization": "blis_tui.cluster.policies.entry",
    },
    "cluster.disaggregation.decider": {
        "always": "blis_tui.cluster.policies.entry",
        "direct-to-decode": "blis_tui.cluster.policies.entry",
        "never": "blis_tui.cluster.policies.entry",
        "prefix-threshold": "blis_tui.cluster.policies.entry",
    },
    "cluster.autoscaler.rule": {
        "dynamo-load": "blis_tui.cluster.policies.dynamo",
        "dynamo-throughput": "blis_tui.cluster.policies.dynamo",
        "hpa": "blis_tui.cluster.policies.scaling",
        "wva": "blis_tui.cluster.policies.wva",
    },
    "policy.scheduling": {
        "fcfs": "blis_tui.engine.orders",
        "priority-fcfs": "blis_tui.engine.orders",
        "sjf": "blis_tui.engine.orders",
        "lof": "blis_tui.engine.sglang.rule",
        "lpm": "blis_tui.engine.sglang.rule",
        "reverse-priority": "blis_tui.engine.orders",
    },
    "policy.priority": {
        "constant": "blis_tui.engine.orders",
        "slo-based": "blis_tui.engine.orders",
        "slo-class": "blis_tui.engine.orders",
        "inverted-slo": "blis_tui.engine.orders",
    },
    "policy.batching": {
        "llm-serving-sim": "blis_tui.engine.rules.llm_serving_sim",
        "nano": "blis_tui.engine.rules.nano",
        "tensorrt-llm": "blis_tui.engine.rules.tensorrt_llm",
        "vllm-v1": "blis_tui.engine.rules.vllm",
        "blis": "blis_tui.engine.rules.vllm",
        "sglang": "blis_tui.engine.sglang.rule",
    },
    "policy.preemption.victim": {
        "tail": "blis_tui.engine.victims",
        "priority": "blis_tui.engine.victims",
        "cheapest-recompute": "blis_tui.engine.victims",
    },
    "policy.preemption.restore": {
        "recompute": "blis_tui.engine.restore",
        "swap": "blis_tui.engine.restore",
        "auto": "blis_tui.engine.restore",
    },
    "latency": {
        "trained-physics": "blis_tui.engine.latency.blis_models",
        "auto": "blis_tui.engine.latency.creation",
        "fitted": "blis_tui.engine.latency.fitted",
        "operators": "blis_tui.engine.latency.operators",
        "recorded": "blis_tui.engine.latency.recorded",
        "roofline": "blis_tui.engine.latency.roofline",
        "blackbox": "blis_tui.engine.latency.blis_models",
        "crossmodel": "blis_tui.engine.latency.blis_models",
        "trained-roofline": "blis_tui.engine.latency.blis_models",
        "roofline-phases": "blis_tui.engine.latency.roofline",
    },
    "workload.clients.arrivals": {
        "poisson": "blis_tui.workload.arrivals",
        "constant": "blis_tui.workload.arrivals",
        "gamma": "blis_tui.workload.arrivals",
        "weibull": "blis_tui.workload.arrivals",
        "closed-loop": "blis_tui.workload.interactive",
    },
    "workload.clients.lengths": {
        "constant": "blis_tui.workload.distributions",
        "uniform": "blis_tui.workload.distributions",
        "gaussian": "blis_tui.workload.distributions",
        "lognormal": "blis_tui.workload.distributions",
        "exponential": "blis_tui.workload.distributions",
        "until-eos": "blis_tui.workload.distributions",
        "pareto-lognormal": "blis_tui.workload.distributions",
        "empirical": "blis_tui.workload.distributions",
        "percentiles": "blis_tui.workload.distributions",
        "histogram": "blis_tui.workload.distributions",
    },
    "workload.clients.reasoning.ratio": {
        "constant": "blis_tui.workload.distributions",
        "uniform": "blis_tui.workload.distributions",
        "gaussian": "blis_tui.workload.distributions",
        "beta": "blis_tui.workload.distributions",
        "empirical": "blis_tui.workload.distributions",
    },
    "workload.trace.format": {
        "azure": "blis_tui.workload.formats.azure",
        "bailian": "blis_tui.workload.formats.bailian",
        "burstgpt": "blis_tui.workload.formats.burstgpt",
        "mooncake": "blis_tui.workload.formats.mooncake",
        "otel": "blis_tui.workload.formats.otel",
        "requests": "blis_tui.workload.formats.requests",
        "sharegpt": "blis_tui.workload.formats.sharegpt",
        "tracelab": "blis_tui.workload.formats.tracelab",
        "tracev2": "blis_tui.workload.formats.tracev2",
        "vllm-bench": "blis_tui.workload.formats.vllm_bench",
        "weka": "blis_tui.workload.formats.weka",
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


_PACKAGE = Path(__file__).resolve().parent.parent


def package_root() -> Path:
    """Return the folder of this package's modules."""
    return _PACKAGE


@cache
def data_root() -> Path:
    """Return the folder with ``specs/`` and ``schemas/``: in an installed package, or at the top of a checkout."""
    installed = _PACKAGE / "_data"
    return installed if installed.is_dir() else _PACKAGE.parent


def shipped_specs() -> Path:
    """Return the ``specs/`` folder of this package."""
    return data_root() / "specs"
