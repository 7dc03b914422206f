"""Compare simulated servers with measured ones that no fit has seen, and of which reports quote no band of errors.

    python -m benchmarks.unseen            a line for every run, and the table of the lab notebook
    python -m benchmarks.unseen --write    and write that table, and the medians that reports name

They are users in a closed loop with fresh prompts (``benchmarks/data/``): SGLang, vLLM with a compressed KV cache and
INT4 experts, and NVIDIA's own runs of TensorRT-LLM 1.0. Settings are from the scripts of SemiAnalysisAI/InferenceX
where there is one (``benchmarks/single_node/*.sh``), otherwise the engine's defaults, which the authors need not have
used. Runs of Llama 3.1 8B on SGLang and vLLM are left out: their first tokens are too early for users who start
at once.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean, median
from typing import TYPE_CHECKING, Final

import yaml

import blis_tui
from benchmarks.accuracy import between

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from blis_tui.base.source import Json

HERE: Final = Path(__file__).parent
DATA: Final = HERE / "data" / "serving-measurements"
MODELS: Final = HERE.parent / "specs" / "models"
PAGE: Final = HERE.parent / "docs" / "lab" / "measured-servers.md"
BEGIN, END = "<!-- begin of the unseen -->", "<!-- end of the unseen -->"
MEDIANS: Final = HERE.parent / "blis_tui" / "results" / "unseen_errors.json"
"""The medians that reports name beside the reason why they quote nothing."""
METRICS: Final = ("ttft", "itl")


@dataclass(frozen=True)
class Server:
    """How a model was served."""

    model: str
    batching: Mapping[str, Json]
    rule: str
    """The batching rule."""
    family: str
    """As reports class it; ``linear`` = layers with a state."""
    engine: Mapping[str, Json] = field(default_factory=dict)
    per_user: tuple[str, ...] = ()
    """Limits of the engine that are the number of users."""
    changes: Mapping[str, Json] = field(default_factory=dict)
    """What differs in the model's configuration."""
    scripted: bool = True
    """Whether InferenceX has a script: lengths are then drawn uniformly from four fifths of the row's on."""


_INT4_EXPERTS: Final[Mapping[str, Json]] = {
    "quantization_config": {
        "quant_method": "compressed-tensors",
        "format": "pack-quantized",
        "config_groups": {
            "group_0": {
                "weights": {"num_bits": 4, "group_size": 32, "type": "int"},
                "input_activations": None,
                "targets": ["Linear"],
            }
        },
        "ignore": ["lm_head", "re:.*self_attn.*", "re:.*shared_experts.*", r"re:.*mlp\.(gate|up|gate_up|down)_proj.*"],
    }
}
"""Kimi K2.5: routed experts in INT4, everything else in 16 bits."""
_FP8: Final[Mapping[str, Json]] = {
    "quantization_config": {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]}
}
_NO_PROMPT_GRAPHS: Final[Mapping[str, Json]] = {"cudagraph_mode": "FULL_DECODE_ONLY"}
_SGLANG: Final[Mapping[str, Json]] = {"kind": "sglang"}
_TENSORRT_LLM: Final[Mapping[str, Json]] = {"kind": "tensorrt-llm"}

SERVERS: Final[Mapping[tuple[str, str], Server]] = {
    ("sglang", "qwen3.5-397b-a17b"): Server(
        "qwen3.5-397b-a17b",
        {**_SGLANG, "chunked_prefill_size": 16384},
        "sglang",
        "linear",
        {**_NO_PROMPT_GRAPHS, "kv_cache_dtype": "fp8", "gpu_memory_utilization": 0.8, "max_num_seqs": 128},
        changes=_FP8,
    ),
    ("sglang", "deepseek-r1"): Server(
        "deepseek-v3",
        {**_SGLANG, "chunked_prefill_size": 8192, "scheduler_recv_interval": 10},
        "sglang",
        "mla",
        {**_NO_PROMPT_GRAPHS, "kv_cache_dtype": "fp8", "gpu_memory_utilization": 0.95, "max_num_seqs": 32},
    ),
    ("sglang", "qwen3-235b-a22b-fp8"): Server(
        "qwen3-235b-a22b-fp8", _SGLANG, "sglang", "moe", _NO_PROMPT_GRAPHS, scripted=False
    ),
    ("vllm", "kimi-k2.5"): Server(
        "kimi-k2-instruct",
        {"kind": "vllm-v1"},
        "vllm-v1",
        "mla",
        {"gpu_memory_utilization": 0.95},
        ("max_num_seqs",),
        _INT4_EXPERTS,
    ),
    ("trtllm", "qwen3-235b-a22b-fp8"): Server(
        "qwen3-235b-a22b-fp8", _TENSORRT_LLM, "tensorrt-llm", "moe", scripted=False
    ),
    ("trtllm", "llama-3.1-8b-instruct"): Server(
        "llama-3.1-8b-instruct", _TENSORRT_LLM, "tensorrt-llm", "dense", scripted=False
    ),
}
"""Engine and model -> how it was served."""
ENGINES: Final = {"trtllm": "tensorrt-llm"}
"""Engines with coefficients of their own -> their name; SGLang has vLLM's."""
QUOTED: Final = ("dense, tensorrt-llm", "moe, tensorrt-llm")
"""Families and rules of which reports quote bands, from other servers."""


