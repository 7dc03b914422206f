"""Compare simulated with measured rates of MLPerf Inference: language models on GPUs that no fit has seen.

    python -m benchmarks.mlperf --data DIR              by GPU, model and scenario
    python -m benchmarks.mlperf --data DIR --steps 1.2  the same with AMD's steps 20 % longer

DIR holds ``results.csv`` and ``amd-settings.json`` of MLPerf Inference v5.1, closed division. They are not part of this
repository; without them the script does nothing. Each platform runs one engine per GPU (TP 1). Prompt lengths are those
of MLPerf's data sets (``KINDS``): OpenOrca for Llama 2 70B; GSM8K with its worked examples, OpenOrca and MBXP for
Mixtral; CNN/DailyMail for Llama 3.1 8B. Answers have the measured mean (tokens per second / requests per second):
Mixtral's kinds in proportion to the reference's, Llama 2 70B's exponentially distributed, Llama 3.1 8B's all of 128
tokens.

Loads are LoadGen's. Offline: all requests at once, as many as the platform answers in eleven minutes (a tenth more than
the ten that are the least), measured in tokens per second over the whole run, its end included; one engine gets its
share. Server and interactive: Poisson arrivals at the submitted rate, for ten minutes, to four of AMD's eight engines,
each request to the one with the fewest.

AMD (`fitted` with NVIDIA's coefficients, and the shares of bandwidth and peak in AMD's hardware documents): where
chunked prefill is off, whole prompts go first and all decodes wait; the batch never exceeds the target batch; the
engine looks for new requests after every group of steps that it runs at a time. What else its scheduler does to reach a
target batch is not known. Its KV cache has 8 bits, the default of its harness (without that, 1,536 requests do not fit
into memory). L40S (vLLM 0.10.0) and RTX PRO 6000 (TensorRT-LLM, an engine that TensorRT built), with `operators`: the
settings that Red Hat and HPE published (``closed/RedHat/code/llama3.1-8b/README.md``, ``closed/HPE/configs/
HPE_PROLIANT_DL380A_RTX_PRO_6000_PCIE_96GBx8_TRT`` of mlcommons/inference_results_v5.1). HPE's Mixtral has 8.75 bits a
weight (``effective_bits``): NVIDIA's script keeps the weights that lose most in FP8 in 16 bits, up to that mean
(fp8+fp16, TensorRT Model Optimizer's ``auto_quantize``), here 9.4 % of them. Rows with 4-bit weights are left out,
because there are no tables of NVFP4.

The last column is the factor by which an error of the steps grows in the time per token, by the formula of the reports
(``blis_tui/results/expected_error.py``); above 3 they quote no error of TTFT.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import sys
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import mean, median

import blis_tui
from benchmarks.accuracy import CONFIGS
from blis_tui.engine.latency.creation import create_latency
from blis_tui.engine.latency.fitted import FittedSettings
from blis_tui.engine.latency.model import Chunk, StepLoad
from blis_tui.live.calibration.fitting.laws import STEP_TERMS
from blis_tui.results.expected_error import itl_amplification, pool_loads
from blis_tui.spec.shipped import builtin

GPUS = {
    "MI300X": "mi300x",
    "MI325X": "mi325x",
    "MI355X": "mi355x",
    "L40S": "l40s",
    "RTX PRO 6000": "rtx-pro-6000",
}
ENGINES = {"l40s": "vllm", "rtx-pro-6000": "tensorrt-llm"}
"""The engines of GPUs that are simulated with ``operators``."""
_HPE: dict[str, object] = {"max_num_seqs": 2048, "gpu_memory_utilization": 0.94, "kv_cache_dtype": "fp8"}
"""98 % of the memory left by 8.75-bit weights is as much as 94 % of all memory leaves with 8-bit weights."""
PUBLISHED: dict[tuple[str, str], dict[str, object]] = {
    ("l40s", "Offline"): {
        "max_num_seqs": 512,
        "max_num_batched_tokens": 16384,
        "long_prefill_token_threshold": 256,
        "gpu_memory_utilization": 0.95,
        "kv_cache_dtype": "fp8",
    },
    ("l40s", "Server"): {
        "max_num_seqs": 256,
        "max_num_batched_tokens": 2048,
        "gpu_memory_utilization": 0.96,
        "kv_cache_dtype": "fp8",
    },
    ("rtx-pro-6000", "Offline"): {**_HPE, "max_num_batched_tokens": 9216, "enable_chunked_prefill": True},
    ("rtx-pro-6000", "Server"): {**_HPE, "max_num_batched_tokens": 8192, "enable_chunked_prefill": False},
}
"""The submission states the L40S server's KV cache and memory; the rest are vLLM's defaults for a GPU of that size."""
STEPS: dict[str, dict[str, object]] = {"l40s": {"attention_16_bit": True, "host_us": 2600, "host_request_us": 11}}
"""Red Hat's vLLM used FlashInfer 0.2.8 for attention (``VLLM_ATTENTION_BACKEND``), whose decodes gained nothing from an
8-bit cache (flashinfer issue 1024, vLLM pull request 7798), and had no asynchronous scheduling: see ``host_us``."""
WEIGHT_BITS = {"rtx-pro-6000": 8.75}
"""Mean bits of a weight where some have 8 bits and others 16; elsewhere all have 8."""
KINDS: dict[str, dict[str, tuple[int, float, float, tuple[float, float] | None]]] = {
    "llama2-70b": {
        "a": (3, 4.77, 0.24, None),
        "b": (3, 5.02, 0.73, None),
        "c": (3, 5.54, 0.48, None),
        "d": (3, 5.49, 0.69, None),
    },
    "mixtral-8x7b": {
        "gsm8k": (5, 6.49, 0.03, (4.72, 0.40)),
        "mbxp": (5, 5.22, 0.33, (4.40, 0.68)),
        "open-orca-a": (1, 4.58, 0.34, (4.93, 0.56)),
        "open-orca-b": (1, 4.99, 0.84, (5.05, 0.80)),
        "open-orca-c": (1, 5.50, 0.55, (5.47, 0.65)),
        "open-orca-d": (1, 5.39, 0.73, (5.00, 0.73)),
        "open-orca-e": (1, 7.09, 0.21, (5.05, 0.65)),
    },
    "llama3.1-8b": {"cnn": (1, 6.48, 0.59, None)},
}
"""Model -> kind of prompt -> its share, mean and deviation of the logarithm of its tokens, and of its answer's.

