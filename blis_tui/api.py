"""The Python interface: load an experiment, run it, or take it apart step by step."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from blis_tui.model import Experiment
from blis_tui.runs.simulation import Simulation
from blis_tui.spec.load import load as load_experiment
from blis_tui.spec.overrides import as_json
from blis_tui.spec.user_plugins import load_plugins

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.results.report import Report


def load(
    source: str | Path | Mapping[str, object],
    *,
    set: Mapping[str, object] | None = None,  # noqa: A002  (the command line's name for it)
    seed: int | None = None,
    plugins: Sequence[str | Path] = (),
) -> Experiment:
    """Load, check and resolve an experiment.

    Args:
        source: the name of an experiment (``quickstart``), the path of a ``.blis.yaml`` file, or the document itself as
            plain data.
        set: values to replace, by dotted path (``{"cluster.instances": 8}``), checked like the file.
        seed: replaces the document's seed.
        plugins: scripts (``my_policies.py``) and installed packages whose policies the document may name. Their code
            runs; a document alone never makes anything be imported.

    Raises:
        SpecError: with every problem found, each with its place and a hint.
        PolicyError: plug-ins cannot be used.
        InputError: the file cannot be read.
    """
    if isinstance(set, str):
        raise TypeError(f"set is a mapping of paths to values, not {set!r}")
    overrides = {} if set is None else set
    known = load_plugins(plugins) if plugins else None
    if isinstance(source, Mapping):
        return load_experiment("-", overrides=overrides, seed=seed, stdin_text=as_json(source), plugins=known)
    if not isinstance(source, str | Path):
        raise TypeError(f"an experiment is a name, a path or a mapping, not {type(source).__name__}")
    return load_experiment(source, overrides=overrides, seed=seed, plugins=known)


def run(
    source: Experiment | str | Path | Mapping[str, object],
    *,
    set: Mapping[str, object] | None = None,  # noqa: A002  (the command line's name for it)
    seed: int | None = None,
    plugins: Sequence[str | Path] = (),
    check: str = "end",
    jobs: int = 1,
) -> Report:
    """Simulate an experiment to its end.

    Args:
        source: what :func:`load` returned, or what it accepts: a name, a path or the document itself.
        set: as in :func:`load`; like ``seed`` and ``plugins``, only for experiments that are not loaded yet.
        seed: replaces the document's seed.
        plugins: scripts and installed packages whose policies the document may name.
        check: when to verify the invariants: ``all`` (after every event), ``end`` or ``off``.
        jobs: number of processes that share the instances, where that cannot change the report (see ``blis-tui run
            --help``); otherwise it is one. A script must allow more with ``if __name__ == "__main__":``.

    Raises:
        SpecError: as in :func:`load`, like PolicyError and InputError.
        SimulationError: the simulation cannot go on, or (with ``all``) an invariant does not hold.
        TraceError: rows of a recorded workload are wrong.
    """
    if not isinstance(source, Experiment):
        source = load(source, set=set, seed=seed, plugins=plugins)
    elif set or seed is not None or plugins:
        raise TypeError("the experiment is loaded already: set, seed and plugins are for blis_tui.load()")
    if jobs < 1:
        raise ValueError(f"jobs must be at least 1, not {jobs}")
    simulation = Simulation(source, check=check)
    if jobs > 1 and not simulation.why_whole():
        from blis_tui.runs.shares import SharedRun  # noqa: PLC0415  (few runs are shared)

        SharedRun(simulation, jobs).run()
    else:
        simulation.run()
    return simulation.report()
