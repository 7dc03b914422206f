"""What is run in many ways: every shipped experiment, and variants with what none of them has."""

from __future__ import annotations

from typing import Final

from blis_tui.spec.library import names

_HEAVY_TAILS: Final = {
    "workload.requests": 20,
    "workload.clients.0.arrivals": {"kind": "weibull", "cv": 1.7},
    "workload.clients.0.input_tokens": {"kind": "empirical", "weights": {"17": 0.1, "300": 0.7, "4000": 0.2}},
    "workload.clients.0.output_tokens": {
        "kind": "pareto-lognormal",
        "alpha": 1.3,
        "xm": 40,
        "mu": 4.5,
        "sigma": 0.8,
        "mix_weight": 0.3,
    },
    "expect": [],
}

TIMEOUTS: Final = "timeouts and a horizon"
VARIANTS: Final[dict[str, tuple[str, dict[str, object]]]] = {
    "heavy tails, crossmodel": ("quickstart", {**_HEAVY_TAILS, "latency": {"kind": "crossmodel"}}),
    "heavy tails, trained-roofline": ("quickstart", {**_HEAVY_TAILS, "latency": {"kind": "trained-roofline"}}),
    "mixture of experts, operators": (
        "mixture-of-experts",
        {"latency": {"kind": "operators"}, "workload.requests": 25, "expect": []},
    ),
    "users who wait for their answers": (
        "kv-pressure",
        {
            "workload": {
                "requests": 60,
                "clients": [
                    {
                        "id": "users",
                        "arrivals": {"kind": "closed-loop", "users": 40},
                        "input_tokens": {"kind": "exponential", "mean": 600, "max": 2000},
                        "output_tokens": {"kind": "exponential", "mean": 200, "max": 800},
                        "timeout_us": 9_000_000,
                        "repeated_prompts": 40,
                    }
                ],
            },
            "warm_up_us": 2_000_000,
            "expect": [],
        },
    ),
    "stages": (
        "quickstart",
        {
            "workload": {
                "stages": [{"rate_per_s": 5.5, "duration_s": 2}, {"rate_per_s": 20, "duration_s": 2}],
                "exact_stage_counts": True,
                "clients": [{"id": "chat", "input_tokens": 300, "output_tokens": {"kind": "exponential", "mean": 128}}],
            },
            "expect": [],
        },
    ),
    "tenants who take turns": (
        "gateway-queue",
        {
            "workload": {
                "requests": 60,
                "rate_per_s": 30,
                "clients": [
                    {"id": name, "tenant": name, "input_tokens": 300, "output_tokens": 40}
                    for name in ("north", "east", "south", "west")
                ],
            },
            "policy.gateway.fairness": "round-robin",
            "policy.gateway.saturation.max_concurrency": 2,
            "expect": [],
        },
    ),
    "sliding windows": (
        "shared-prefixes",
        {
            "model": "gpt-oss-120b",
            "policy.batching": {"kind": "vllm-v1", "reserve_full_input": False},
            "engine.kv_blocks": 240,
            "workload.requests": 30,
            "workload.rate_per_s": 60,
            "expect": [],
        },
    ),
    TIMEOUTS: (
        "kv-pressure",
        {"workload.clients.0.timeout_us": 1_500_000, "horizon_us": 15_000_000, "workload.requests": 100, "expect": []},
    ),
    "timeouts under sglang": (
        "retraction",
        {
            "policy.batching": {"kind": "sglang", "schedule_conservativeness": 0.05, "scheduler_recv_interval": 3},
            "workload.clients.0.timeout_us": 2_000_000,
            "workload.clients.1.timeout_us": 1_200_000,
            "workload.requests": 60,
            "engine.kv_blocks": 6000,
            "cluster.instances": 2,
            "expect": [],
        },
    ),
}
"""Name -> experiment and what to replace in it."""

EXPERIMENTS: Final = names("Experiment")
SHORTER: Final = {
    "admission-control": 220,
    "autoscaling": 240,
    "burst": 20,
    "chunked-prefill": 15,
    "disaggregation": 15,
    "fcfs": 45,
    "gateway-queue": 25,
    "instance-dies": 80,
    "kv-overload": 30,
    "kv-pressure": 35,
    "kv-store": 30,
    "kv-tiers": 25,
    "lora-adapters": 90,
    "mixed-fleet": 40,
    "mixture-of-experts": 30,
    "photos": 30,
    "pipeline-bubble": 10,
    "prefix-routing": 20,
    "prompts-first": 15,
    "quickstart": 15,
    "retraction": 80,
    "schedulers": 70,
    "service-classes": 20,
    "shared-prefixes": 15,
    "sjf": 45,
    "skipping": 48,
    "stale-signals": 20,
    "steady-chat": 30,
    "tenant-budgets": 25,
    "thinking": 12,
    "unfair-tenants": 25,
    "vllm-preemption": 40,
    "wide-experts": 20,
}
"""Requests of long experiments, enough for records of all the kinds that they have as they ship: they are run some
twenty times over."""
_OTHERWISE_SHORTER: Final[dict[str, dict[str, object]]] = {
    "conversations": {"workload.sessions": 8, "workload.clients.0.output_tokens.mu": 4.0, "expect": []},
    # The run of `autoscaling`; its own are expectations of the course, which hear every event.
    "recovery": {
        "workload.requests": 80,
        "expect": [
            {"eventually": "waiting == 0", "after": "waiting > 50", "within": "30s"},
            {"never": "preempted", "after": "scaled", "within": "1s"},
            {"count": "scaled", "max": 12},
        ],
    },
}
AS_IT_IS: Final = {
    "conversations": "anywhere",
    "disaggregation": "disaggregated",
    "gateway-queue": "held",
    "kv-store": "shared",
    "kv-tiers": "none",
    "lora-adapters": "affinity",
    "mixed-fleet": "predicting",
    "pipeline-bubble": "four-stages",
    "prefix-routing": "prefix-aware",
    "prompts-first": "prompts-first",
    "retraction": "bold",
    "schedulers": "vllm-v1",
    "skipping": "skipped",
    "stale-signals": "fresh",
    "tenant-budgets": "without-budget",
    "wide-experts": "ranks",
}
"""Of experiments with cases the one that changes nothing: its golden is that of the experiment."""
CASES: Final = (*EXPERIMENTS, *VARIANTS)


def case(name: str) -> tuple[str, dict[str, object]]:
    """The experiment of a case, and what to replace in it."""
    if name in VARIANTS:
        return VARIANTS[name]
    return name, _OTHERWISE_SHORTER.get(name) or (
        {"workload.requests": SHORTER[name], "expect": []} if name in SHORTER else {}
    )
