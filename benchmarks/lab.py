"""Compare simulated servers with those of a public performance lab, which no fit has seen.

    python benchmarks/lab.py --data DIR                    mean and median absolute errors in percent, by group
    python benchmarks/lab.py --data DIR --rows rows.json   and one line for every run, to compare with later
    python benchmarks/lab.py --data DIR --against rows.json

DIR holds ``runs.json`` and ``configs/``: measured runs with their server's arguments. They are not part of this
repository. A run that its source gives reasons to doubt is left out, as is one whose own figures contradict its load
(which is said), and the throughput of bursts of ShareGPT prompts, which hangs on the longest answers.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from random import Random
from statistics import mean, median
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

import blis_tui
from blis_tui.base.errors import BlisError
from blis_tui.model.defaults import CHAT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

METRICS: Final = ("requests_per_s", "ttft", "tpot", "itl", "itl_mean")
"""``itl`` is the median of all gaps between tokens, which in a burst is either a step of decodes alone or one with a
prompt: where half of them are each, it says little. ``itl_mean`` is their mean."""
ENGINES: Final = {"trtllm": "tensorrt-llm"}
LEAST_WAIT: Final = 0.5
"""See :func:`contradiction`; other bursts are at 0.65 and more."""
LEAST_MEDIAN: Final = 0.85
"""See :func:`cached`; other bursts of equal prompts are at 0.94 and more."""
CACHED_TEMPLATE: Final = 64
"""Tokens of a chat template that all requests share and the prefix cache holds, where it is longer than a block."""
PROMPT_GRAPHS_SINCE: Final = 10
"""The last part of SGLang's version from which steps with prompts are CUDA graphs by default: 0.5.10."""
GROUPS: Final[Mapping[str, Callable[[dict[str, Any]], str]]] = {
    "trust": lambda run: run["trust"],
    "GPU": lambda run: run["hardware"],
    "engine": lambda run: run["engine"],
    "model": lambda run: f"{run['model']}, {run['hardware']}",
    "precision": lambda run: run["precision"],
    "TP": lambda run: f"TP {run['tensor_parallel']}",
    "load": lambda run: run["load"]["kind"],
}


def lengths(run: dict[str, Any], folder: Path) -> list[tuple[int, int]]:
    """Prompt and answer of each request of a burst, and of users in a closed loop."""
    load, count = run["load"], run["load"]["prompts"]
    if not load["kind"].endswith("sharegpt"):
        random = Random(1)  # noqa: S311  (no secret)
        if "osl" in load:
            return [(load["isl"], load["osl"])] * count
        return [(load["isl"], answer(random, load["osl_mean"], load["osl_max"])) for _ in range(count)]
    with (folder / "configs/sharegpt-lengths.csv").open() as file:
        rows = [(int(row["input_tokens"]), int(row["output_tokens"])) for row in csv.DictReader(file)][:count]
    longer_in = load["input_total"] / sum(one for one, _ in rows)
    longer_out = load["output_total"] / sum(one for _, one in rows)
    return [(max(1, round(one * longer_in)), max(1, round(other * longer_out))) for one, other in rows]


def answer(random: Random, average: float, most: int) -> int:
    """An answer that ends at each token with the same chance, cut at ``most``; its mean is ``average``."""
    if average >= most:
        return most
    low, high = 1e-9, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        expected = (1 - (1 - middle) ** most) / middle
        low, high = (middle, high) if expected > average else (low, middle)
    tokens = 1
    while tokens < most and random.random() > low:
        tokens += 1
    return tokens


