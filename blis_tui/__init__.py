"""Deterministic simulation of LLM inference serving, from declarative specs.

    import blis_tui

    report = blis_tui.run(blis_tui.load("quickstart", set={"cluster.instances": 4}))
    print(report.latency.ttft_ms.p99)

The public interface is the names below with what they return, ``blis_tui.plugins`` for authors of plug-ins, and the
records of ``docs/reference/records.md``. Everything else may change without notice.

Importing the package is cheap: each name below is loaded on first use.
"""

from __future__ import annotations

from blis_tui._version import __version__

TYPE_CHECKING = False  # as in `typing`, whose import takes longer than this whole module
if TYPE_CHECKING:
    from blis_tui.api import load, run
    from blis_tui.base.errors import (
        BlisError,
        DivergenceError,
        InputError,
        InvariantError,
        PolicyError,
        RouteError,
        SimulationError,
        SpecError,
        StalledError,
        TraceError,
    )
    from blis_tui.cluster.decisions import Reroute
    from blis_tui.model import Experiment
    from blis_tui.results.report import Report
    from blis_tui.runs.reroute import true_regret, whatif
    from blis_tui.runs.simulation import Simulation
    from blis_tui.study.api import plan, sweep
    from blis_tui.study.planning.answer import Plan
    from blis_tui.study.study_rows import Row, StudyResult

__all__ = [
    "BlisError",
    "DivergenceError",
    "Experiment",
    "InputError",
    "InvariantError",
    "Plan",
    "PolicyError",
    "Report",
    "Reroute",
    "RouteError",
    "Row",
    "Simulation",
    "SimulationError",
    "SpecError",
    "StalledError",
    "StudyResult",
    "TraceError",
    "__version__",
    "load",
    "plan",
    "run",
    "sweep",
    "true_regret",
    "whatif",
]

_HOMES = {
    "Experiment": "model",
    "Plan": "study.planning.answer",
    "Report": "results.report",
    "Reroute": "cluster.decisions",
    "Row": "study.study_rows",
    "Simulation": "runs.simulation",
    "StudyResult": "study.study_rows",
    "load": "api",
    "plan": "study.api",
    "run": "api",
    "sweep": "study.api",
    "true_regret": "runs.reroute",
    "whatif": "runs.reroute",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module `blis_tui` has no attribute `{name}`")
    from importlib import import_module  # noqa: PLC0415  (a command must handle signals before that)

    return getattr(import_module(f"blis_tui.{_HOMES.get(name, 'base.errors')}"), name)


def __dir__() -> list[str]:
    return __all__
