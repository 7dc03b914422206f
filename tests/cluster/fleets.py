"""Clusters for tests whose control plane has something to decide, as documents."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import blis_tui

if TYPE_CHECKING:
    from collections.abc import Mapping

    from blis_tui.model import Experiment

_SCORERS = [
    {"kind": "prefix-affinity", "weight": 2},
    {"kind": "queue-depth", "weight": 1},
    {"kind": "kv-utilization", "weight": 1},
]
_WEIGHTED = {"kind": "weighted", "scorers": _SCORERS}

WEIGHTED: Mapping[str, object] = {
    "workload": "prefix-heavy",
    "workload.rate_per_s": 60,
    "policy.routing": _WEIGHTED,
    "cluster.instances": 12,
    "cluster.signals": {"refresh_interval_us": 500_000, "cache_signal_delay_us": 300_000},
}
"""Twelve instances, routed by stale signals."""
GATEWAY: Mapping[str, object] = {
    "workload": "unfair-tenants",
    "workload.rate_per_s": 60,
    "engine.max_num_seqs": 8,
    "cluster.instances": 3,
    "policy.slo_priorities": {"critical": 4, "standard": 3, "batch": -1},
    "policy.gateway": {
        "order": "fifo",
        "bands": True,
        "fairness": "weighted",
        "max_depth": 40,
        "when_full": "shed-least-urgent",
        "saturation": {"kind": "concurrency", "max_concurrency": 8},
        "request_ttl_us": 3_000_000,
        "usage_limit": 0.8,
    },
}
"""A gateway that holds requests back, with bands, tenants and a time to live."""
SPLIT: Mapping[str, object] = {
    "workload.rate_per_s": 30,
    "cluster.instances": 5,
    "policy.routing": _WEIGHTED,
    "cluster.disaggregation": {
        "prefill_instances": 2,
        "decode_instances": 3,
        "decider": {"kind": "direct-to-decode", "threshold_tokens": 200},
        "order": "prefill-first",
        "transfer": {"bandwidth_gb_per_s": 2, "base_latency_us": 50, "contention": "fair-share"},
    },
}
"""Prefill on two instances, decode on three, over a slow link."""

EARLY: Mapping[str, object] = {
    **SPLIT,
    "engine.kv_blocks": 220,
    "cluster.signals": {"results": "step-start"},
    "cluster.disaggregation": {
        "prefill_instances": 2,
        "decode_instances": 3,
        "decider": {"kind": "always"},
        "order": "decode-first",
        "transfer": {"bandwidth_gb_per_s": 20, "base_latency_us": 50, "starts": "step-start"},
    },
}
"""The decode instance is chosen first, transfers overlap with the prefill, and KV blocks run out."""
LARGE: Mapping[str, object] = {
    "workload.rate_per_s": 3000,
    "cluster.instances": 512,
    "policy.routing": {"kind": "power-of-two"},
}
"""Many instances, some of which get more than others."""
IDLE: Mapping[str, object] = {
    "workload": "unfair-tenants",
    "cluster.instances": 2,
    "policy.deferral": {"kind": "idle-only"},
}
"""Batch requests wait until the cluster is idle."""
GROWING: Mapping[str, object] = {
    "workload.rate_per_s": 30,
    "policy.routing": {"kind": "least-loaded"},
    "engine.max_num_seqs": 8,
    "engine.kv_blocks": 700,
    "cluster.instances": 2,
    "cluster.lifecycle": {"loading_delay_us": 600_000, "warm_up_requests": 6, "warm_up_factor": 1.5, "drain": "wait"},
    "cluster.failures": [
        {"instance": 0, "at_us": 1_500_000, "repair_us": 2_000_000},
        {"instance": 1, "at_us": 9_500_000},
    ],
    "cluster.autoscaler": {
        "interval_us": 200_000,
        "min_instances": 1,
        "max_instances": 6,
        "scale_down_stabilization_window_us": 400_000,
    },
}
"""Instances come by an autoscaler, warm up, go; one dies."""

_SERVED = {"latency": "roofline", "policy": "blis"}
"""Whatever the quickstart says: step times that are quickly worked out, and batches that are planned one at a time."""

_TIMES = {"LARGE": 10}
"""How many more requests one needs than the others."""


@cache
def fleet(name: str, requests: int = 200) -> Experiment:
    """One of the above, by its name."""
    count = {"workload.requests": requests * _TIMES.get(name, 1)}
    return blis_tui.load("quickstart", set={**_SERVED, **globals()[name], **count})
