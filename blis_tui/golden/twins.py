"""Recordings of a server as golden tests: what it did and what its simulation makes of it, with tolerances."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from blis_tui._version import ENGINE
from blis_tui.canonical import to_sorted_json
from blis_tui.golden.options import ComparisonOptions, Tolerance
from blis_tui.golden.produce import schemas_digest
from blis_tui.golden.store import Baseline, Golden, report_text
from blis_tui.golden.studies import NO_RECORDS
from blis_tui.observe.reading import read_recording
from blis_tui.printable import printable
from blis_tui.twin.agreement import METRICS
from blis_tui.twin.parting import where
from blis_tui.twin.twin import of_simulated

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

    from blis_tui.compare.documents import Difference
    from blis_tui.observe.recording import Recording
    from blis_tui.spec.model import Experiment
    from blis_tui.spec.model.twin import TwinTest, TwinTolerance
    from blis_tui.twin.agreement import Agreement
    from blis_tui.twin.twin import Twin

_SIDES: Final = ("measured", "simulated")
_COUNTS: Final = ("steps", "preemptions", "prompt tokens from cache", "tokens generated")
_LEVELS: Final = ("running", "KV in use")
_MOVES: Final = {
    "step time": ("step_ms",),
    "prefix cache": ("prompt tokens from cache",),
    "batch": ("steps", "preemptions", *_LEVELS),
    "answers": ("tokens generated",),
}
"""What may be another one of a server -> the figures that tell: a slower step makes batches larger, not the reverse."""
_FRONT_END: Final = "/engine/front_end_ms"
_ASKED: Final = "/workload"
_ANSWERED: Final = "/answered"
_FEW: Final = 2.0
"""By so many may counts differ in any case: one preemption more is no other server."""
_SHORT_MS: Final = 1.0
"""By so much may the time in the front end differ in any case: it is what is left when all else is taken away."""
_UNTOLD: Final = ("workload", "expect", "golden")
"""Parts of an experiment that say nothing of the server."""


def comparison(tolerance: TwinTolerance) -> ComparisonOptions:
    """Which figures may differ by how much. What was asked, and how much of it was answered, must be the same."""
    mean, tail, counts = (Tolerance(rel=share) for share in (tolerance.latency, tolerance.tail, tolerance.counts))
    bounds = {"mean": mean, "p50": mean, "p99": tail}
    found: dict[str, Tolerance] = {}
    for metric in METRICS:
        found[f"/latency_ms/{metric}/mape"] = Tolerance(abs=tolerance.error)
        found |= {f"/latency_ms/{metric}/{side}/{name}": bound for side in _SIDES for name, bound in bounds.items()}
    for side in _SIDES:
        found |= {f"/engine/{name}/{side}": Tolerance(rel=tolerance.counts, abs=_FEW) for name in _COUNTS}
        found |= {f"/engine/{name}/{side}": counts for name in _LEVELS}
        found[f"/engine/step_ms/{side}"] = mean
    found["/engine/front_end_ms"] = Tolerance(rel=tolerance.latency, abs=_SHORT_MS)
    return ComparisonOptions(records=False, tolerance=found, redact=("/parting",))


def produce_twin(experiment: Experiment, twin: TwinTest, folder: Path, *, spec: str, case: str) -> Golden:
    """Compare a recording with its simulation as a golden test.

    Args:
        experiment: what is said to be the server.
        twin: which recording, and how it is simulated.
        folder: what its path starts from.
        spec: the experiment's file, as it is stored.
        case: which of its tests it is.

    Raises:
        InputError: the recording cannot be read, or lacks what is asked for.
        PolicyError: the experiment has several instances.
    """
    recording = read_recording(folder / twin.recording)
    found = of_simulated(recording, experiment, experiment.name, twin.steps)
    document = {key: value for key, value in experiment.document.items() if key not in _UNTOLD}
    return Golden(
        report=report_text(_report(recording, found, experiment.name, twin.steps)),
        spec=spec,
        case=case,
        spec_sha256=sha256(to_sorted_json(document).encode()).hexdigest(),
        engine=ENGINE,
        schemas_sha256=schemas_digest(),
        baseline=Baseline.here(),
        chain=NO_RECORDS,
        document=document,
    )


def answer(golden: Golden, result: Golden, found: Sequence[Difference]) -> list[str]:
    """Which side has moved and in what, and where server and simulation part first, then and now.

    Args:
        golden: what was kept.
        result: what is new.
        found: how the reports differ by more than they may.
    """
    lines = [_moved({one.path for one in found}), "server and simulation first diverge"]
    for mark, one in (("-", golden), ("+", result)):
        parting = json.loads(one.report).get("parting")
        if not isinstance(parting, dict):
            lines.append(f"  {mark} never")
            continue
        lines.append(f"  {mark} {parting.get('where')}, {parting.get('cause')}: {parting.get('why')}")
        lines.append(f"      {parting.get('what')}")
    return [printable(line) for line in lines]


def _moved(paths: Collection[str]) -> str:
    """What is another one of the server, in the order in which one brings about the next; else of the simulation."""
    if any(path.startswith(_ASKED) for path in paths):
        return "different requests were sent: record the same workload with the same seed"
    if any(path.startswith(_ANSWERED) for path in paths):
        return "different requests have a complete answer than before"
    if any("measured" in path.split("/") for path in paths):
        words = [word for word, names in _MOVES.items() if any(f"/engine/{name}/measured" in paths for name in names)]
        if not words:  # the front end is what all of that leaves unexplained
            words = ["front end" if _FRONT_END in paths else "latencies, and nothing else that was recorded"]
        return f"changed on the server: {', '.join(words)}"
    if any("simulated" in path.split("/") for path in paths):
        return "the server is unchanged: the simulation has changed"
    return (
        "each side is unchanged, but the difference between them has changed" if paths else "both sides are unchanged"
    )


def _report(recording: Recording, twin: Twin, name: str, steps: str) -> dict[str, object]:
    """The figures; times in milliseconds."""
    parting = twin.parting
    return {
        "experiment": name,
        "steps": steps,
        "workload": {"requests": len(recording.requests), "sha256": _asked(recording)},
        "answered": {"both": len(twin.pairs), "measured": twin.only_left, "simulated": twin.only_right},
        "engine": _engine(twin),
        "latency_ms": {metric: _latency(found) for metric, found in twin.errors.items()},
        "parting": None
        if parting is None
        else {"where": where(parting), "cause": parting.cause, "why": parting.why, "what": parting.text},
    }


def _asked(recording: Recording) -> str:
    """A digest of what was asked of the server: the same for each recording of one workload with one seed."""
    asked = sorted([row.request_id, row.input_tokens, row.output_tokens] for row in recording.requests)
    return sha256(to_sorted_json(asked).encode()).hexdigest()


def _latency(found: Agreement) -> dict[str, object]:
    return {"measured": dict(found.left), "simulated": dict(found.right), "mape": found.mape}


def _engine(twin: Twin) -> dict[str, object]:
    """What the engines did, as far as the recording tells."""
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
