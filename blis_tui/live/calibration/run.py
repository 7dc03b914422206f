"""Runs a calibration, checks whether requests come from one server, and chooses the loads to measure on it.

``calibrate --collect`` writes those loads as the cases of an experiment.
"""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from itertools import pairwise
from math import fsum, sqrt
from shlex import quote
from statistics import median
from typing import TYPE_CHECKING, Final

from blis_tui.base.canonical import to_json
from blis_tui.base.classes import dataclass
from blis_tui.base.errors import InputError, install_command
from blis_tui.base.scalars import flow
from blis_tui.base.text import printable
from blis_tui.base.units import in_words, plural, share_text
from blis_tui.engine.latency.wrappers import without_graphs
from blis_tui.live.calibration.document import LEVEL, document_text
from blis_tui.live.calibration.measured import Recording, StepLog
from blis_tui.live.calibration.other_loads import expected_text, expected_under, other_loads
from blis_tui.live.calibration.simulated_load import (
    METRICS,
    VARIATION,
    Pair,
    StepPair,
    agreement,
    by_batch,
    by_stage,
    compared,
    disagreement,
    name_of,
    pairs_of,
    require_one_instance,
    size_of,
)
from blis_tui.output.section_text import accuracy_text, expected_data
from blis_tui.spec.authoring.provenance import compose
from blis_tui.spec.load import load as load_experiment

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from blis_tui.base.source import Json
    from blis_tui.live.calibration.document import Fit
    from blis_tui.live.calibration.fitting.collect import Plan
    from blis_tui.live.calibration.measured import Data
    from blis_tui.live.calibration.other_loads import Load, OtherLoadErrors
    from blis_tui.live.calibration.simulated_load import Agreement, Pairs, Runs
    from blis_tui.results.expected_error import Expectation


BASES: Final = ("fitted", "blackbox")
_LAUNCHED: Final = (
    "The coefficients include what launching operators one by one took: do not set engine.enforce_eager or "
    "engine.cudagraph_mode together with them."
)


@dataclass(frozen=True, slots=True)
class Calibrated:
    """Fitted coefficients, and their agreement."""

    fit: Fit
    before: Runs
    """Predictions of the experiments' own step-time models."""
    runs: Runs
    left_out_runs: Runs
    """Each recording with coefficients fitted to the others, if these determine any."""
    document: str


def require_extra() -> None:
    """Raise InputError if the extra is not installed."""
    try:
        import numpy as np  # noqa: F401, PLC0415  (an extra)
        import scipy.optimize  # noqa: F401, PLC0415  (an extra)
    except ImportError as error:
        message = f"`calibrate` needs the extra `calibrate`: {error.name} is not installed"
        raise InputError(message, help=install_command("calibrate")) from error


