"""How well ``operators`` predicts servers, families and sizes of models, and tensor parallelisms, that no fit has seen.

    python -m benchmarks.leave_out --data DIR              the errors of each left-out server and family
    python -m benchmarks.leave_out --data DIR --write      also write benchmarks/left_out.json

DIR is the folder of measurements described in ``accuracy.py``. A second simulation with each coefficient a fifth larger
gives its effect on each run. The coefficients are then fitted to the errors of all runs but those of one server (a
model on a number of GPUs of one kind, with an engine), of one family, tensor parallelism or size, by bounded least
squares in logarithms, with a normal prior of width ``PRIOR`` around the shipped values. The script prints the remaining
errors of those left out. The tables of operators do not change: they were measured without any server.
``left_out.json`` has the coefficients without each server, tensor parallelism and size; ``accuracy.py --errors``
simulates the servers with them, and reports quote the result. Needs scipy (the extra ``calibrate``).
"""

from __future__ import annotations

import argparse
import json
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import mean, median
from typing import TYPE_CHECKING

import numpy as np
from scipy.optimize import least_squares

import blis_tui
from benchmarks.accuracy import (
    COEFFICIENTS,
    LEFT_OUT,
    Run,
    development_runs,
    group_of,
    latency_of,
    serving_runs,
    simulate,
    training_runs,
    values_of,
)
from blis_tui.base.errors import BlisError

if TYPE_CHECKING:
    from collections.abc import Callable

MORE = 1.2
PRIOR = 0.5
SOFT = 0.12
METRICS = ("ttft", "itl")
LEAST = {"moved": -float(np.log(1.8))}
"""Lower bounds of the coefficients' log factors: no data moves faster than the memory allows."""
LARGEST = 1.0
"""Runs with larger errors are out of reach: overload is simulated where there was none, or the reverse."""


def idle_of(run: Run) -> set[str]:
    """Coefficients that no step of the run depends on, and which therefore need no second simulation."""
    (pool,) = blis_tui.load(run.spec).pools
    idle = set() if pool.model.num_experts else {name for name in COEFFICIENTS if name.startswith("experts_")}
    if pool.tensor_parallel == 1:
        idle.add("layer_tp_us")
    if pool.model.weight_bytes != 1.0:
        idle |= {"products_fp8", "products_fp8_long", "quantize_us"}
    return idle


def responses(run: Run) -> dict[str, list[float]] | None:
    """Metric -> its error, and what a fifth more of each coefficient adds to its log; None = out of reach."""
    try:
        latency, values = latency_of("operators", run, {}), values_of(run)
        base = simulate(run, latency)
        found = {name: [base[name] / run.measured[name] - 1.0] for name in METRICS}
        if any(abs(one[0]) > LARGEST for one in found.values()):
            return None
        idle = idle_of(run)
        for name in COEFFICIENTS:
            counts = values[name] and name not in idle
            other = simulate(run, {**latency, name: values[name] * MORE}) if counts else base
            for metric, one in found.items():
                one.append(float(np.log(other[metric] / base[metric]) / np.log(MORE)))
    except BlisError as error:
        sys.stderr.write(f"{run.spec['metadata']}: {error}\n")
        return None
    return found


class Fits:
    """Fits to the errors of some runs.

    Args:
        runs: all runs in reach.
        found: the effect of the coefficients on each.
    """

    def __init__(self, runs: list[Run], found: list[dict[str, list[float]]]) -> None:
        self.names = [(engine, name) for engine in sorted({run.engine for run in runs}) for name in COEFFICIENTS]
        rows, errors = [], []
        for run, one in zip(runs, found, strict=True):
            for metric in METRICS:
                off, *slopes = one[metric]
                mine = dict(zip(COEFFICIENTS, slopes, strict=True))
                rows.append([mine[name] if engine == run.engine else 0.0 for engine, name in self.names])
                errors.append(np.log1p(off))
        self.matrix, self.errors = np.array(rows), np.array(errors)

    def moves(self, among: np.ndarray) -> np.ndarray:
        """Log factors of the coefficients, fitted to these errors."""

        def residuals(moves: np.ndarray) -> np.ndarray:
            return np.concatenate([(self.errors + self.matrix @ moves)[among], SOFT / PRIOR * moves])

        start, least = np.zeros(len(self.names)), [LEAST.get(name, -1.0) for _, name in self.names]
        found: np.ndarray = least_squares(residuals, start, bounds=(least, 1.0), loss="soft_l1", f_scale=SOFT).x
        return found


