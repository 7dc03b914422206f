"""Compare simulated with measured servers, and write the tables of docs/accuracy.md.

    python benchmarks/accuracy.py --data DIR                       all runs, the step-time models of the table
    python benchmarks/accuracy.py --data DIR --kinds fitted        some of them
    python benchmarks/accuracy.py --data DIR --write docs/accuracy.md

DIR holds the measurements: ``training-steps/`` and ``serving-measurements/``. They are no part of this repository;
where they are missing, nothing is done. Each run is simulated as it was loaded: stages of Poisson arrivals with exact
counts and repeated prompts, or users in a closed loop. For ``fitted`` each model is judged with coefficients that were
fitted without it (``benchmarks/leave_one_out.json``).
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median
from typing import TYPE_CHECKING

import blis_tui
from blis_tui.errors import BlisError
from blis_tui.registry import builtin

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).parent
KINDS = ("trained-physics", "roofline", "fitted", "fitted-seen", "operators")
SEEN = "fitted-seen"
"""``fitted`` as it ships, with coefficients that have seen all models."""
METRICS = ("e2e", "ttft", "itl")
BEGIN, END = "<!-- begin of the tables -->", "<!-- end of the tables -->"
SORTED_SAMPLING = ("llama-3.1-70b-instruct", "qwen2.5-7b-instruct", "llama-4-scout-17b-16e-instruct-fp8-dynamic")
"""Models whose generation_config.json asks for top-p or top-k, which clients left as it is."""
WARM_UP_US = 60_000_000

_LLAMA_2_70B = {
    "hidden_size": 8192,
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "intermediate_size": 28672,
    "max_position_embeddings": 4096,
    "vocab_size": 32000,
    "hidden_act": "silu",
    "torch_dtype": "bfloat16",
}
CONFIGS: dict[str, dict[str, object]] = {
    "llama-2-70b-hf": _LLAMA_2_70B,
    "llama-3.3-70b-fp8": {
        **_LLAMA_2_70B,
        "max_position_embeddings": 131072,
        "vocab_size": 128256,
        "quantization_config": {"quant_method": "fp8"},
    },
    "gpt-oss-120b": {
        "hidden_size": 2880,
        "num_hidden_layers": 36,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "head_dim": 64,
        "intermediate_size": 2880,
        "num_local_experts": 128,
        "num_experts_per_tok": 4,
        "max_position_embeddings": 131072,
        "vocab_size": 201088,
        "hidden_act": "silu",
        "torch_dtype": "bfloat16",
        "sliding_window": 128,
        "layer_types": ["sliding_attention", "full_attention"] * 18,
        "quantization_config": {"quant_method": "mxfp4"},
    },
}
"""Models that do not ship with the package."""


POLICY = {
    "apiVersion": "blis/v1",
    "kind": "Policy",
    "metadata": {"name": "vllm"},
    "batching": {"kind": "vllm-v1", "async_scheduling": True},
}
"""As the servers ran."""


@dataclass(frozen=True)
class Run:
    """One measured run: what to simulate, and what was measured, in milliseconds."""

    group: str
    model: str
    hardware: str
    tensor_parallel: int
    engine: str
    spec: dict[str, object]
    measured: dict[str, float]
    """Metric -> mean of all requests that count."""
    warm_up_us: int = 0
    """Requests that arrive before do not count."""


def spec_of(name: str, model: str, hardware: str, tensor_parallel: int, **more: object) -> dict[str, object]:
    """The parts that all runs have in common."""
    described = {"apiVersion": "blis/v1", "kind": "Model", "metadata": {"name": model}, "config": CONFIGS.get(model)}
    return {
        "apiVersion": "blis/v1",
        "kind": "Experiment",
        "metadata": {"name": name},
        "model": described if model in CONFIGS else model,
        "hardware": hardware,
        "policy": POLICY,
        "cluster": {"instances": 1, "tensor_parallel": tensor_parallel},
        **more,
    }


def staged(stages: list[tuple[float, float]], users: int, shared: int, question: int, output: int) -> dict[str, object]:
    """inference-perf's load: prompts of so many users, again and again."""
    return {
        "stages": [{"rate_per_s": rate, "duration_s": seconds} for rate, seconds in stages],
        "exact_stage_counts": True,
        "clients": [
            {
                "id": "users",
                "repeated_prompts": users,
                "prefix": {"group": "system", "tokens": shared},
                "input_tokens": question,
                "output_tokens": output,
            }
        ],
    }


