"""Tails of TTFT: measured runs with figures for each request, compared with their simulations.

    python -m benchmarks.tails --data DIR          p50, p90 and p99 of each training run

DIR is the folder of measurements described in ``accuracy.py``, which compares means; a mean can be right while p99 is
not.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import sys
from pathlib import Path
from statistics import mean, median

import blis_tui
from benchmarks.accuracy import WARM_UP_US, latency_of, training_runs

QUANTILES = (0.5, 0.9, 0.99)


def quantile(values: list[float], share: float) -> float:
    """The quantile, interpolated linearly between sorted values."""
    ordered = sorted(values)
    at = share * (len(ordered) - 1)
    low = ordered[int(at)]
    return low + (at - int(at)) * (ordered[min(int(at) + 1, len(ordered) - 1)] - low)


def measured(data: Path) -> dict[str, list[float]]:
    """Run -> TTFTs after the warm-up, in milliseconds."""
    found: dict[str, list[float]] = {}
    with gzip.open(data / "training-steps/requests.csv.gz", "rt") as file:
        for row in csv.DictReader(file):
            if row["failed"] == "0" and row["e2e_us"] and int(row["arrival_us"]) >= WARM_UP_US:
                found.setdefault(row["run"], []).append(float(row["ttft_us"]) / 1e3)
    return found


def main() -> int:
    """Simulate all runs and print the quantiles."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the measurements")
    options = parser.parse_args()
    if not (options.data / "training-steps").is_dir():
        sys.stderr.write(f"{options.data} holds no measurements: nothing to compare with\n")
        return 0
    times = measured(options.data)
    sys.stdout.write("| run | requests | p50, ms | simulated | p90, ms | simulated | p99, ms | simulated |\n")
    sys.stdout.write("|---|--:|--:|--:|--:|--:|--:|--:|\n")
    errors: dict[float, list[float]] = {share: [] for share in QUANTILES}
    for run in training_runs(options.data):
        name = str(run.spec["metadata"]["name"]).removeprefix("training-")  # type: ignore[index]
        document = {**run.spec, "warm_up_us": run.warm_up_us, "latency": latency_of("operators", run, {})}
        simulation = blis_tui.Simulation(blis_tui.load(document), check="off")
        simulation.run()
        rows = simulation.report(verify=False).rows
        ours = [row.ttft_us / 1e3 for row in rows if row.ttft_us is not None and row.arrival_us >= WARM_UP_US]
        cells = [f"{name} ({run.model})", str(len(times[name]))]
        for share in QUANTILES:
            theirs, here = quantile(times[name], share), quantile(ours, share)
            errors[share].append(100 * (here / theirs - 1))
            cells += [f"{theirs:.1f}", f"{here:.1f} ({errors[share][-1]:+.0f} %)"]
        sys.stdout.write(f"| {' | '.join(cells)} |\n")
    for share, error in errors.items():
        sizes = [abs(one) for one in error]
        sys.stdout.write(f"p{100 * share:g}: mean {mean(sizes):.1f} %, median {median(sizes):.1f} %\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