def calibrated(data: Sequence[Data], kind: str = "", progress: Callable[[str], None] = lambda _: None) -> Calibrated:
    """Fit to all recordings, and to all but each.

    Args:
        data: the measurements.
        kind: the step-time model to fit; by default the first experiment's if it can be fitted, else ``fitted``.
        progress: called with what is done next.

    Raises:
        InputError: the extra is not installed, or the measurements determine no coefficient.
        PolicyError: an experiment has more than one instance.
    """
    require_extra()
    from blis_tui.live.calibration.fitting.calibrate import fit  # noqa: PLC0415  (needs the extra)

    for measured_run in data:
        require_one_instance(measured_run.experiment)
    own = data[0].experiment.pools[0].latency.kind
    kind = kind or (own if own in BASES else BASES[0])
    before = compared(data)
    eager = any(without_graphs(run.experiment.pools[0].engine) for run in data)
    data = [_with_all_in_coefficients(run) for run in data]
    fitted = fit(data, kind, progress=progress)
    if not any(coefficient.told in ("measured", "roughly", "averaged") for coefficient in fitted.found):
        raise InputError(
            "these measurements determine no coefficient", help="record more requests, under several loads"
        )
    runs = compared(data, fitted.latency, fitted.gap_us)
    of_means = any(coefficient.told == "averaged" for coefficient in fitted.found)
    if disagreement(runs, of_means=of_means) > disagreement(before, of_means=of_means):
        fitted, runs = _kept(fitted, data), before
    others: Runs = {}
    for number in range(len(data) if len(data) > 1 else 0):
        progress(f"without recording {number + 1} of {len(data)}")
        rest = [other for at, other in enumerate(data) if at != number]
        without = fit(rest, kind, advise=False)
        others[name_of(data, number)] = pairs_of(data[number], without.latency, without.gap_us)
    launched = [_LAUNCHED] if eager and not fitted.kept else []
    fitted = replace(fitted, statements=(*_mixtures(data), *launched, *fitted.statements))
    if not fitted.kept:
        progress("what to expect under other loads")
        fitted = replace(fitted, elsewhere=_elsewhere(fitted, data))
    pairs = [pair for run in runs.values() for pair in run if isinstance(pair, Pair)]
    steps = [pair for run in runs.values() for pair in run if isinstance(pair, StepPair)]
    judged = [(metric, agreement(steps if metric == "step" else pairs, metric)) for metric in METRICS]
    errors = {metric: comparison.bias for metric, comparison in judged if comparison is not None}
    return Calibrated(fitted, before, runs, others, document_text(fitted, data, errors))


def _with_all_in_coefficients(run: Data) -> Data:
    """Remove launch overheads, which measured steps, and so the coefficients, already include."""
    (pool,) = run.experiment.pools
    pool = replace(pool, engine=replace(pool.engine, enforce_eager=False, cudagraph_mode="FULL_AND_PIECEWISE"))
    return replace(run, experiment=replace(run.experiment, pools=(pool,)))


def _elsewhere(fitted: Fit, data: Sequence[Data]) -> tuple[OtherLoadErrors, ...]:
    """Return the expected errors of a fit under loads besides the first measured one."""
    for run in data:
        if isinstance(run.recording, Recording):
            lengths = [asked.input_tokens for asked in run.recording.requests]
            loads = other_loads(run.experiment, sum(lengths) / len(lengths))
            return expected_under(run.experiment, fitted.latency, fitted.draws, loads)
    return ()


def _kept(fitted: Fit, data: Sequence[Data]) -> Fit:
    """Return the experiment's own step-time model as the result, because nothing better was found."""
    latency = data[0].experiment.pools[0].latency
    kept = "The experiment's own coefficients are kept: none were found that agree better."
    return replace(fitted, latency=latency, kept=True, statements=(kept, *fitted.statements))


def _mixtures(data: Sequence[Data]) -> list[str]:
    """Return sentences on recordings that seem to come from several servers."""
    sentences = []
    for number, run in enumerate(data):
        if not isinstance(run.recording, StepLog) and (mixture := mixed(run.recording)) is not None:
            sentences.append(f"{name_of(data, number)}: {mixture}")
    return sentences


# Requests come from one server if concurrent ones share its steps.

_FEWEST_TOKENS: Final = 8
"""In shorter answers, single steps dominate the time per token."""
_FEWEST: Final = 20
_BESIDE: Final = 0.5
"""A request is concurrent with another if it ran during this share of the other's answer."""
_MOST_BESIDE: Final = 32
_SMALLEST_GROUP: Final = 0.15
_APART: Final = 0.2
"""Minimum relative difference between groups,"""
_CLEAR: Final = 5.0
"""and minimum difference in standard deviations."""


