"""The Python interface: load an experiment, run it, or take it apart step by step."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from blis_tui.simulation import Simulation
from blis_tui.spec.load import load as load_experiment

if TYPE_CHECKING:
    from blis_tui.metrics.report import Report
    from blis_tui.spec.model import Experiment


def load(
    source: str | Path | Mapping[str, object],
    *,
    set: Mapping[str, object] | None = None,  # noqa: A002  (the command line's word for it)
    seed: int | None = None,
) -> Experiment:
    """Load, check and resolve an experiment.

    Args:
        source: the name of an experiment (``quickstart``), the path of a ``.blis.yaml`` file, or the document itself
            as plain data.
        set: values to replace, by dotted path (``{"cluster.instances": 8}``), checked like the file.
        seed: replaces the document's seed.

    Raises:
        SpecError: with every problem found, each with its place and a hint.
        InputError: the file cannot be read.
    """
    if isinstance(source, Mapping):
        text = json.dumps(source, default=str)  # JSON is YAML
        return load_experiment("-", overrides={} if set is None else set, seed=seed, stdin_text=text)
    if not isinstance(source, str | Path):
        raise TypeError(f"an experiment is a name, a path or a mapping, not {type(source).__name__}")
    return load_experiment(source, overrides={} if set is None else set, seed=seed)


def run(experiment: Experiment, *, check: str = "end") -> Report:
    """Simulate an experiment to its end.

    Args:
        experiment: what :func:`load` returned.
        check: when to verify the invariants: ``all`` (after every event), ``end`` or ``off``.

    Raises:
        SimulationError: the simulation cannot go on, or (with ``all``) an invariant does not hold.
        TraceError: rows of a recorded workload are wrong.
    """
    simulation = Simulation(experiment, check=check)
    simulation.run()
    return simulation.report()
