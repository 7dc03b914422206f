"""Is the highest rate that `blis-tui plan --max-rate` finds the true one? Random clusters, against brute force.

    python benchmarks/knees.py [STUDIES]

For each study every rate of a fine grid around the found interval runs with every seed. The true knee lies between the
largest rate up to which every seed holds and the smallest from which on none does.
"""

from __future__ import annotations

import json
import random
import sys
from typing import TYPE_CHECKING

from blis_tui.spec.loader import parse
from blis_tui.spec.source import Source, as_map
from blis_tui.spec.study.document import read_study, resolve_point
from blis_tui.study.planning.driver import Driver, Run
from blis_tui.study.planning.load import load_of
from blis_tui.study.planning.plan import Question, plan
from blis_tui.study.planning.question import trouble
from blis_tui.study.runners import ProcessRunner
from blis_tui.study.store import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Generator

    from blis_tui.study.rows import Row

GRID = 1.03
"""From one rate to the next."""
BEYOND = 1.25
"""How far the grid reaches beyond the interval, as a factor."""
BOUNDS = {
    "latency.ttft_ms.p90": (60.0, 600.0),
    "latency.e2e_ms.p90": (4_000.0, 15_000.0),
    "latency.tpot_ms.p90": (10.0, 30.0),
    "latency.ttft_ms.mean": (40.0, 300.0),
}


def random_question(number: int) -> Question:
    """A cluster, a workload and a bound, drawn from a number."""
    draw = random.Random(number)  # noqa: S311
    mean = draw.choice([64, 256, 800])
    metric = draw.choice(list(BOUNDS))
    study = {
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
        "constraints": [{"metric": metric, "max": round(draw.uniform(*BOUNDS[metric]), 1)}],
    }
    document = parse(Source("knee", json.dumps(study)))
    return Question(study=read_study(document), max_rate=True, duration_s=15.0)


def shares(question: Question, rates: list[float]) -> dict[float, int]:
    """How many seeds hold at each rate."""
    study = question.study
    point, store = study.points[0], MemoryStore()
    resolved = as_map(resolve_point(study, point).document.data)
    metrics = tuple(one.metric for one in study.constraints)
    load = load_of(resolved, metrics=metrics, duration_s=question.duration_s, offered=None)

    def ask(rate: float) -> Generator[list[Run], list[Row], int]:
        rows = yield [Run(point=point, values=load.at(rate), seed=seed) for seed in study.seeds]
        return len([row for row in rows if not trouble(row)])

    found = Driver(study, store).answer([ask(rate) for rate in rates], ProcessRunner(2))
    return dict(zip(rates, found, strict=True))


def main(studies: int) -> int:
    """Print a line a study; the number of those whose knee is elsewhere."""
    wrong = runs = 0
    for number in range(studies):
        question = random_question(number)
        answer = plan(question, ProcessRunner(2))
        knee = answer.candidates[0].knee
        runs += answer.runs - len(answer.opinions)
        if knee is None or knee.holds is None or knee.fails is None:
            print(f"{number:3}  {question.study.constraints[0]}  no knee: {answer.candidates[0].why_not}")
            continue
        rate, rates = knee.holds / BEYOND, []
        while rate < knee.fails * BEYOND:
            rates.append(float(f"{rate:.6g}"))
            rate *= GRID
        holding = shares(question, rates)
        all_hold = max((r for r in rates if all(holding[s] == 3 for s in rates if s <= r)), default=0.0)
        none_hold = min((r for r in rates if all(holding[s] == 0 for s in rates if s >= r)), default=1e9)
        inside = knee.holds <= all_hold * GRID and none_hold <= knee.fails * GRID
        wrong += not inside
        print(
            f"{number:3}  {answer.runs - len(answer.opinions):3} runs  [{knee.holds:g}, {knee.fails:g}]"
            f"  brute force [{all_hold:.3g}, {none_hold:.3g}]  {'ok' if inside else 'ELSEWHERE'}",
            flush=True,
        )
    print(f"{studies - wrong} of {studies} lie inside; {runs / studies:.1f} runs a search on average")
    return wrong


if __name__ == "__main__":
    sys.exit(1 if main(int(sys.argv[1]) if len(sys.argv) > 1 else 20) else 0)