Worked out from 60 to 147 samples of each kind of the lengths that openshift-psap/performance-dashboard lists for all
samples of MLPerf's data sets (mlperf-data/summaries at 67033bae and 7cd1065d). OpenOrca's four or five kinds of prompts
follow each other there in equal numbers. Means: 228 tokens (Llama 2 70B), 426 (Mixtral: 662 with GSM8K, 196 with MBXP,
421 with OpenOrca); CNN/DailyMail is scaled to the 778 that MLPerf states."""
LONGEST = {"llama2-70b": 1024, "mixtral-8x7b": 2048, "llama3.1-8b": 2540}
"""Tokens of a prompt."""
ANSWER = 128
"""Tokens of every answer of Llama 3.1 8B."""
FP8 = {"quantization_config": {"quant_method": "fp8"}}
MIXTRAL = "mixtral-8x7b-v0.1"
TARGET = "VLLM_LLAMA2_MLPERF_MAX_TARGET_DECODE_BATCH"
AT_ONCE = 1e6
"""Arrival rate at which all requests come at once, in any order."""
OFFLINE_S = 660
SERVER_S = 600
AT_A_TIME = 1024
BESIDE = 4
"""Number of engines that share the arrivals, where the routing between them is known."""


@dataclass(frozen=True)
class Row:
    """The measured rate of one GPU, median over the submitters."""

    gpu: str
    model: str
    scenario: str
    tokens_per_s: float
    requests_per_s: float
    ttft_ms: float | None
    tpot_ms: float | None
    answer: float
    submitters: int


def rows_of(data: Path) -> list[Row]:
    """The results on one kind of GPU whose engine settings are known."""
    found: dict[tuple[str, str, str], list[dict[str, str]]] = defaultdict(list)
    with (data / "results.csv").open() as file:
        for row in csv.DictReader(file):
            names = [gpu for name, gpu in GPUS.items() if name in row["accelerator"]]
            if len(names) == 1 and row["accelerator"].count("MI3") <= 1 and row["weights"] == "fp8":
                found[names[0], row["model"].removesuffix("-99"), row["scenario"]].append(row)
    rows = []
    for (gpu, model, scenario), lines in sorted(found.items()):
        whole = [int(float(line["accelerators"])) * int(line["nodes"]) for line in lines]
        tokens, requests = (
            [float(line[name]) / gpus for line, gpus in zip(lines, whole, strict=True) if line[name]]
            for name in ("tokens_per_s", "scheduled_qps")
        )
        first, rest = (
            median(times) if (times := [float(line[name]) for line in lines if line[name]]) else None
            for name in ("ttft_mean_ms", "tpot_mean_ms")
        )
        answer = mean(float(line["mean_output_tokens"] or ANSWER) for line in lines)
        rate = median(requests) if requests else 0.0
        rows.append(Row(gpu, model, scenario, median(tokens), rate, first, rest, answer, len(lines)))
    return rows


def published(settings: dict[str, dict[str, dict[str, object]]], row: Row) -> dict[str, object] | None:
    """An engine's arguments, with its target batch and its KV cache of 8 bits where the target needs it."""
    if row.gpu in ENGINES:
        return PUBLISHED[row.gpu, row.scenario]
    found = settings.get(f"{row.model}/{row.scenario.lower()}_{row.gpu}")
    if found is None:
        return None
    engine = dict(found["engine"])
    most = int(str(found["environment"].get(TARGET, engine["max_num_seqs"])))
    engine["max_num_seqs"] = min(int(str(engine["max_num_seqs"])), most)
    return {"kv_cache_dtype": "fp8", **engine}