def development_runs(data: Path) -> Iterator[Run]:
    """Published means of H100 runs."""
    for run in json.loads((data / "training-steps/development-runs.json").read_text())["runs"]:
        load = run["load"]
        stages = [(rate, seconds) for rate, seconds in load["stages"]]
        users = load["groups"] * load["users"]
        spec = spec_of(
            f"development-{run['id']}",
            run["model"],
            run["hardware"],
            run["tensor_parallel"],
            engine={"max_num_batched_tokens": run["max_num_batched_tokens"], "max_num_seqs": 128},
            workload=staged(stages, users, load["shared_tokens"], load["question_tokens"], load["output_tokens"]),
        )
        measured = {metric: run["measured"]["all"][f"{metric}_mean"] for metric in METRICS}
        yield Run("development", run["model"], run["hardware"], run["tensor_parallel"], "vllm", spec, measured)


def training_runs(data: Path) -> Iterator[Run]:
    """The sound runs of ``runs.csv``; means over their requests after the warm-up."""
    rows: dict[str, list[tuple[int, int, float, float]]] = {}
    with gzip.open(data / "training-steps/requests.csv.gz", "rt") as file:
        for row in csv.DictReader(file):
            if row["failed"] == "0" and row["e2e_us"]:
                entry = (int(row["arrival_us"]), int(row["input_tokens"]), float(row["ttft_us"]), float(row["e2e_us"]))
                rows.setdefault(row["run"], []).append(entry)
    with (data / "training-steps/runs.csv").open() as file:
        runs = list(csv.DictReader(file))
    for run in runs:
        if run["saturated"] == "1":
            continue
        pairs = (stage.split("x") for stage in run["stages_rate_x_seconds"].split("+"))
        stages = [(float(rate), float(seconds)) for rate, seconds in pairs]
        output, tensor_parallel = int(run["output_tokens"]), int(run["tensor_parallel"])
        there = rows[run["run"]]
        prompt = round(mean(row[1] for row in there))
        spec = spec_of(
            f"training-{run['run']}",
            run["model"],
            run["hardware"],
            tensor_parallel,
            engine={
                "max_num_batched_tokens": int(run["max_num_batched_tokens"]),
                "max_num_seqs": int(run["max_num_seqs"]),
                "kv_blocks": int(run["kv_blocks"]),
            },
            workload=staged(stages, int(run["users"]), 100, prompt - 100, output),
        )
        inside = [row for row in there if row[0] >= WARM_UP_US]
        ttft, e2e = (mean(row[at] for row in inside) / 1e3 for at in (2, 3))
        measured = {"e2e": e2e, "ttft": ttft, "itl": (e2e - ttft) / (output - 1)}
        yield Run("training", run["model"], run["hardware"], tensor_parallel, "vllm", spec, measured, WARM_UP_US)


def serving_runs(data: Path) -> Iterator[Run]:
    """Users in a closed loop with fresh prompts; what its authors trust least is left out."""
    with (data / "serving-measurements/closed-loop.csv").open() as file:
        rows = list(csv.DictReader(file))
    for number, row in enumerate(rows):
        if row["trust"] == "doubtful":
            continue
        users = int(row["concurrency"])
        ratio = float(row["range_ratio"])
        lengths = {
            key: {"kind": "uniform", "min": round(ratio * int(row[of])), "max": int(row[of])}
            for key, of in (("input_tokens", "isl"), ("output_tokens", "osl"))
        }
        tensor_parallel = int(row["tensor_parallel"])
        spec = spec_of(
            f"serving-{number}",
            row["model"],
            row["hardware"],
            tensor_parallel,
            engine={
                "max_num_batched_tokens": int(row["max_num_batched_tokens"]),
                "max_num_seqs": int(row["max_num_seqs"]),
                "gpu_memory_utilization": float(row["gpu_memory_utilization"]),
                "kv_cache_dtype": row["kv_dtype"],
            },
            workload={
                "requests": 10 * users,
                "clients": [{"id": "users", "arrivals": {"kind": "closed-loop", "users": users}, **lengths}],
            },
        )
        measured = {"ttft": float(row["ttft_ms"]), "itl": float(row["tpot_ms"])}
        group = f"serving, {row['trust']}"
        yield Run(group, row["model"], row["hardware"], tensor_parallel, row["engine"], spec, measured)