def document(run: dict[str, Any], folder: Path, trace: Path) -> dict[str, object]:
    """The experiment that a run is."""
    load = run["load"]
    name = run["model"].replace("_", "-")
    config = json.loads((folder / run["config"]).read_text())
    engine = {**run["engine_arguments"], "kv_cache_dtype": run["kv_dtype"]}
    if run["engine"] == "sglang" and int(run["engine_version"].split(".")[2]) < PROMPT_GRAPHS_SINCE:
        engine["cudagraph_mode"] = "FULL_DECODE_ONLY"
    if run.get("kv_blocks_at_least"):
        engine["kv_blocks"] = run["kv_blocks_at_least"]
    if run["engine"] == "vllm":
        engine["version"] = ".".join(run["engine_version"].split(".")[:3])
    sampling: dict[str, object] = {"sampling": "plain"} if load.get("temperature") == 0 else {}
    asked = lengths(run, folder)
    workload: dict[str, object]
    if load["kind"] in ("closed", "constant-rate"):
        arrivals = {"kind": "constant"} if "rate_per_s" in load else {"kind": "closed-loop", "users": load["users"]}
        client = {"id": "users", "arrivals": arrivals, "input_tokens": load["isl"], "output_tokens": load["osl"]}
        workload = {"requests": load["prompts"], "clients": [client]}
        workload |= {"rate_per_s": load["rate_per_s"]} if "rate_per_s" in load else {}
    elif load["kind"] == "closed-sharegpt":
        both = [{"kind": "empirical", "weights": weights(values)} for values in zip(*asked, strict=True)]
        arrivals = {"kind": "closed-loop", "users": load["users"]}
        client = {"id": "users", "arrivals": arrivals, "input_tokens": both[0], "output_tokens": both[1]}
        workload = {"requests": load["prompts"], "clients": [client]}
    else:
        template = load["template_tokens"]
        shared = CACHED_TEMPLATE if template > CACHED_TEMPLATE else 0
        with trace.open("w") as file:
            file.write("arrival_us,input_tokens,output_tokens,prefix_group,prefix_tokens\n")
            for number, (prompt, tokens) in enumerate(asked):
                file.write(f"{number},{prompt + template},{tokens},{'template' if shared else ''},{shared}\n")
        workload = {"trace": {"file": str(trace)}}
    workload |= {"endpoint": CHAT} if load["template_tokens"] else {}
    return {
        "apiVersion": "blis/v1",
        "kind": "Experiment",
        "metadata": {"name": "lab"},
        "model": {"apiVersion": "blis/v1", "kind": "Model", "metadata": {"name": name}, "config": config},
        "hardware": run["hardware"],
        "policy": {"batching": run["batching"]},
        "cluster": {"instances": 1, "tensor_parallel": run["tensor_parallel"]},
        "engine": engine,
        "latency": {"kind": "operators", "engine": ENGINES.get(run["engine"], run["engine"]), **sampling}
        | ({"expert_parallel": run["tensor_parallel"]} if run["expert_parallel"] else {}),
        "workload": workload,
    }


def weights(values: Sequence[int]) -> dict[str, int]:
    """How often each value occurs."""
    found: dict[str, int] = defaultdict(int)
    for value in sorted(values):
        found[str(value)] += 1
    return dict(found)


def simulated(run: dict[str, Any], folder: Path) -> dict[str, float] | str:
    """Simulated figures, or why there are none."""
    with TemporaryDirectory() as there:
        try:
            made = document(run, folder, Path(there, "trace.csv"))
            try:
                experiment = blis_tui.load(made)
            except BlisError:  # no operators were measured on that GPU
                experiment = blis_tui.load(made | {"latency": "auto"})
            simulation = blis_tui.Simulation(experiment, check="off")
            simulation.run()
            report = simulation.report(verify=False)
        except BlisError as error:
            return " ".join(str(error).split())[:200]
    latency_ms = report.latency
    return {
        "requests_per_s": report.throughput.requests_per_s,
        "ttft": latency_ms.ttft_ms.mean or 0.0,
        "tpot": latency_ms.tpot_ms.mean or 0.0,
        "itl": (latency_ms.itl_ms.mean if "client" in run["load"] else latency_ms.itl_ms.p50) or 0.0,
        "itl_mean": latency_ms.itl_ms.mean or 0.0,
    }


def errors(run: dict[str, Any], found: Mapping[str, float]) -> dict[str, float]:
    """Signed errors in percent; what a run says nothing about is left out."""
    measured, load = run["measured"], run["load"]
    there = {
        "requests_per_s": measured.get("requests_per_s"),
        "ttft": measured.get("ttft_mean_ms"),
        "tpot": None if "client" in load else measured.get("tpot_mean_ms"),
        "itl": measured.get("itl_mean_ms" if "client" in load else "itl_p50_ms"),
        "itl_mean": measured.get("itl_mean_ms"),
    }
    if load["kind"] == "at-once-sharegpt":
        there["requests_per_s"] = None
    return {
        metric: 100.0 * (found[metric] / value - 1.0)
        for metric, value in there.items()
        if value and not (metric == "itl" and value < 1.0)
    }


