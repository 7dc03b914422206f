"""Compare simulated with measured servers, and write the tables of the pages about them.

    python benchmarks/accuracy.py --data DIR                       all runs, with the step-time models of the table
    python benchmarks/accuracy.py --data DIR --kinds fitted        only these step-time models
    python benchmarks/accuracy.py --data DIR --rows rows.csv       and a line for every run, model and metric
    python benchmarks/accuracy.py --data DIR --write                and write the pages' tables
    python benchmarks/accuracy.py --data DIR --errors              what reports quote: each server left out of the fit
    python -m benchmarks.accuracy --reproduce                      what ships and can be recomputed without DIR
    python benchmarks/accuracy.py --calibration                    how often those errors hold
    python benchmarks/accuracy.py --calibration --write            and write the page's tables

DIR holds the measurements: ``training-steps/``, which may not be redistributed, and ``serving-measurements/``, which
is also in ``benchmarks/data/``. Without them the script does nothing. Each run is simulated under the load it was
measured with: stages of Poisson arrivals with exact counts and repeated prompts, or users in a closed loop. ``fitted``
is judged on each model with coefficients fitted without that model (``benchmarks/leave_one_out.json``). For
``operators``, reports quote the error on each server with coefficients fitted without that server
(``benchmarks/left_out.json``, from ``benchmarks/leave_out.py``).
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import re
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import mean, median
from typing import TYPE_CHECKING, TypedDict

import blis_tui
from blis_tui.base.errors import BlisError
from blis_tui.engine.latency.operator_costs import OperatorCosts
from blis_tui.engine.latency.operator_settings import OperatorSettings
from blis_tui.model.defaults import SORTING_US, host_us
from blis_tui.results.expected_error import (
    ObservedLoad,
    clients_wait,
    error_bands,
    itl_amplification,
    pool_loads,
    strained,
)
from blis_tui.results.measured import LEFT_OUT as TRAITS_LEFT_OUT
from blis_tui.results.measured import SIZES, measured, traits_of
from blis_tui.spec.shipped import builtin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from blis_tui.results.expected_error import Band
    from blis_tui.results.measured import Known, Measured

HERE = Path(__file__).parent
KINDS = ("trained-physics", "roofline", "fitted", "fitted-seen", "operators")
SEEN = "fitted-seen"
"""``fitted`` as it ships, with coefficients fitted to all models."""
METRICS = ("e2e", "ttft", "itl")
LEFT_OUT = HERE / "left_out.json"
"""Server, or value of a trait (``group_of``) -> engine -> coefficient of ``operators`` -> its factor on the shipped
value, fitted without that server, or without all servers of that value."""
EVERY = 4
"""Of the serving runs, every fourth is simulated without the servers of its tensor parallelism and of its size."""
UNTOLD: dict[tuple[str, str], dict[str, float]] = {
    ("tensor_parallel", "trtllm"): {"layer_tp_us": 8.0},
    ("tensor_parallel", "vllm on b200"): {"layer_tp_us": 8.0},
    ("64B to 90B", "trtllm"): {"products_fp8_long": 1.2},
    ("90B to 256B", "trtllm"): {"experts_spread": 1.0, "experts_token_us": 0.1, "experts_layer_us": 0.0},
}
"""Trait or its value, and engine -> the coefficients that only servers of that value tell, because those left share it
or do not depend on it. Without them one would take what vLLM's servers on H100 and H200 told."""
COEFFICIENTS = (
    "products_fp8",
    "products_fp8_long",
    "layer_tp_us",
    "quantize_us",
    "moved",
    "experts_spread",
    "experts_mxfp4",
    "experts_token_us",
    "experts_layer_us",
    "request_us",
    "stream_us",
    "queue_us",
)
"""The fitted coefficients of ``operators``; each engine has its own values."""
CONTRADICTORY = ("vllm, 4 x h100, gpt-oss-120b", 512)
"""Two runs whose measured times contradict each other (see the page); nothing is derived from them."""
MEASURED = HERE.parent / "blis_tui/results/measured_errors.json"
"""The file from which reports derive their expected errors."""
MEDIANS = MEASURED.with_name("median_errors.json")
"""The medians of the summary."""
PAGE = HERE.parent / "docs" / "accuracy.md"
NOTEBOOK = HERE.parent / "docs" / "lab" / "measured-servers.md"
CALIBRATION_BEGIN, CALIBRATION_END = "<!-- begin of the calibration -->", "<!-- end of the calibration -->"
SUMMARY_BEGIN, SUMMARY_END = "<!-- begin of the summary -->", "<!-- end of the summary -->"
BEGIN, END = "<!-- begin of the tables -->", "<!-- end of the tables -->"
SORTED_SAMPLING = ("llama-3.1-70b-instruct", "qwen2.5-7b-instruct", "llama-4-scout-17b-16e-instruct-fp8-dynamic")
"""Models whose generation_config.json asks for top-p or top-k, and whose clients did not override it."""
WARM_UP_US = 60_000_000
DISTINCT_PROMPTS = 100
"""The number of prompts that inference-perf cycled through, whatever the number of users: in all training runs, the
lengths that the server counted repeat after exactly this many requests."""

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
}
"""Measured models that do not ship with the package."""