def policy_of(row: Row, settings: dict[str, object]) -> dict[str, object]:
    """How its engine schedules."""
    batching: dict[str, object] = {"kind": "vllm-v1", "async_scheduling": True}
    if row.gpu == "l40s":
        # vLLM 0.10.0 schedules asynchronously only on request.
        batching = {"kind": "vllm-v1", "version": "0.10", "async_scheduling": False}
    if row.gpu == "rtx-pro-6000":
        batching = {
            "kind": "tensorrt-llm",
            "capacity_scheduler_policy": "MAX_UTILIZATION",
            "enable_chunked_prefill": settings["enable_chunked_prefill"],
        }
    if row.gpu not in ENGINES and not settings["enable_chunked_prefill"]:
        # vLLM's first engine, several steps at a time: SGLang's order, whole prompts first, is the same.
        batching = {
            "kind": "sglang",
            "chunked_prefill_size": "none",
            "max_prefill_tokens": settings["max_num_batched_tokens"],
            "schedule_conservativeness": 0,
            "overlap_schedule": False,
            "scheduler_recv_interval": settings["num_scheduler_steps"],
        }
    return {
        "apiVersion": "blis/v1",
        "kind": "Policy",
        "metadata": {"name": "as-it-ran"},
        "batching": batching,
        "routing": {"kind": "least-loaded"},
    }


def latency_of(row: Row, kind: str, steps: float) -> dict[str, object]:
    """The step-time model; ``fitted`` with steps longer by a factor."""
    if row.gpu in ENGINES:
        own = {"kind": "operators", "engine": ENGINES[row.gpu], "sampling": "plain", **STEPS.get(row.gpu, {})}
        return {**own, "steps": with_16_bits(row, own)} if row.gpu in WEIGHT_BITS else own
    if kind != "fitted" or steps == 1.0:
        return {"kind": kind}
    longer = {name: value * steps for name, value in asdict(FittedSettings()).items() if name in STEP_TERMS}
    return {"kind": kind, **longer}


