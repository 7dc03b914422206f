"""The guard's inputs: experiments whose traces are drawn here, the same ones on every machine.

Drawing takes nothing but `random.Random.random()` (the Mersenne Twister, the same everywhere) and the four operations,
so no C library has a say. The lengths and gaps of the Azure-like trace follow the deciles of the conversation trace of
the Azure LLM inference traces of 2023.
"""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

Row = tuple[int, int, int]
"""Arrival in microseconds, prompt tokens, output tokens."""

_SHARES: Final = (0.0, 0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0)
_AZURE_GAPS_US: Final = (
    *(2, 538, 6320, 16129, 36523, 60722, 87254, 118424),
    *(158694, 213606, 288892, 420739, 565234, 890868, 4314579),
)
_AZURE_INPUT: Final = (2, 29, 181, 207, 387, 403, 703, 1020, 1071, 1130, 1315, 2735, 4083, 4142, 14050)
_AZURE_OUTPUT: Final = (7, 16, 41, 54, 77, 91, 103, 129, 177, 384, 400, 424, 451, 601, 1000)
_EXPONENTIAL: Final = (
    *(0.0, 0.0101, 0.0513, 0.1054, 0.2231, 0.3567, 0.5108, 0.6931),
    *(0.9163, 1.204, 1.6094, 2.3026, 2.9957, 4.6052, 6.9078),
)
"""Quantiles of the exponential distribution of mean 1."""

_POLICY: Final[Mapping[str, object]] = {
    "apiVersion": "blis/v1",
    "kind": "Policy",
    "metadata": {"name": "guard"},
    "admission": {"kind": "always-admit"},
    "routing": {"kind": "round-robin"},
    "scheduling": {"kind": "fcfs"},
    "priority": {"kind": "constant"},
    "batching": {"kind": "blis"},
    "preemption": {"victim": "tail", "restore": "recompute"},
}
_WEIGHTED: Final[Mapping[str, object]] = {
    "kind": "weighted",
    "scorers": [
        {"kind": "prefix-affinity", "weight": 3},
        {"kind": "queue-depth", "weight": 2},
        {"kind": "kv-utilization", "weight": 2},
    ],
}
_ASYNC_VLLM: Final[Mapping[str, object]] = {
    "kind": "vllm-v1",
    "watermark": 0.0,
    "reserve_full_input": True,
    "enable_chunked_prefill": True,
    "async_scheduling": True,
}
_BLACKBOX: Final[Mapping[str, object]] = {
    "kind": "blackbox",
    "alpha": [1000.0, 0.5, 200.0],
    "beta": [7000.0, 17.0, 70.0],
}
LARGE: Final = {"kv_blocks": 8192, "block_size_tokens": 64}
"""An engine with room for long prompts."""


def _at(share: float, quantiles: Sequence[float]) -> float:
    """The value below which that share lies, straight lines between the known ones."""
    for place in range(1, len(_SHARES)):
        if share <= _SHARES[place]:
            break
    low, high = _SHARES[place - 1], _SHARES[place]
    return quantiles[place - 1] + (quantiles[place] - quantiles[place - 1]) * (share - low) / (high - low)


def azure_like(requests: int, seed: int = 2023) -> Iterator[Row]:
    """Arrivals and lengths as an hour of Azure's conversations has them: 5.5 requests/s, 1,150 tokens in, 210 out."""
    draw, now = random.Random(seed).random, 0.0  # noqa: S311  (simulated, not secret)
    for _ in range(requests):
        now += _at(draw(), _AZURE_GAPS_US)
        yield int(now), int(_at(draw(), _AZURE_INPUT)), int(_at(draw(), _AZURE_OUTPUT))


def steady(requests: int, rate_per_s: float, output_tokens: int, seed: int) -> Iterator[Row]:
    """Exponential gaps; lengths that spread as much as a Gaussian with half its mean as deviation: 512 in."""
    draw, now = random.Random(seed).random, 0.0  # noqa: S311  (as above)

    def around(mean: int) -> int:
        # Four uniform draws are bell-shaped, with a variance of 1/3.
        bell = draw() + draw() + draw() + draw() - 2.0
        return int(min(max(mean + mean * 0.8660254 * bell, 2), 7000))

    for _ in range(requests):
        now += _at(draw(), _EXPONENTIAL) * 1e6 / rate_per_s
        yield int(now), around(512), around(output_tokens)


