"""What ``blis-tui check`` does with policies of one's own: they must give the same bytes in every run."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from blis_tui.classes import dataclass
from blis_tui.cli.failures import ExitCode
from blis_tui.errors import SimulationError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from blis_tui.registry import Plugin, Registry
    from blis_tui.spec.model import Experiment

ANY: Final = "quickstart"
"""What is run where nothing is chosen, and overrides may name plug-ins."""
OK: Final = "ok"
DIFFERS: Final = "differs"
FAILS: Final = "fails"
UNNAMED: Final = "not checked, as the experiment does not name it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What became of one policy."""

    point: str
    """Where a document names it: ``policy.routing``."""
    name: str
    verdict: str
    found: str = ""
    """What is wrong, with the first event that differs or the line that raised; empty = nothing."""

    @property
    def code(self) -> ExitCode:
        """The exit code that it asks for."""
        return {DIFFERS: ExitCode.CHECK_FAILED, FAILS: ExitCode.SIMULATION}.get(self.verdict, ExitCode.OK)


def is_code(name: str) -> bool:
    """Whether it names a script or an installed package rather than a document."""
    from blis_tui.spec.library import entries  # noqa: PLC0415  (most arguments end before it is needed)

    if name.endswith(".py"):
        return True
    if not all(part.isidentifier() for part in name.split(".")) or Path(name).exists():
        return False
    if any(entry.name == name for entry in entries(Path.cwd())):
        return False
    return find_spec(name.partition(".")[0]) is not None


def check_policies(
    known: Registry, source: str | None, overrides: tuple[str, ...], seed: int | None
) -> Iterator[Checked]:
    """Run an experiment with each policy, again without observers, from a checkpoint and in another process.

    Raises:
        UsageError: no experiment is known in which it has something to decide.
    """
    from blis_tui.golden.determinism import find_nondeterminism  # noqa: PLC0415  (heavy imports only when it runs)

    for offered, experiment in _experiments(known, source, overrides, seed):
        found, verdict = "", OK
        if experiment is None:
            verdict = UNNAMED
        else:
            try:
                found = find_nondeterminism(experiment)
                verdict = DIFFERS if found else OK
            except SimulationError as error:
                found, verdict = str(error), FAILS
        for plugin in offered:
            yield Checked(point=plugin.path, name=plugin.name, verdict=verdict, found=found)


def _experiments(
    known: Registry, source: str | None, overrides: tuple[str, ...], seed: int | None
) -> Iterator[tuple[tuple[Plugin, ...], Experiment | None]]:
    """The experiment, if it names plug-ins; else for each one that does."""
    from blis_tui.plug_points import BY_PATH  # noqa: PLC0415  (as above)
    from blis_tui.spec.load import load  # noqa: PLC0415

    used: tuple[Plugin, ...] = ()
    if source is not None or overrides:
        experiment = load(source or ANY, overrides=overrides, seed=seed, plugins=known)
        used = experiment.plugins_used()
        if used:
            yield used, experiment
    for plugin in known.own:
        row = BY_PATH[plugin.path]
        if used:
            if plugin not in used:
                yield (plugin,), None
        elif not row.changes:
            advice = f"choose an --experiment whose `{plugin.path}` does, or --set it"
            raise click.UsageError(f"{source or ANY} does not name `{plugin.name}`: {advice}")
        else:
            changed = (*row.naming(plugin.name), *overrides)
            yield (plugin,), load(source or row.experiment, overrides=changed, seed=seed, plugins=known)
