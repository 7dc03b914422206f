"""Runs a golden test: its result, and cheap checks that the result is reproducible."""

from __future__ import annotations

import os
from contextlib import nullcontext
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from blis_tui._version import ENGINE
from blis_tui.base.errors import SimulationError
from blis_tui.base.input_files import input_digest
from blis_tui.golden.golden_store import Baseline, ChainRecorder, Golden
from blis_tui.golden.other_process import OtherProcess
from blis_tui.runs.simulation import Simulation
from blis_tui.spec.library import schema_path
from blis_tui.spec.read import MAX_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from blis_tui.golden.golden_store import Chain
    from blis_tui.model import Experiment
    from blis_tui.model.plug_ins import Plugin

_HASH_SEED: Final = "hash-seed"
_DRAWN: Final = "random"
CHECKS: Final = ("observers", "checkpoint", _HASH_SEED)
"""Variations of a run that must give the same bytes."""


def run_watched(experiment: Experiment, go_on: Callable[[Simulation], bool] | None = None) -> tuple[str, Chain]:
    """Return the report's text and the chain of the records; ``go_on`` may raise to stop the run."""
    simulation = Simulation(experiment)
    recorder = ChainRecorder()
    simulation.subscribe("all", recorder)
    simulation.run(go_on=go_on)
    return simulation.report().to_json(), recorder.finish(simulation.events)


def digests(experiment: Experiment) -> tuple[str, str]:
    """Return the digests of a run's report and records, for comparison with another process."""
    report, chain = run_watched(experiment)
    return _digest(report), chain.sha256


def _digest(report: str) -> str:
    return sha256(report.encode()).hexdigest()


def schemas_digest() -> str:
    """Return a digest of all schemas, in order of their names."""
    folder = schema_path("experiment").parent
    digests = [f"{path.name} {input_digest(path, limit=MAX_BYTES)}" for path in sorted(folder.glob("*.schema.json"))]
    return sha256("\n".join(digests).encode()).hexdigest()


def produce(
    experiment: Experiment, *, spec: str, case: str, go_on: Callable[[Simulation], bool] | None = None
) -> Golden:
    """Run an experiment as a golden test.

    Args:
        experiment: the experiment.
        spec: path of its file, as stored in the golden.
        case: name of the test.
        go_on: called now and then; may raise to stop the run.

    Raises:
        SimulationError: it cannot go on.
        TraceError: rows of its trace are invalid.
    """
    report, chain = run_watched(experiment, go_on)
    return Golden(
        report=report,
        spec=spec,
        case=case,
        spec_sha256=experiment.sha256,
        engine=ENGINE,
        schemas_sha256=schemas_digest(),
        baseline=Baseline.here(),
        chain=chain,
        document=experiment.document,
        plugins=described_plugins(experiment),
    )


def is_up_to_date(result: Golden, experiment: Experiment) -> bool:
    """Return whether a waiting result was made from the experiment and the plug-ins as they are now."""
    return (result.spec_sha256, result.plugins) == (experiment.sha256, described_plugins(experiment))


def described_plugins(experiment: Experiment) -> tuple[Mapping[str, str], ...]:
    """Return the descriptions of an experiment's user plug-ins for headers of goldens."""
    return tuple(map(_plugin, experiment.plugins_used()))


def _plugin(plugin: Plugin) -> Mapping[str, str]:
    """Return the description of a user's plug-in for headers of goldens."""
    origin = plugin.origin
    where = {} if origin is None else {"from": origin.name, "version": origin.version}
    return {"plug_point": plugin.path, "name": plugin.name, **where}


def produce_checked(
    experiment: Experiment,
    *,
    spec: str,
    case: str,
    checks: tuple[str, ...],
    go_on: Callable[[Simulation], bool] | None = None,
    other: OtherProcess | None = None,
    is_known: Callable[[Golden], bool] = lambda _result: False,
) -> tuple[Golden, str]:
    """Produce a result like :func:`produce`, and the reason why it is not reproducible (empty: it is).

    Args:
        experiment: the experiment.
        spec: path of its file, as stored in the golden.
        case: name of the test.
        checks: variations of the run that must give the same bytes (``CHECKS``).
        go_on: called now and then; may raise to stop the run.
        other: a process with another hash seed; by default, a new one.
        is_known: returns whether another process has given the same bytes. This process's hash seed is random unless
            the environment sets it, so in that case two seeds have already agreed.

    Raises:
        SimulationError: it cannot go on.
        TraceError: rows of its trace are invalid.
    """
    result = produce(experiment, spec=spec, case=case, go_on=go_on)
    for check in checks:
        if check != _HASH_SEED:
            difference = _REPEATS[check](experiment, result)
        elif is_known(result) and os.environ.get("PYTHONHASHSEED", _DRAWN) == _DRAWN:
            continue
        else:
            with OtherProcess() if other is None else nullcontext(other) as elsewhere:
                difference = _hash_seed(elsewhere, experiment, result)
        if difference:
            return result, difference
    return result, ""


def _observers(experiment: Experiment, result: Golden) -> str:
    """Repeat the run without subscribers."""
    simulation = Simulation(experiment)
    simulation.run()
    return (
        ""
        if simulation.report().to_json() == result.report
        else "a second run, without observers, gives a different report"
    )


def _checkpoint(experiment: Experiment, result: Golden) -> str:
    """Repeat the run from a checkpoint in the middle."""
    simulation = Simulation(experiment)
    simulation.run(max_events=result.chain.events // 2)
    middle = simulation.checkpoint()
    fresh = Simulation(experiment)
    fresh.restore(middle)
    fresh.run()
    return "" if fresh.report().to_json() == result.report else "continuing from a checkpoint gives a different report"


_REPEATS: Final = {"observers": _observers, "checkpoint": _checkpoint}


def _hash_seed(other: OtherProcess, experiment: Experiment, result: Golden) -> str:
    """Repeat the run in another process with another hash seed."""
    try:
        answer = other.call(f"{__name__}:{digests.__name__}", experiment)
    except SimulationError as error:
        return error.message
    same = answer == [_digest(result.report), result.chain.sha256]
    return "" if same else "another process, with another hash seed, gives a different result"