def left_out(
    runs: list[Run], found: list[dict[str, list[float]]], group_of: Callable[[Run], str]
) -> dict[str, dict[str, dict[str, float]]]:
    """Print the remaining errors of each group, fitted to the others; return the coefficients without each.

    Returns:
        Group -> engine -> coefficient -> its factor on the shipped value.
    """
    fits = Fits(runs, found)
    metrics = [metric for _ in runs for metric in METRICS]
    groups = [group_of(run) for run in runs for _ in METRICS]
    sums: dict[str, list[float]] = {}
    without: dict[str, dict[str, dict[str, float]]] = {}
    for group in [*sorted(set(groups)), "**all**"]:
        cells = [group, str(groups.count(group) // len(METRICS))]
        if group == "**all**":
            cells[1] = str(len(runs))
        else:
            inside = np.array([one == group for one in groups])
            moves = fits.moves(~inside)
            for (engine, name), move in zip(fits.names, moves, strict=True):
                without.setdefault(group, {}).setdefault(engine, {})[name] = float(f"{np.exp(move):.5g}")
            for metric in METRICS:
                here = inside & np.array([one == metric for one in metrics])
                for kind, left in (("shipped", fits.errors), ("without", fits.errors + fits.matrix @ moves)):
                    sums.setdefault(f"{group} {metric} {kind}", []).extend(np.abs(np.expm1(left[here])) * 100)
                    sums.setdefault(f"**all** {metric} {kind}", []).extend(np.abs(np.expm1(left[here])) * 100)
        for metric in METRICS:
            for kind in ("shipped", "without"):
                sizes = sums[f"{group} {metric} {kind}"]
                cells.append(f"{mean(sizes):.1f} / {median(sizes):.1f}")
        sys.stdout.write(f"| {' | '.join(cells)} |\n")
    return without


def main() -> int:
    """Simulate, fit with each group left out, and print the errors."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the measurements")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="take every N-th of the serving runs")
    parser.add_argument("--groups", nargs="+", default=["development", "training", "serving"])
    parser.add_argument("--jobs", type=int, default=None, help="processes (default: one a core)")
    parser.add_argument("--write", action="store_true", help="write left_out.json")
    options = parser.parse_args()
    if not (options.data / "training-steps").is_dir():
        sys.stderr.write(f"{options.data} holds no measurements: nothing to compare with\n")
        return 0
    makers = {"development": development_runs, "training": training_runs, "serving": serving_runs}
    runs: list[Run] = []
    for group in options.groups:
        there = list(makers[group](options.data))
        runs += there[:: options.every] if group == "serving" else there
    with ProcessPoolExecutor(options.jobs) as pool:
        found = list(pool.map(responses, runs))
    known = [(run, one) for run, one in zip(runs, found, strict=True) if one is not None]
    groupings: tuple[tuple[str, Callable[[Run], str]], ...] = (
        ("server", lambda run: run.server),
        ("family", lambda run: run.family),
        ("tensor parallelism", lambda run: group_of(run, "tensor_parallel")),
        ("size", lambda run: group_of(run, "size")),
    )
    written: dict[str, dict[str, dict[str, float]]] = {}
    for title, name_of in groupings:
        sys.stdout.write(f"\n| {title} left out | runs | TTFT, shipped | without | ITL, shipped | without |\n")
        sys.stdout.write("|---|--:|--:|--:|--:|--:|\n")
        without = left_out([run for run, _ in known], [one for _, one in known], name_of)
        written |= {} if title == "family" else without
    if options.write:
        LEFT_OUT.write_text(json.dumps(written, indent=1, sort_keys=True) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
