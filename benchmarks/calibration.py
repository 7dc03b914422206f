"""Round trips of ``calibrate``: whether its intervals hold, and how well its coefficients predict.

Each trip plants coefficients, simulates a server with them under some load, adds measurement errors, and calibrates
from the usual base. The script counts how often the planted coefficients lie within the printed intervals, and how far
the fitted server is from the true one under *another* load: mean TTFT, TPOT and E2E.

    python benchmarks/calibration.py --trips 60
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final

import numpy as np

from blis_tui import load
from blis_tui.engine.latency.creation import create_latency
from blis_tui.engine.latency.fitted import FittedSettings
from blis_tui.engine.latency.model import StepLoad
from blis_tui.live.calibration.document import LEVEL
from blis_tui.live.calibration.fitting.calibrate import fit
from blis_tui.live.calibration.fitting.laws import BlackboxLaw, FittedLaw
from blis_tui.live.calibration.measured import Data, Measured, Recording
from blis_tui.live.calibration.other_loads import METRICS, within
from blis_tui.live.calibration.simulated_load import with_latency
from blis_tui.runs.simulation import Simulation
from blis_tui.spec.shipped import builtin

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.engine.latency.model import StepTimeModel
    from blis_tui.engine.request import Request
    from blis_tui.live.calibration.document import Coefficient, Combined
    from blis_tui.live.calibration.fitting.laws import Law
    from blis_tui.model import Experiment

SERVERS: Final = (
    ("llama-3.1-8b-instruct", "h100", 1),
    ("qwen3-14b", "h100", 1),
    ("llama-2-7b-hf", "a100-80", 1),
    ("llama-3.1-70b-instruct", "h100", 4),
    ("mixtral-8x7b-v0.1", "h100", 2),
    ("llama-4-scout-17b-16e-instruct-fp8-dynamic", "h100", 4),
    ("qwen3-30b-a3b", "h200", 1),
    ("codellama-34b-instruct-hf", "h100", 2),
    ("gpt-oss-120b", "b200", 1),
    ("llama-3.1-8b-instruct", "a100-80", 1),
)
ERRORS: Final = ("none", "steps", "stamps", "ratio", "all")
"""Measurement errors: none; varying steps; tokens seen late; times off by a share; varying steps and late tokens."""
PLANTED: Final = 0.3
"""Standard deviation of the logarithm of the planted coefficients around their base."""
BLACKBOX: Final = (8000.0, 20.0, 150.0, 9000.0, 1.0)
USERS: Final = (2, 8, 16, 32, 64)


class _Varying:
    """A step-time model whose steps vary."""

    def __init__(self, model: StepTimeModel, stream: random.Random, share: float) -> None:
        self._model = model
        self._stream = stream
        self._share = share
        self.output_token_overhead_us = model.output_token_overhead_us
        self.post_decode_overhead_us = model.post_decode_overhead_us

    def step_time_us(self, load: StepLoad) -> int:
        factor = max(0.3, 1.0 + self._share * self._stream.gauss(0.0, 1.0))
        return max(1, round(self._model.step_time_us(load) * factor))

    def queueing_time_us(self, request: Request) -> int:
        return self._model.queueing_time_us(request)


@dataclass(frozen=True)
class Trip:
    """The result of a round trip."""

    seed: int
    server: str
    kind: str
    users: int
    error: str
    found: tuple[tuple[Coefficient, float], ...]
    """The fitted coefficients, each with its planted value."""
    statements: tuple[str, ...]
    elsewhere: tuple[float, ...]
    """Mean TTFT, TPOT and E2E under another load: fitted / true - 1."""
    expected: tuple[float, ...]
    """The error that these should not exceed in nine of ten trips."""
    cpu_s: float
    sums: tuple[tuple[Combined, float], ...] = ()
    """What is said of coefficients that cannot be told apart, each with its planted value."""

    @property
    def held(self) -> int:
        """How many intervals contain the planted value."""
        return sum(inside(one, truth) for one, truth in self.found)


def inside(one: Coefficient | Combined, truth: float) -> bool:
    """Whether an interval contains the planted value."""
    return one.low - 1e-9 <= truth <= one.high + 1e-9


def _spec(server: tuple[str, str, int], seed: int, requests: int, workload: dict[str, object]) -> Experiment:
    model, hardware, parallel = server
    return load(
        {
            "apiVersion": "blis/v1",
            "kind": "Experiment",
            "metadata": {"name": "measured"},
            "seed": seed,
            "model": model,
            "hardware": hardware,
            "latency": "fitted",
            "policy": "vllm-v1",
            "cluster": {"instances": 1, "tensor_parallel": parallel},
            "engine": {"max_model_len": 8192},
            "workload": {"requests": requests, **workload},
        }
    )


def _lengths(stream: random.Random, mean: int) -> dict[str, object]:
    if stream.random() < 0.5:
        return {"kind": "uniform", "min": max(1, mean // 4), "max": mean * 7 // 4}
    return {"kind": "gaussian", "mean": mean, "std_dev": mean * 0.4, "min": 1, "max": mean * 3}


def _workload(stream: random.Random, model: StepTimeModel, users: int) -> dict[str, object]:
    """Users in a closed loop, or random arrivals with the same mean concurrency."""
    prompt, answer = stream.choice((120, 256, 600, 1500, 3000)), stream.choice((60, 128, 256))
    client: dict[str, object] = {
        "id": "c",
        "input_tokens": _lengths(stream, prompt),
        "output_tokens": _lengths(stream, answer),
    }
    if stream.random() < 0.5:
        return {"clients": [{**client, "arrivals": {"kind": "closed-loop", "users": users}}]}
    step_us = model.step_time_us(StepLoad([], users, users * (prompt + answer // 2)))
    return {"clients": [client], "rate_per_s": 0.7 * users / (answer * step_us / 1e6)}


def _stream(seed: int) -> random.Random:
    return random.Random(seed)  # noqa: S311  (no secrets)


def measured(experiment: Experiment, error: str, seed: int) -> Recording:
    """An experiment's requests as clients would see them."""
    stream = _stream(seed)
    simulation = Simulation(experiment, check="off")
    (instance,) = simulation.cluster.instances
    if error in ("steps", "all"):
        instance.latency = _Varying(instance.latency, stream, stream.choice((0.01, 0.03, 0.1)))
    simulation.run()
    level, stamp_us = stream.choice((0.002, 0.005, 0.02)), stream.choice((100.0, 500.0, 2000.0))
    found = []
    for row in simulation.report(verify=False).rows:
        if row.ttft_us is None or row.e2e_us is None:
            continue
        first, rest = float(row.ttft_us), float(row.e2e_us - row.ttft_us)
        if error == "ratio":
            first *= 1.0 + level * stream.gauss(0.0, 1.0)
            rest *= 1.0 + level * stream.gauss(0.0, 1.0)
        if error in ("stamps", "all"):
            late, later = (stream.expovariate(1.0 / stamp_us) - stamp_us for _ in range(2))
            first, rest = first + late, max(1.0, rest - late + later) if rest else 0.0
        first = max(first, 1.0)
        found.append(Measured(float(row.arrival_us), row.input_tokens, row.output_tokens, first, first + rest))
    found.sort(key=lambda one: one.arrival_us)
    begin = found[0].arrival_us
    moved = tuple(replace(one, arrival_us=one.arrival_us - begin) for one in found)
    return Recording(Path("measured.csv"), "requests", "0" * 64, moved, 0)


