"""Golden tests: their list, waiting results, what they would change, and decisions."""

from __future__ import annotations

import re
from functools import partialmethod
from shlex import quote
from textwrap import wrap
from typing import TYPE_CHECKING, Final, Protocol

from textual import on, work
from textual.binding import Binding
from textual.containers import Container, Vertical, VerticalScroll
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option
from textual.worker import get_current_worker

from blis_tui._version import ENGINE
from blis_tui.base.classes import dataclass
from blis_tui.base.errors import BlisError, InputError
from blis_tui.base.units import count_text, plural
from blis_tui.debugger.why.explanation import Explanation, Part, Subject
from blis_tui.golden.golden_divergence import find_divergence, old_experiment
from blis_tui.golden.produce import is_up_to_date
from blis_tui.golden.project import present
from blis_tui.golden.review import accept, case_of, difference_text, look, reject, summary, survey, waiting
from blis_tui.golden.session import OUTDATED, GoldenSettings, decide_mode, on_ci, run_case
from blis_tui.tui.actions import bindings
from blis_tui.tui.bars import KeyBar, RowList, TitleBar
from blis_tui.tui.drawing.lines import shorten
from blis_tui.tui.screens.windows import ConfirmScreen
from blis_tui.tui.shell import shell

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from textual.app import ComposeResult
    from textual.events import Resize

    from blis_tui.golden.case import Case
    from blis_tui.golden.golden_store import Golden, GoldenFiles
    from blis_tui.golden.review import GoldenEntry
    from blis_tui.golden.session import Outcome
    from blis_tui.model import Experiment
    from blis_tui.model.plug_ins import Registry
    from blis_tui.runs.simulation import Simulation

_LONG_S: Final = 10.0


# ---- work that runs in threads, because it may run simulations ----


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


# ---- the screen ----


class GoldenList(RowList):
    """One golden test per line; the screen handles actions."""

    _entries: tuple[GoldenEntry, ...] = ()

    @property
    def current(self) -> GoldenEntry | None:
        """The selected test."""
        place = self.highlighted
        return None if place is None or place >= len(self._entries) else self._entries[place]

    def show(self, entries: Sequence[GoldenEntry], cursor: str | None = None) -> None:
        """Show entries; the cursor goes to the named test, stays on its own, or goes to the first."""
        wanted = cursor if cursor is not None or self.current is None else self.current.name
        self._entries = tuple(entries)
        self._build(wanted)

    def headings(self) -> Content:
        """Return the headings of the rows."""
        return columns_line(name_width(self._entries, self.row_width), self.row_width)

    def on_resize(self, _event: Resize) -> None:
        """Redraw the rows."""
        self._build(None if self.current is None else self.current.name)

    def _build(self, wanted: str | None) -> None:
        names = name_width(self._entries, self.row_width)
        self.clear_options()
        self.add_options(Option(row(entry, names, self.row_width)) for entry in self._entries)
        place = next((at for at, entry in enumerate(self._entries) if entry.name == wanted), 0)
        self.highlighted = place if self._entries else None


class _Decision(Protocol):
    """What becomes of a waiting result."""

    def __call__(self, files: GoldenFiles, *, shown: Golden | None) -> object:
        """Carry it out; ``shown``: the result that was decided on, which must still wait."""


