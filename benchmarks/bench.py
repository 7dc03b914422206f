"""Measure whole processes: wall time, peak memory, microseconds per simulated step, and ratios between two commands.

    python benchmarks/bench.py                              a saturated instance: 10,000 requests, 5 M tokens
    python benchmarks/bench.py --spec my.blis.yaml          any experiment
    python benchmarks/bench.py --scale 10000 100000 1000000 how time and memory grow with the number of requests
    python benchmarks/bench.py --clusters 32 512            how the time per request depends on instances
    python benchmarks/bench.py --sessions 5 20              cost of requests in conversations, compared with single ones
    python benchmarks/bench.py --mooncake FILE.jsonl.gz     long prompts that share prefixes, on eight instances
    python benchmarks/bench.py --features                   what a request costs with each feature, times the plainest
    python benchmarks/bench.py ... --before FOLDER          alternate with the blis_tui in another folder
    python benchmarks/bench.py --versus 'other command'     alternate with another program; a ratio for each pair

Figures depend on the machine and its other load: quote medians, and prefer ratios to seconds.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import blis_tui

if TYPE_CHECKING:
    from collections.abc import Mapping

    Settings = Mapping[str, object]

SATURATED = """
apiVersion: blis/v1
kind: Experiment
metadata: {name: saturated}
model: qwen3-14b
hardware: h100
latency: {kind: blackbox, alpha: [1000, 0.5, 200], beta: [7000, 17, 70]}
policy: default
engine: {kv_blocks: 20000}
workload:
  requests: 10000
  rate_per_s: 10
  clients:
    - id: only
      input_tokens: {kind: gaussian, mean: 512, std_dev: 256, min: 2, max: 7000}
      output_tokens: {kind: gaussian, mean: 512, std_dev: 256, min: 2, max: 7000}
"""

CHAT = """
apiVersion: blis/v1
kind: Experiment
metadata: {name: chat}
model: llama-3.1-8b-instruct
hardware: h100
workload: chatbot
policy: default
cluster: {instances: 2}
"""

CLUSTER = """
apiVersion: blis/v1
kind: Experiment
metadata: {name: cluster}
model: qwen3-14b
hardware: h100
latency: {kind: blackbox, alpha: [1000, 0.5, 200], beta: [7000, 17, 70]}
engine: {kv_blocks: 15909}
policy:
  routing:
    kind: weighted
    scorers:
      - {kind: prefix-affinity, weight: 3}
      - {kind: queue-depth, weight: 2, signal: effective-load}
      - {kind: kv-utilization, weight: 2}
workload:
  rate_per_s: 1
  clients:
    - id: only
      input_tokens: {kind: gaussian, mean: 512, std_dev: 256, min: 2, max: 7000}
      output_tokens: {kind: gaussian, mean: 256, std_dev: 128, min: 2, max: 7000}
"""
SESSIONS = """
apiVersion: blis/v1
kind: Experiment
metadata: {name: sessions}
model: qwen3-14b
hardware: h100
latency: {kind: blackbox, alpha: [1000, 0.5, 200], beta: [7000, 17, 70]}
policy: default
engine: {kv_blocks: 20000}
workload:
  rate_per_s: 1
  clients:
    - id: only
      input_tokens: {kind: gaussian, mean: 256, std_dev: 128, min: 2, max: 7000}
      output_tokens: 2
"""
MOONCAKE = """
apiVersion: blis/v1
kind: Experiment
metadata: {name: mooncake}
model: llama-3.1-8b-instruct
hardware: h100
latency: operators
policy: {routing: weighted}
cluster: {instances: 8}
"""
FEATURES = """
apiVersion: blis/v1
kind: Experiment
metadata: {name: features}
model: llama-3.1-8b-instruct
hardware: h100
latency: trained-physics
policy: default
cluster: {instances: 4}
workload:
  rate_per_s: 32
  clients:
    - id: only
      prefix: {group: system, tokens: 128}
      input_tokens: {kind: gaussian, mean: 384, std_dev: 192, min: 2, max: 7000}
      output_tokens: {kind: gaussian, mean: 256, std_dev: 128, min: 2, max: 7000}
