"""Refit the coefficients of ``fitted`` to measured servers, and once more without each model.

    python -m benchmarks.refit --data DIR                 the fitted values beside the shipped ones
    python -m benchmarks.refit --data DIR --write         also write benchmarks/leave_one_out.json

DIR is the folder of measurements described in ``accuracy.py``, and the runs are the same, under the measured loads. The
development run of Llama 2 7B is held out for judging. Each run gives two equations, for its mean TTFT and its mean ITL;
each is the sum of the coefficients' contributions in the simulated run. All are solved together: for relative errors,
of which large ones count less, with every coefficient at or above its physical limit, and near the value in the
operators' tables (``TABLES``) or else, by a weak prior, near the shipped one. The runs are then simulated with the
result, because other step times form other batches, and so on. TensorRT-LLM has some coefficients of its own (``OWN``).
For each left-out model, the last equations are solved again.

``all: vllm`` has the defaults of ``blis_tui/engine/latency/fitted.py``, which are entered there by hand. Needs scipy
(the extra ``calibrate``).
"""

from __future__ import annotations

import argparse
import json
import sys
from bisect import bisect_right
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from statistics import fmean, median
from typing import TYPE_CHECKING

import numpy as np
from scipy.optimize import least_squares

import blis_tui
from benchmarks.accuracy import HERE, SORTED_SAMPLING, Run, development_runs, serving_runs, training_runs
from blis_tui.engine.latency.fitted import FittedSettings
from blis_tui.engine.records import StepFinished
from blis_tui.live.calibration.fitting.laws import FITTED_TERMS, FittedLaw, loads_of
from blis_tui.live.calibration.simulated_load import with_latency
from blis_tui.model import PluginConfig
from blis_tui.runs.simulation import Simulation

if TYPE_CHECKING:
    from blis_tui.live.calibration.fitting.laws import Array
    from blis_tui.model import Experiment

OWN = ("layer_us", "fp8_uneven", "first_token_us")
"""Coefficients with separate values for TensorRT-LLM."""
NAMES = (*FITTED_TERMS, *(f"trtllm {name}" for name in OWN))
SOFT = 0.12
"""Relative errors beyond this are down-weighted."""
PRIOR = 1.0
"""The relative deviation from the shipped value that costs as much as an error of ``SOFT``."""
TABLES = {
    "weights": 1.08,
    "flops": 1.27,
    "fp8_flops": 1.8,
    "fp8_uneven": 3.0,
    "fp8_layer_us": 16.0,
    "expert_weights": 1.15,
    "expert_flops": 2.0,
    "expert_layer_us": 30.0,
    "kv_read": 1.05,
    "prefill_attention": 1.5,
    "all_reduce": 1.75,
    "moved": 1.8,
}
"""Values from the operators' tables, without any server: medians over all shapes and GPUs."""
TABLES_PRIOR = 0.2
"""The deviation from these values that costs as much."""


NOTHING = 1e-6
"""Smaller coefficients count as zero."""


@dataclass(frozen=True)
class Equation:
    """A measured mean, and the contribution of each of ``NAMES`` as a share of it."""

    run: str
    model: str
    metric: str
    shares: tuple[float, ...]


def settings_of(engine: str, values: dict[str, float], *, sorts: bool) -> FittedSettings:
    """Those of an engine."""
    own = {name: values[f"trtllm {name}"] for name in OWN} if engine == "trtllm" else {}
    coefficients = {**{name: values[name] for name in FITTED_TERMS}, **own}
    return replace(FittedSettings(sorted_sampling=sorts), **coefficients)  # type: ignore[arg-type]  # all of them are numbers


def equations(run: Run, values: dict[str, float]) -> list[Equation]:
    """Those of one run, simulated with these coefficients."""
    sorts = run.group == "development" and run.model in SORTED_SAMPLING
    settings = settings_of(run.engine, values, sorts=sorts)
    latency = PluginConfig(kind="fitted", settings=asdict(settings))
    experiment = with_latency(blis_tui.load({**run.spec, "latency": {"kind": "fitted"}}), latency)
    found = []
    for metric, parts in zip(("ttft", "itl"), taken_apart(experiment, settings, run.warm_up_us), strict=True):
        shares = (parts.mean(axis=0) / 1e3 / run.measured[metric]).tolist()
        own = [0.0] * len(OWN)
        if run.engine == "trtllm":
            for at, name in enumerate(OWN):
                own[at], shares[FITTED_TERMS.index(name)] = shares[FITTED_TERMS.index(name)], 0.0
        found.append(Equation(str(run.spec["metadata"]), run.model, metric, (*shares, *own)))
    return found