@dataclass(frozen=True)
class UnseenRun:
    """A measured run."""

    row: Mapping[str, str]
    server: Server

    @property
    def name(self) -> str:
        """Engine and version, GPUs, model."""
        row = self.row
        return f"{row['engine']} {row['engine_version']}, {row['tensor_parallel']} x {row['hardware']}, {row['model']}"

    @property
    def short(self) -> str:
        """Model and GPU."""
        return f"{self.row['model']} on {self.row['hardware']}"

    def document(self) -> dict[str, object]:
        """The experiment that it is."""
        row, server, users = self.row, self.server, int(self.row["concurrency"])
        prompt, answer = int(row["isl"]), int(row["osl"])
        within = {
            key: {"kind": "uniform", "min": 4 * most // 5, "max": most} if server.scripted else most
            for key, most in (("input_tokens", prompt), ("output_tokens", answer))
        }
        engine = {
            "max_model_len": prompt + answer + 20,
            "enable_prefix_caching": False,
            **server.engine,
            **dict.fromkeys(server.per_user, users),
        }
        latency: dict[str, object] = {"kind": "operators", "sampling": "plain"}
        latency |= {"engine": ENGINES[row["engine"]]} if row["engine"] in ENGINES else {}
        latency |= {"expert_parallel": int(row["expert_parallel"])} if row["expert_parallel"] != "1" else {}
        return {
            "apiVersion": "blis/v1",
            "kind": "Experiment",
            "metadata": {"name": "unseen"},
            "model": described(server),
            "hardware": row["hardware"],
            "policy": {"batching": dict(server.batching)},
            "cluster": {"instances": 1, "tensor_parallel": int(row["tensor_parallel"])},
            "engine": engine,
            "latency": latency,
            "workload": {
                "requests": 10 * users,
                "clients": [{"id": "users", "arrivals": {"kind": "closed-loop", "users": users}, **within}],
            },
        }

    def errors(self) -> dict[str, float]:
        """Metric -> simulated / measured - 1, of the means."""
        simulation = blis_tui.Simulation(blis_tui.load(self.document()), check="off")
        simulation.run()
        latency = simulation.report(verify=False).latency
        found = {"ttft": latency.ttft_ms.mean or 0.0, "itl": latency.tpot_ms.mean or 0.0}
        measured = {"ttft": float(self.row["ttft_ms"]), "itl": float(self.row["tpot_ms"])}
        return {metric: found[metric] / measured[metric] - 1.0 for metric in METRICS}


def described(server: Server) -> object:
    """The model's document, or its name where it is served as it ships."""
    if not server.changes:
        return server.model
    shipped = yaml.safe_load((MODELS / f"{server.model}.yaml").read_text())
    return {**shipped, "config": {**shipped["config"], **server.changes}}


def unseen_runs() -> Iterator[UnseenRun]:
    """The measured runs; of several of one load the last: one of Kimi K2.5 has a quarter of the former ITL."""
    latest: dict[tuple[str, ...], UnseenRun] = {}
    for file in ("other-engines.csv", "closed-loop.csv"):
        with (DATA / file).open() as lines:
            rows = list(csv.DictReader(lines))
        for row in rows:
            server = SERVERS.get((row["engine"], row["model"]))
            if server is None or (file == "closed-loop.csv" and row["trust"] != "doubtful"):
                continue
            load = (*(row[key] for key in ("engine", "model", "tensor_parallel", "isl", "osl", "concurrency")),)
            latest[load] = UnseenRun(row, server)
    yield from latest.values()


def table(runs: Sequence[UnseenRun], found: Sequence[Mapping[str, float]]) -> str:
    """Errors in percent by server: mean and median of their sizes, and the signed median."""
    groups: dict[str, list[Mapping[str, float]]] = defaultdict(list)
    for run, errors in zip(runs, found, strict=True):
        groups[run.name].append(errors)
    lines = ["| server | runs | TTFT | ITL |", "|---|--:|---|---|"]
    for name, members in groups.items():
        cells = [sizes([errors[metric] for errors in members]) for metric in METRICS]
        lines.append(f"| {name} | {len(members)} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def sizes(errors: Sequence[float]) -> str:
    """Mean and median of the absolute errors and the median of the errors, in percent."""
    absolute = [100.0 * abs(error) for error in errors]
    return f"{mean(absolute):.1f} / {median(absolute):.1f} ({100.0 * median(errors):+.0f})"


def medians(runs: Sequence[UnseenRun], found: Sequence[Mapping[str, float]]) -> dict[str, dict[str, str | float]]:
    """Family and batching rule -> models and GPUs, the number of runs, and median absolute errors in percent."""
    groups: dict[str, list[tuple[UnseenRun, Mapping[str, float]]]] = defaultdict(list)
    for run, errors in zip(runs, found, strict=True):
        groups[f"{run.server.family}, {run.server.rule}"].append((run, errors))
    return {
        name: {
            "servers": ", ".join(dict.fromkeys(run.short for run, _ in members)),
            "runs": len(members),
            **{metric: round(median(100.0 * abs(errors[metric]) for _, errors in members), 1) for metric in METRICS},
        }
        for name, members in groups.items()
        if name not in QUOTED
    }


def main() -> None:
    """Simulate, print, and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the page's table and the medians of reports")
    parser.add_argument("--jobs", type=int, default=2, help="processes (2)")
    asked = parser.parse_args()
    runs = list(unseen_runs())
    with ProcessPoolExecutor(asked.jobs) as pool:
        found = list(pool.map(UnseenRun.errors, runs))
    for run, errors in zip(runs, found, strict=True):
        load = " ".join(run.row[key] for key in ("isl", "osl", "concurrency"))
        sys.stdout.write(f"{run.name} {load}: {100 * errors['ttft']:+.0f} {100 * errors['itl']:+.0f}\n")
    sys.stdout.write(f"\n{table(runs, found)}")
    if asked.write:
        PAGE.write_text(between(PAGE.read_text(), BEGIN, table(runs, found), END))
        MEDIANS.write_text(json.dumps(medians(runs, found), indent=1) + "\n")


if __name__ == "__main__":
    main()