class GoldensScreen(Screen[None]):
    """The golden tests of the current project, as ``blis-tui golden`` finds it.

    Raises:
        InputError: the configuration of pytest cannot be read.
    """

    SCOPE = "goldens"
    NAME = "goldens"
    AUTO_FOCUS = "GoldenList"
    BINDINGS = [  # noqa: RUF012  (Textual's convention)
        *bindings(SCOPE),
        Binding("up", "cursor(-1)", show=False),
        Binding("down", "cursor(1)", show=False),
    ]
    CSS_PATH = "goldens.tcss"

    def __init__(self) -> None:
        super().__init__()
        self._project = present()
        self._folder, self._root = self._project.golden_dir, self._project.root
        self._plugins: Registry | None = None
        self._entries: tuple[GoldenEntry, ...] = ()
        self._explained: dict[str, str | Content] = {}
        self._shown: dict[str, Golden] = {}
        """The waiting results whose differences are in ``_explained``: only these are decided on."""
        self._outcomes: dict[str, Outcome] = {}
        self._explaining = ""
        self._checking = ""
        self._progress = ""

    def compose(self) -> ComposeResult:
        """Create title, search, list, details, keys."""
        yield TitleBar(Content.assemble(("goldens", "bold"), f"  {self._folder.as_posix()}/"), "looking", id="title")
        with Container(id="body"):
            with Vertical(id="list"):
                yield Input(placeholder="part of a name, file or state; esc shows all", id="search")
                yield Static(id="headings")
                yield GoldenList(id="goldens")
                yield Static(id="nothing", markup=False)
            with VerticalScroll(id="details"):
                yield Static(id="text")
        yield KeyBar()

    def on_mount(self) -> None:
        """Load the goldens after the first paint."""
        self.call_after_refresh(self.action_golden_reload)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:  # noqa: ARG002  (Textual's signature)
        """Dim actions that are currently impossible; hide decisions if no result waits."""
        entry = self._list.current if self.is_mounted else None
        if action in ("golden_accept", "golden_reject"):
            return entry is not None and entry.waiting
        if action == "golden_why":
            return True if entry is not None else None
        if action == "golden_compare":
            return True if entry is not None and entry.state == "changed" else None
        if action == "golden_check":
            return True if entry is not None and not self._checking and _can_run(entry) else None
        return True

    # ---- loading ----

    @property
    def _list(self) -> GoldenList:
        return self.query_one(GoldenList)

    @property
    def _query(self) -> str:
        return self.query_one("#search", Input).value

    @work(thread=True, exclusive=True, group="survey")
    def _survey(self) -> None:
        try:
            self._plugins = self._project.registry()
        except BlisError as error:
            title = "The plug-ins of pytest's configuration cannot be used"
            self.notify(str(error), title=title, severity="error", timeout=_LONG_S, markup=False)
        self.call_later(self._surveyed, survey(self._folder, self._root, plugins=self._plugins))

    def _surveyed(self, entries: tuple[GoldenEntry, ...]) -> None:
        self._entries = entries
        self._explained.clear()
        self._shown.clear()
        waiting = next((entry.name for entry in self._entries if entry.waiting), None)
        self._show(waiting if self._list.current is None else None)

    def _look_again(self, entry: GoldenEntry, *, go_on: bool = False) -> None:
        """Update one test; ``go_on``: move the cursor to the next waiting one."""
        there = entry.files.exists() or entry.files.exists(pending=True)
        new = look(entry.files, self._root, self._plugins) if there else None
        place = next((at for at, other in enumerate(self._entries) if other.name == entry.name), len(self._entries))
        kept = () if new is None else (new,)
        self._entries = (*self._entries[:place], *kept, *self._entries[place + 1 :])
        self._explained.pop(entry.name, None)
        self._shown.pop(entry.name, None)
        shown = matching(self._entries[place:], self._query) if go_on else ()
        self._show(next((other.name for other in shown if other.waiting), entry.name if new is not None else None))

    # ---- display ----

    def _show(self, cursor: str | None = None) -> None:
        shown = matching(self._entries, self._query)
        self._list.show(shown, cursor)
        self.set_class(not shown, "-empty")
        self.set_class(not self._entries, "-none")
        message = f"Nothing matches {self._query!r}. esc shows all {len(self._entries)}." if self._entries else EMPTY
        self.query_one("#nothing", Static).update(message)
        self.query_one("#headings", Static).update(self._list.headings())
        self._title()
        self._details()

    def _title(self) -> None:
        title = self.query_one(TitleBar)
        if self._checking:
            text = f"» checking {self._checking} {self._progress}".rstrip()
            title.right = Content.styled(f"{text}, escape stops", "$accent bold")
        else:
            title.right = Content.styled(summary(self._entries), "$text-muted")

    @on(OptionList.OptionHighlighted)
    def _moved(self) -> None:
        self.query_one("#details", VerticalScroll).scroll_home(animate=False)
        self._details()

    def on_resize(self) -> None:
        """Adapt everything to the new width."""
        self.call_after_refresh(self._fit)

    def _fit(self) -> None:
        self.query_one("#headings", Static).update(self._list.headings())
        self._details()

    @property
    def _details_width(self) -> int:
        return max(20, self.query_one("#details").scrollable_content_region.width - 1)

    def _details(self) -> None:
        entry = self._list.current
        text = Content("") if entry is None else self._about(entry)
        self.query_one("#text", Static).update(text)
        self.query_one("#details").border_title = Content("") if entry is None else heading(entry)
        self.refresh_bindings()

    def _about(self, entry: GoldenEntry) -> Content:
        outcome = self._outcomes.get(entry.name)
        parts = [] if outcome is None else [checked(outcome), Content("")]
        if entry.problem or not entry.waiting:
            parts.append(standing(entry, _stored(entry)))
        elif entry.name in self._explained:
            details = self._explained[entry.name]
            parts.append(difference(details, self._details_width) if isinstance(details, str) else details)
        else:
            parts.append(Content.styled("Computing what the new result would change…", "$text-muted"))
            self._explain(entry)
        return Content("\n").join(parts)

    def _explain(self, entry: GoldenEntry) -> None:
        """Compute the difference of one test at a time; it may run simulations, and cannot be stopped."""
        if not self._explaining:
            self._explaining = entry.name
            self._difference(entry)

    @work(thread=True, group="difference")
    def _difference(self, entry: GoldenEntry) -> None:
        details: str | Content
        shown: Golden | None = None
        try:
            shown = waiting(entry.files)
            details = difference_text(entry.files, self._root, self._plugins, shown)
        except BlisError as error:
            details = failure(str(error))
        self.call_later(self._explained_one, entry.name, details, shown)

    def _explained_one(self, name: str, details: str | Content, shown: Golden | None) -> None:
        """Show a computed difference, or the reason why there is none."""
        self._explaining = ""
        self._explained[name] = details
        if shown is not None:
            self._shown[name] = shown
        self._details()

    # ---- decisions ----

    def _decide_one(self, decide: _Decision, done: str) -> None:
        """Make the waiting result the golden, or delete it."""
        entry = self._list.current
        if entry is not None and entry.waiting:
            self._decide([entry], decide, done)

    action_golden_accept = partialmethod(_decide_one, accept, "accepted")
    action_golden_reject = partialmethod(_decide_one, reject, "rejected")

    def _ask_all(self, verb: str, decide: _Decision, done: str) -> None:
        """Decide on all listed waiting results."""
        listed = [entry for entry in matching(self._entries, self._query) if entry.waiting]
        if not listed:
            self.notify("No result is waiting.", markup=False)
            return
        count = plural(len(listed), "waiting result")
        names = "\n".join(entry.name for entry in listed)

        def go_on(sure: bool | None) -> None:
            if sure:
                self._decide(listed, decide, done)

        self.app.push_screen(ConfirmScreen(f"{verb} {count}?", names, doing=f"{verb.lower()}s all"), go_on)

    action_golden_accept_all = partialmethod(_ask_all, "Accept", accept, "accepted")
    action_golden_reject_all = partialmethod(_ask_all, "Reject", reject, "rejected")

    def _decide(self, entries: Sequence[GoldenEntry], decide: _Decision, done: str) -> None:
        decided: list[GoldenEntry] = []
        refused: list[str] = []
        for entry in entries:
            try:
                decide(entry.files, shown=self._shown.get(entry.name))
            except (BlisError, OSError) as error:
                refused.append(str(error))
            else:
                decided.append(entry)
                self._outcomes.pop(entry.name, None)
            self._look_again(entry, go_on=not refused)
        if decided:
            self.notify(decision(decided, done), timeout=_LONG_S, markup=False)
        if refused:
            more = f"\n(and {len(refused) - 1} more)" if len(refused) > 1 else ""
            self.notify(refused[0] + more, title=f"Not {done}", severity="error", timeout=_LONG_S, markup=False)

    # ---- checks ----

    def action_golden_check(self) -> None:
        """Run the selected test."""
        entry = self._list.current
        if entry is None or self._checking or not _can_run(entry):
            return
        self._checking = entry.name
        self._progress = ""
        self._title()
        self._check(entry)

    @work(thread=True, exclusive=True, group="check")
    def _check(self, entry: GoldenEntry) -> None:
        worker = get_current_worker()

        def goes_on(share: str) -> bool:
            if share != self._progress:
                self._progress = share
                self.call_later(self._title)
            return not worker.is_cancelled

        outcome, problem = None, ""
        try:
            outcome = check(entry, self._root, goes_on, self._plugins)
        except (BlisError, OSError) as error:
            problem = str(error)
        self.call_later(self._check_over, entry.name, outcome, problem)

    def _check_over(self, name: str, outcome: Outcome | None, problem: str) -> None:
        self._checking = ""
        entry = next((entry for entry in self._entries if entry.name == name), None)
        if problem:
            self.notify(problem, title="The test cannot run", severity="error", timeout=_LONG_S, markup=False)
        if entry is None or outcome is None:
            self._title()
            self._details()
            return
        self._outcomes[entry.name] = outcome
        # If the cursor has moved meanwhile, it stays there.
        cursor = self._list.current
        self._look_again(entry)
        if cursor is not None and cursor.name != entry.name:
            self._show(cursor.name)

    def action_golden_stop(self) -> None:
        """Stop a check, or leave the search."""
        if self._checking:
            self.workers.cancel_group(self, "check")
            return
        self.remove_class("-searching")
        self.query_one("#search", Input).value = ""
        self._list.focus()

    def action_golden_why(self) -> None:
        """Explain the state of the selected test, and what can be done."""
        from blis_tui.tui.screens.why import WhyScreen  # noqa: PLC0415  (only needed for questions)

        entry = self._list.current
        if entry is None:
            return

        def go(reference: Subject | None) -> None:
            if reference is not None and entry.state == "changed":
                self.action_golden_compare()
            elif reference is not None:
                self.notify("There is nothing to compare: no other result waits.", markup=False)

        details = self._explained.get(entry.name, "")
        text = details if isinstance(details, str) else details.plain
        about = explained(entry, _stored(entry), text, self._outcomes.get(entry.name))
        self.app.push_screen(WhyScreen(None, about), go)

    # ---- both runs ----

    def action_golden_compare(self) -> None:
        """Show the golden's run and the present one, at their divergence."""
        entry = self._list.current
        if entry is not None and entry.state == "changed":
            self._prepare(entry)

    @work(thread=True, exclusive=True, group="compare")
    def _prepare(self, entry: GoldenEntry) -> None:
        try:
            self.call_later(self._open_both, entry.name, prepare(entry, self._root, self._plugins))
        except BlisError as error:
            title = "The two runs cannot be shown"
            self.notify(str(error), title=title, severity="error", timeout=_LONG_S, markup=False)

    def _open_both(self, name: str, both: BothRuns) -> None:
        shell(self.app).open_compare(both.old, both.new, (f"{name} (golden)", f"{name} (now)"), event=both.event)
        if both.note:
            self.notify(both.note, severity="warning", timeout=_LONG_S, markup=False)

    # ---- list ----

    def action_golden_reload(self) -> None:
        """Load everything again."""
        self._outcomes.clear()
        self._survey()

    def action_golden_search(self) -> None:
        """Start the search."""
        self.add_class("-searching")
        self.query_one("#search", Input).focus()

    @on(Input.Changed, "#search")
    def _narrow(self) -> None:
        self._show()

    @on(Input.Submitted, "#search")
    def _enter_list(self) -> None:
        self._list.focus()

    def action_cursor(self, rows: int) -> None:
        """Move in the list while the search has the focus."""
        self._list.move(rows)