"""
_SYNCHRONOUS: Settings = {"policy.batching": {"kind": "vllm-v1", "async_scheduling": False}}
_OPERATORS: Settings = {"latency": "operators"}
_WEIGHTED: Settings = {"policy.routing": "weighted"}
_SPLIT: Settings = {"cluster.disaggregation": {"prefill_instances": 2, "decode_instances": 2}}
_TIERED: Settings = {"kind": "offload", "tiers": [{"name": "cpu", "blocks": 20_000, "bandwidth_tokens_per_us": 0.4}]}
_TALK: Settings = {"turns": 4, "think_time_ms": 3000}
_IDLE: Settings = {**_OPERATORS, "cluster.instances": 64, "workload.rate_per_s": 38.4}
"""At 2 % of what an instance could serve, 30 a second."""
_BUSY: Settings = {**_OPERATORS, "cluster.instances": 4, "workload.rate_per_s": 36}
"""At 30 %."""
PLAINEST = "vllm-v1, one step at a time"
"""The row that the others are compared with."""
FEATURE_ROWS: Mapping[str, Settings] = {
    PLAINEST: _SYNCHRONOUS,
    "batching `blis`": {"policy.batching": "blis"},
    "vllm-v1, asynchronous": {},
    "sglang": {"policy.batching": "sglang"},
    "operators": _OPERATORS,
    "operators, weighted": {**_OPERATORS, **_WEIGHTED},
    "operators, weighted, sglang": {**_OPERATORS, **_WEIGHTED, "policy.batching": "sglang"},
    "weighted": _WEIGHTED,
    "sessions of 4 turns": {
        "workload.clients.0.session": _TALK,
        "workload.sessions": 500,
        "workload.rate_per_s": 8,
    },
    "prefill and decode apart": _SPLIT,
    "KV tiers": {"engine.kv_blocks": 3000, "engine.kv_tiers": _TIERED},
    "adapters": {"workload.clients.0.adapters": {"count": 16}, "engine.lora": {"max_loras": 8}},
    "4 instances at 30 %": _BUSY,
    "64 instances at 2 %": _IDLE,
    "4 instances at 30 %, weighted": {**_BUSY, **_WEIGHTED},
    "64 instances at 2 %, weighted": {**_IDLE, **_WEIGHTED},
}
"""What each row sets in ``FEATURES``."""
_FEATURE_REQUESTS = 2000
_SESSION_REQUESTS = 10_000
_RATE_PER_INSTANCE = 12.5
_REQUESTS = 20_000
_REQUESTS_PER_INSTANCE = 156
"""At least: 12.5 seconds of arrivals, several times as long as the batches take to fill."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One finished process."""

    seconds: float
    peak_mib: float
    cpu_seconds: float


def measure(command: list[str], package: Path | None = None) -> Sample:
    """Run ``command`` once and discard its output, with the ``blis_tui`` of a folder if one is given."""
    environment = {**os.environ, "PYTHONPATH": str(package)} if package else None
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"exit code {process.returncode}: {shlex.join(command)}")
    return Sample(seconds, usage.ru_maxrss / 1024, usage.ru_utime + usage.ru_stime)


def blis(spec: Path, *options: str) -> list[str]:
    """The command that runs ``spec``, request table included, as a user would."""
    return [sys.executable, "-m", "blis_tui", "run", str(spec), "--requests", os.devnull, *options]


def simulation_alone(spec: Path) -> tuple[float, int, int]:
    """Seconds, steps and output tokens of the simulation, without start-up, loading and report (best of three)."""
    experiment = blis_tui.load(spec)
    best = float("inf")
    for _ in range(3):
        simulation = blis_tui.Simulation(experiment, check="off")
        start = time.perf_counter()
        simulation.run()
        best = min(best, time.perf_counter() - start)
    report = simulation.report()
    return best, sum(instance.steps for instance in report.instances), report.tokens.output


