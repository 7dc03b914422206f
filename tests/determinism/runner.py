"""Simulate experiments and say what came out: ``python runner.py jobs.json`` prints outcomes as JSON.

Tests run this file under other interpreters, so it uses the standard library and the package only. A job that holds
a resolved document needs no PyYAML; a job that is a mere name is loaded like a user would. A job
goes on from the ``checkpoint`` it names; where it is to ``save`` one after some ``events``, it goes back to that from
the end; one that is ``unwatched`` runs without observers.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from blis_tui.engine.records import Record
    from blis_tui.model import Experiment
    from blis_tui.runs.simulation import Simulation

RECORDS_PER_MARK: Final = 500


class Outcome(NamedTuple):
    """All that a run says, the long parts as digests."""

    report: str
    requests: str
    """SHA-256 of the request table."""
    records: str
    """SHA-256 of the record stream; empty when nobody listened."""
    marks: list[str]
    """The beginning of the stream's digest after each 500 records: tells where two streams part."""
    state: str
    events: int

    def unwatched(self) -> Outcome:
        """The same without what only a listener learns."""
        return self._replace(records="", marks=[])


def finish(simulation: Simulation, *, observe: bool = True) -> Outcome:
    """Run a simulation to its end, from wherever it stands."""
    from blis_tui.output.tables import requests_csv  # noqa: PLC0415
    from blis_tui.results.record_lines import record_line  # noqa: PLC0415

    stream = hashlib.sha256()
    marks: list[str] = []
    count = 0

    def listen(record: Record) -> None:
        nonlocal count
        stream.update(record_line(record).encode())
        count += 1
        if count % RECORDS_PER_MARK == 0:
            marks.append(stream.hexdigest()[:12])

    if observe:
        simulation.subscribe("all", listen)
    simulation.run()
    report = simulation.report()
    table = hashlib.sha256("".join(requests_csv(report.rows, report.rows.columns)).encode())
    return Outcome(
        report=report.to_json(),
        requests=table.hexdigest(),
        records=stream.hexdigest() if observe else "",
        marks=marks,
        state=simulation.digest(),
        events=simulation.events,
    )


def simulate(experiment: Experiment, *, observe: bool = True, checkpoint: bytes | None = None) -> Outcome:
    """Run an experiment from its beginning, or from a checkpoint, to its end."""
    from blis_tui.runs.simulation import Simulation  # noqa: PLC0415

    simulation = Simulation(experiment)
    if checkpoint is not None:
        simulation.restore(checkpoint)
    return finish(simulation, observe=observe)


def save(experiment: Experiment, path: Path, events: int) -> Outcome:
    """Write a checkpoint of an experiment after so many events; what comes out of going back to it from the end."""
    from blis_tui.runs.simulation import Simulation  # noqa: PLC0415

    simulation = Simulation(experiment)
    simulation.run(max_events=events)
    checkpoint = simulation.checkpoint()
    path.write_bytes(checkpoint)
    simulation.run()
    simulation.restore(checkpoint)
    return finish(simulation)


def arithmetic(count: int = 3000) -> dict[str, str]:
    """Digests of many results of each function that experiments draw on; finds what they are too coarse to show."""
    from blis_tui.base.portable_math import exp, gamma, ln, power  # noqa: PLC0415
    from blis_tui.base.streams import Streams  # noqa: PLC0415

    streams = Streams(7)

    def points(name: str, low: float, high: float) -> list[float]:
        stream = streams.stream(name)
        return [low + (high - low) * stream.uniform() for _ in range(count)]

    normal, skewed, waits = (streams.stream(name) for name in ("normal", "gamma", "exponential"))
    results = {
        "ln": [ln(x) for high in (2.0, 1e-300, 5e-322, 1e300) for x in points("ln", 0.0, high) if x],
        "exp": [exp(x) for low in (-1.0, -700.0, -746.0) for x in points("exp", low, -low)],
        "power": [power(x, y) for x, y in zip(points("base", 0.0, 9.0), points("exponent", -99.0, 99.0), strict=True)],
        "gamma function": [gamma(x) for x in points("argument", 1e-9, 171.0)],
        "normal": [normal.normal() for _ in range(count)],
        "gamma": [skewed.gamma(shape) for shape in points("shape", 1e-3, 9.0)],
        "exponential": [waits.exponential() for _ in range(count)],
    }
    return {
        name: hashlib.sha256(" ".join(map(float.hex, numbers)).encode()).hexdigest()
        for name, numbers in results.items()
    }


def _experiment(name: str, job: dict[str, object]) -> Experiment:
    document = job.get("document")
    if not isinstance(document, dict):
        from blis_tui.spec.load import load  # noqa: PLC0415  (needs PyYAML)

        return load(name)
    from blis_tui.spec.build import build_experiment  # noqa: PLC0415

    trace = job.get("trace")
    return build_experiment(document, trace_path=str(trace) if trace else None)


def run_jobs(jobs: dict[str, dict[str, object]]) -> dict[str, object]:
    """Do all jobs; what came out, and which Python and which copy of the package did it."""
    import blis_tui  # noqa: PLC0415
    from blis_tui.spec.shipped import shipped_specs  # noqa: PLC0415

    outcomes = {}
    for name, job in jobs.items():
        experiment = _experiment(name, job)
        if "save" in job:
            outcome = save(experiment, Path(str(job["save"])), int(str(job["events"])))
        else:
            saved = job.get("checkpoint")
            checkpoint = Path(str(saved)).read_bytes() if saved else None
            outcome = simulate(experiment, observe="unwatched" not in job, checkpoint=checkpoint)
        outcomes[name] = outcome._asdict()
    return {
        "python": ".".join(map(str, sys.version_info[:3])),
        "platform": sys.platform,
        "package": blis_tui.__file__,
        "specs": str(shipped_specs()),
        "arithmetic": arithmetic(),
        "outcomes": outcomes,
    }


def main() -> None:
    """Read the jobs from the file named on the command line."""
    jobs = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    sys.stdout.write(json.dumps(run_jobs(jobs)))


if __name__ == "__main__":
    main()