def _can_run(entry: GoldenEntry) -> bool:
    """Return whether a golden test has a valid experiment."""
    return not entry.problem and entry.state != "obsolete"


def _stored(entry: GoldenEntry) -> Golden | None:
    """Return the stored result of a test, if it can be read."""
    try:
        return entry.files.read(pending=not entry.files.exists())
    except BlisError:
        return None


_MUTED: Final = "$text-muted"
_STATES: Final[Mapping[str, tuple[str, str]]] = {
    "golden": ("✓", "$success"),
    "changed": ("≠", "$warning"),
    "new": ("+", "$warning"),
    "obsolete": ("○", "$text-muted"),
    "broken": ("✗", "$error"),
}
"""Glyph and colour of each state."""
_STATE_WIDTH: Final = 12
_SPEC_LEAST: Final = 12
"""Minimum width of the experiment's path; below, it is left out."""
EMPTY: Final = (
    "There is no golden yet.\n\n"
    "pytest runs every *.blis.yaml below the folder where it is started as a golden test. Each new result then waits "
    "here until you accept it. `blis-tui spec init NAME` creates a project that is set up for this."
)
"""Text for an empty list."""


def matching(entries: Sequence[GoldenEntry], query: str) -> tuple[GoldenEntry, ...]:
    """Return the entries that contain every word of a query in name, file, case or state."""
    words = query.lower().split()
    return tuple(
        entry
        for entry in entries
        if all(word in f"{entry.name} {entry.spec} {entry.case} {entry.state}".lower() for word in words)
    )