def with_16_bits(row: Row, latency: dict[str, object]) -> float:
    """The factor by which 16-bit weights lengthen a step, compared with 8 bits for all.

    For 1,024 requests and their share of prompts; with 500 or 2,000 the factor is the same.
    """
    (pool,) = blis_tui.load(spec_of(row, PUBLISHED[row.gpu, row.scenario], latency)).pools
    kinds = KINDS[row.model].values()
    prompt = sum(share * math.exp(mu + sigma**2 / 2.0) for share, mu, sigma, _ in kinds) / sum(
        kind[0] for kind in kinds
    )
    prompts = round(AT_A_TIME / row.answer)
    # Step times do not depend on the request that a chunk belongs to.
    chunk = Chunk(None, 0, round(prompt), round(prompt))  # type: ignore[arg-type]
    load = StepLoad([chunk] * prompts, AT_A_TIME, round(AT_A_TIME * (prompt + row.answer / 2.0)))
    times = [
        create_latency(builtin(), replace(pool, model=replace(pool.model, weight_bytes=size))).step_time_us(load)
        for size in (1.0, 2.0)
    ]
    return 1.0 + (WEIGHT_BITS[row.gpu] - 8.0) / 8.0 * (times[1] / times[0] - 1.0)


def exponential(average: float, least: int, longest: int) -> dict[str, object]:
    """Lengths with that mean although they are capped: the mean of their distribution lies above it."""
    low, high = average, 2.0 * average
    for _ in range(50):
        middle = (low + high) / 2.0
        low, high = (middle, high) if middle * (1.0 - math.exp(-longest / middle)) < average else (low, middle)
    return {"kind": "exponential", "mean": low, "min": least, "max": longest}


def engines_of(row: Row) -> int:
    """Number of engines that are simulated side by side."""
    return 1 if row.scenario == "Offline" or row.gpu in ENGINES else BESIDE


def clients_of(row: Row) -> list[dict[str, object]]:
    """One client for each kind of prompt; all answers together have the measured mean."""
    kinds = KINDS[row.model].items()
    means = [(share, math.exp(answer[0] + answer[1] ** 2 / 2.0)) for _, (share, _, _, answer) in kinds if answer]
    scale = math.log(row.answer * sum(share for share, _ in means) / sum(a * b for a, b in means)) if means else 0.0
    plain = ANSWER if row.model == "llama3.1-8b" else exponential(row.answer, 1, 1024)
    return [
        {
            "id": name,
            "share": share,
            "input_tokens": {"kind": "lognormal", "mu": mu, "sigma": sigma, "min": 8, "max": LONGEST[row.model]},
            "output_tokens": {"kind": "lognormal", "mu": answer[0] + scale, "sigma": answer[1], "min": 2, "max": 1024}
            if answer
            else plain,
        }
        for name, (share, mu, sigma, answer) in kinds
    ]


def spec_of(row: Row, settings: dict[str, object], latency: dict[str, object]) -> dict[str, object]:
    """The platform's engines with their share of the load."""
    name = {"llama3.1-8b": "llama-3.1-8b-instruct"}.get(row.model, MIXTRAL)
    shipped = blis_tui.load("steady-chat", set={"model": name, "hardware": "b200", "expect": []}).document["model"]
    config = CONFIGS["llama-2-70b-hf"] if row.model == "llama2-70b" else shipped["config"]  # type: ignore[index]
    seqs = int(str(settings["max_num_seqs"]))
    offline, beside = row.scenario == "Offline", engines_of(row)
    requests = (
        int(OFFLINE_S * row.tokens_per_s / row.answer) if offline else int(SERVER_S * row.requests_per_s * beside)
    )
    rate = AT_ONCE if offline else row.requests_per_s * beside
    workload = {"requests": requests, "rate_per_s": rate, "clients": clients_of(row)}
    return {
        "apiVersion": "blis/v1",
        "kind": "Experiment",
        "metadata": {"name": f"{row.gpu}-{row.model}-{row.scenario}".lower().replace(".", "-")},
        "model": {
            "apiVersion": "blis/v1",
            "kind": "Model",
            "metadata": {"name": row.model},
            "config": {**config, **FP8},
        },
        "hardware": row.gpu,
        "policy": policy_of(row, settings),
        "cluster": {"instances": beside, "tensor_parallel": 1},
        "engine": {
            "max_num_seqs": seqs,
            "max_num_batched_tokens": settings["max_num_batched_tokens"],
            "long_prefill_token_threshold": settings.get("long_prefill_token_threshold", 0),
            "gpu_memory_utilization": min(0.98, float(str(settings["gpu_memory_utilization"]))),
            "kv_cache_dtype": settings.get("kv_cache_dtype", "auto"),
            "max_model_len": LONGEST[row.model] + 1024,
        },
        "workload": workload,
        "latency": latency,
    }