def show(name: str, samples: list[Sample]) -> None:
    """One line: median and range of the seconds, and the largest peak."""
    seconds = sorted(sample.seconds for sample in samples)
    peak = max(sample.peak_mib for sample in samples)
    print(f"{name:<12} {median(seconds):7.3f} s  ({seconds[0]:.3f} .. {seconds[-1]:.3f})  {peak:6.0f} MiB")


def one_experiment(spec: Path, runs: int, versus: str | None) -> None:
    """Measure the whole process and the simulation alone, alternating with another command if there is one."""
    measure(blis(spec))
    ours: list[Sample] = []
    theirs: list[Sample] = []
    for _ in range(runs):
        ours.append(measure(blis(spec)))
        if versus is not None:
            theirs.append(measure(shlex.split(versus)))
    show("blis-tui", ours)
    if theirs:
        show("other", theirs)
        ratios = sorted(b.seconds / a.seconds for a, b in zip(ours, theirs, strict=True))
        print(f"{'ratio':<12} {median(ratios):7.2f} x  ({ratios[0]:.2f} .. {ratios[-1]:.2f})")
    seconds, steps, tokens = simulation_alone(spec)
    print(
        f"{'simulation':<12} {seconds:7.3f} s  {steps:,} steps, {1e6 * seconds / steps:.2f} us each, "
        f"{steps / seconds:,.0f} steps/s, {tokens / seconds / 1e6:.1f} M tokens/s"
    )


def scale(counts: list[int], folder: Path) -> None:
    """The chat preset on two instances, for growing numbers of requests."""
    spec = folder / "chat.blis.yaml"
    spec.write_text(CHAT, encoding="utf-8")
    for count in counts:
        sample = measure(blis(spec, "--set", f"workload.requests={count}"))
        print(
            f"{count:>10,} requests {sample.seconds:8.2f} s  {1e6 * sample.seconds / count:6.1f} us each  "
            f"{sample.peak_mib:6.0f} MiB"
        )


def clusters(sizes: list[int], runs: int, folder: Path) -> None:
    """Clusters of different sizes at the same load per instance, compared with one saturated instance."""
    saturated, spec = folder / "saturated.blis.yaml", folder / "cluster.blis.yaml"
    saturated.write_text(SATURATED, encoding="utf-8")
    spec.write_text(CLUSTER, encoding="utf-8")
    alone = min(measure(blis(saturated)).seconds for _ in range(runs))
    print(f"one saturated instance, 10,000 requests: {alone:.2f} s")
    first = 0.0
    for size in sizes:
        options = {"cluster.instances": size, "workload.rate_per_s": _RATE_PER_INSTANCE * size}
        requests = max(_REQUESTS, _REQUESTS_PER_INSTANCE * size)
        options["workload.requests"] = requests
        command = blis(spec, *(f"--set={key}={value}" for key, value in options.items()))
        samples = [measure(command) for _ in range(runs)]
        seconds = min(sample.seconds for sample in samples)
        each = 1e6 * seconds / requests
        first = first or each
        print(
            f"{size:>5} instances {seconds:7.2f} s  {each:6.1f} us a request  "
            f"{each / first:5.2f} x the first  {seconds / alone:5.2f} x one instance  {samples[0].peak_mib:5.0f} MiB"
        )


def requests_alone(name: str, spec: Path, options: list[str], requests: int, runs: int, before: Path | None) -> None:
    """CPU time of a whole process per request; with another ``blis_tui``, the ratio for each pair."""
    command = blis(spec, *(f"--set={option}" for option in options))
    pairs = [(measure(command), measure(command, before)) for _ in range(runs)] if before else []
    samples = [pair[0] for pair in pairs] or [measure(command) for _ in range(runs)]
    seconds = median(sample.cpu_seconds for sample in samples)
    line = f"{name:<20} {seconds:7.2f} s of CPU time  {1e6 * seconds / requests:7.1f} us a request  "
    line += f"{max(sample.peak_mib for sample in samples):5.0f} MiB"
    if pairs:
        ratios = sorted(now.cpu_seconds / then.cpu_seconds for now, then in pairs)
        line += f"  {median(ratios):.2f} x before ({ratios[0]:.2f} .. {ratios[-1]:.2f})"
    print(line)