def mixed(recording: Recording) -> str | None:
    """Return a sentence if requests seem to come from several servers; None otherwise.

    Each step gives one token to every running request, so concurrent requests have equal times per token whatever steps
    take. If these form two consistent groups, there were two servers.
    """
    answers = [
        (
            request.arrival_us + request.ttft_us,
            request.arrival_us + request.e2e_us,
            (request.e2e_us - request.ttft_us) / (request.output_tokens - 1),
        )
        for request in recording.requests
        if request.output_tokens >= _FEWEST_TOKENS and request.e2e_us > request.ttft_us
    ]
    answers.sort()
    ratios = sorted(ratio for at in range(len(answers)) if (ratio := _beside(answers, at)) is not None)
    split = _two_groups(ratios)
    if split is None:
        return None
    low, high = ratios[:split], ratios[split:]
    more = (fsum(high) / len(high)) / (fsum(low) / len(low)) - 1.0
    return (
        f"{len(high):,} of {plural(len(ratios), 'request')} took {share_text(more, 0)} longer for a token than the"
        " others at the same times: this seems to be a mixture of two servers, or of instances behind a router; give"
        " each a file of its own."
    )


def _beside(answers: Sequence[tuple[float, float, float]], at: int) -> float | None:
    """Return an answer's time per token, relative to the fastest concurrent one."""
    begin, end, each = answers[at]
    others: list[float] = []
    for number in range(max(0, at - _MOST_BESIDE), min(len(answers), at + _MOST_BESIDE + 1)):
        start, stop, other = answers[number]
        if number != at and min(stop, end) - max(start, begin) >= _BESIDE * max(end - begin, stop - start):
            others.append(other)
    return each / min(others) if len(others) > 1 else None


def _two_groups(ratios: Sequence[float]) -> int | None:
    """Return where the second of two clear groups begins in sorted order; None if there are none."""
    count = len(ratios)
    if count < _FEWEST:
        return None
    least = max(2, int(_SMALLEST_GROUP * count))
    # Take the widest gap that leaves enough values on both sides.
    gaps = [(after - before, number + 1) for number, (before, after) in enumerate(pairwise(ratios))]
    _, split = max(gaps[least - 1 : count - least])
    low, high = ratios[:split], ratios[split:]
    centre = [median(group) for group in (low, high)]
    within = sqrt(
        (fsum((ratio - centre[0]) ** 2 for ratio in low) + fsum((ratio - centre[1]) ** 2 for ratio in high)) / count
    )
    apart = centre[1] - centre[0]
    return split if apart > _APART * centre[0] and apart > _CLEAR * within else None


def collection(spec: str, overrides: Sequence[str], count: int) -> Plan:
    """Choose the loads to measure, for a fit of ``fitted``, because ``blackbox`` has no expected coefficients.

    Args:
        spec: the experiment that describes the server.
        overrides: as for ``load``.
        count: number of loads.

    Raises:
        InputError: the extra is not installed, or the engine can serve none of the loads.
        PolicyError: the experiment has more than one instance.
        SpecError: it is invalid.
    """
    require_extra()
    from blis_tui.live.calibration.fitting.calibrate import fitted_law  # noqa: PLC0415  (needs the extra)
    from blis_tui.live.calibration.fitting.collect import plan  # noqa: PLC0415  (needs the extra)

    experiment = load_experiment(spec, overrides=overrides)
    require_one_instance(experiment)
    return plan(experiment, fitted_law(experiment.pools[0].latency), count)


def case_name(load: Load) -> str:
    """Return the name of a load's case."""
    return f"users-{load.users}-prompt-{load.prompt_tokens}-answer-{load.answer_tokens}"


