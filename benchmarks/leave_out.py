"""How well ``operators`` forecasts servers, and families of models, that its coefficients were not fitted on.

    python -m benchmarks.leave_out --data DIR

DIR as for ``accuracy.py``. What each coefficient does to each run is taken from a second simulation with a fifth more
of it. All are then fitted to the errors of the runs but those of one server (a model on so many GPUs of a kind, with an
engine), or of one family, by bounded least squares in logarithms, with a normal prior of ``PRIOR`` around what ships;
what remains of the errors of those left out is told. Tables stay as they are: they were measured without any server.
It needs scipy (the extra ``calibrate``).
"""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import mean, median
from typing import TYPE_CHECKING

import numpy as np
from scipy.optimize import least_squares

import blis_tui
from benchmarks.accuracy import Run, development_runs, latency_of, serving_runs, simulate, training_runs
from blis_tui.engine.latency.operator_costs import OperatorCosts
from blis_tui.engine.latency.operator_rest import Settings
from blis_tui.errors import BlisError

if TYPE_CHECKING:
    from collections.abc import Callable

COEFFICIENTS = (
    "products_fp8",
    "layer_tp_us",
    "moved",
    "experts_spread",
    "experts_mxfp4",
    "experts_token_us",
    "experts_layer_us",
    "request_us",
    "stream_us",
    "queue_us",
)
"""Each of an engine is one of its own."""
MORE = 1.2
PRIOR = 0.5
SOFT = 0.12
METRICS = ("ttft", "itl")
LARGEST = 1.0
"""Runs that are off by more are out of reach: a server taken for overloaded, or not."""


def values_of(run: Run) -> dict[str, float]:
    """What the coefficients of a run are."""
    (pool,) = blis_tui.load({**run.spec, "latency": latency_of("operators", run, {})}).pools
    assert pool.operators is not None  # noqa: S101  (it is the kind)
    settings = {key: value for key, value in pool.latency.settings.items() if value is not None}
    costs = OperatorCosts(pool.operators, pool.model, pool.tensor_parallel, Settings(**settings))  # type: ignore[arg-type]
    return {name: float(getattr(costs.rest, name)) for name in COEFFICIENTS}


def responses(run: Run) -> dict[str, list[float]] | None:
    """Metric -> its error, and what a fifth more of each coefficient adds to its logarithm; None = out of reach."""
    try:
        latency, values = latency_of("operators", run, {}), values_of(run)
        base = simulate(run, latency)
        found = {name: [base[name] / run.measured[name] - 1.0] for name in METRICS}
        if any(abs(one[0]) > LARGEST for one in found.values()):
            return None
        for name in COEFFICIENTS:
            other = simulate(run, {**latency, name: values[name] * MORE}) if values[name] else base
            for metric, one in found.items():
                one.append(float(np.log(other[metric] / base[metric]) / np.log(MORE)))
    except BlisError as error:
        sys.stderr.write(f"{run.spec['metadata']}: {error}\n")
        return None
    return found


def left_out(runs: list[Run], found: list[dict[str, list[float]]], group_of: Callable[[Run], str]) -> None:
    """Tell what remains of the errors of each group, fitted to the others."""
    names = [(engine, name) for engine in sorted({run.engine for run in runs}) for name in COEFFICIENTS]
    rows, errors, groups, metrics = [], [], [], []
    for run, one in zip(runs, found, strict=True):
        for metric in METRICS:
            off, *slopes = one[metric]
            rows.append([slopes[COEFFICIENTS.index(name)] if engine == run.engine else 0.0 for engine, name in names])
            errors.append(np.log1p(off))
            groups.append(group_of(run))
            metrics.append(metric)
    matrix, logs = np.array(rows), np.array(errors)

    def residuals(moves: np.ndarray, among: np.ndarray) -> np.ndarray:
        return np.concatenate([(logs + matrix @ moves)[among], SOFT / PRIOR * moves])

    sums: dict[str, list[float]] = {}
    for group in [*sorted(set(groups)), "**all**"]:
        cells = [group, str(groups.count(group) // len(METRICS))]
        if group == "**all**":
            cells[1] = str(len(runs))
        else:
            inside = np.array([one == group for one in groups])
            start = np.zeros(len(names))
            moves = least_squares(residuals, start, args=(~inside,), bounds=(-1.0, 1.0), loss="soft_l1", f_scale=SOFT).x
            for metric in METRICS:
                here = inside & np.array([one == metric for one in metrics])
                for kind, left in (("shipped", logs), ("without", logs + matrix @ moves)):
                    sums.setdefault(f"{group} {metric} {kind}", []).extend(np.abs(np.expm1(left[here])) * 100)
                    sums.setdefault(f"**all** {metric} {kind}", []).extend(np.abs(np.expm1(left[here])) * 100)
        for metric in METRICS:
            for kind in ("shipped", "without"):
                sizes = sums[f"{group} {metric} {kind}"]
                cells.append(f"{mean(sizes):.1f} / {median(sizes):.1f}")
        sys.stdout.write(f"| {' | '.join(cells)} |\n")


def main() -> int:
    """Simulate, fit without, tell."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the measurements")
    parser.add_argument("--every", type=int, default=3, metavar="N", help="take every N-th of the serving runs")
    parser.add_argument("--groups", nargs="+", default=["development", "training", "serving"])
    parser.add_argument("--jobs", type=int, default=None, help="processes (default: one a core)")
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
    for title, group_of in (
        ("server", lambda run: f"{run.model}, {run.tensor_parallel} x {run.hardware}, {run.engine}"),
        ("family", lambda run: run.family),
    ):
        sys.stdout.write(f"\n| {title} left out | runs | TTFT, shipped | without | ITL, shipped | without |\n")
        sys.stdout.write("|---|--:|--:|--:|--:|--:|\n")
        left_out([run for run, _ in known], [one for _, one in known], group_of)
    return 0


if __name__ == "__main__":
    sys.exit(main())
