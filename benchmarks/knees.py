"""Check the highest rate that `blis-tui plan --max-rate` finds against brute force, on random clusters.

    python benchmarks/knees.py [STUDIES] [--from NUMBER] [--others]

Each number seeds another study; `--others` sets bounds on less common metrics, such as SLO attainment.

For each study, every rate of a fine grid around the found interval runs with every seed. The true knee lies between the
largest rate up to which all seeds meet the bound and the smallest from which on none does.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from math import fsum
from typing import TYPE_CHECKING, Any

from blis_tui.spec.loader import parse
from blis_tui.spec.source import Source, as_map
from blis_tui.spec.study.document import read_study, resolve_point
from blis_tui.study.planning.driver import Driver, Run
from blis_tui.study.planning.load import load_of
from blis_tui.study.planning.plan import Question, plan
from blis_tui.study.planning.search import failure_reason
from blis_tui.study.runners import ProcessRunner
from blis_tui.study.store import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Generator

    from blis_tui.study.rows import Row

GRID = 1.03
"""Factor from one rate of the grid to the next."""
BEYOND = 1.25
"""How far the grid reaches beyond the interval, as a factor."""
BOUNDS = {
    "latency.ttft_ms.p90": (60.0, 600.0),
    "latency.e2e_ms.p90": (4_000.0, 15_000.0),
    "latency.tpot_ms.p90": (10.0, 30.0),
    "latency.ttft_ms.mean": (40.0, 300.0),
}
OTHERS = {
    "latency.ttft_ms.p50": (30.0, 200.0),
    "latency.e2e_ms.mean": (2_000.0, 9_000.0),
    "latency.tpot_ms.mean": (9.0, 20.0),
    "latency.itl_ms.p90": (9.0, 25.0),
    "slo.attainment": (0.8, 0.97),
}
LOWER = {"slo.attainment"}
"""Metrics with a lower bound."""


def random_question(number: int, bounds: dict[str, tuple[float, float]]) -> Question:
    """A cluster, a workload and a bound, drawn from a number."""
    draw = random.Random(number)  # noqa: S311
    mean = draw.choice([64, 256, 800])
    metric = draw.choice(list(bounds))
    study: dict[str, Any] = {
        "apiVersion": "blis/v1",
        "kind": "Study",
        "metadata": {"name": f"knee-{number}"},
        "experiment": "quickstart",
        "set": {
            "cluster.instances": draw.randint(1, 2),
            "policy": draw.choice(["default", "vllm-v1", "sjf"]),
            "model": draw.choice(["qwen3-14b", "llama-3.1-8b-instruct"]),
            "workload.requests": 400,
            "workload.clients.0.arrivals": draw.choice([{"kind": "poisson"}, {"kind": "gamma", "cv": 2.0}]),
            "workload.clients.0.input_tokens": {"kind": "exponential", "mean": mean, "max": 4000},
            "workload.clients.0.output_tokens": {"kind": "exponential", "mean": draw.choice([32, 128]), "max": 1000},
            "engine.max_num_seqs": draw.choice([32, 256]),
        },
        "seeds": 3,
    }
    bound = draw.uniform(*bounds[metric])
    if metric in LOWER:
        study["constraints"] = [{"metric": metric, "min": round(bound, 3)}]
        study["set"]["slo_targets"] = {"standard": {"ttft_ms": 200, "tpot_ms": 20}}
    else:
        study["constraints"] = [{"metric": metric, "max": round(bound, 1)}]
    document = parse(Source("knee", json.dumps(study)))
    return Question(study=read_study(document), max_rate=True, duration_s=15.0)


def shares(question: Question, rates: list[float]) -> dict[float, int]:
    """How many seeds meet the bound at each rate."""
    study = question.study
    point, store = study.points[0], MemoryStore()
    resolved = as_map(resolve_point(study, point).document.data)
    metrics = tuple(one.metric for one in study.constraints)
    load = load_of(resolved, metrics=metrics, duration_s=question.duration_s, offered=None)

    def ask(rate: float) -> Generator[list[Run], list[Row], int]:
        rows = yield [Run(point=point, values=load.at(rate), seed=seed) for seed in study.seeds]
        return len([row for row in rows if not failure_reason(row)])

    found = Driver(study, store).answer([ask(rate) for rate in rates], ProcessRunner(2))
    return dict(zip(rates, found, strict=True))


def main(numbers: range, bounds: dict[str, tuple[float, float]]) -> int:
    """Print a line for each study; return how many have their knee elsewhere."""
    wrong = runs = 0
    widths = []
    for number in numbers:
        question = random_question(number, bounds)
        answer = plan(question, ProcessRunner(2))
        found = answer.candidates[0]
        runs += answer.runs - len(answer.opinions)
        if found.interval is None:
            print(f"{number:3}  {question.study.constraints[0]}  no knee: {found.why_not}")
            continue
        low, high = found.interval
        rate, rates = low / BEYOND, []
        while rate < high * BEYOND:
            rates.append(float(f"{rate:.6g}"))
            rate *= GRID
        holding = shares(question, rates)
        all_hold = max((r for r in rates if all(holding[s] == 3 for s in rates if s <= r)), default=0.0)
        none_hold = min((r for r in rates if all(holding[s] == 0 for s in rates if s >= r)), default=1e9)
        inside = low <= all_hold * GRID and none_hold <= high * GRID
        wrong += not inside
        widths.append(high / low / max(1 + question.precision, none_hold / all_hold / GRID if all_hold else 1.0))
        print(
            f"{number:3}  {answer.runs - len(answer.opinions):3} runs  [{low:.4g}, {high:.4g}]"
            f"  brute force [{all_hold:.4g}, {none_hold:.4g}]  {'ok' if inside else 'ELSEWHERE'}"
            f"  {question.study.constraints[0].metric}",
            flush=True,
        )
    print(f"{len(numbers) - wrong} of {len(numbers)} lie inside; {runs / len(numbers):.1f} runs a search on average")
    if widths:
        print(f"intervals are {fsum(widths) / len(widths):.2f} times as wide as the seeds' spread, or the precision")
    return wrong


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("studies", nargs="?", type=int, default=20, help="how many")
    arguments.add_argument("--from", dest="first", type=int, default=0, help="number of the first one")
    arguments.add_argument("--others", action="store_true", help="bound other figures, and SLO attainment")
    asked = arguments.parse_args()
    chosen = range(asked.first, asked.first + asked.studies)
    sys.exit(1 if main(chosen, OTHERS if asked.others else BOUNDS) else 0)
