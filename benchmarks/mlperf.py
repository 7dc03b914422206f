"""Compare simulated with measured rates of MLPerf Inference: language models on GPUs that no fit has seen.

    python -m benchmarks.mlperf --data DIR              AMD's, by GPU, model and scenario
    python -m benchmarks.mlperf --data DIR --kind roofline

DIR holds ``results.csv`` and ``amd-settings.json`` of MLPerf Inference v5.1, closed division. They are no part of this
repository; where they are missing, nothing is done. Each platform is one engine for each of its GPUs beside others
(TP 1), so one of them is simulated with its share of the requests. What the results do not tell is assumed: prompts of
OpenOrca (294 tokens on the average, at most 1,024) for Llama 2 70B, of about 150 tokens for Mixtral, exponentially
distributed as answers are. AMD's own scheduler (it collects prompts until a target batch is reached) is not simulated.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median

import blis_tui
from benchmarks.accuracy import CONFIGS

GPUS = {"MI300X": "mi300x", "MI325X": "mi325x", "MI355X": "mi355x"}
PROMPTS = {"llama2-70b": (294, 1024), "mixtral-8x7b": (150, 1024)}
FP8 = {"quantization_config": {"quant_method": "fp8"}}
MIXTRAL = "mixtral-8x7b-v0.1"
PROMPTS_FIRST = {
    "apiVersion": "blis/v1",
    "kind": "Policy",
    "metadata": {"name": "vllm-v0"},
    "batching": {"kind": "nano"},
}
"""As vLLM 0.9's first engine schedules: whole prompts, for which all decodes wait."""
ROUNDS = 3
"""So many batches' worth of requests: after the first, a rate is what it stays."""


@dataclass(frozen=True)
class Row:
    """What was measured, median over those who submitted it; of one GPU."""

    gpu: str
    model: str
    scenario: str
    tokens_per_s: float
    requests_per_s: float
    tpot_ms: float | None
    answer: float
    submitters: int


def rows_of(data: Path) -> list[Row]:
    """Those of one kind of GPU whose engines' settings are known."""
    found: dict[tuple[str, str, str], list[dict[str, str]]] = defaultdict(list)
    with (data / "results.csv").open() as file:
        for row in csv.DictReader(file):
            names = [gpu for name, gpu in GPUS.items() if name in row["accelerator"]]
            if len(names) == 1 and row["accelerator"].count("MI3") == 1:
                found[names[0], row["model"].removesuffix("-99"), row["scenario"]].append(row)
    rows = []
    for (gpu, model, scenario), lines in sorted(found.items()):
        whole = [int(float(line["accelerators"])) * int(line["nodes"]) for line in lines]
        tokens, requests, tpots = (
            [float(line[name]) / gpus for line, gpus in zip(lines, whole, strict=True) if line[name]]
            for name in ("tokens_per_s", "scheduled_qps", "tpot_mean_ms")
        )
        answer = mean(float(line["mean_output_tokens"]) for line in lines)
        tpot = median(one * gpus for one, gpus in zip(tpots, whole, strict=False)) if tpots else None
        rate = median(requests) if requests else 0.0
        rows.append(Row(gpu, model, scenario, median(tokens), rate, tpot, answer, len(lines)))
    return rows


