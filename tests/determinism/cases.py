"""What is run in many ways: every shipped experiment, and variants with what none of them has."""

from __future__ import annotations

from typing import Final

from blis_tui.spec.library import names

_HEAVY_TAILS: Final = {
    "workload.requests": 200,
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
        {"latency": {"kind": "operators"}, "workload.requests": 100, "expect": []},
    ),
    "users who wait for their answers": (
        "kv-pressure",
        {
            "workload": {
                "requests": 300,
                "clients": [
                    {
                        "id": "users",
                        "arrivals": {"kind": "closed-loop", "users": 40},
                        "input_tokens": {"kind": "exponential", "mean": 600, "max": 2000},
                        "output_tokens": {"kind": "exponential", "mean": 200, "max": 800},
                        "timeout_us": 9_000_000,
                        "repeated_prompts": 70,
                    }
                ],
            },
            "warm_up_us": 5_000_000,
            "expect": [],
        },
    ),
    "stages": (
        "quickstart",
        {
            "workload": {
                "stages": [{"rate_per_s": 5.5, "duration_s": 10}, {"rate_per_s": 20, "duration_s": 10}],
                "exact_stage_counts": True,
                "clients": [{"id": "chat", "input_tokens": 300, "output_tokens": {"kind": "exponential", "mean": 128}}],
            },
            "expect": [],
        },
    ),
    TIMEOUTS: (
        "kv-pressure",
        {"workload.clients.0.timeout_us": 1_500_000, "horizon_us": 15_000_000, "expect": []},
    ),
}
"""Name -> experiment and what to replace in it."""

EXPERIMENTS: Final = names("Experiment")
SHORTER: Final = {
    "admission-control": 170,
    "autoscaling": 330,
    "burst": 170,
    "chunked-prefill": 70,
    "disaggregation": 90,
    "instance-dies": 250,
    "quickstart": 150,
    "service-classes": 170,
    "shared-prefixes": 160,
    "stale-signals": 180,
    "unfair-tenants": 170,
}
"""Requests of long experiments, enough for everything in them to happen: they are run some twenty times over."""
CASES: Final = (*EXPERIMENTS, *VARIANTS)


def case(name: str) -> tuple[str, dict[str, object]]:
    """The experiment of a case, and what to replace in it."""
    if name in VARIANTS:
        return VARIANTS[name]
    return name, {"workload.requests": SHORTER[name], "expect": []} if name in SHORTER else {}