def contradiction(run: dict[str, Any]) -> str:
    """Why a burst's own figures contradict the load that is taken for it; empty = they do not.

    Of ``n`` requests that come at once, of which ``R`` run at a time, the mean one starts after ``(1 - R / n) / 2`` of
    the whole time. ``R`` follows from the time per output token (Little's law), and the whole time from the throughput.
    """
    measured, load = run["measured"], run["load"]
    if not load["kind"].startswith("at-once") or not {"ttft_mean_ms", "tpot_mean_ms"} <= measured.keys():
        return ""
    duration = measured.get("duration_s")
    if not duration:
        if "total_tokens_per_s" not in measured:
            return ""
        duration = (load["input_total"] + load["output_total"]) / measured["total_tokens_per_s"]
    count = load["prompts"]
    running = (load["output_total"] - count) * measured["tpot_mean_ms"] / 1000.0 / duration
    waited = measured["ttft_mean_ms"] / 1000.0 / duration
    if running >= count or waited >= LEAST_WAIT * (1.0 - running / count) / 2.0:
        return ""
    return (
        f"{count:,} requests in {duration:.0f} s, {running:.0f} at a time: the mean one waits"
        f" {(1.0 - running / count) / 2.0 * duration:.0f} s, not {waited * duration:.0f}"
    )


def cached(run: dict[str, Any]) -> str:
    """Why the first half of a burst of equal prompts must have been in the prefix cache; empty = it need not have been.

    Equal prompts take equally long, so the median one waits as long as the mean one, unless the first half is faster:
    within a share ``f`` of the whole time, their ratio is ``4 f / (1 + 2 f)``. ``vllm bench serve`` draws the n-th
    random prompt of a seed alike whatever its length (``benchmarks/datasets.py``, 0.11.0: equal lengths take nothing
    from the generator), so those of a run begin like those of the run before it, of half as many prompts here.
    """
    measured, load = run["measured"], run["load"]
    if load["kind"] != "at-once" or not {"ttft_mean_ms", "ttft_p50_ms", "ttft_p99_ms"} <= measured.keys():
        return ""
    if measured["ttft_p50_ms"] >= LEAST_MEDIAN * measured["ttft_mean_ms"]:
        return ""
    first_s, all_s = (measured[name] / 1000.0 for name in ("ttft_p50_ms", "ttft_p99_ms"))
    return f"{load['prompts']:,} equal prompts, half of them within {first_s:.1f} of {all_s:.1f} s"


def table(rows: Sequence[tuple[dict[str, Any], dict[str, float]]]) -> str:
    """Mean and median absolute errors, and the signed median, by group."""
    lines = [f"{'':<44}{'n':>4}" + "".join(f"{metric:>22}" for metric in METRICS)]
    groups: dict[str, list[dict[str, float]]] = {"all": [found for _, found in rows]}
    for of in GROUPS.values():
        for run, found in rows:
            groups.setdefault(of(run), []).append(found)
    for name, members in groups.items():
        cells = []
        for metric in METRICS:
            values = [member[metric] for member in members if metric in member]
            sizes = [abs(value) for value in values]
            cells.append(f"{mean(sizes):.1f} / {median(sizes):.1f} ({median(values):+.0f})" if values else "-")
        lines.append(f"{name:<44}{len(members):>4}" + "".join(f"{cell:>22}" for cell in cells))
    return "\n".join(lines)


def main() -> None:
    """Simulate and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the folder with runs.json")
    parser.add_argument("--rows", type=Path, help="also write the errors of every run")
    parser.add_argument("--against", type=Path, help="rows of an earlier version, whose table is printed first")
    parser.add_argument("--only", default="", help="only runs whose name has this text")
    parser.add_argument("--jobs", type=int, default=2, help="processes (2)")
    asked = parser.parse_args()
    runs = [one for one in json.loads((asked.data / "runs.json").read_text())["runs"] if one["trust"] != "doubtful"]
    runs = [one for one in runs if asked.only in one["id"]]
    doubtful = {one["id"]: why for one in runs if (why := contradiction(one) or cached(one))}
    runs = [one for one in runs if one["id"] not in doubtful]
    with ProcessPoolExecutor(asked.jobs) as pool:
        found = list(pool.map(partial(simulated, folder=asked.data), runs))
    refused = {run["id"]: one for run, one in zip(runs, found, strict=True) if isinstance(one, str)}
    rows = [(run, errors(run, one)) for run, one in zip(runs, found, strict=True) if not isinstance(one, str)]
    if asked.against:
        before = json.loads(asked.against.read_text())
        sys.stdout.write(table([(run, before[run["id"]]) for run in runs if run["id"] in before]) + "\n\n")
    sys.stdout.write(table(rows) + "\n")
    for name, why in doubtful.items():
        sys.stdout.write(f"doubtful: {name}: {why}\n")
    for name, why in refused.items():
        sys.stdout.write(f"not simulated: {name}: {why}\n")
    if asked.rows:
        asked.rows.write_text(json.dumps({run["id"]: one for run, one in rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
