"""Are the sizes and rates that `blis-tui plan` answers those that long runs need? On random problems.

    python -m benchmarks.plans [PROBLEMS] [--from NUMBER] [--max-rate] [--small]

Each number seeds a problem: a server, lengths, arrivals (a fifth are sessions), bounds and a rate. The truth is found
by runs of 600 s (1,200 s with sessions) with two seeds that the plan does not use: of what arrives in the second half,
97 % must be served in it, and the requests that arrive there must meet the bounds. An answer is too small only where
both seeds fail, too large only where one less (or a rate 1.1 times as high) holds with a seed. `--small` takes servers
of few places, whose runs are short (and have too few requests for a p99).
"""

from __future__ import annotations

import argparse
import random
import sys
from time import process_time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import blis_tui
from blis_tui.results.expectations import look_up

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

MOST: Final = 24
MOST_REQUESTS: Final = 60_000
SEEDS: Final = (101, 102)
_SERVED: Final = 0.97
_SERVERS: Final = (
    ("llama-3.1-8b-instruct", "h100", 1, 14_000),
    ("qwen3-14b", "h100", 1, 9_000),
    ("llama-3.1-70b-instruct", "h100", 4, 9_000),
    ("qwen3-30b-a3b", "h200", 1, 12_000),
    ("llama-3.1-8b-instruct", "l40s", 1, 3_500),
)
"""Model, GPU, tensor parallelism, and about how many output tokens per second an instance generates."""
_FEW: Final = 4
"""Places of a small server, which generates about a hundredth as much per second as a large one."""


class Problem(NamedTuple):
    """What to plan for."""

    document: dict[str, Any]
    slos: dict[str, float]
    rate_per_s: float
    turns: int
    fewest: int
    """Requests of a run that tells the truth."""

    @property
    def bounds(self) -> list[str]:
        """The bounds as `--slo` takes them."""
        return [f"{metric}<={bound}" for metric, bound in self.slos.items()]


def problem(number: int, *, small: bool = False) -> Problem:
    """Draw a problem from a number."""
    draw = random.Random(number)  # noqa: S311
    model, gpu, split, tokens_per_s = draw.choice(_SERVERS)
    prompt, answer = draw.choice([150, 400, 900, 2000]), draw.choice([100, 250, 600, 1200])
    answer = min(answer, 250) if small else answer
    share = _FEW / 150 if small else 1.0
    rate = draw.uniform(0.6, 3.0) * share * tokens_per_s / (answer + prompt / 12)
    client: dict[str, Any] = {
        "id": "users",
        "arrivals": draw.choice([{"kind": "poisson"}, {"kind": "gamma", "cv": 2.0}]),
        "input_tokens": _around(prompt, 10, prompt * 4),
        "output_tokens": _around(answer, 5, answer * 3),
    }
    turns = draw.choice([3, 5]) if draw.random() < 0.2 else 1
    if turns > 1:
        client["session"] = {"turns": turns, "think_time_ms": draw.choice([2000, 8000])}
    tpot, ttft = "latency.tpot_ms.p95", f"latency.ttft_ms.{draw.choice(['p95', 'p95' if small else 'p99'])}"
    slos = draw.choice(
        [
            {tpot: draw.choice([25.0, 35.0, 50.0])},
            {ttft: draw.choice([300.0, 600.0, 1500.0])},
            {tpot: draw.choice([30.0, 45.0]), ttft: draw.choice([800.0, 2000.0])},
        ]
    )
    document = {
        "apiVersion": "blis/v1",
        "kind": "Experiment",
        "metadata": {"name": f"problem-{number}"},
        "model": model,
        "hardware": gpu,
        "cluster": {"instances": 1, "tensor_parallel": split},
        "engine": {"max_num_batched_tokens": 8192, "max_num_seqs": _FEW if small else 1024},
        "workload": {"requests": 1000, "rate_per_s": round(rate / turns, 3), "clients": [client]},
    }
    return Problem(document, slos, round(rate / turns, 3), turns, 20_000 if small else 2000)