LAUNCHED = ("llama-3.3-70b-fp8", "b200", "vllm")
"""Servers whose steps with prompts are no CUDA graphs: InferenceMAX's script (``70b_fp8_b200_docker.sh``) asks for
``cudagraph_mode: FULL_DECODE_ONLY``. Those of other GPUs and models leave vLLM's default, or ask for graphs of up to
2,048 tokens."""


POLICY = {
    "apiVersion": "blis/v1",
    "kind": "Policy",
    "metadata": {"name": "vllm"},
    "batching": {"kind": "vllm-v1", "async_scheduling": True},
}
"""The engine settings of the measured servers."""


def tensorrt_llm(row: dict[str, str]) -> dict[str, object]:
    """The settings of the measured TensorRT-LLM servers.

    The scripts that started Llama 3.3 70B (InferenceMAX, ``70b_fp8_*_trt_slurm.sh``, October 2025) let prompts wait for
    each other where prompts and answers have 1,024 tokens and fewer than eight GPUs take part.
    """
    batching: dict[str, object] = {"kind": "tensorrt-llm"}
    small = row["isl"] == row["osl"] == "1024" and int(row["tensor_parallel"]) < 8
    if small and row["origin"] == "InferenceMAX" and row["model"] == "llama-3.3-70b-fp8":
        batching |= {"batch_wait_timeout_iters": 20, "batch_wait_max_tokens_ratio": 0.9}
    return {**POLICY, "metadata": {"name": "tensorrt-llm"}, "batching": batching}


class Expected(TypedDict):
    """What reports say about the accuracy of a step-time model."""

    settings: dict[str, object]
    """The settings that the errors were measured with; nothing is known about others."""
    varied: list[str]
    """Names of the settings that differed from run to run."""
    gpus: dict[str, dict[str, float]]


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
    """Metric -> its mean over the requests after the warm-up."""
    warm_up_us: int = 0
    """Requests that arrive earlier are not counted."""
    precision: str = "bf16"
    """Type of the weights."""
    prompt_tokens: int = 0
    """The longest prompt, prefix included."""
    expert_parallel: int = 1
    users: int = 0
    """Users of a closed loop; 0 = an open loop."""
    answer_tokens: float = 0.0
    """Mean length of an answer."""

    @property
    def at_a_time(self) -> float:
        """Mean number of requests on the server: the users, or by Little's law."""
        if self.users:
            return float(self.users)
        stages: list[dict[str, float]] = self.spec["workload"]["stages"]  # type: ignore[index]
        seconds = sum(stage["duration_s"] for stage in stages)
        rate = sum(stage["rate_per_s"] * stage["duration_s"] for stage in stages) / seconds
        return rate * self.measured["e2e"] / 1e3

    @property
    def server(self) -> str:
        """The server that was measured."""
        return f"{self.engine}, {self.tensor_parallel} x {self.hardware}, {self.model}"

    @property
    def family(self) -> str:
        """The model's family: its name up to the first digit."""
        return re.split(r"[-.]?\d", self.model, maxsplit=1)[0]


def spec_of(name: str, model: str, hardware: str, tensor_parallel: int, **more: object) -> dict[str, object]:
    """The part of the document that all runs have in common."""
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