def sessions(turns: list[int], runs: int, before: Path | None, folder: Path) -> None:
    """Conversations of different lengths with short answers, compared with as many single prompts of these lengths."""
    spec = folder / "sessions.blis.yaml"
    spec.write_text(SESSIONS, encoding="utf-8")
    count = _SESSION_REQUESTS
    single = [f"workload.requests={count}", "workload.rate_per_s=5"]
    requests_alone("single prompts", spec, single, count, runs, before)
    for turn in turns:
        talk = f"workload.clients.0.session={{turns: {turn}, think_time_ms: 3000}}"
        options = [f"workload.sessions={count // turn}", f"workload.rate_per_s={5 / turn}", talk]
        requests_alone(f"{turn} turns", spec, options, count, runs, before)


def mooncake(trace: Path, runs: int, before: Path | None, folder: Path) -> None:
    """The published conversation trace of Mooncake: 12,031 prompts of 12,035 tokens on average."""
    spec = folder / "mooncake.blis.yaml"
    spec.write_text(f"{MOONCAKE}workload: {{trace: {{file: {trace.resolve()}, format: mooncake}}}}\n", encoding="utf-8")
    requests_alone("mooncake", spec, [], 12_031, runs, before)


def features(runs: int, folder: Path) -> None:
    """Print the CPU time of a simulation per request for each feature, times that of the plainest engine.

    All simulations of a round follow one another; of the ratios within rounds, the median counts.
    """
    spec = folder / "features.blis.yaml"
    spec.write_text(FEATURES, encoding="utf-8")
    rounds = [{name: _cpu_us_each(spec, row) for name, row in FEATURE_ROWS.items()} for _ in range(runs + 1)]
    print("| | times the first row |\n|---|--:|")
    for name in FEATURE_ROWS:
        print(f"| {name} | {median(one[name] / one[PLAINEST] for one in rounds[1:]):.2f} |")


def _cpu_us_each(spec: Path, settings: Settings) -> float:
    """CPU time of one simulation, by the number of its requests."""
    count: Settings = {} if "workload.sessions" in settings else {"workload.requests": _FEATURE_REQUESTS}
    simulation = blis_tui.Simulation(blis_tui.load(spec, set={**count, **settings}), check="off")
    gc.collect()
    gc.disable()  # the command line collects rarely, too
    start = time.process_time()
    simulation.run()
    taken_s = time.process_time() - start
    gc.enable()
    return 1e6 * taken_s / simulation.ended


def main() -> None:
    """Parse the command line and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--spec", type=Path, help="experiment to measure instead of the built-in one")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--versus", metavar="COMMAND", help="another command to run in turn")
    parser.add_argument("--scale", type=int, nargs="+", metavar="REQUESTS")
    parser.add_argument("--clusters", type=int, nargs="+", metavar="INSTANCES")
    parser.add_argument("--sessions", type=int, nargs="+", metavar="TURNS")
    parser.add_argument("--mooncake", type=Path, metavar="TRACE")
    parser.add_argument("--features", action="store_true", help="compare features with the plainest engine")
    parser.add_argument("--before", type=Path, metavar="FOLDER", help="where another `blis_tui` is, to compare with")
    arguments = parser.parse_args()
    print(json.dumps({"python": sys.version.split()[0], "blis_tui": blis_tui.__version__, "cpus": os.cpu_count()}))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if arguments.scale:
            scale(arguments.scale, folder)
            return
        if arguments.clusters:
            clusters(arguments.clusters, arguments.runs, folder)
            return
        if arguments.sessions:
            sessions(arguments.sessions, arguments.runs, arguments.before, folder)
            return
        if arguments.features:
            features(arguments.runs, folder)
            return
        if arguments.mooncake:
            mooncake(arguments.mooncake, arguments.runs, arguments.before, folder)
            return
        spec = arguments.spec
        if spec is None:
            spec = folder / "saturated.blis.yaml"
            spec.write_text(SATURATED, encoding="utf-8")
        one_experiment(spec, arguments.runs, arguments.versus)


if __name__ == "__main__":
    main()