def latency_of(kind: str, run: Run, left_out: dict[str, dict[str, dict[str, float]]]) -> dict[str, object]:
    """The step-time model for a run: ``fitted`` with coefficients that have not seen the run's model.

    The one development run of Llama 2 7B was not in the fit at all; the training runs of that model were.
    """
    if kind == "operators":
        return {"kind": kind, "engine": "tensorrt-llm" if run.engine == "trtllm" else run.engine}
    if not kind.startswith("fitted"):
        return {"kind": kind}
    known = left_out.get(run.model) if (run.group, run.model) != ("development", "llama-2-7b-hf") else None
    sorts = run.group == "development" and run.model in SORTED_SAMPLING
    if kind == SEEN:
        known = None
    return {"kind": "fitted", **(known or left_out["all"])[run.engine], "sorted_sampling": sorts}


def simulate(run: Run, latency: dict[str, object]) -> dict[str, float]:
    """Metric -> simulated mean, in milliseconds.

    Raises:
        BlisError: the step-time model does not know this model or accelerator.
    """
    document = {**run.spec, "latency": latency}
    if run.warm_up_us:
        document["warm_up_us"] = run.warm_up_us
    simulation = blis_tui.Simulation(blis_tui.load(document), check="off")
    simulation.run()
    found = simulation.report(verify=False).latency
    return {"e2e": found.e2e_ms.mean or 0.0, "ttft": found.ttft_ms.mean or 0.0, "itl": found.tpot_ms.mean or 0.0}


def errors_of(run: Run, kind: str, left_out: dict[str, dict[str, dict[str, float]]]) -> dict[str, float] | None:
    """Metric -> relative error; None where the step-time model cannot say anything."""
    try:
        found = simulate(run, latency_of(kind, run, left_out))
    except BlisError as error:
        sys.stderr.write(f"{run.spec['metadata']} {kind}: {error}\n")
        return None
    return {metric: found[metric] / value - 1.0 for metric, value in run.measured.items()}


def table(runs: list[Run], errors: dict[str, list[dict[str, float] | None]]) -> str:
    """Mean / median of the absolute errors in percent, by group, model, accelerator and engine."""
    keys = [(one.group, one.model, one.hardware, one.engine) for one in runs]
    columns = ("runs", "model", "GPU", "engine", "number", "step time", "E2E", "TTFT", "ITL")
    lines = [f"| {' | '.join(columns)} |", "|---|---|---|---|--:|---|--:|--:|--:|"]
    groups = [(*key,) for key in dict.fromkeys(keys)]
    for group in dict.fromkeys(one.group for one in runs):
        for key in [*(one for one in groups if one[0] == group), (group, "**all**", "", "")]:
            for kind, found in errors.items():
                there = [
                    error
                    for one, error in zip(keys, found, strict=True)
                    if error and one[0] == group and (one == key or key[1] == "**all**")
                ]
                cells = [f"{len(there)}", f"`{kind}`"]
                for metric in METRICS:
                    values = [abs(error[metric]) * 100 for error in there if metric in error]
                    cells.append(f"{mean(values):.1f} / {median(values):.1f}" if values else "")
                if there:
                    lines.append(f"| {' | '.join([*key, *cells])} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Simulate, compare, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the measurements")
    parser.add_argument("--kinds", nargs="+", default=None, help=f"step-time models (default: {' '.join(KINDS)})")
    parser.add_argument("--groups", nargs="+", default=["development", "training", "serving"])
    parser.add_argument("--every", type=int, default=1, metavar="N", help="take every N-th run of the serving ones")
    parser.add_argument("--write", type=Path, help="a page whose tables between the markers are replaced")
    options = parser.parse_args()
    if not (options.data / "training-steps").is_dir():
        sys.stderr.write(f"{options.data} holds no measurements: nothing to compare with\n")
        return 0
    known = {plugin.name for plugin in builtin().of("latency")}
    kinds = options.kinds or [kind for kind in KINDS if kind in known or kind == SEEN]
    left_out = json.loads((HERE / "leave_one_out.json").read_text())
    makers = {"development": development_runs, "training": training_runs, "serving": serving_runs}
    runs: list[Run] = []
    for group in options.groups:
        found = list(makers[group](options.data))
        runs += found[:: options.every] if group == "serving" else found
    errors: dict[str, list[dict[str, float] | None]] = {kind: [] for kind in kinds}
    started = time.monotonic()
    for number, run in enumerate(runs, 1):
        for kind in kinds:
            errors[kind].append(errors_of(run, kind, left_out))
        sys.stderr.write(f"\r{number} of {len(runs)} runs, {time.monotonic() - started:.0f} s ")
    sys.stderr.write("\n")
    text = table(runs, errors)
    sys.stdout.write(text)
    if options.write:
        page = options.write.read_text()
        head, _, rest = page.partition(BEGIN)
        options.write.write_text(f"{head}{BEGIN}\n\n{text}\n{END}{rest.partition(END)[2]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
