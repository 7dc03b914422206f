"""The output of ``calibrate``."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Final

from blis_tui.base.canonical import to_json
from blis_tui.base.text import printable
from blis_tui.base.units import share_text
from blis_tui.live.calibration.document import LEVEL
from blis_tui.live.calibration.other_loads import expected_text
from blis_tui.live.calibration.simulated_load import METRICS, VARIATION, agreement, by_batch, by_stage, size_of
from blis_tui.output.section_text import accuracy_text, expected_data

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from blis_tui.live.calibration.run import Calibrated
    from blis_tui.live.calibration.simulated_load import Agreement, Pairs
    from blis_tui.results.expected_error import Expectation

    Runs = Mapping[str, Pairs]
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
    runs: Runs, durations_s: Sequence[float], found: Calibrated | None, expected: Expected | None = None
) -> str:
    """Return the figures for a terminal; ``expected``: the step-time model and the expected errors of each run."""
    lines: list[str] = []
    if found is not None:
        interval = f"{share_text(LEVEL, 0)} interval"
        lines += [f"{'coefficient':20}{'value':>10}{interval:>25}{'base':>10}", *_coefficients(found), ""]
        lines += [*found.fit.statements, ""] if found.fit.statements else []
        if found.fit.elsewhere:
            lines += [EXPECTED, *(f"  {expected_text(one)}" for one in found.fit.elsewhere), ""]
        lines += ["left as they were", *(f"  {one.name:20} {one.why}" for one in found.fit.left_out), ""]
    lines.append(_HEAD)
    for name, pairs in runs.items():
        lines.append(name)
        if expected:
            kind, known = expected[name]
            lines.append(f"  accuracy with {kind} step times: {accuracy_text(known)}")
        lines += _lines("  all", pairs)
        for number, stage in enumerate(by_stage(pairs, durations_s) if durations_s else []):
            lines += _lines(f"  stage {number + 1}", stage)
        if found is not None:
            for group in by_batch(pairs):
                lines += _lines(
                    f"  {size_of(group)} {group[0].batch:.1f} to {group[-1].batch:.1f}", group, ("tpot", "step")
                )
    if found is not None and found.left_out_runs:
        lines += ["", "each run with coefficients fitted to the others"]
        for name, pairs in found.left_out_runs.items():
            lines += [name, *_lines("  all", pairs)]
    lines += ["", _ABOUT]
    return "\n".join(printable(line).rstrip() for line in lines) + "\n"


def _coefficients(found: Calibrated) -> list[str]:
    lines, summed = [], {name for one in found.fit.sums for name in one.names}
    for one in found.fit.found:
        known = "" if one.name in summed else one.interval  # only the sum is known
        lines.append(f"{one.name:20}{one.value:>10.4g}{known:>25}{one.base:>10.4g}  {one.words}")
    for whole in found.fit.sums:
        lines += [whole.text, f"{'':20}{whole.value:>10.4g}{whole.interval:>25}{whole.base:>10.4g}  {whole.words}"]
    return lines


def _lines(label: str, pairs: Pairs, metrics: Sequence[str] = METRICS) -> list[str]:
    found = [(metric, told) for metric in metrics if (told := agreement(pairs, metric)) is not None]
    return [_line(f"{label} {metric}", told) for metric, told in found]


def _line(label: str, told: Agreement) -> str:
    r = "" if told.pearson_r is None else f"{told.pearson_r:.3f}"
    return (
        f"{label:34}{told.requests:>9,}{told.measured_ms:>12,.2f}{told.simulated_ms:>12,.2f}"
        f"{share_text(told.bias):>9}{share_text(told.mape):>9}{r:>8}  {told.grade}"
    )


def as_json(
    runs: Runs, durations_s: Sequence[float], found: Calibrated | None, expected: Expected | None = None
) -> str:
    """Return the figures as canonical JSON."""
    document: dict[str, object] = {
        "runs": {
            name: {
                "all": _plain(pairs),
                **({"stages": [_plain(stage) for stage in by_stage(pairs, durations_s)]} if durations_s else {}),
                **({} if found is None else {"by_batch": [_bin(group) for group in by_batch(pairs)]}),
            }
            for name, pairs in runs.items()
        }
    }
    if expected:
        document["step_time"] = {name: expected_data(*one) for name, one in expected.items()}
    if found is not None:
        document["latency"] = {"kind": found.fit.latency.kind, **found.fit.latency.settings}
        document["kept"] = found.fit.kept
        document["level"] = LEVEL
        document["found"] = [asdict(one) for one in found.fit.found]
        document["sums"] = [{**asdict(one), "text": one.text} for one in found.fit.sums]
        document["statements"] = found.fit.statements
        document["expected_error_percent"] = [
            {
                "users": one.load.users,
                "prompt_tokens": one.load.prompt_tokens,
                **{metric: round(100.0 * share, 2) for metric, share in one.within.items()},
            }
            for one in found.fit.elsewhere
        ]
        document["before"] = {name: _plain(pairs) for name, pairs in found.before.items()}
        document["left_out"] = {one.name: one.why for one in found.fit.left_out}
        document["leave_one_run_out"] = {name: _plain(pairs) for name, pairs in found.left_out_runs.items()}
    return to_json(document)


def _bin(group: Pairs) -> dict[str, object]:
    return {"batch_min": group[0].batch, "batch_max": group[-1].batch, **_plain(group)}


def _plain(pairs: Pairs) -> dict[str, object]:
    found = {metric: agreement(pairs, metric) for metric in METRICS}
    return {metric: {**asdict(told), "grade": told.grade} for metric, told in found.items() if told is not None}