def taken_apart(experiment: Experiment, settings: FittedSettings, warm_up_us: float) -> tuple[Array, Array]:
    """The contributions of ``TERMS`` to TTFT and to gaps between tokens, one row each."""
    (pool,) = experiment.pools
    law = FittedLaw(settings)
    steps: list[StepFinished] = []
    simulation = Simulation(experiment, check="off")
    simulation.subscribe(StepFinished, steps.append)
    simulation.run()
    works = (
        (step.decode_requests, step.decode_context_tokens, [(it.computed_tokens, it.new_tokens) for it in step.chunks])
        for step in steps
    )
    values = np.array([float(getattr(settings, name)) for name in FITTED_TERMS])
    each = law.steps(values, pool, loads_of(works, pool.model.sliding_window)) * values
    sums = np.vstack([np.zeros(len(FITTED_TERMS)), np.cumsum(each, axis=0)])
    starts = [step.time_us for step in steps]
    first = {name: at for at, step in enumerate(steps) for name in step.first_tokens}
    last = {name: at for at, step in enumerate(steps) for name in step.completed}
    firsts, gaps = [], []
    for row in simulation.report(verify=False).rows:
        if row.request_id not in first or row.request_id not in last or row.queued_us is None:
            continue
        if row.arrival_us < warm_up_us:
            continue
        begin, end = first[row.request_id], last[row.request_id]
        queued = max(0, bisect_right(starts, row.queued_us) - 1)
        left = max(0.0, steps[queued].time_us + steps[queued].duration_us - row.queued_us) / steps[queued].duration_us
        waited = each[queued] * left if queued < begin else np.zeros(len(FITTED_TERMS))
        before = (law.queue(np.array([float(row.input_tokens)])) * values)[0]
        firsts.append(sums[begin + 1] - sums[min(queued, begin - 1) + 1] + waited + before)
        if row.output_tokens > 1:
            gaps.append((sums[end + 1] - sums[begin + 1]) / (row.output_tokens - 1))
    return np.array(firsts), np.array(gaps)


def solved(found: list[Equation], at: dict[str, float], ships: dict[str, float]) -> dict[str, float]:
    """The coefficients that fit the equations best."""
    matrix = np.array([equation.shares for equation in found])
    limits = {field.name: field.metadata.get("limits", {}).get("minimum", 0.0) for field in fields(FittedSettings)}
    now = np.array([at[name] for name in NAMES])
    base = np.array([TABLES.get(name, ships[name]) for name in NAMES])
    prior = np.array([TABLES_PRIOR if name in TABLES else PRIOR for name in NAMES])
    scale = np.where(now > 0.0, now, 1.0)
    lower = np.array([limits[name.removeprefix("trtllm ")] for name in NAMES]) / scale
    moved = np.where(base > 0.0, base, 1.0) / scale

    def errors(factors: np.ndarray) -> np.ndarray:
        off = matrix @ factors - 1.0
        return np.concatenate([off, SOFT / prior * (factors - base / scale) / moved])

    start = np.maximum(np.where(now > 0.0, 1.0, 0.0), lower)
    result = least_squares(errors, start, bounds=(lower - 1e-9, np.inf), loss="soft_l1", f_scale=SOFT)
    best = np.maximum(result.x, lower) * scale
    best[best < NOTHING] = 0.0
    return {name: float(f"{value:.4g}") for name, value in zip(NAMES, best, strict=True)}


def fits(run: Run, most_users: int) -> bool:
    """Whether to fit a run: not the held-out development run, nor an engine that was never released."""
    if (run.group, run.model) == ("development", "llama-2-7b-hf"):
        return False
    if (run.engine, run.model, run.hardware) == ("trtllm", "gpt-oss-120b", "h200"):
        return False
    workload = run.spec["workload"]
    return isinstance(workload, dict) and workload.get("requests", 0) <= 10 * most_users


def document(values: dict[str, float]) -> dict[str, dict[str, float]]:
    """The coefficients in the format of ``leave_one_out.json``."""
    vllm = {name: values[name] for name in sorted(FITTED_TERMS)} | {"flops_growth": FittedSettings().flops_growth}
    return {"trtllm": {**vllm, **{name: values[f"trtllm {name}"] for name in OWN}}, "vllm": vllm}


def main() -> int:
    """Fit, print and, if asked, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the measurements")
    parser.add_argument("--every", type=int, default=3, metavar="N", help="take every N-th of the serving runs")
    parser.add_argument("--most-users", type=int, default=128, help="leave out serving runs with more")
    parser.add_argument("--groups", nargs="+", default=["development", "training", "serving"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=None, help="processes (default: one a core)")
    parser.add_argument("--write", action="store_true", help="write leave_one_out.json")
    options = parser.parse_args()
    makers = {"development": development_runs, "training": training_runs, "serving": serving_runs}
    runs: list[Run] = []
    for group in options.groups:
        there = [run for run in makers[group](options.data) if fits(run, options.most_users)]
        runs += there[:: options.every] if group == "serving" else there
    shipped = json.loads((HERE / "leave_one_out.json").read_text())["all"]
    ships = {name: float(getattr(FittedSettings(), name)) for name in FITTED_TERMS}
    ships |= {f"trtllm {name}": float(shipped["trtllm"].get(name, ships[name])) for name in OWN}
    values, found = ships, list[Equation]()
    with ProcessPoolExecutor(options.jobs) as pool:
        for number in range(options.rounds):
            found = [equation for each in pool.map(equations, runs, [values] * len(runs)) for equation in each]
            values = solved(found, values, ships)
            off = [abs(sum(equation.shares) - 1.0) * 100 for equation in found]
            sys.stderr.write(f"round {number + 1}: {fmean(off):.1f} / {median(off):.1f} % off before it\n")
    sys.stdout.write(f"{'coefficient':22}{'ships':>10}{'fitted':>10}\n")
    sys.stdout.writelines(f"{name:22}{ships[name]:>10.4g}{values[name]:>10.4g}\n" for name in NAMES)
    out = {"all": document(values)}
    for model in sorted({equation.model for equation in found}):
        out[model] = document(solved([equation for equation in found if equation.model != model], values, ships))
    if options.write:
        (HERE / "leave_one_out.json").write_text(json.dumps(out, indent=1, sort_keys=True) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