def staged(stages: list[tuple[float, float]], shared: int, question: int, output: int) -> dict[str, object]:
    """inference-perf's load: it repeats the same prompts."""
    return {
        "stages": [{"rate_per_s": rate, "duration_s": seconds} for rate, seconds in stages],
        "exact_stage_counts": True,
        "clients": [
            {
                "id": "users",
                "repeated_prompts": DISTINCT_PROMPTS,
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
        spec = spec_of(
            f"development-{run['id']}",
            run["model"],
            run["hardware"],
            run["tensor_parallel"],
            engine={"max_num_batched_tokens": run["max_num_batched_tokens"], "max_num_seqs": 128},
            workload=staged(stages, load["shared_tokens"], load["question_tokens"], load["output_tokens"]),
        )
        measured = {metric: run["measured"]["all"][f"{metric}_mean"] for metric in METRICS}
        yield Run(
            "development",
            run["model"],
            run["hardware"],
            run["tensor_parallel"],
            "vllm",
            spec,
            measured,
            precision="fp8" if "fp8" in run["model"] else "bf16",
            prompt_tokens=load["shared_tokens"] + load["question_tokens"],
            answer_tokens=load["output_tokens"],
        )


def training_runs(data: Path) -> Iterator[Run]:
    """The valid runs of ``runs.csv``, with means over the requests after the warm-up."""
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
            workload=staged(stages, 100, prompt - 100, output),
        )
        inside = [row for row in there if row[0] >= WARM_UP_US]
        ttft, e2e = (mean(row[at] for row in inside) / 1e3 for at in (2, 3))
        measured = {"e2e": e2e, "ttft": ttft, "itl": (e2e - ttft) / (output - 1)}
        yield Run(
            "training",
            run["model"],
            run["hardware"],
            tensor_parallel,
            "vllm",
            spec,
            measured,
            WARM_UP_US,
            prompt_tokens=prompt,
            answer_tokens=output,
        )


def serving_runs(data: Path) -> Iterator[Run]:
    """Users in a closed loop with fresh prompts, without the measurements that their authors trust least."""
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
                "max_model_len": int(row["isl"]) + int(row["osl"]) + 200,
            },
            workload={
                "requests": 10 * users,
                "clients": [{"id": "users", "arrivals": {"kind": "closed-loop", "users": users}, **lengths}],
            },
        )
        if (row["model"], row["hardware"], row["engine"]) == LAUNCHED:
            spec["engine"] |= {"cudagraph_mode": "FULL_DECODE_ONLY"}  # type: ignore[operator]
        if row["engine"] == "trtllm":
            spec["policy"] = tensorrt_llm(row)
        measured = {"ttft": float(row["ttft_ms"]), "itl": float(row["tpot_ms"])}
        group = f"serving, {row['trust']}"
        yield Run(
            group,
            row["model"],
            row["hardware"],
            tensor_parallel,
            row["engine"],
            spec,
            measured,
            precision=row["precision"],
            prompt_tokens=int(row["isl"]),
            expert_parallel=int(row["expert_parallel"]),
            users=users,
            answer_tokens=(1.0 + ratio) / 2.0 * int(row["osl"]),
        )


def latency_of(kind: str, run: Run, left_out: dict[str, dict[str, dict[str, float]]]) -> dict[str, object]:
    """The step-time model for a run; for ``fitted``, with coefficients fitted without the run's model.

    The one development run of Llama 2 7B was not in the fit at all; the training runs of that model were.
    """
    if kind == "operators":
        # The clients of the serving runs ask for temperature 0; the others' left it to the model.
        # All were of versions that sorted to sample.
        sampling = {"sampling": "plain"} if run.users else SORTING_US
        engine = "tensorrt-llm" if run.engine == "trtllm" else run.engine
        return {"kind": kind, "engine": engine, "expert_parallel": run.expert_parallel, **sampling}
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
    latencies = simulation.report(verify=False).latency
    return {
        "e2e": latencies.e2e_ms.mean or 0.0,
        "ttft": latencies.ttft_ms.mean or 0.0,
        "itl": latencies.tpot_ms.mean or 0.0,
    }


def errors_of(run: Run, kind: str, left_out: dict[str, dict[str, dict[str, float]]]) -> dict[str, float] | None:
    """Metric -> relative error; None if the step-time model does not support the run."""
    try:
        found = simulate(run, latency_of(kind, run, left_out))
    except BlisError as error:
        sys.stderr.write(f"{run.spec['metadata']} {kind}: {error}\n")
        return None
    return {metric: found[metric] / value - 1.0 for metric, value in run.measured.items()}