# ---- the list ----


def name_width(entries: Sequence[GoldenEntry], width: int) -> int:
    """Return the width of names: that of the longest if there is room."""
    longest = max((len(entry.name) for entry in entries), default=0)
    return max(8, min(longest, width - _STATE_WIDTH - 2))


def row(entry: GoldenEntry, names: int, width: int) -> Content:
    """Return a row: state, name, experiment and case."""
    glyph, colour = _STATES[entry.state]
    name = shorten(entry.name, names)
    parts: list[tuple[str, str]] = [(f"{glyph} {entry.state}".ljust(_STATE_WIDTH), colour), (name.ljust(names), "bold")]
    room = width - _STATE_WIDTH - names - 2
    if room >= _SPEC_LEAST:
        about = f"{entry.spec}::{entry.case}" if entry.spec else "cannot be read"
        parts += [("  ", ""), (shorten(about, room), _MUTED)]
    return Content.assemble(*parts)


def columns_line(names: int, width: int) -> Content:
    """The headings above the rows."""
    about = "experiment::case" if width - _STATE_WIDTH - names - 2 >= _SPEC_LEAST else ""
    return Content.styled(f"{'state':<{_STATE_WIDTH}}{'name':<{names}}  {about}"[:width].rstrip(), _MUTED)


def decision(decided: Sequence[GoldenEntry], done: str) -> str:
    """Return the decision, and how to undo it.

    Args:
        decided: the entries as they were before; at least one.
        done: ``accepted`` or ``rejected``.
    """
    sentence = f"{done}: {decided[0].name if len(decided) == 1 else len(decided)}."
    if done == "rejected":
        return f"{sentence} To undo, run pytest: it produces the result again."
    old = [_files(entry) for entry in decided if entry.state != "new"]
    new = [_files(entry) for entry in decided if entry.state == "new"]
    ways = [f"git checkout -- {_some(old)}"] if old else []
    ways += [f"delete {_some(new)}"] if new else []
    return f"{sentence} To undo: {'; '.join(ways)}"


