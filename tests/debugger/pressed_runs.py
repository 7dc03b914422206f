"""Small runs in which everything happens that can make a request late: what explanations are tested with."""

from __future__ import annotations

from functools import cache

import blis_tui
from blis_tui.debugger.debugger import Debugger
from blis_tui.debugger.history import run_to_stop
from blis_tui.debugger.why.explanation import Explanation, Subject
from tests.cluster.fleets import EARLY, GATEWAY, IDLE, SPLIT

IMPATIENT = [
    {
        "id": "chat",
        "arrivals": {"kind": "poisson"},
        "input_tokens": {"kind": "gaussian", "mean": 200, "std_dev": 80, "min": 16, "max": 500},
        "output_tokens": {"kind": "gaussian", "mean": 150, "std_dev": 60, "min": 1, "max": 400},
        "prefix": {"group": "all", "tokens": 100},
        "timeout_us": 1_500_000,
    }
]
VLLM = {"kind": "vllm-v1"}
RUNS: dict[str, tuple[str, dict[str, object]]] = {
    "kv-pressure": ("kv-pressure", {}),
    "vllm-preemption": ("vllm-preemption", {}),
    "priority victims": (
        "kv-pressure",
        {"policy.preemption": {"victim": "priority"}, "policy.priority": {"kind": "inverted-slo"}},
    ),
    "time-outs": ("kv-pressure", {"workload.clients": IMPATIENT, "engine.kv_blocks": 100, "workload.rate_per_s": 40}),
    "time-outs in vllm": (
        "kv-pressure",
        {
            "workload.clients": IMPATIENT,
            "engine.kv_blocks": 100,
            "workload.rate_per_s": 40,
            "policy.batching": {**VLLM, "watermark": 0.05, "version": "0.10", "max_num_partial_prefills": 2},
        },
    ),
    "small budget": ("kv-pressure", {"engine.max_num_batched_tokens": 24, "workload.requests": 80}),
    "small batch": (
        "kv-pressure",
        {"engine.max_num_seqs": 6, "engine.long_prefill_token_threshold": 64, "workload.requests": 60},
    ),
    "whole prompts": (
        "kv-pressure",
        {
            "policy.batching": {**VLLM, "enable_chunked_prefill": False},
            "engine.max_model_len": 2048,
            "engine.kv_blocks": 300,
            "workload.requests": 80,
        },
    ),
    "first chunk only": (
        "kv-pressure",
        {"policy.batching": {**VLLM, "reserve_full_input": False}, "engine.max_num_batched_tokens": 96},
    ),
    "chunks pause": (
        "kv-pressure",
        {
            "policy.batching": {**VLLM, "version": "0.33", "async_scheduling": False, "prefill_schedule_interval": 6},
            "engine.max_num_batched_tokens": 64,
            "engine.kv_blocks": 2000,
            "engine.max_model_len": 2048,
            "workload.requests": 50,
        },
    ),
    "prompts first": (
        "kv-pressure",
        {
            "policy.batching": "nano",
            "engine.max_model_len": 2048,
            "engine.max_num_seqs": 12,
            "engine.kv_blocks": 300,
            "workload.requests": 60,
        },
    ),
    "one pass": (
        "kv-pressure",
        {
            "policy.batching": "llm-serving-sim",
            "engine.max_num_batched_tokens": 96,
            "engine.max_num_seqs": 12,
            "engine.kv_blocks": 250,
            "workload.requests": 40,
        },
    ),
    "three instances": (
        "kv-pressure",
        {
            "cluster.instances": 3,
            "workload.rate_per_s": 40,
            "cluster.admission_latency_us": 300,
            "cluster.routing_latency_us": 70,
            "latency": {"kind": "blackbox"},
            "workload.requests": 90,
        },
    ),
    "prefixes": ("shared-prefixes", {"workload.requests": 80}),
    "admission": ("admission-control", {"workload.requests": 300}),
    "shortest first": ("sjf", {"workload.requests": 150}),
    "classes": ("service-classes", {"workload.requests": 150}),
    "trace": ("trace-replay", {}),
    "gateway": ("quickstart", {**GATEWAY, "workload.requests": 120}),
    "split": ("quickstart", {**SPLIT, "workload.requests": 80}),
    "split early": ("quickstart", {**EARLY, "workload.requests": 80}),
    "put off": ("quickstart", {**IDLE, "workload.requests": 60}),
}
"""Name -> shipped experiment and what is changed in it."""


@cache
def experiment(name: str) -> blis_tui.Experiment:
    """The experiment of a run."""
    shipped, changed = RUNS[name]
    return blis_tui.load(shipped, set=changed)


@cache
def finished(name: str) -> Debugger:
    """A debugger that knows the whole run; whoever moves it must go to where it needs to be first."""
    debugger = Debugger(experiment(name))
    run_to_stop(debugger.run())
    assert debugger.failure is None
    return debugger


def refs(explanation: Explanation) -> list[Subject]:
    """Everything an explanation mentions, in order."""
    sentences = (
        sentence for part in explanation.parts for sentence in (*part.sentences, *(row.note for row in part.rows))
    )
    return [piece for sentence in sentences for piece in sentence if isinstance(piece, Subject)]
