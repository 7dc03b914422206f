"""Cost of a step that runs out of KV blocks, compared with a plain step of as many requests, for each victim rule.

    python benchmarks/starved.py                            256, 1,024 and 4,096 running requests
    python benchmarks/starved.py --running 4096 --runs 5    other batch sizes, more runs of each
    python benchmarks/starved.py --before FOLDER            alternate with the blis_tui in another folder
    python benchmarks/starved.py --whole                    whole runs, arrivals and completions included

Medians in microseconds. `plain`: all requests decode and the queue is empty. `blocked`: nothing is preempted, but the
head of the queue does not fit (0: there was no such step). `starved`: victims are preempted; the cost of each is the
time beyond a plain step, divided by their number. All three exclude arrivals and completions.

`sglang` is SGLang's batching, which retracts by its own rule; its `plain` steps are decodes, too.

With `--whole`: mean time per step of a run that always has a full batch and a long queue, with enough blocks for all
requests and with 60 % of them.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from statistics import fmean, median
from typing import TYPE_CHECKING, Any, cast

import blis_tui
from blis_tui.runs.simulation import Simulation

if TYPE_CHECKING:
    from blis_tui.engine.step_loop import StepLoop

SGLANG = "sglang"
VICTIMS = ("tail", "priority", "cheapest-recompute", SGLANG)
BLOCKS_EACH = 40
"""Blocks for 640 tokens: a prompt of 512 and 128 tokens of its answer."""
STEPS = 100
"""Number of timed steps."""


class Watch:
    """Times every step of an instance.

    Attributes:
        plain: microseconds of steps without any decision.
        blocked: those of steps in which the head of the queue did not fit.
        starved: those of steps that preempted, with the number of victims.
        running: requests in the batch at each step.
    """

    def __init__(self) -> None:
        self.plain: list[float] = []
        self.blocked: list[float] = []
        self.starved: list[tuple[float, int]] = []
        self.running: list[int] = []

    def time(self, simulation: Simulation, *, starved: bool) -> None:
        """Run until enough steps are timed, starved or plain ones."""
        loop: type[StepLoop] = type(simulation.cluster.instances[0].loop)
        original = loop.step
        simulation._one_by_one = True  # noqa: SLF001  (else plain steps are not taken one at a time)

        def step(flow: StepLoop, now: int) -> int:
            batch, tallies = flow.batch, flow.steps.tallies
            preemptions, waiting, before = tallies.preemptions, len(batch.waiting.items), list(batch.running)
            start = time.perf_counter_ns()
            upcoming = original(flow, now)
            took = (time.perf_counter_ns() - start) / 1000
            victims = tallies.preemptions - preemptions
            if victims:
                self.starved.append((took, victims))
                self.running.append(len(before))
            elif not batch.prefills and list(batch.running) == before:
                (self.blocked if waiting else self.plain).append(took)
            return upcoming

        loop.step = step  # type: ignore[method-assign, assignment]
        try:
            before = -1
            while len(self.starved if starved else self.plain) < STEPS and simulation.events > before:
                before = simulation.events
                simulation.run(max_events=20)
        finally:
            loop.step = original  # type: ignore[method-assign]


def spec(victim: str, running: int, *, starved: bool) -> dict[str, object]:
    """That many requests, with or without room for their answers; none ends while steps are timed."""
    clients = [
        {
            "id": name,
            "share": 0.5,
            "slo_class": name,
            "input_tokens": {"kind": "gaussian", "mean": 512, "std_dev": 256, "min": 2, "max": 4000},
            "output_tokens": 2000,
        }
        for name in ("standard", "batch")
    ]
    batching = {"kind": "vllm-v1", "async_scheduling": False}
    policy: dict[str, object] = {"priority": "slo-class", "batching": batching, "preemption": {"victim": victim}}
    if victim == SGLANG:
        expecting_little = {"schedule_conservativeness": 0.01, "chunked_prefill_size": 16384}
        policy = {"batching": {"kind": "sglang", "overlap_schedule": False, **expecting_little}}
    return {
        "apiVersion": "blis/v1",
        "kind": "Experiment",
        "metadata": {"name": "starved"},
        "model": "qwen3-14b",
        "hardware": "h100",
        "latency": {"kind": "blackbox", "alpha": [1000, 0.5, 200], "beta": [7000, 17, 70]},
        "policy": policy,
        "engine": {
            "kv_blocks": running * (BLOCKS_EACH if starved else 5 * BLOCKS_EACH) * (16 if victim == SGLANG else 1),
            "max_num_seqs": running,
            "max_num_batched_tokens": 16384,
            **({"block_size_tokens": 1, "max_model_len": 8192} if victim == SGLANG else {}),
        },
        "workload": {"requests": running, "rate_per_s": 100_000, "clients": clients},
    }


def measure(victim: str, running: int) -> dict[str, float]:
    """One row of figures."""
    figures: dict[str, float] = {}
    for starved in (False, True):
        watch = Watch()
        simulation = Simulation(blis_tui.load(spec(victim, running, starved=starved)), check="off")
        watch.time(simulation, starved=starved)
        if not starved:
            figures["plain"] = median(watch.plain)
            continue
        figures["running"] = median(watch.running)
        figures["blocked"] = median(watch.blocked) if watch.blocked else 0.0
        figures["starved"] = median(took for took, _ in watch.starved)
        figures["victims"] = fmean(victims for _, victims in watch.starved)
        figures["each"] = median((took - figures["plain"]) / victims for took, victims in watch.starved)
    return figures


def measure_whole(victim: str, running: int) -> dict[str, float]:
    """Microseconds per step of two whole runs, and victims per step of the second."""
    figures: dict[str, float] = {}
    for name, share in (("enough", 1.2), ("short", 0.6)):
        document = spec(victim, running, starved=True)
        workload = cast("dict[str, Any]", document["workload"])
        workload["requests"] = 4 * running
        for client in workload["clients"]:
            client["output_tokens"] = {"kind": "uniform", "min": 100, "max": 900}
        cast("dict[str, Any]", document["engine"])["kv_blocks"] = int(share * 48 * running) * (
            16 if victim == SGLANG else 1
        )
        simulation = Simulation(blis_tui.load(document), check="off")
        start = time.perf_counter_ns()
        simulation.run()
        took = (time.perf_counter_ns() - start) / 1000
        tallies = simulation.cluster.instances[0].tallies
        figures[name] = took / tallies.steps
        figures["victims"] = tallies.preemptions / tallies.steps
    return figures


def in_process(victim: str, running: int, folder: str | None, *, whole: bool = False) -> dict[str, float]:
    """The same in a separate process, with the ``blis_tui`` of a folder if one is given."""
    environment = {**os.environ, "PYTHONPATH": folder} if folder else None
    command = [sys.executable, __file__, "--one", victim, "--running", str(running), *(["--whole"] if whole else [])]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def line(name: str, rows: list[dict[str, float]]) -> str:
    """Medians of several runs, and ratios to a plain step."""
    mid = {key: median(row[key] for row in rows) for key in rows[0]}
    plain = mid["plain"]
    return (
        f"{name:<32} {mid['running']:6.0f} running  plain {plain:5.1f}  blocked {mid['blocked']:6.1f}  "
        f"starved {mid['starved']:9.1f} = {mid['starved'] / plain:7.1f} x  {mid['victims']:5.1f} victims, "
        f"{mid['each']:7.1f} = {mid['each'] / plain:6.2f} x each"
    )


def whole_line(victim: str, running: int, rows: list[dict[str, float]]) -> str:
    """Medians of several pairs of whole runs, and of their ratios."""
    enough, short, victims = (median(row[key] for row in rows) for key in ("enough", "short", "victims"))
    ratio = median(row["short"] / row["enough"] for row in rows)
    return (
        f"{victim:<20} {running:5d} places  enough blocks {enough:6.1f} a step  too few {short:6.1f} = {ratio:4.2f} x, "
        f"{victims:4.2f} victims a step"
    )


def main() -> None:
    """Parse the command line and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--running", type=int, nargs="+", default=[256, 1024, 4096], metavar="REQUESTS")
    parser.add_argument("--victims", nargs="+", default=list(VICTIMS), metavar="RULE")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--before", metavar="FOLDER", help="where another `blis_tui` is, to compare with")
    parser.add_argument("--whole", action="store_true", help="measure whole runs")
    parser.add_argument("--one", metavar="RULE", help="one measurement as JSON, for this script itself")
    arguments = parser.parse_args()
    if arguments.whole and arguments.before:
        parser.error("--whole knows no --before")
    if arguments.one:
        made = measure_whole if arguments.whole else measure
        print(json.dumps(made(arguments.one, arguments.running[0])))
        return
    for victim in arguments.victims:
        for running in arguments.running:
            if arguments.whole:
                runs = [in_process(victim, running, None, whole=True) for _ in range(arguments.runs)]
                print(whole_line(victim, running, runs), flush=True)
                continue
            pairs = [
                (
                    in_process(victim, running, None),
                    in_process(victim, running, arguments.before) if arguments.before else {},
                )
                for _ in range(arguments.runs)
            ]
            print(line(victim, [now for now, _ in pairs]), flush=True)
            if arguments.before:
                print(line(f"{victim}, before", [then for _, then in pairs]), flush=True)


if __name__ == "__main__":
    main()