def table(runs: list[Run], errors: dict[str, list[dict[str, float] | None]]) -> str:
    """Mean / median absolute error in percent, by group, model, accelerator and engine."""
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


BY = ("hardware", "family", "precision", "engine", "tensor_parallel", "prompt_tokens", "users")
"""Properties by which the tables group runs."""
LONG_TOKENS = 2048
"""Longer prompts count as long; no measured prompt length is near the limit."""


def shown(run: Run, name: str) -> str:
    """A property of a run as the tables show it: prompts are short or long."""
    value = getattr(run, name)
    return str(value) if name != "prompt_tokens" else f"{'>' if value > LONG_TOKENS else '<='} {LONG_TOKENS}"


def breakdown(runs: list[Run], errors: dict[str, list[dict[str, float] | None]]) -> str:
    """Mean / median absolute error in percent, and mean error, by one property of the runs at a time."""
    lines = ["| by | value | runs | step time | TTFT | bias | ITL | bias |", "|---|---|--:|---|--:|--:|--:|--:|"]
    for name in BY:
        of = [shown(run, name) for run in runs]
        for value in sorted(set(of), key=lambda one: (len(one), one) if one.isdecimal() else (0, one)):
            for kind, found in errors.items():
                there = [error for error, one in zip(found, of, strict=True) if error and one == value]
                cells = [name.replace("_", " "), value, str(len(there)), f"`{kind}`"]
                for metric in ("ttft", "itl"):
                    off = [error[metric] * 100 for error in there]
                    sizes = [abs(one) for one in off]
                    cells += [f"{mean(sizes):.1f} / {median(sizes):.1f}", f"{mean(off):+.1f}"] if off else ["", ""]
                lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def write_rows(file: Path, runs: list[Run], errors: dict[str, list[dict[str, float] | None]]) -> None:
    """One line for each run, step-time model and metric: measured and simulated, in milliseconds."""
    with file.open("w", newline="") as out:
        rows = csv.writer(out)
        rows.writerow(("run", "group", "model", *BY, "step_time", "metric", "measured_ms", "simulated_ms", "error"))
        for kind, found in errors.items():
            for run, error in zip(runs, found, strict=True):
                name = run.spec["metadata"]["name"]  # type: ignore[index]
                about = [name, run.group, run.model, *(getattr(run, one) for one in BY), kind]
                for metric, off in (error or {}).items():
                    value = run.measured[metric]
                    rows.writerow((*about, metric, f"{value:.6g}", f"{value * (1 + off):.6g}", f"{off:.5f}"))


def expected(runs: list[Run], errors: dict[str, list[dict[str, float] | None]]) -> dict[str, Expected]:
    """Step-time model -> the settings it was judged with, and GPU -> median absolute errors on vLLM in percent."""
    judged = [run for run in runs if run.engine == "vllm"]
    found: dict[str, Expected] = {}
    for kind, all_errors in errors.items():
        if kind == SEEN:
            continue
        on: dict[str, dict[str, float]] = {}
        for gpu in sorted({run.hardware for run in judged}):
            pairs = [(run, error) for run, error in zip(runs, all_errors, strict=True) if error and run in judged]
            there = [error for run, error in pairs if run.hardware == gpu]
            if there:
                typical = {
                    metric: round(median(abs(one[metric]) * 100 for one in there if metric in one), 1)
                    for metric in METRICS
                    if any(metric in one for one in there)
                }
                on[gpu] = {"runs": len(there), **typical}
        settings, varied = shipped_settings(kind, judged)
        found[kind] = {"settings": settings, "varied": varied, "gpus": on}
    return found


def shipped_settings(kind: str, runs: list[Run]) -> tuple[dict[str, object], list[str]]:
    """The settings that all runs share for a step-time model as it ships, and the names of those that differ."""
    values: dict[str, list[object]] = {}
    for run in runs:
        try:
            (pool,) = blis_tui.load({**run.spec, "latency": {"kind": kind}}).pools
        except BlisError:
            continue
        for name, setting in pool.latency.settings.items():
            values.setdefault(name, []).append(list(setting) if isinstance(setting, tuple) else setting)
    common = {name: found[0] for name, found in sorted(values.items()) if all(one == found[0] for one in found)}
    return common, sorted(values.keys() - common.keys())