_NAMED: Final = 3
"""Maximum number of golden tests whose files are named."""


def _some(patterns: Sequence[str]) -> str:
    return " ".join(patterns[:_NAMED]) + (" …" if len(patterns) > _NAMED else "")


def _files(entry: GoldenEntry) -> str:
    """Return a shell pattern for the files of a golden; the star is not quoted."""
    return f"{quote((entry.files.folder / entry.files.name).as_posix())}.*"


# ---- selected test ----


def heading(entry: GoldenEntry) -> Content:
    """Return the test's name and state."""
    glyph, colour = _STATES[entry.state]
    return Content.assemble((entry.name, "bold"), "  ", (f"{glyph} {entry.state}", colour))


_SENTENCES: Final[Mapping[str, str]] = {
    "golden": "This is the accepted result. c runs the test now and compares.",
    "obsolete": (
        "No experiment has this test any more: its file or its case is gone. `pytest --blis-obsolete=delete` deletes "
        "obsolete goldens."
    ),
}


def standing(entry: GoldenEntry, stored: Golden | None) -> Content:
    """Return the details of a test without a result to compare."""
    if entry.problem:
        return failure(entry.problem)
    lines = [Content(_SENTENCES.get(entry.state, ""))]
    if stored is not None:
        facts = (
            ("experiment", entry.spec),
            ("case", entry.case),
            ("events", count_text(stored.chain.events)),
            ("records", count_text(stored.chain.records)),
            ("engine", stored.engine),
            ("written by", f"{stored.baseline.python} on {stored.baseline.system}"),
        )
        lines += [Content(""), *(Content.assemble((f"{name:<12}", _MUTED), text) for name, text in facts)]
    return Content("\n").join(lines)


