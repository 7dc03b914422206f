"""What the list of golden tests has done in threads, and the messages that tell of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from textual.message import Message

from blis_tui._version import ENGINE
from blis_tui.errors import BlisError, InputError
from blis_tui.golden.divergence import find_divergence, old_experiment
from blis_tui.golden.review import case_of, difference_text
from blis_tui.golden.session import Settings, decide_mode, on_ci, run_case

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from blis_tui.golden.case import Case
    from blis_tui.golden.review import Entry
    from blis_tui.golden.session import Outcome
    from blis_tui.simulation import Simulation
    from blis_tui.spec.model import Experiment


@runtime_checkable
class ComparesRuns(Protocol):
    """An application that can show two runs side by side."""

    def open_compare(
        self, left: Experiment, right: Experiment, names: tuple[str, str], event: int | None = None
    ) -> None:
        """Show them."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class BothRuns:
    """What is needed to show a golden's run beside the present one."""

    old: Experiment
    new: Experiment
    event: int | None
    note: str
    """What the reader should know about the two; empty = nothing."""


class Surveyed(Message):
    """What there is."""

    def __init__(self, entries: tuple[Entry, ...]) -> None:
        super().__init__()
        self.entries = entries


class Explained(Message):
    """What a waiting result would change, or why that cannot be told."""

    def __init__(self, name: str, text: str, *, failed: bool) -> None:
        super().__init__()
        self.name = name
        self.text = text
        self.failed = failed


class CheckGoesOn(Message):
    """A check has got so far."""

    def __init__(self, share: str) -> None:
        super().__init__()
        self.share = share

    def can_replace(self, message: Message) -> bool:
        """Only the latest counts."""
        return isinstance(message, CheckGoesOn)


class CheckOver(Message):
    """A check has ended: with a outcome, with an error, or because it was stopped."""

    def __init__(self, name: str, outcome: Outcome | None, error: str) -> None:
        super().__init__()
        self.name = name
        self.outcome = outcome
        self.error = error


class Prepared(Message):
    """Two runs can be shown side by side, or cannot."""

    def __init__(self, entry: Entry, both: BothRuns | None, error: str) -> None:
        super().__init__()
        self.entry = entry
        self.both = both
        self.error = error


class Stopped(Exception):  # noqa: N818  (no error: somebody wants it to end)
    """Ends a check."""


def explain(entry: Entry, root: Path) -> Explained:
    """What a waiting result would change; may run simulations."""
    try:
        return Explained(entry.name, difference_text(entry.files, root), failed=False)
    except BlisError as error:
        return Explained(entry.name, str(error), failed=True)


def check(entry: Entry, root: Path, goes_on: Callable[[str], bool]) -> CheckOver:
    """Run a test and compare; ``goes_on`` is told how far it is, and says whether to go on."""

    def go_on(simulation: Simulation) -> bool:
        total = simulation.experiment.workload.requests
        if not goes_on(f"{100 * simulation.ended // total} %" if total else f"{simulation.events:,} events"):
            raise Stopped
        return True

    try:
        outcome = run_case(_case(entry, root), entry.files, entry.spec, _settings(), go_on)
    except Stopped:
        return CheckOver(entry.name, None, "")
    except (BlisError, OSError) as error:
        return CheckOver(entry.name, None, str(error))
    return CheckOver(entry.name, outcome, "")


def prepare(entry: Entry, root: Path) -> Prepared:
    """Make the two runs of a golden test that waits, and find where they part."""
    try:
        return Prepared(entry, _both(entry, _case(entry, root)), "")
    except BlisError as error:
        return Prepared(entry, None, str(error))


def _case(entry: Entry, root: Path) -> Case:
    """The case of a golden test. Raises BlisError where there is none."""
    case = case_of(entry.files, root)
    if case is None:
        raise InputError(f"{entry.spec} no longer has the case `{entry.case}`")
    return case


def _settings() -> Settings:
    """A check may write what pytest would write: nothing on CI, else a new result that waits."""
    return Settings(mode=decide_mode("auto", ci=on_ci()), checks=())


def _both(entry: Entry, case: Case) -> BothRuns:
    golden, result = entry.files.read(), entry.files.read(pending=True)
    experiment = case.load()
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
