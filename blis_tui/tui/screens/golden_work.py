"""Work of the golden tests screen that runs in threads, because it may run simulations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui._version import ENGINE
from blis_tui.base.classes import dataclass
from blis_tui.base.errors import InputError
from blis_tui.golden.golden_divergence import find_divergence, old_experiment
from blis_tui.golden.produce import is_up_to_date
from blis_tui.golden.review import case_of
from blis_tui.golden.session import OUTDATED, GoldenSettings, decide_mode, on_ci, run_case

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from blis_tui.golden.case import Case
    from blis_tui.golden.review import GoldenEntry
    from blis_tui.golden.session import Outcome
    from blis_tui.model import Experiment
    from blis_tui.model.plug_ins import Registry
    from blis_tui.runs.simulation import Simulation


@dataclass(frozen=True, slots=True, kw_only=True)
class BothRuns:
    """The data to show a golden's run beside the present one."""

    old: Experiment
    new: Experiment
    event: int | None
    note: str
    """A remark about the two runs; empty = none."""


class Stopped(Exception):  # noqa: N818  (not an error: the user stops the check)
    """Stops a check."""


def check(
    entry: GoldenEntry, root: Path, goes_on: Callable[[str], bool], plugins: Registry | None = None
) -> Outcome | None:
    """Run and compare a test like pytest: write nothing on CI, otherwise a new result that waits.

    Args:
        entry: the test.
        root: the folder in which it runs.
        goes_on: receives the progress, and returns whether to go on.
        plugins: additional plug-ins that it may name.

    Returns:
        The outcome, or None if it was stopped.

    Raises:
        BlisError: it cannot run.
        OSError: the result cannot be written.
    """

    def go_on(simulation: Simulation) -> bool:
        total = simulation.experiment.workload.requests
        if not goes_on(f"{100 * simulation.ended // total} %" if total else f"{simulation.events:,} events"):
            raise Stopped
        return True

    settings = GoldenSettings(mode=decide_mode("auto", ci=on_ci()), checks=())
    try:
        return run_case(_case(entry, root, plugins), entry.files, entry.spec, settings, go_on)
    except Stopped:
        return None


def prepare(entry: GoldenEntry, root: Path, plugins: Registry | None = None) -> BothRuns:
    """Prepare both runs of a golden test with a waiting result, and find where they diverge.

    Raises:
        BlisError: one of them cannot be run.
    """
    experiment = _case(entry, root, plugins).load()
    golden, result = entry.files.read(), entry.files.read(pending=True)
    if not is_up_to_date(result, experiment):
        raise InputError(OUTDATED)
    old = old_experiment(golden, experiment)
    if old is None:
        raise InputError(
            f"this version of blis-tui can no longer build the experiment of the golden {entry.name}",
            help="accept or reject by the report's values, or look at the new run alone",
        )
    divergence = find_divergence(golden, result, experiment, entry.files)
    note = ""
    if golden.engine != ENGINE:
        note = (
            f"The golden was made by engine {golden.engine}, this is engine {ENGINE}: "
            "A is the golden's experiment as this engine runs it."
        )
    return BothRuns(old=old, new=experiment, event=None if divergence is None else divergence.event, note=note)


def _case(entry: GoldenEntry, root: Path, plugins: Registry | None) -> Case:
    """Return the case of a golden test. Raises BlisError if there is none."""
    case = case_of(entry.files, root, plugins)
    if case is None:
        raise InputError(f"{entry.spec} no longer has the case `{entry.case}`")
    return case