_MEANS: Final[Mapping[str, str]] = {
    "golden": "The result of this test is accepted: pytest fails if a run gives another one.",
    "changed": "A run gave another result than the golden, and waits for a decision.",
    "new": "A run gave a result for which there is no golden yet; it waits for a decision.",
    "obsolete": "There is a golden, but no experiment has this test any more.",
    "broken": "The test or its golden cannot be read.",
}
_WAYS: Final[Mapping[str, tuple[str, ...]]] = {
    "golden": ("c runs the test now and compares.",),
    "changed": (
        "v shows both runs side by side where they diverge.",
        "a makes the new result the golden: for a change that is meant.",
        "r discards it: for a defect that is to be mended first.",
    ),
    "new": ("a makes it the golden.", "r discards it; the next run of pytest makes it again."),
    "obsolete": ("pytest --blis-obsolete=delete deletes obsolete goldens.",),
    "broken": ("Mend the file, then u reads the goldens again.",),
}


def explained(entry: GoldenEntry, stored: Golden | None, difference: str, outcome: Outcome | None) -> Explanation:
    """Return what the state of a test means, what differs, and what can be done.

    Args:
        entry: the test.
        stored: its stored result, if it can be read.
        difference: what a waiting result would change; empty = nothing, or not known yet.
        outcome: what a check has found, if there was one.
    """
    parts = [Part("What can be done", tuple((way,) for way in _WAYS.get(entry.state, ())))]
    if entry.problem:
        parts.insert(0, Part("The problem", tuple((row,) for row in entry.problem.splitlines())))
    elif entry.waiting and difference:
        parts.append(Part("What it would change", tuple((row,) for row in difference.splitlines()[1:] if row.strip())))
    if outcome is not None:
        parts.insert(0, Part("The latest check", ((checked(outcome).plain,),)))
    if stored is not None and not entry.problem:
        origin = f"{entry.spec}, case {entry.case}: {plural(stored.chain.events, 'event')}, by engine {stored.engine}."
        parts.append(Part("The stored result", ((origin,),)))
    state = _MEANS.get(entry.state, "")
    return Explanation(Subject("golden", entry.name), f"{entry.name}: {entry.state}", state, tuple(parts))


def failure(text: str) -> Content:
    """Return an error with its hint highlighted."""
    lines = text.splitlines()
    parts = [Content.styled(line, "$success" if line.lstrip().startswith("= help") else "$error") for line in lines]
    return Content("\n").join(parts)


_LINES: Final = (
    (re.compile(r"first divergence: .*|(experiment|report): .*|the engine .*"), "$warning bold"),
    (re.compile(r"(---|  -) .*"), "$error"),
    (re.compile(r"(\+\+\+|  \+) .*"), "$success"),
    (re.compile(r" +event .*"), "$text-muted"),
    (re.compile(r"(open it in the debugger|the new result is waiting|the result waits).*"), "$text-muted"),
    (re.compile(r" +blis-tui golden .*"), "$text-muted"),
)
"""Patterns of lines, and their colours."""


def difference(text: str, width: int) -> Content:
    """Return what a waiting result would change; colours only help to find things."""
    lines = text.splitlines()[1:]  # the first line names the test
    return Content("\n").join(_line(line, width) for line in lines)


def _line(text: str, width: int) -> Content:
    style = next((style for pattern, style in _LINES if pattern.match(text)), "")
    indent = len(text) - len(text.lstrip(" -+")) + 4
    if len(text) > width:
        text = "\n".join(wrap(text, max(width, indent + 8), subsequent_indent=" " * indent, break_on_hyphens=False))
    return Content.styled(text, style) if style else Content(text)


_OUTCOMES: Final[Mapping[str, tuple[str, str]]] = {
    "equal": ("✓ checked just now: matches the golden", "$success"),
    "missing": ("+ checked just now: there is no golden to compare with", "$warning"),
    "changed": ("≠ checked just now: differs from the golden", "$warning"),
    "unexpected": ("✗ checked just now: matches the golden, but an expectation of the experiment fails", "$error"),
}


def checked(outcome: Outcome) -> Content:
    """Return the outcome of a check."""
    text, style = _OUTCOMES.get(outcome.status, (f"✗ checked just now: {outcome.status}", "$error"))
    verdict = Content.styled(text, f"{style} bold")
    if outcome.status == "unexpected":
        return Content("\n").join([verdict, Content(outcome.text)])
    if outcome.status in ("changed", "missing") and not outcome.pending:
        verdict += Content.styled("; nothing was written, because this runs on CI", _MUTED)
    return verdict
