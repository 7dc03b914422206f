"""How much errors of step times are amplified in TTFT, ITL and E2E as the load approaches capacity.

    python -m benchmarks.amplified

Each load is simulated with steps 5 % shorter and 5 % longer than predicted, which gives d ln(mean) / d ln(steps). The
table compares that with the estimate in reports (``blis_tui.results.expected_error``), and says whether they quote
errors of TTFT.
"""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from math import log
from statistics import median
from typing import TYPE_CHECKING

import blis_tui
from blis_tui.results.expected_error import itl_amplification, pool_loads

if TYPE_CHECKING:
    from collections.abc import Iterator

    from blis_tui.results.report import Report

SERVERS = (
    ("llama-3.1-8b-instruct", "h100", 1),
    ("qwen3-14b", "h100", 1),
    ("llama-3.1-70b-instruct", "h100", 4),
    ("gpt-oss-120b", "b200", 1),
)
LOADS = {"chatbot": 1500, "summarization": 500, "contentgen": 600, "bursty": 1000}
"""Workload -> number of requests."""
SHARES = (0.15, 0.35, 0.5, 0.7, 0.8, 0.9, 0.97, 1.05, 1.3)
"""Loads, as shares of the throughput when all requests arrive at once."""
STEPS = (0.95, 1.05)
METRICS = ("ttft", "itl", "e2e")


@dataclass(frozen=True)
class Server:
    """A server, and the workload it serves."""

    model: str
    hardware: str
    tensor_parallel: int
    workload: str
    requests: int

    def simulated(self, rate_per_s: float, steps: float = 1.0) -> Report:
        """Run it at a rate, with all steps longer by a factor."""
        changes = {
            "model": self.model,
            "hardware": self.hardware,
            "cluster": {"instances": 1, "tensor_parallel": self.tensor_parallel},
            "workload": self.workload,
            "workload.requests": self.requests,
            "workload.rate_per_s": rate_per_s,
            "latency": {"kind": "operators", "steps": steps},
            "expect": [],
            "horizon_us": "none",
        }
        simulation = blis_tui.Simulation(blis_tui.load("quickstart", set=changes), check="off")
        simulation.run()
        return simulation.report(verify=False)


@dataclass(frozen=True)
class Grown:
    """The amplification at one load."""

    server: Server
    share: float
    seen: dict[str, float]
    estimate: float
    quoted: bool
    """Whether a report quotes errors of TTFT."""


def means(report: Report) -> dict[str, float]:
    """In milliseconds."""
    latencies = report.latency
    return {
        "ttft": latencies.ttft_ms.mean or 0.0,
        "itl": latencies.tpot_ms.mean or 0.0,
        "e2e": latencies.e2e_ms.mean or 0.0,
    }


def capacity(server: Server) -> float:
    """Throughput in requests per second when all arrive at once, measured over the middle half."""
    ends = sorted(row.arrival_us + row.e2e_us for row in server.simulated(1e5).rows if row.e2e_us is not None)
    first, last = len(ends) // 4, 3 * len(ends) // 4
    return (last - first) / ((ends[last] - ends[first]) / 1e6)


def grown(server: Server) -> list[Grown]:
    """All loads of one server."""
    found, most = [], capacity(server)
    for share in SHARES:
        faster, slower = (means(server.simulated(share * most, steps)) for steps in STEPS)
        report = server.simulated(share * most)
        ((name, model),) = report.step_models.items()
        (known,) = report.expected_errors().values()
        seen = {metric: log(slower[metric] / faster[metric]) / log(STEPS[1] / STEPS[0]) for metric in METRICS}
        estimate = itl_amplification(pool_loads(report.experiment, report.to_dict())[name], model)
        found.append(Grown(server, share, seen, estimate, "ttft" in known.bands))
    return found


def lines(found: list[Grown]) -> Iterator[str]:
    """The table and its summary."""
    yield "| server | load | of capacity | TTFT | ITL | E2E | taken for | TTFT quoted |"
    yield "|---|---|--:|--:|--:|--:|--:|---|"
    for one in found:
        times = [f"{one.seen[metric]:.2f}" for metric in METRICS]
        cells = [one.server.model, one.server.workload, f"{100 * one.share:.0f} %", *times, f"{one.estimate:.2f}"]
        yield f"| {' | '.join([*cells, 'yes' if one.quoted else 'no'])} |"
    quoted = [one for one in found if one.quoted]
    off = [abs(one.estimate / one.seen["itl"] - 1.0) for one in quoted]
    near = len([one for one in off if one <= 1 / 6])
    there, elsewhere = (max(one.seen["ttft"] for one in found if one.quoted is known) for known in (True, False))
    yield f"\n{len(quoted)} of {len(found)} loads have errors of TTFT quoted. It grows up to {there:.1f} times there,"
    yield f"elsewhere up to {elsewhere:.1f} times. Of ITL the formula is off by {100 * median(off):.0f} % (median)"
    yield f"where errors of TTFT are quoted, in {near} of {len(off)} loads by at most a sixth."


def main() -> int:
    """Run all simulations and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=None, help="processes (default: one a core)")
    options = parser.parse_args()
    servers = [Server(*one, name, requests) for one in SERVERS for name, requests in LOADS.items()]
    with ProcessPoolExecutor(options.jobs) as pool:
        found = [one for each in pool.map(grown, servers) for one in each]
    sys.stdout.writelines(f"{line}\n" for line in lines(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