def collection_text(spec: str, overrides: Sequence[str], plan: Plan, target: Path) -> str:
    """Return an experiment whose cases are the loads, in order of measurement; comments say what each determines.

    Args:
        spec: the experiment that describes the server.
        overrides: as for ``load``.
        plan: the loads.
        target: the file to be written.
    """
    workloads = [_workload(load.load) for load in plan.loads]
    name = target.name.removesuffix(".blis.yaml").removesuffix(".yaml")
    own = [f"workload={json.dumps(workloads[0])}", "expect=[]", f"metadata.name={name}"]
    composed = compose(spec, overrides=[*overrides, *own], relative_to=target.parent)
    file = quote(printable(target.name))
    first = case_name(plan.loads[0].load)
    lines = [
        "# Loads to measure on this server, the most informative first. For each case:",
        f"#   blis-tui observe URL --workload {file} --case {first} -o {first}",
        "# and then, with all that were measured:",
        f"#   blis-tui calibrate users-*/requests.csv --spec {file} -o mine.yaml",
        *(f"# {accuracy_sentence}" for accuracy_sentence in accuracy_sentences(plan)),
        "cases:",
    ]
    for load, workload in zip(plan.loads, workloads, strict=True):
        lines += [f"  # {sentence}" for sentence in purpose_sentences(load.settles, load.duration_us)]
        lines.append(f"  {case_name(load.load)}: {flow({'workload': workload})}")
    return composed.to_yaml() + "\n".join(lines) + "\n"


def accuracy_sentences(plan: Plan) -> list[str]:
    """Return sentences on how well the coefficients will be known once all loads are measured."""
    from blis_tui.live.calibration.fitting.collect import settled  # noqa: PLC0415  (needs the extra)

    known, open_ = settled(plan.within)
    sentences = [f"Chosen from {plan.tried} that were simulated with the coefficients that are expected."]
    if known:
        sentences.append(f"With all of them these should be known within 10 % (9 of 10): {in_words(known)}.")
    if open_:
        shares = ", ".join(f"{name} ({100.0 * plan.within[name]:.0f} %)" for name in open_)
        sentences.append(f"Less well, as loads of one server hardly tell them apart: {shares}.")
    return sentences


def purpose_sentences(settles: Sequence[str], duration_us: float) -> list[str]:
    """What a load is for, in sentences."""
    what = f"settles {in_words(list(settles))}" if settles else "narrows the intervals"
    return [f"About {duration_us / 1e6:,.0f} s; {what}."]


def _workload(load: Load) -> dict[str, Json]:
    return {"requests": load.requests, "clients": [load.client]}


# ---- as text ----


if TYPE_CHECKING:
    Expected = Mapping[str, tuple[str, Expectation]]

EXPECTED: Final = (
    "expected under other loads, if the server has the form of this step-time model: 9 of 10 means are off by at most"
)
_HEAD = f"{'milliseconds, means':34}{'number':>9}{'measured':>12}{'predicted':>12}{'bias':>9}{'MAPE':>9}{'r':>8}  grade"
_ABOUT: Final = (
    "bias: of means; MAPE: mean absolute error of single requests; r: their correlation, where measured values vary by"
    f" more than {share_text(VARIATION, 0)}; grade: of all three, the worst"
)


def as_table(
    runs: Mapping[str, Pairs],
    durations_s: Sequence[float],
    result: Calibrated | None,
    expected: Expected | None = None,
) -> str:
    """Return the figures for a terminal; ``expected``: the step-time model and the expected errors of each run."""
    lines: list[str] = []
    if result is not None:
        interval = f"{share_text(LEVEL, 0)} interval"
        lines += [f"{'coefficient':20}{'value':>10}{interval:>25}{'base':>10}", *_coefficients(result), ""]
        lines += [*result.fit.statements, ""] if result.fit.statements else []
        if result.fit.elsewhere:
            lines += [EXPECTED, *(f"  {expected_text(errors)}" for errors in result.fit.elsewhere), ""]
        lines += [
            "left as they were",
            *(f"  {coefficient.name:20} {coefficient.why}" for coefficient in result.fit.left_out),
            "",
        ]
    lines.append(_HEAD)
    for name, pairs in runs.items():
        lines.append(name)
        if expected:
            kind, known = expected[name]
            lines.append(f"  accuracy with {kind} step times: {accuracy_text(known)}")
        lines += _lines("  all", pairs)
        for number, stage in enumerate(by_stage(pairs, durations_s) if durations_s else []):
            lines += _lines(f"  stage {number + 1}", stage)
        if result is not None:
            for group in by_batch(pairs):
                lines += _lines(
                    f"  {size_of(group)} {group[0].batch:.1f} to {group[-1].batch:.1f}", group, ("tpot", "step")
                )
    if result is not None and result.left_out_runs:
        lines += ["", "each run with coefficients fitted to the others"]
        for name, pairs in result.left_out_runs.items():
            lines += [name, *_lines("  all", pairs)]
    lines += ["", _ABOUT]
    return "\n".join(printable(line).rstrip() for line in lines) + "\n"