def _around(mean: int, least: int, most: int) -> dict[str, object]:
    return {"kind": "gaussian", "mean": mean, "std_dev": mean / 2, "min": least, "max": most}


def holds(asked: Problem, size: int, rate_per_s: float) -> int:
    """Return with how many of the seeds a long run meets the bounds."""
    seconds = 600 if asked.turns == 1 else 1200
    requests = min(MOST_REQUESTS, max(asked.fewest, int(seconds * rate_per_s * asked.turns)))
    half_us = int(requests / (rate_per_s * asked.turns) * 1e6 / 2)
    values: Mapping[str, object] = {
        "cluster.instances": size,
        "workload.rate_per_s": rate_per_s,
        "workload.requests": requests,
        "warm_up_us": half_us,
    }
    found = 0
    for seed in SEEDS:
        report = blis_tui.run(blis_tui.load(asked.document, set=values, seed=seed))
        offered, served = report.steady.offered_requests_per_s or 0.0, report.steady.requests_per_s or 0.0
        figures = {metric: look_up(metric, report.to_dict()) for metric in asked.slos}
        kept = all(isinstance(figure, float) and figure <= asked.slos[metric] for metric, figure in figures.items())
        found += kept and served >= _SERVED * offered
    return found


def judged_size(asked: Problem) -> tuple[str, str]:
    """Return the verdict on the size that is planned, and the answer in words."""
    plan = blis_tui.plan(
        asked.document, slos=asked.bounds, rate_per_s=asked.rate_per_s, sizes=("cluster.instances", 1, MOST)
    )
    size = None if plan.best is None else plan.best.size
    told = f"{size} instances at {asked.rate_per_s}/s"
    if size is None:
        return ("too large" if holds(asked, MOST, asked.rate_per_s) else "right"), told
    if not holds(asked, size, asked.rate_per_s):
        return "too small", told
    return ("too large" if size > 1 and holds(asked, size - 1, asked.rate_per_s) else "right"), told


def judged_rate(asked: Problem) -> tuple[str, str]:
    """Return the verdict on the highest rate of one instance, and the answer in words."""
    plan = blis_tui.plan(asked.document, slos=asked.bounds, max_rate=True, set={"cluster.instances": 1})
    knee = None if plan.best is None else plan.best.knee
    if knee is None or knee.holds is None:
        return "none", "no rate"
    told = f"{knee.holds}/s"
    if not holds(asked, 1, knee.holds):
        return "too large", told
    return ("too small" if holds(asked, 1, 1.1 * knee.holds) else "right"), told


def main(numbers: range, judge: Callable[[Problem], tuple[str, str]], *, small: bool) -> int:
    """Print a line for each problem; return how many answers are wrong."""
    counts: dict[str, int] = {}
    for number in numbers:
        asked, begun = problem(number, small=small), process_time()
        verdict, told = judge(asked)
        counts[verdict] = counts.get(verdict, 0) + 1
        server = f"{asked.document['model']} on {asked.document['hardware']}"
        print(f"{number:3} {server:32} {', '.join(asked.bounds)}: {told}: {verdict} ({process_time() - begun:.0f} s)")
    print(", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items())))
    return len(numbers) - counts.get("right", 0) - counts.get("none", 0)


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("problems", nargs="?", type=int, default=20, help="how many")
    arguments.add_argument("--from", dest="first", type=int, default=0, help="number of the first one")
    arguments.add_argument("--max-rate", action="store_true", help="judge the highest rate instead of the size")
    arguments.add_argument("--small", action="store_true", help="servers of few places")
    given = arguments.parse_args()
    chosen = range(given.first, given.first + given.problems)
    sys.exit(1 if main(chosen, judged_rate if given.max_rate else judged_size, small=given.small) else 0)