def write(
    folder: Path,
    name: str,
    rows: Iterator[Row],
    engine: Mapping[str, object],
    *,
    cluster: Mapping[str, object] | None = None,
    policy: Mapping[str, object] | None = None,
    **more: object,
) -> Path:
    """Write a trace and the experiment that replays it; returns the experiment's path."""
    trace = folder / f"{name}.csv"
    with trace.open("w", encoding="utf-8") as file:
        file.write("arrival_time_us,input_tokens,output_tokens\n")
        file.writelines(f"{arrival},{prompt},{output}\n" for arrival, prompt, output in rows)
    document: dict[str, object] = {
        "apiVersion": "blis/v1",
        "kind": "Experiment",
        "metadata": {"name": name},
        "seed": 42,
        "model": "qwen3-14b",
        "hardware": "h100",
        "latency": _BLACKBOX,
        "policy": {**_POLICY, **(policy or {})},
        "cluster": cluster or {"instances": 1, "tensor_parallel": 1},
        "engine": {
            "max_num_seqs": 256,
            "max_num_batched_tokens": 2048,
            "long_prefill_token_threshold": 0,
            "max_model_len": "none",
            **engine,
        },
        "workload": {
            "apiVersion": "blis/v1",
            "kind": "Workload",
            "metadata": {"name": "trace"},
            "trace": {"file": str(trace.resolve()), "format": "requests"},
        },
        **more,
    }
    path = folder / f"{name}.blis.yaml"
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def azure(folder: Path, requests: int = 600) -> Path:
    """One instance with time to breathe: nearly all steps are plain decodes."""
    return write(folder, "azure", azure_like(requests), LARGE)


def saturated(folder: Path, requests: int = 600) -> Path:
    """One instance with about 60 decoding at once."""
    return write(folder, "saturated", steady(requests, 10, 512, 5), {"kv_blocks": 20000, "block_size_tokens": 16})


def starved(folder: Path, requests: int = 250) -> Path:
    """One instance that runs out of KV blocks all the time."""
    return write(folder, "starved", steady(requests, 10, 256, 6), {"kv_blocks": 900, "block_size_tokens": 16})


def weighted32(folder: Path, requests: int = 800) -> Path:
    """32 instances behind a router that weighs prefixes, queues and KV caches."""
    return write(
        folder,
        "weighted32",
        steady(requests, 400, 256, 3200),
        {"kv_blocks": 15909, "block_size_tokens": 16},
        cluster={"instances": 32, "tensor_parallel": 1},
        policy={"routing": _WEIGHTED},
    )


def disaggregated(folder: Path, requests: int = 400) -> Path:
    """Four instances that prefill and four that decode; every request changes over."""
    return write(
        folder,
        "disaggregated",
        steady(requests, 60, 256, 8),
        {"kv_blocks": 15909, "block_size_tokens": 16},
        cluster={
            "instances": 8,
            "tensor_parallel": 1,
            "disaggregation": {"prefill_instances": 4, "decode_instances": 4, "decider": "always"},
        },
        policy={"routing": _WEIGHTED},
    )


def vllm_starved(folder: Path, requests: int = 200) -> Path:
    """The scheduler of vLLM, one step ahead of the GPU, with too few KV blocks."""
    engine = {"kv_blocks": 900, "block_size_tokens": 16}
    return write(folder, "vllm-starved", steady(requests, 10, 256, 9), engine, policy={"batching": _ASYNC_VLLM})


def operators(folder: Path, requests: int = 300) -> Path:
    """Step times from tables of measured operators."""
    return write(folder, "operators", azure_like(requests, 7), LARGE, latency={"kind": "operators"})


PHASED: Final[Mapping[str, Callable[[Path], Path]]] = {
    "azure": azure,
    "saturated": saturated,
    "starved": starved,
    "weighted32": weighted32,
    "disaggregated": disaggregated,
    "vllm-starved": vllm_starved,
    "operators": operators,
}
"""Experiments whose phases are counted one by one."""

AS_IT_WAS: Final = ("--set", "latency=roofline", "--set", "policy=blis")
"""What the quickstart said when the anchor was counted: other step times and another scheduler are other work."""

COMMANDS: Final[Mapping[str, tuple[str, ...]]] = {
    "help": ("--help",),
    "completion": ("completion", "bash"),
    "spec-list": ("spec", "list"),
    "quickstart": ("run", "quickstart", *AS_IT_WAS),
}
"""Commands that are counted as a whole."""

PLAN: Final[Mapping[str, object]] = {
    "source": "quickstart",
    "set": {"latency": "roofline", "policy": "blis"},
    "slos": ["latency.ttft_ms.p90<=100"],
    "rate_per_s": 50,
    "seeds": 1,
    "duration_s": 2.0,
}
"""The README's question to `blis_tui.plan`, over two seconds of arrivals instead of sixty."""

NAMES: Final = (*PHASED, *COMMANDS, "plan", "debugger")
"""Everything that the guard counts."""