def spec_of(row: Row, settings: dict[str, object], kind: str) -> dict[str, object]:
    """One engine with its share."""
    prompt, longest = PROMPTS[row.model]
    shipped = blis_tui.load("steady-chat", set={"model": MIXTRAL, "hardware": "b200", "expect": []}).document["model"]
    config = CONFIGS["llama-2-70b-hf"] if row.model == "llama2-70b" else shipped["config"]  # type: ignore[index]
    seqs = int(str(settings["max_num_seqs"]))
    requests = ROUNDS * seqs if row.scenario == "Offline" else max(ROUNDS * 200, int(120 * row.requests_per_s))
    lengths = {
        "input_tokens": {"kind": "exponential", "mean": prompt, "min": 8, "max": longest},
        "output_tokens": {"kind": "exponential", "mean": row.answer, "min": 1, "max": 1024},
    }
    client = {"id": "all", **lengths}
    workload: dict[str, object] = {"requests": requests, "clients": [client]}
    if row.scenario == "Offline":
        client["arrivals"] = {"kind": "closed-loop", "users": 2 * seqs}
    else:
        workload["rate_per_s"] = row.requests_per_s
    return {
        "apiVersion": "blis/v1",
        "kind": "Experiment",
        "metadata": {"name": f"{row.gpu}-{row.model}-{row.scenario}".lower()},
        "model": {
            "apiVersion": "blis/v1",
            "kind": "Model",
            "metadata": {"name": row.model},
            "config": {**config, **FP8},
        },
        "hardware": row.gpu,
        "policy": PROMPTS_FIRST,
        "cluster": {"instances": 1, "tensor_parallel": 1},
        "engine": {
            "max_num_seqs": seqs,
            "max_num_batched_tokens": settings["max_num_batched_tokens"],
            "gpu_memory_utilization": min(0.98, float(str(settings["gpu_memory_utilization"]))),
            "kv_cache_dtype": settings.get("kv_cache_dtype", "auto"),
            "max_model_len": 2048,
        },
        "workload": workload,
        "latency": {"kind": kind},
    }


def simulated(row: Row, settings: dict[str, object], kind: str) -> tuple[float, float | None]:
    """Tokens a second, and the mean time per output token in milliseconds."""
    simulation = blis_tui.Simulation(blis_tui.load(spec_of(row, settings, kind)), check="off")
    simulation.run()
    report = simulation.report(verify=False)
    if row.scenario != "Offline":
        return report.throughput.output_tokens_per_s, report.latency.tpot_ms.mean
    # At first all prompts come at once, and while the last ones end, the batch is not full: the half between counts.
    ends = sorted((one.completed_us, one.output_tokens) for one in report.rows if one.completed_us is not None)
    half = ends[len(ends) // 4 : 3 * len(ends) // 4]
    return 1e6 * mean(tokens for _, tokens in half) * len(half) / (half[-1][0] - half[0][0]), None


def main() -> int:
    """Simulate, compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the measurements")
    parser.add_argument("--kind", default="fitted", help="step-time model")
    parser.add_argument("--jobs", type=int, default=None)
    options = parser.parse_args()
    if not (options.data / "results.csv").is_file():
        sys.stderr.write(f"{options.data} holds no measurements: nothing to compare with\n")
        return 0
    settings = json.loads((options.data / "amd-settings.json").read_text())
    rows = [row for row in rows_of(options.data) if f"{row.model}/{row.scenario.lower()}_{row.gpu}" in settings]
    engines = [settings[f"{row.model}/{row.scenario.lower()}_{row.gpu}"]["engine"] for row in rows]
    with ProcessPoolExecutor(options.jobs) as pool:
        found = list(pool.map(simulated, rows, engines, [options.kind] * len(rows)))
    sys.stdout.write("| GPU | model | scenario | submitted | tokens/s | simulated | TPOT | simulated |\n")
    sys.stdout.write("|---|---|---|--:|--:|--:|--:|--:|\n")
    for row, (tokens, tpot) in zip(rows, found, strict=True):
        cells = [row.gpu, row.model, row.scenario, str(row.submitters), f"{row.tokens_per_s:.0f}"]
        cells.append(f"{tokens:.0f} ({100 * (tokens / row.tokens_per_s - 1):+.0f} %)")
        cells.append(f"{row.tpot_ms:.0f} ms" if row.tpot_ms else "")
        cells.append(f"{tpot:.0f} ms ({100 * (tpot / row.tpot_ms - 1):+.0f} %)" if row.tpot_ms and tpot else "")
        sys.stdout.write(f"| {' | '.join(cells)} |\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