def _means(experiment: Experiment) -> np.ndarray:
    simulation = Simulation(experiment, check="off")
    simulation.run()
    times = [
        (row.ttft_us, row.e2e_us, row.output_tokens - 1)
        for row in simulation.report(verify=False).rows
        if row.ttft_us is not None and row.e2e_us is not None
    ]
    gaps = [(end - first) / count for first, end, count in times if count]
    return np.array([np.mean([first for first, _, _ in times]), np.mean(gaps), np.mean([end for _, end, _ in times])])


def trip(seed: int, requests: int = 120) -> Trip:
    """One round trip."""
    stream = _stream(seed)
    server, error = SERVERS[seed % len(SERVERS)], ERRORS[(seed // 2) % len(ERRORS)]
    kind = "blackbox" if seed % 4 == 3 else "fitted"
    law: Law = FittedLaw(FittedSettings()) if kind == "fitted" else BlackboxLaw(BLACKBOX, BLACKBOX)
    users = stream.choice(USERS)
    truth = np.array([max(term.lowest, term.base * np.exp(PLANTED * stream.gauss(0.0, 1.0))) for term in law.terms])
    plain = _spec(
        server, seed, requests, {"rate_per_s": 1, "clients": [{"id": "c", "input_tokens": 9, "output_tokens": 9}]}
    )
    model = create_latency(builtin(), with_latency(plain, law.config(truth)).pools[0])
    experiment = _spec(server, seed, requests, _workload(stream, model, users))
    recording = measured(with_latency(experiment, law.config(truth)), error, seed)
    began = time.process_time()
    found = fit([Data(recording, experiment)], kind, advise=False)
    cpu_s = time.process_time() - began
    other = _spec(server, seed + 1000, requests, _workload(stream, model, stream.choice(USERS)))
    errors = _means(with_latency(other, found.latency)) / _means(with_latency(other, law.config(truth))) - 1.0
    bands = within(other, found.latency, found.draws)
    expected = tuple(bands.get(metric, 0.0) for metric in METRICS) if found.draws else ()
    planted = {term.name: float(value) for term, value in zip(law.terms, truth, strict=True)}
    pairs = tuple((one, planted[one.name]) for one in found.found)
    sums = tuple((one, float(np.dot(one.weights, [planted[name] for name in one.names]))) for one in found.sums)
    return Trip(seed, server[0], kind, users, error, pairs, found.statements, tuple(errors), expected, cpu_s, sums)


def _line(one: Trip) -> str:
    missed = [
        f"{it.name} {truth:.4g} not in {it.low:.4g}..{it.high:.4g} ({it.told})"
        for it, truth in one.found
        if not inside(it, truth)
    ]
    errors = " ".join(f"{100 * it:+.2f}" for it in one.elsewhere)
    missed += [
        f"{it.text} {truth:.4g} not in {it.low:.4g}..{it.high:.4g}" for it, truth in one.sums if not inside(it, truth)
    ]
    return (
        f"{one.seed:3} {one.server[:20]:20} {one.kind:8} {one.users:2} users {one.error:6}"
        f" {one.held:2} of {len(one.found):2} inside; elsewhere % {errors}; {one.cpu_s:.0f} s; {'; '.join(missed)}"
    )


def table(trips: Sequence[Trip]) -> str:
    """How often intervals and expected errors hold, and how far off the means are under another load."""
    inside_, all_ = Counter[str](), Counter[str]()
    for one in trips:
        for it, truth in one.found:
            for key in ("all", f"said to be {it.told}", one.kind, f"errors: {one.error}"):
                all_[key] += 1
                inside_[key] += inside(it, truth)
        for whole, truth in one.sums:
            all_["sums of confounded coefficients"] += 1
            inside_["sums of confounded coefficients"] += inside(whole, truth)
    lines = [f"| planted coefficients | number | within the intervals of {LEVEL:.0%} |", "|---|--:|--:|"]
    lines += [f"| {key} | {count:,} | {100 * inside_[key] / count:.0f} % |" for key, count in all_.items()]
    lines += ["", "| means under another load | off by, median | at most | expected, 9 in 10, median | held |"]
    lines += ["|---|--:|--:|--:|--:|"]
    told = [one for one in trips if one.expected]
    for number, name in enumerate(METRICS):
        off = [abs(one.elsewhere[number]) for one in trips]
        held = sum(abs(one.elsewhere[number]) <= one.expected[number] for one in told)
        usual = median(one.expected[number] for one in told)
        lines.append(
            f"| {name.upper()} | {100 * median(off):.2f} % | {100 * max(off):.0f} % | {100 * usual:.1f} % |"
            f" {held} of {len(told)} |"
        )
    return "\n".join(lines)


def main() -> int:
    """Run the trips and print the counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trips", type=int, default=60)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--requests", type=int, default=120, help="in each trip")
    parser.add_argument("--processes", type=int, default=1)
    arguments = parser.parse_args()
    seeds = range(arguments.first, arguments.first + arguments.trips)
    trips: list[Trip] = []
    with get_context("spawn").Pool(arguments.processes) as pool:
        for one in pool.imap(partial(trip, requests=arguments.requests), seeds):
            print(_line(one), flush=True)
            trips.append(one)
    print(f"\n{table(trips)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
