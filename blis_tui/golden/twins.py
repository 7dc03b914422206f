"""Recordings of a server as golden tests, compared with their simulation within tolerances."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from blis_tui._version import ENGINE
from blis_tui.base.canonical import to_sorted_json
from blis_tui.base.text import printable
from blis_tui.golden.compare import ComparisonOptions, Tolerance
from blis_tui.golden.golden_store import Baseline, Golden, report_text
from blis_tui.golden.produce import schemas_digest
from blis_tui.golden.studies import NO_RECORDS
from blis_tui.live.observe.recording import read_recording
from blis_tui.live.twin.course import METRICS
from blis_tui.live.twin.first_difference import where
from blis_tui.live.twin.twin import compare_with_simulation

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

    from blis_tui.live.observe.recording import Recording
    from blis_tui.live.twin.course import Agreement
    from blis_tui.live.twin.twin import Twin
    from blis_tui.model import Experiment
    from blis_tui.model.experiment import TwinTest, TwinTolerance
    from blis_tui.runs.documents import Difference

_SIDES: Final = ("measured", "simulated")
_COUNTS: Final = ("steps", "preemptions", "prompt tokens from cache", "tokens generated")
_LEVELS: Final = ("running", "KV in use")
_MOVES: Final = {
    "step time": ("step_ms",),
    "prefix cache": ("prompt tokens from cache",),
    "batch": ("steps", "preemptions", *_LEVELS),
    "answers": ("tokens generated",),
}
"""Cause of a difference -> the figures that show it, in causal order: a slower step makes batches larger."""
_FRONT_END: Final = "/engine/front_end_ms"
_ASKED: Final = "/workload"
_ANSWERED: Final = "/answered"
_FEW: Final = 2.0
"""Counts may always differ by this much: one more preemption does not mean another server."""
_SHORT_MS: Final = 1.0
"""The time in the front end, which is a remainder, may always differ by this much."""
_NOT_OF_SERVER: Final = ("workload", "expect", "golden")
"""Parts of an experiment that do not describe the server."""


def comparison(tolerance: TwinTolerance) -> ComparisonOptions:
    """Return the tolerance of each figure; those without one, such as what was asked and answered, must be equal."""
    mean, tail, counts = (Tolerance(rel=share) for share in (tolerance.latency, tolerance.tail, tolerance.counts))
    bounds = {"mean": mean, "p50": mean, "p99": tail}
    tolerances: dict[str, Tolerance] = {}
    for metric in METRICS:
        tolerances[f"/latency_ms/{metric}/mape"] = Tolerance(abs=tolerance.error)
        tolerances |= {
            f"/latency_ms/{metric}/{side}/{name}": bound for side in _SIDES for name, bound in bounds.items()
        }
    for side in _SIDES:
        tolerances |= {f"/engine/{name}/{side}": Tolerance(rel=tolerance.counts, abs=_FEW) for name in _COUNTS}
        tolerances |= {f"/engine/{name}/{side}": counts for name in _LEVELS}
        tolerances[f"/engine/step_ms/{side}"] = mean
    tolerances["/engine/front_end_ms"] = Tolerance(rel=tolerance.latency, abs=_SHORT_MS)
    return ComparisonOptions(records=False, tolerance=tolerances, redact=("/parting",))


def produce_twin(experiment: Experiment, twin: TwinTest, folder: Path, *, spec: str, case: str) -> Golden:
    """Compare a recording with its simulation as a golden test.

    Args:
        experiment: the experiment that describes the server.
        twin: the recording, and how it is simulated.
        folder: base of the recording's path.
        spec: path of the experiment's file, as stored in the golden.
        case: name of the test.

    Raises:
        InputError: the recording cannot be read, or lacks required data.
        PolicyError: the experiment has several instances.
    """
    recording = read_recording(folder / twin.recording)
    compared = compare_with_simulation(recording, experiment, experiment.name, twin.steps)
    document = {key: value for key, value in experiment.document.items() if key not in _NOT_OF_SERVER}
    return Golden(
        report=report_text(_report(recording, compared, experiment.name, twin.steps)),
        spec=spec,
        case=case,
        spec_sha256=sha256(to_sorted_json(document).encode()).hexdigest(),
        engine=ENGINE,
        schemas_sha256=schemas_digest(),
        baseline=Baseline.here(),
        chain=NO_RECORDS,
        document=document,
    )


def answer(golden: Golden, result: Golden, differences: Sequence[Difference]) -> list[str]:
    """Return which side has changed and in what, and the old and new first divergence of server and simulation.

    Args:
        golden: the stored result.
        result: the new result.
        differences: the differences beyond the tolerances.
    """
    lines = [_moved({difference.path for difference in differences}), "server and simulation first diverge"]
    for mark, side in (("-", golden), ("+", result)):
        parting = json.loads(side.report).get("parting")
        if not isinstance(parting, dict):
            lines.append(f"  {mark} never")
            continue
        lines.append(f"  {mark} {parting.get('where')}, {parting.get('cause')}: {parting.get('why')}")
        lines.append(f"      {parting.get('what')}")
    return [printable(line) for line in lines]


def _moved(paths: Collection[str]) -> str:
    """Return what has changed on the server, in causal order; else that the simulation has."""
    if any(path.startswith(_ASKED) for path in paths):
        return "different requests were sent: record the same workload with the same seed"
    if any(path.startswith(_ANSWERED) for path in paths):
        return "different requests have a complete answer than before"
    if any("measured" in path.split("/") for path in paths):
        words = [word for word, names in _MOVES.items() if any(f"/engine/{name}/measured" in paths for name in names)]
        if not words:  # the front end is the remainder that all of these leave
            words = ["front end" if _FRONT_END in paths else "latencies, and nothing else that was recorded"]
        return f"changed on the server: {', '.join(words)}"
    if any("simulated" in path.split("/") for path in paths):
        return "the server is unchanged: the simulation has changed"
    return (
        "each side is unchanged, but the difference between them has changed" if paths else "both sides are unchanged"
    )


def _report(recording: Recording, twin: Twin, name: str, steps: str) -> dict[str, object]:
    """Return the report; times in milliseconds."""
    parting = twin.parting
    return {
        "experiment": name,
        "steps": steps,
        "workload": {"requests": len(recording.requests), "sha256": _asked(recording)},
        "answered": {"both": len(twin.pairs), "measured": twin.only_left, "simulated": twin.only_right},
        "engine": _engine(twin),
        "latency_ms": {metric: _latency(error) for metric, error in twin.errors.items()},
        "parting": None
        if parting is None
        else {"where": where(parting), "cause": parting.cause, "why": parting.why, "what": parting.text},
    }


def _asked(recording: Recording) -> str:
    """Return a digest of the requests sent, which is equal for recordings of one workload with one seed."""
    asked = sorted([row.request_id, row.input_tokens, row.output_tokens] for row in recording.requests)
    return sha256(to_sorted_json(asked).encode()).hexdigest()


def _latency(agreement: Agreement) -> dict[str, object]:
    return {"measured": dict(agreement.left), "simulated": dict(agreement.right), "mape": agreement.mape}


def _engine(twin: Twin) -> dict[str, object]:
    """Return the figures of both engines, as far as the recording has them."""
    left, right = twin.left, twin.right
    figures: dict[str, object] = {}
    if left.step_us is not None and right.step_us is not None:
        figures["step_ms"] = _both(left.step_us / 1e3, right.step_us / 1e3)
    if (front_us := twin.rungs[-1].front_end_us) is not None:
        figures["front_end_ms"] = front_us / 1e3
    figures |= {
        name: _both(left.counts[name], right.counts[name])
        for name in _COUNTS
        if name in left.counts and name in right.counts
    }
    return figures | {name: _both(twin.seen[name].left, twin.seen[name].right) for name in _LEVELS if name in twin.seen}


def _both(measured: float, simulated: float) -> Mapping[str, float]:
    return dict(zip(_SIDES, (measured, simulated), strict=True))