def _coefficients(result: Calibrated) -> list[str]:
    lines, summed = [], {name for combined in result.fit.sums for name in combined.names}
    for coefficient in result.fit.found:
        known = "" if coefficient.name in summed else coefficient.interval  # only the sum is known
        lines.append(
            f"{coefficient.name:20}{coefficient.value:>10.4g}{known:>25}{coefficient.base:>10.4g}  {coefficient.words}"
        )
    for whole in result.fit.sums:
        lines += [whole.text, f"{'':20}{whole.value:>10.4g}{whole.interval:>25}{whole.base:>10.4g}  {whole.words}"]
    return lines


def _lines(label: str, pairs: Pairs, metrics: Sequence[str] = METRICS) -> list[str]:
    comparisons = [(metric, comparison) for metric in metrics if (comparison := agreement(pairs, metric)) is not None]
    return [_line(f"{label} {metric}", comparison) for metric, comparison in comparisons]


def _line(label: str, comparison: Agreement) -> str:
    r = "" if comparison.pearson_r is None else f"{comparison.pearson_r:.3f}"
    return (
        f"{label:34}{comparison.requests:>9,}{comparison.measured_ms:>12,.2f}{comparison.simulated_ms:>12,.2f}"
        f"{share_text(comparison.bias):>9}{share_text(comparison.mape):>9}{r:>8}  {comparison.grade}"
    )


def as_json(
    runs: Mapping[str, Pairs],
    durations_s: Sequence[float],
    result: Calibrated | None,
    expected: Expected | None = None,
) -> str:
    """Return the figures as canonical JSON."""
    document: dict[str, object] = {
        "runs": {
            name: {
                "all": _plain(pairs),
                **({"stages": [_plain(stage) for stage in by_stage(pairs, durations_s)]} if durations_s else {}),
                **({} if result is None else {"by_batch": [_bin(group) for group in by_batch(pairs)]}),
            }
            for name, pairs in runs.items()
        }
    }
    if expected:
        document["step_time"] = {name: expected_data(*pair) for name, pair in expected.items()}
    if result is not None:
        document["latency"] = {"kind": result.fit.latency.kind, **result.fit.latency.settings}
        document["kept"] = result.fit.kept
        document["level"] = LEVEL
        document["found"] = [asdict(coefficient) for coefficient in result.fit.found]
        document["sums"] = [{**asdict(combined), "text": combined.text} for combined in result.fit.sums]
        document["statements"] = result.fit.statements
        document["expected_error_percent"] = [
            {
                "users": errors.load.users,
                "prompt_tokens": errors.load.prompt_tokens,
                **{metric: round(100.0 * share, 2) for metric, share in errors.within.items()},
            }
            for errors in result.fit.elsewhere
        ]
        document["before"] = {name: _plain(pairs) for name, pairs in result.before.items()}
        document["left_out"] = {coefficient.name: coefficient.why for coefficient in result.fit.left_out}
        document["leave_one_run_out"] = {name: _plain(pairs) for name, pairs in result.left_out_runs.items()}
    return to_json(document)


def _bin(group: Pairs) -> dict[str, object]:
    return {"batch_min": group[0].batch, "batch_max": group[-1].batch, **_plain(group)}


def _plain(pairs: Pairs) -> dict[str, object]:
    comparisons = {metric: agreement(pairs, metric) for metric in METRICS}
    return {
        metric: {**asdict(comparison), "grade": comparison.grade}
        for metric, comparison in comparisons.items()
        if comparison is not None
    }
