"""Run a golden test: its result, and the cheap checks that the result is worth storing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import nullcontext
from hashlib import sha256
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Final

from blis_tui._version import ENGINE
from blis_tui.errors import SimulationError
from blis_tui.golden.chain import ChainRecorder
from blis_tui.golden.store import Baseline, Golden
from blis_tui.inputs import input_digest
from blis_tui.simulation import Simulation
from blis_tui.spec.build import build_experiment
from blis_tui.spec.library import schema_path
from blis_tui.spec.loader import MAX_BYTES
from blis_tui.user_plugins import load_plugins

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Self

    from blis_tui.golden.chain import Chain
    from blis_tui.registry import Plugin
    from blis_tui.spec.model import Experiment

CHECKS: Final = ("observers", "checkpoint", "hash-seed")
"""Ways of running the same experiment that must give the same bytes."""

_OTHER_PROCESS: Final = """
import json, sys
from blis_tui.golden.produce import from_asked, run_watched
report, chain = run_watched(from_asked(sys.stdin.read()))
json.dump({"report": report, "sha256": chain.sha256}, sys.stdout)
"""


_WITHOUT_TRACEBACK: Final = """
import sys
from blis_tui.errors import BlisError
try:
    exec(sys.argv[1])
except BlisError as error:
    sys.stderr.write(str(error))
    sys.exit(4)
"""
_TOLD: Final = 4
"""The exit code of a program whose standard error says all there is to say."""


def run_watched(experiment: Experiment, go_on: Callable[[Simulation], bool] | None = None) -> tuple[str, Chain]:
    """The report's text and the chain of the records; ``go_on`` is called now and then, and may raise to stop it."""
    simulation = Simulation(experiment)
    recorder = ChainRecorder()
    simulation.subscribe("all", recorder)
    simulation.run(go_on=go_on)
    return simulation.report().to_json(), recorder.finish(simulation.events)


def as_asked(experiment: Experiment) -> str:
    """What another process needs to make the same experiment."""
    trace = experiment.workload.trace
    asked = {
        "document": experiment.document,
        "trace_path": None if trace is None else trace.path,
        "plugins": [origin.asked for origin in experiment.plugins.origins],
    }
    return json.dumps(asked)


def from_asked(text: str) -> Experiment:
    """The experiment of :func:`as_asked`."""
    asked = json.loads(text)
    plugins = load_plugins(asked["plugins"])
    return build_experiment(asked["document"], trace_path=asked["trace_path"], plugins=plugins)


def schemas_digest() -> str:
    """A digest of all schemas, in order of their names."""
    folder = schema_path("experiment").parent
    digests = [f"{path.name} {input_digest(path, limit=MAX_BYTES)}" for path in sorted(folder.glob("*.schema.json"))]
    return sha256("\n".join(digests).encode()).hexdigest()


def produce(
    experiment: Experiment, *, spec: str, case: str, go_on: Callable[[Simulation], bool] | None = None
) -> Golden:
    """Run an experiment as a golden test.

    Args:
        experiment: what to run.
        spec: its file, as it is stored.
        case: which of its tests it is.
        go_on: called now and then; may raise to stop the run.

    Raises:
        SimulationError: it cannot go on.
        TraceError: rows of its trace are wrong.
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
        plugins=tuple(_described(plugin) for plugin in experiment.plugins_used()),
    )


def _described(plugin: Plugin) -> Mapping[str, str]:
    """A plug-in of a user, as headers of goldens name it."""
    origin = plugin.origin
    where = {} if origin is None else {"from": origin.name, "version": origin.version}
    return {"plug_point": plugin.path, "name": plugin.name, **where}


class Elsewhere:
    """A Python program in another process, where hashes of texts differ; it runs beside this one from the start.

    Leaving its context ends it.
    """

    def __init__(self, program: str, experiment: Experiment) -> None:
        """Start it; it reads the experiment as asked (:func:`as_asked`)."""
        seed = "1" if os.environ.get("PYTHONHASHSEED") == "2" else "2"
        with TemporaryFile("w+", encoding="utf-8") as asked:  # a pipe would have to be fed
            asked.write(as_asked(experiment))
            asked.seek(0)
            self._process = subprocess.Popen(
                [sys.executable, "-c", _WITHOUT_TRACEBACK, program],
                stdin=asked,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                encoding="utf-8",
                env={
                    **os.environ,
                    "PYTHONHASHSEED": seed,
                    "PYTHONIOENCODING": "utf-8",
                    "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
                },
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()  # nothing happens where it has ended
        self._process.communicate()

    def output(self) -> str:
        """What it prints, once it has ended.

        Raises:
            SimulationError: it fails.
        """
        printed, said = self._process.communicate()
        code = self._process.returncode
        if code == _TOLD:
            raise SimulationError(f"in another process, with another hash seed: {said}")
        if code:
            why = said.strip().rpartition("\n")[2]  # a traceback ends with the exception
            raise SimulationError(f"another process fails with exit code {code}: {why}")
        return printed


def produce_checked(
    experiment: Experiment,
    *,
    spec: str,
    case: str,
    checks: tuple[str, ...],
    go_on: Callable[[Simulation], bool] | None = None,
) -> tuple[Golden, str]:
    """As :func:`produce`; second, why the result cannot be relied on: it changes with how the experiment is run.

    Args:
        experiment: what to run.
        spec: its file, as it is stored.
        case: which of its tests it is.
        checks: ways of repeating the run that must give the same bytes (``CHECKS``).
        go_on: called now and then; may raise to stop the run.

    Raises:
        SimulationError: it cannot go on.
        TraceError: rows of its trace are wrong.
    """
    with Elsewhere(_OTHER_PROCESS, experiment) if "hash-seed" in checks else nullcontext() as other:
        result = produce(experiment, spec=spec, case=case, go_on=go_on)
        for check in checks:
            if other is not None and check == "hash-seed":
                found = _hash_seed(other, result)
            else:
                found = _REPEATS[check](experiment, result)
            if found:
                return result, found
    return result, ""


def _observers(experiment: Experiment, result: Golden) -> str:
    """Again, without subscribers."""
    simulation = Simulation(experiment)
    simulation.run()
    return (
        ""
        if simulation.report().to_json() == result.report
        else "a second run, without observers, gives another report"
    )


def _checkpoint(experiment: Experiment, result: Golden) -> str:
    """From a checkpoint in the middle."""
    simulation = Simulation(experiment)
    simulation.run(max_events=result.chain.events // 2)
    middle = simulation.checkpoint()
    fresh = Simulation(experiment)
    fresh.restore(middle)
    fresh.run()
    return "" if fresh.report().to_json() == result.report else "continuing from a checkpoint gives another report"


_REPEATS: Final = {"observers": _observers, "checkpoint": _checkpoint}


def _hash_seed(other: Elsewhere, result: Golden) -> str:
    """In another process, where hashes of texts differ."""
    try:
        found = json.loads(other.output())
    except SimulationError as error:
        return error.message
    same = (found["report"], found["sha256"]) == (result.report, result.chain.sha256)
    return "" if same else "another process, with another hash seed, gives another result"
