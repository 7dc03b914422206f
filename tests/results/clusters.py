"""Runs of clusters with a gateway, pools and transfers, for tests of what is reported about them."""

from __future__ import annotations

from functools import cache
from random import Random
from typing import TYPE_CHECKING

import blis_tui

if TYPE_CHECKING:
    from blis_tui.engine.records import Record
    from blis_tui.model import Experiment
    from blis_tui.results.report import Report

TARGETS = {"critical": {"ttft_ms": 60.0, "tpot_ms": 14.0}, "batch": {"e2e_ms": 500.0}}
WEIGHTS = {"throughput": 1.0, "tokens_per_sec": 0.5, "p99_ttft": 2.0, "mean_e2e": 3.0}
GATEWAY = {
    "order": "priority",
    "max_depth": 6,
    "when_full": "shed-least-urgent",
    "request_ttl_us": 400_000,
    "saturation": {"kind": "concurrency", "max_concurrency": 2},
}
SPLIT = {
    "prefill_instances": 2,
    "decode_instances": 2,
    "decider": {"kind": "prefix-threshold", "threshold_tokens": 500},
    "transfer": {"contention": "fair-share", "base_latency_us": 3000},
}
WEIGHTED = {"kind": "weighted", "scorers": [{"kind": "queue-depth"}, {"kind": "prefix-affinity", "weight": 2}]}


def document(cluster: dict[str, object], policy: dict[str, object], **more: object) -> dict[str, object]:
    """An experiment of three clients and two tenants on four instances."""
    clients = [
        {"id": "chat", "share": 0.5, "tenant": "a", "slo_class": "critical", "output_tokens": 20},
        {"id": "docs", "share": 0.3, "tenant": "b", "slo_class": "batch", "output_tokens": 5},
        {"id": "bots", "share": 0.2, "tenant": "b", "slo_class": "sheddable", "output_tokens": 12},
    ]
    lengths = (
        {"kind": "gaussian", "mean": 450, "std_dev": 200, "min": 40, "max": 900},
        1500,
        {"kind": "exponential", "mean": 1500, "min": 1, "max": 3000},
    )
    return {
        "apiVersion": "blis/v1",
        "kind": "Experiment",
        "metadata": {"name": "clusters"},
        "seed": 3,
        "model": "qwen3-14b",
        "hardware": "h100",
        "latency": "trained-physics",
        "workload": {
            "requests": 150,
            "rate_per_s": 40,
            "clients": [{**client, "input_tokens": tokens} for client, tokens in zip(clients, lengths, strict=True)],
        },
        "cluster": {"instances": 4, **cluster},
        "policy": {
            "apiVersion": "blis/v1",
            "kind": "Policy",
            "metadata": {"name": "p"},
            "routing": "least-loaded",
            "batching": "blis",
            **policy,
        },
        **more,
    }


DOCUMENTS: dict[str, dict[str, object]] = {
    "gateway": document({"instances": 2}, {"gateway": GATEWAY}),
    "split": document({"disaggregation": SPLIT}, {}, slo_targets=TARGETS, fitness={"weights": WEIGHTS}),
    "early": document(
        {
            "signals": {"results": "step-start"},
            "disaggregation": {
                **SPLIT,
                "decider": "always",
                "order": "decode-first",
                "transfer": {"starts": "step-start", "contention": "fixed-at-start"},
            },
        },
        {"gateway": {**GATEWAY, "dispatch": {"kind": "tick", "interval_us": 5000}}},
        horizon_us=3_000_000,
    ),
    "tight": document(
        {"disaggregation": {**SPLIT, "decider": "always"}}, {}, engine={"kv_blocks": 240}, slo_targets=TARGETS
    ),
    "budgets": document(
        {"instances": 2},
        {"tenant_budgets": {"fractions": {"b": 0.02}}, "deferral": {"kind": "idle-only"}},
        engine={"max_num_seqs": 32},
    ),
}


def random_document(seed: int) -> dict[str, object]:
    """A cluster drawn at random: with or without gateway, split, budgets, deferral and horizon."""
    draw = Random(seed)  # noqa: S311  (no secrets here)
    cluster: dict[str, object] = {"instances": draw.randint(4, 6)}
    policy: dict[str, object] = {"routing": draw.choice(["round-robin", "least-loaded", WEIGHTED])}
    if draw.random() < 0.6:
        transfer = {
            "contention": draw.choice(["none", "fair-share", "fixed-at-start"]),
            "starts": draw.choice(["step-end", "step-start"]),
            "base_latency_us": draw.choice([0, 40_000]),
        }
        cluster["disaggregation"] = {
            **SPLIT,
            "decider": draw.choice(["always", "never", {"kind": "direct-to-decode", "threshold_tokens": 600}]),
            "order": draw.choice(["prefill-first", "decode-first"]),
            "transfer": transfer,
        }
    if draw.random() < 0.6:
        dispatch = draw.choice([{"kind": "on-completion"}, {"kind": "tick", "interval_us": 2000}])
        limits: dict[str, object] = draw.choice([{"when_full": "reject", "max_depth": 0}, {"max_depth": 5}])
        policy["gateway"] = {**GATEWAY, "dispatch": dispatch, **limits}
    if draw.random() < 0.4:
        policy["tenant_budgets"] = {"fractions": {"b": 0.01}, "shed_below_priority": 4}
    if draw.random() < 0.3:
        policy["deferral"] = {"kind": "idle-only"}
    more: dict[str, object] = {"horizon_us": draw.randint(200_000, 4_000_000)} if draw.random() < 0.4 else {}
    if draw.random() < 0.5:
        more["engine"] = {"kv_blocks": draw.choice([220, 400])}
    made = document(cluster, policy, slo_targets=TARGETS, fitness={"weights": WEIGHTS}, report="full", **more)
    made["seed"] = seed
    return made


@cache
def experiment(name: str) -> Experiment:
    """One of ``DOCUMENTS``."""
    return blis_tui.load(DOCUMENTS[name])


@cache
def outcome(name: str) -> tuple[Report, tuple[Record, ...]]:
    """Its report and its records."""
    return simulated(experiment(name))


def simulated(made: Experiment) -> tuple[Report, tuple[Record, ...]]:
    """The report and the records of an experiment."""
    simulation = blis_tui.Simulation(made)
    records: list[Record] = []
    simulation.subscribe("all", records.append)
    simulation.run()
    return simulation.report(), tuple(records)