def summary(found: dict[str, Expected]) -> str:
    """The same as a table."""
    lines = ["| step time | GPU | runs | E2E | TTFT | ITL |", "|---|---|--:|--:|--:|--:|"]
    for kind, typed_dict_type in found.items():
        for gpu, row in typed_dict_type["gpus"].items():
            cells = [str(row.get(metric, "")) for metric in METRICS]
            lines.append(f"| `{kind}` | {gpu} | {row['runs']} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def medians_text(found: dict[str, Expected]) -> str:
    """The content of the file from which ``blis_tui.results.measured`` has the medians."""
    gpus = {
        kind: {
            gpu: {name: value for name, value in row.items() if name != "runs"}
            for gpu, row in typed_dict_type["gpus"].items()
        }
        for kind, typed_dict_type in found.items()
    }
    return json.dumps(gpus, indent=1, sort_keys=True) + "\n"


def values_of(run: Run) -> dict[str, float]:
    """The fitted coefficients of ``operators`` for a run."""
    (pool,) = blis_tui.load({**run.spec, "latency": latency_of("operators", run, {})}).pools
    assert pool.operators is not None  # noqa: S101  (it is the kind)
    settings = {key: value for key, value in pool.latency.settings.items() if value is not None}
    costs = OperatorCosts(pool.operators, pool.model, pool.tensor_parallel, OperatorSettings(**settings))  # type: ignore[arg-type]
    return {name: float(getattr(costs.rest, name)) for name in COEFFICIENTS}


def size_of(run: Run) -> str:
    """The class of the model's size."""
    (pool,) = blis_tui.load(run.spec).pools
    return traits_of(blis_tui.load(run.spec), pool, prompt_tokens=0.0, cached_share=0.0).size


def group_of(run: Run, trait: str) -> str:
    """The name in ``LEFT_OUT`` of all servers with the run's value of a trait."""
    return f"size {size_of(run)}" if trait == "size" else f"{trait} {run.tensor_parallel}"


def untold(run: Run, trait: str) -> dict[str, float]:
    """Coefficients that only servers with the run's value of a trait tell, and what one would take without them."""
    found: dict[str, float] = {}
    if trait == "tensor_parallel" and run.tensor_parallel == 1:
        return found
    for of in (trait, size_of(run) if trait == "size" else trait):
        for engine in (run.engine, f"{run.engine} on {run.hardware}"):
            found |= UNTOLD.get((of, engine), {})
    return found


def errors_without(run: Run, trait: str, factors: dict[str, float]) -> dict[str, float]:
    """Metric -> the run's error with coefficients fitted without all servers that have its value of a trait."""
    latency = latency_of("operators", run, {})
    latency |= {name: value * factors.get(name, 1.0) for name, value in values_of(run).items()}
    found = simulate(run, {**latency, **untold(run, trait)})
    return {metric: round(found[metric] / run.measured[metric] - 1.0, 5) for metric in ("ttft", "itl")}


def measured_row(run: Run, without: dict[str, dict[str, dict[str, float]]], *, more: bool) -> list[object]:
    """One run as the error file has it: its server, the relevant properties, the errors, and their amplification.

    Args:
        run: what was measured.
        without: what ``LEFT_OUT`` has.
        more: whether also to simulate it without the servers of its tensor parallelism, and of its size.
    """
    latency = latency_of("operators", run, {})
    factors = without.get(run.server, {}).get(run.engine, {})
    latency |= {name: value * factors[name] for name, value in values_of(run).items() if factors.get(name, 1.0) != 1.0}
    warm_up = {"warm_up_us": run.warm_up_us} if run.warm_up_us else {}
    experiment = blis_tui.load({**run.spec, **warm_up, "latency": latency})
    simulation = blis_tui.Simulation(experiment, check="off")
    simulation.run()
    report = simulation.report(verify=False)
    (pool,) = experiment.pools
    load = pool_loads(experiment, report.to_dict())[pool.name]
    means = {"ttft": report.latency.ttft_ms.mean or 0.0, "itl": report.latency.tpot_ms.mean or 0.0}
    errors = {metric: round(value / run.measured[metric] - 1.0, 5) for metric, value in means.items()}
    amplified = 1.0
    if not clients_wait(experiment.workload):
        amplified = itl_amplification(load, simulation.cluster.instances[0].latency)
        if strained(pool, load, amplified):
            del errors["ttft"]  # mostly waiting time, which any error of the steps changes a lot
    traits = traits_of(
        experiment,
        pool,
        prompt_tokens=run.prompt_tokens,
        cached_share=load.cached_share,
        at_a_time=run.at_a_time,
    )
    trust = run.group.partition(", ")[2]
    first, rest = run.measured["ttft"], run.measured["itl"] * (run.answer_tokens - 1.0)
    row = [run.server, list(traits), errors, round(amplified, 3), trust, round(first / (first + rest), 4)]
    if not more:
        return row
    return [*row, {trait: _without(run, trait, without, errors) for trait in TRAITS_LEFT_OUT}]


def _without(
    run: Run, trait: str, without: dict[str, dict[str, dict[str, float]]], errors: dict[str, float]
) -> dict[str, float]:
    """The errors without the servers that share a trait, of the metrics that have an error."""
    factors = without.get(group_of(run, trait), {}).get(run.engine, {})
    return {metric: error for metric, error in errors_without(run, trait, factors).items() if metric in errors}


def measured_text(runs: list[Run], rows: list[list[object]]) -> str:
    """The content of the file that ``blis_tui.results.measured`` reads."""
    kind, kept = "operators", [one for one in runs if (one.server, one.users) != CONTRADICTORY]
    settings, varied = shipped_settings(kind, kept)
    experiments = [blis_tui.load({**one.spec, "latency": latency_of(kind, one, {})}) for one in kept]
    pools = [one.pools[0] for one in experiments]
    batching: dict[str, dict[str, list[object]]] = {}
    for run, experiment in zip(kept, experiments, strict=True):
        for name, value in experiment.policy.batching.settings.items():
            there = batching.setdefault(run.engine, {}).setdefault(name, [])
            if value not in there:
                there.append(value)
    batching["vllm"]["prefill_schedule_interval"] = [1]  # what it is without the key
    limits = {
        name: [min(getattr(pool.engine, name) for pool in pools), max(getattr(pool.engine, name) for pool in pools)]
        for name in ("max_num_batched_tokens", "max_num_seqs")
    }
    follows = set(host_us("vllm", "", asynchronous=False))  # from the scheduler's settings
    document = {
        "settings": {name: value for name, value in settings.items() if name not in follows},
        "varied": sorted({*varied, "expert_parallel"} - {"engine"} - follows),
        "coefficients": {"vllm": "vllm", "trtllm": "tensorrt-llm"},
        "batching": batching,
        "hardware": {pool.hardware.name: {name: getattr(pool.hardware, name) for name in FIGURES} for pool in pools},
        "limits": limits,
        "most_tokens": max(round(run.prompt_tokens + run.answer_tokens) for run in kept),
        "least_at_a_time": min(run.at_a_time for run in kept),
        "most_at_a_time": max(run.at_a_time for run in kept),
    }
    head = json.dumps(document, indent=2).removesuffix("\n}")
    listed = ",\n".join(
        f"    {json.dumps(row)}"
        for run, row in zip(runs, rows, strict=True)
        if (run.server, run.users) != CONTRADICTORY
    )
    return f'{{"{kind}": {head},\n  "runs": [\n{listed}\n  ]\n}}}}\n'


FIGURES = (
    "memory_gib",
    "peak_tflops_bf16",
    "peak_tflops_fp8",
    "peak_tflops_fp4",
    "memory_bandwidth_tb_per_s",
    "interconnect_gb_per_s",
)
"""The hardware properties that decide step times of ``operators`` and the number of KV blocks."""


GROUPS: dict[str, Callable[[Measured], bool]] = {
    "all": lambda _: True,
    "`good`": lambda one: one.trust == "good",
    "`fair`": lambda one: one.trust == "fair",
    "vLLM": lambda one: one.traits.engine == "vllm",
    "TensorRT-LLM": lambda one: one.traits.engine == "trtllm",
    "dense, fresh prompts": lambda one: one.traits.family == "dense" and one.traits.fresh,
    "experts, fresh prompts": lambda one: one.traits.family == "moe" and one.traits.fresh,
    "cached prompts": lambda one: not one.traits.fresh,
}
JUDGED = ("ttft", "itl", "e2e")


@dataclass(frozen=True)
class Judged:
    """A run's error, and the error expected from the other servers."""

    run: Measured
    metric: str
    error: float
    """In percent."""
    band: Band

    @property
    def within_median(self) -> bool:
        """Whether the error is within the expected median."""
        return abs(self.error) <= self.band.median

    @property
    def within_band(self) -> bool:
        """Whether the error is within the expected 90 % interval."""
        return self.band.low <= self.error <= self.band.high


def judged(known: Known, apart: Callable[[Measured, Measured], bool] | None = None) -> list[Judged]:
    """Every run and metric, with the error expected from independent servers.

    Args:
        known: all runs.
        apart: whether the first run may inform the expectation for the second; by default if their servers differ.
            Runs of the same server never inform each other.
    """
    found = []
    for one in known.runs:
        others = [other for other in known.runs if other.server != one.server and (apart is None or apart(one, other))]
        share = None if one.e2e_error is None else one.ttft_share * (1.0 + one.errors["ttft"]) / (1.0 + one.e2e_error)
        bands = error_bands(one.traits, others, ObservedLoad(0.0, ttft_share=share, amplified=one.amplified)).bands
        errors = {**one.errors, "e2e": one.e2e_error}
        for name, band in bands.items():
            error = errors.get(name)
            if error is not None:
                found.append(Judged(one, name, 100 * error, band))
    return found


def judged_without(known: Known, trait: str) -> list[Judged]:
    """Every run and metric, as of a server of a tensor parallelism, or size, that neither fit nor band has seen."""
    runs = [one._replace(errors=one.without[trait]) for one in known.runs if trait in one.without]
    found = []
    for one in runs:
        others = [other for other in known.runs if getattr(other.traits, trait) != getattr(one.traits, trait)]
        bands = error_bands(one.traits, others, ObservedLoad(0.0, amplified=one.amplified)).bands
        found += [Judged(one, name, 100 * error, bands[name]) for name, error in one.errors.items() if name in bands]
    return found


TRAITS_IN_TURN = (("tensor_parallel", "tensor parallelism", (1, 2, 4)), ("size", "size", SIZES[1:5]))


@dataclass(frozen=True)
class Held:
    """How often the quoted errors of a metric hold in a group of runs."""

    group: str
    metric: str
    number: int
    within_median: float
    """Share of the errors."""
    within_band: float
    median: float
    """Mean of the quoted errors in percent."""


@cache
def held(kind: str) -> tuple[Held, ...]:
    """For each group, how many errors of left-out servers lie within what the other servers let expect."""
    known = measured(kind)
    assert known is not None  # noqa: S101  (it ships)
    every, rows = judged(known), list[Held]()
    for name, belongs in GROUPS.items():
        rows += _held(name, [one for one in every if belongs(one.run)], JUDGED)
    for trait, title, values in TRAITS_IN_TURN:
        found = judged_without(known, trait)
        rows += _held(f"{title} left out, all", found, ("ttft", "itl"))
        for value in values:
            there = [one for one in found if getattr(one.run.traits, trait) == value]
            rows += _held(f"{title} left out: {value}", there, ("ttft", "itl"))
    return tuple(rows)


def _held(name: str, found: Sequence[Judged], metrics: Sequence[str]) -> Iterator[Held]:
    for metric in metrics:
        there = [one for one in found if one.metric == metric]
        if not there:
            continue
        inside, band = mean(one.within_median for one in there), mean(one.within_band for one in there)
        yield Held(name, metric, len(there), inside, band, mean(one.band.median for one in there))


def calibration(kind: str = "operators") -> str:
    """The same as a table."""
    lines = [
        "| runs | metric | number | within the median | within the band | median quoted |",
        "|---|---|--:|--:|--:|--:|",
    ]
    for one in held(kind):
        shares = f"{100 * one.within_median:.0f} % | {100 * one.within_band:.0f} %"
        lines.append(f"| {one.group} | {one.metric.upper()} | {one.number} | {shares} | {one.median:.1f} % |")
    return "\n".join(lines) + "\n"


def between(page: str, begin: str, text: str, end: str) -> str:
    """The page with the text between two markers replaced."""
    head, _, rest = page.partition(begin)
    return f"{head}{begin}\n\n{text}\n{end}{rest.partition(end)[2]}"


def write_errors(runs: list[Run], jobs: int | None) -> int:
    """Simulate every run with coefficients fitted without its server."""
    without = json.loads(LEFT_OUT.read_text())
    serving = [number for number, run in enumerate(runs) if run.users]
    more = {*range(len(runs))} - {*serving} | {*serving[::EVERY]}
    with ProcessPoolExecutor(jobs) as pool:
        jobs_ = [pool.submit(measured_row, run, without, more=number in more) for number, run in enumerate(runs)]
        rows = [future.result() for future in jobs_]
    MEASURED.write_text(measured_text(runs, rows))
    return 0


def main() -> int:
    """Simulate, compare, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder of the measurements")
    parser.add_argument(
        "--calibration",
        action="store_true",
        help="judge what reports say of errors, one server left out at a time; from what ships, without --data",
    )
    parser.add_argument(
        "--errors",
        action="store_true",
        help="write what reports derive from: all runs, each server left out of the fit",
    )
    parser.add_argument("--reproduce", action="store_true", help="recompute what can be without --data, and compare")
    parser.add_argument("--kinds", nargs="+", default=None, help=f"step-time models (default: {' '.join(KINDS)})")
    parser.add_argument("--groups", nargs="+", default=["development", "training", "serving"])
    parser.add_argument("--every", type=int, default=1, metavar="N", help="take every N-th run of the serving ones")
    parser.add_argument("--jobs", type=int, default=None, help="processes (default: one a core)")
    parser.add_argument("--rows", type=Path, metavar="FILE", help="a CSV file with every run's figures")
    parser.add_argument("--write", action="store_true", help="replace the tables of the pages, and what reports quote")
    options = parser.parse_args()
    if options.calibration:
        sys.stdout.write(calibration())
        if options.write:
            PAGE.write_text(between(PAGE.read_text(), CALIBRATION_BEGIN, calibration(), CALIBRATION_END))
        return 0
    if options.reproduce:
        from benchmarks.reproduce import reproduce  # noqa: PLC0415  (it builds on this module)

        text, wrong = reproduce(options.every, options.jobs)
        sys.stdout.write(text)
        return 1 if wrong else 0
    if options.data is None:
        parser.error("--data is missing")
    if not (options.data / "training-steps").is_dir():
        sys.stderr.write(f"{options.data} holds no measurements: nothing to compare with\n")
        return 0
    known = {plugin.name for plugin in builtin().of("latency")}
    kinds = options.kinds or [kind for kind in KINDS if kind in known or kind == SEEN]
    left_out = json.loads((HERE / "leave_one_out.json").read_text())
    makers = {"development": development_runs, "training": training_runs, "serving": serving_runs}
    if options.errors:
        return write_errors([run for maker in makers.values() for run in maker(options.data)], options.jobs)
    runs: list[Run] = []
    for group in options.groups:
        found = list(makers[group](options.data))
        runs += found[:: options.every] if group == "serving" else found
    started = time.monotonic()
    with ProcessPoolExecutor(options.jobs) as pool:
        jobs = [pool.submit(errors_of, run, kind, left_out) for run in runs for kind in kinds]
        for number, _ in enumerate(as_completed(jobs), 1):
            sys.stderr.write(f"\r{number} of {len(jobs)} simulations, {time.monotonic() - started:.0f} s ")
    sys.stderr.write("\n")
    errors = {kind: [job.result() for job in jobs[at :: len(kinds)]] for at, kind in enumerate(kinds)}
    text, means = table(runs, errors), expected(runs, errors)
    sys.stdout.write(f"{summary(means)}\n{text}\n{breakdown(runs, errors)}")
    if options.rows:
        write_rows(options.rows, runs, errors)
    if options.write:
        MEDIANS.write_text(medians_text(means))
        PAGE.write_text(between(PAGE.read_text(), SUMMARY_BEGIN, summary(means), SUMMARY_END))
        NOTEBOOK.write_text(between(NOTEBOOK.read_text(), BEGIN, text, END))
    return 0


if __name__ == "__main__":
    sys.exit(main())