def simulated(row: Row, settings: dict[str, object], latency: dict[str, object]) -> tuple[float, float, float, float]:
    """Tokens per second of one engine, mean TTFT and TPOT in milliseconds, amplification of step errors in TPOT."""
    experiment = blis_tui.load(spec_of(row, settings, latency))
    simulation = blis_tui.Simulation(experiment, check="off")
    simulation.run()
    report = simulation.report(verify=False)
    means = report.latency.ttft_ms.mean or 0.0, report.latency.tpot_ms.mean or 0.0
    if row.scenario == "Offline":
        return report.throughput.output_tokens_per_s or 0.0, *means, 1.0
    # The batch is not full at the start and at the end, so only the half between counts.
    ends = sorted(
        (request.completed_us, request.output_tokens) for request in report.rows if request.completed_us is not None
    )
    half = ends[len(ends) // 4 : 3 * len(ends) // 4]
    rate = 1e6 * mean(tokens for _, tokens in half) * len(half) / (half[-1][0] - half[0][0])
    (load,) = pool_loads(experiment, report.to_dict()).values()
    return rate / engines_of(row), *means, itl_amplification(load, simulation.cluster.instances[0].latency)


def compared(measured: float | None, found: float, unit: str = "") -> str:
    """Two cells: the measured and the simulated figure."""
    if not measured:
        return " | "
    return f"{measured:.0f}{unit} | {found:.0f}{unit} ({100 * (found / measured - 1):+.0f} %)"


def main() -> int:
    """Simulate all results and print the comparison."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the measurements")
    parser.add_argument("--kind", default="fitted", help="step-time model of AMD's GPUs")
    parser.add_argument("--steps", type=float, default=1.0, help="AMD's steps take so many times as long (fitted)")
    parser.add_argument("--gpus", nargs="+", default=sorted(GPUS.values()), help="which")
    parser.add_argument("--jobs", type=int, default=None)
    options = parser.parse_args()
    if not (options.data / "results.csv").is_file():
        sys.stderr.write(f"{options.data} holds no measurements: nothing to compare with\n")
        return 0
    settings = json.loads((options.data / "amd-settings.json").read_text())
    both = [(row, published(settings, row)) for row in rows_of(options.data) if row.gpu in options.gpus]
    known = [(row, engine) for row, engine in both if engine is not None]
    rows = [row for row, _ in known]
    models = [latency_of(row, options.kind, options.steps) for row in rows]
    heads = "tokens/s", "simulated", "TTFT", "simulated", "TPOT", "simulated", "errors of steps"
    sys.stdout.write(f"| GPU | model | scenario | submitted | {' | '.join(heads)} |\n")
    sys.stdout.write(f"|---|---|---|{'--:|' * (len(heads) + 1)}\n")
    with ProcessPoolExecutor(options.jobs) as pool:
        found = pool.map(simulated, rows, [engine for _, engine in known], models)
        for row, (tokens, ttft, tpot, grown) in zip(rows, found, strict=True):
            cells = [row.gpu, row.model, row.scenario, str(row.submitters), compared(row.tokens_per_s, tokens)]
            cells += [compared(row.ttft_ms, ttft, " ms"), compared(row.tpot_ms, tpot, " ms")]
            cells.append(f"x {grown:.1f}" if row.tpot_ms else "")
            sys.stdout.write(f"| {' | '.join(cells)} |\n")
            sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
