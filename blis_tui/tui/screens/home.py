"""The first screen: the available experiments and studies with their checks and actions."""

from __future__ import annotations

import asyncio
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from textual import on, work
from textual.binding import Binding
from textual.containers import Container, Vertical, VerticalScroll
from textual.content import Content
from textual.events import ScreenResume
from textual.fuzzy import FuzzySearch
from textual.screen import Screen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option
from textual.worker import get_current_worker

from blis_tui.base.classes import dataclass
from blis_tui.base.errors import BlisError, InputError
from blis_tui.base.units import plural
from blis_tui.spec.library import description
from blis_tui.tui.actions import bindings
from blis_tui.tui.bars import KeyBar, RowList, TitleBar
from blis_tui.tui.catalog import (
    GoldenState,
    check,
    find_documents,
    golden_states,
    known_golden,
    shown_folder,
)
from blis_tui.tui.drawing.lines import diagnostics_text, shorten
from blis_tui.tui.editor import edit, read_only
from blis_tui.tui.screens.windows import PromptScreen, read_changes
from blis_tui.tui.shell import LoadedBy, shell

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from textual.app import ComposeResult
    from textual.events import Resize

    from blis_tui.tui.catalog import Catalog, Checked, Found
    from blis_tui.tui.shell import Shell


class ExperimentList(RowList):
    """One experiment per line; the screen opens and marks them."""

    DEFAULT_CSS = """
    ExperimentList { height: 1fr; }
    ExperimentList > .option-list--option-disabled { color: $text-muted; }
    """

    _entries: tuple[HomeEntry, ...] = ()
    _sections = False
    _wanted: Path | None = None

    def show(self, entries: Sequence[HomeEntry], *, sections: bool, cursor: Path | None = None) -> None:
        """Show entries; the cursor stays on its experiment, or goes to the requested one.

        Args:
            entries: the entries in order.
            sections: whether to put own and shipped ones below headings.
            cursor: where to put the cursor.
        """
        self._wanted = cursor if cursor is not None else self.cursor_path
        self._entries, self._sections = tuple(entries), sections
        self._build()

    @property
    def cursor_path(self) -> Path | None:
        """Path of the selected experiment."""
        option = self.highlighted_option
        return None if option is None else next((e.found.path for e in self._entries if _id(e) == option.id), None)

    def update_entry(self, entry: HomeEntry) -> None:
        """Update one experiment."""
        self._entries = tuple(entry if other.found.path == entry.found.path else other for other in self._entries)
        if _id(entry) in self._id_to_option:
            self.replace_option_prompt(_id(entry), self._row(entry))

    def headings(self) -> Content:
        """Return the headings of the rows."""
        return columns_line(name_width(self._entries, self.row_width), self.row_width)

    def on_resize(self, _event: Resize) -> None:
        """Redraw the rows."""
        self._wanted = self.cursor_path
        self._build()

    def _row(self, entry: HomeEntry) -> Content:
        return row(entry, name_width(self._entries, self.row_width), self.row_width)

    def _build(self) -> None:
        self.clear_options()
        experiments = [entry for entry in self._entries if not entry.found.is_study]
        own = [entry for entry in experiments if not entry.found.shipped]
        shipped = [entry for entry in experiments if entry.found.shipped]
        studies = [entry for entry in self._entries if entry.found.is_study]
        if self._sections:
            self._section("In this folder", own, "  none yet: n writes one with every key explained")
            if studies:
                self.add_option(Option("", disabled=True))
                self._section("Studies", studies, "")
            if shipped:
                self.add_option(Option("", disabled=True))
                self._section("Shipped with blis-tui", shipped, "")
        else:
            self.add_options(Option(self._row(entry), id=_id(entry)) for entry in self._entries)
        ids = [option.id for option in self.options]
        wanted = str(self._wanted)
        first = next((at for at, option in enumerate(self.options) if not option.disabled), None)
        self.highlighted = ids.index(wanted) if wanted in ids else first
        if self.highlighted == first:
            self.scroll_home(animate=False)

    def _section(self, title: str, entries: Sequence[HomeEntry], otherwise: str) -> None:
        self.add_option(Option(section(title), disabled=True))
        if not entries:
            self.add_option(Option(Content.styled(otherwise, "$text-muted"), disabled=True))
        self.add_options(Option(self._row(entry), id=_id(entry)) for entry in entries)


def _id(entry: HomeEntry) -> str:
    return str(entry.found.path)


class HomeScreen(Screen[None]):
    """The experiments and studies of a folder, and the shipped ones."""

    SCOPE = "home"
    NAME = "experiments"
    AUTO_FOCUS = "ExperimentList"
    BINDINGS = [  # noqa: RUF012  (Textual's convention)
        *bindings(SCOPE),
        Binding("escape", "leave_search", "show all"),
        Binding("up", "cursor(-1)", show=False),
        Binding("down", "cursor(1)", show=False),
    ]
    DEFAULT_CSS = """
    HomeScreen {
        #body { height: 1fr; layout: horizontal; }
        #list { width: 1fr; height: 100%; padding: 0 1; }
        #headings { height: 1; text-wrap: nowrap; }
        #search { display: none; padding: 0 1; background: $panel; }
        &.-searching #search { display: block; }
        #nothing { display: none; height: auto; padding: 1; color: $text-muted; }
        &.-empty #nothing { display: block; }
        #details { width: 42%; height: 100%; padding: 0 1; background: $surface; }
        #details Static { height: auto; }
        &.-narrow #body { layout: vertical; }
        &.-narrow #list { width: 100%; height: 1fr; }
        &.-narrow #details { width: 100%; height: 45%; }
    }
    """

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder
        self._entries: tuple[HomeEntry, ...] = ()
        self._complete = True
        self._lost = 0
        self._wanted: Path | None = None

    def compose(self) -> ComposeResult:
        """Create title, search, list, details, keys."""
        yield TitleBar(id="title")
        with Container(id="body"):
            with Vertical(id="list"):
                yield Input(placeholder="part of a name; enter opens", id="search", compact=True)
                yield Static(id="headings")
                yield Static(id="nothing", markup=False)
                yield ExperimentList(id="experiments")
            with VerticalScroll(id="details", can_focus=False):
                yield Static(Content.styled("Looking for experiments…", "$text-muted"))
        yield KeyBar()

    def on_mount(self) -> None:
        """Load the list after the first paint."""
        self._title()
        self.call_after_refresh(self.action_home_reload)

    # ---- loading ----

    @work(thread=True, exclusive=True, group="catalog")
    def _scan(self) -> None:
        """Find, read and check documents; show each result at once.

        All descriptions are shown before the first check, because a check takes ten times as long.
        """
        worker = get_current_worker()
        catalog = find_documents(self._folder)
        self.call_later(self._listed, catalog)
        self.call_later(self._described, {document.path: description(document.path) for document in catalog.found})
        for document in catalog.found:
            if worker.is_cancelled:
                return
            self.call_later(self._change, document.path, checked=check(document))
        if not worker.is_cancelled:
            self.call_later(self._goldens, *golden_states(self._folder))

    @on(ScreenResume)
    def _look_again(self) -> None:
        """Check the selected file again, because it or its goldens may have changed."""
        entry = self._current if self._entries else None
        if entry is not None:
            self._check_again(entry.found)

    @work(thread=True, exclusive=True, group="again")
    def _check_again(self, document: Found) -> None:
        self.call_later(self._change, document.path, checked=check(document))
        self.call_later(self._goldens, *golden_states(self._folder))

    def _listed(self, catalog: Catalog) -> None:
        marked = {entry.found.path for entry in self._entries if entry.marked}
        self._complete = catalog.complete
        self._entries = tuple(HomeEntry(document, marked=document.path in marked) for document in catalog.found)
        self._show(self._wanted)
        self._wanted = None

    def _described(self, about: Mapping[Path, str]) -> None:
        self._entries = tuple(replace(entry, about=about.get(entry.found.path, "")) for entry in self._entries)
        self._show()

    def _goldens(self, states: Mapping[Path, GoldenState], lost: int) -> None:
        """Show the states of all goldens, and the number without an experiment."""
        self._lost = lost
        for entry in self._entries:
            golden = known_golden(states, entry.found)
            if golden != entry.golden:
                self._change(entry.found.path, golden=golden)
        self._title()

    def _change(self, path: Path, **known: Checked | GoldenState | bool) -> None:
        """Update one experiment, by the names of an entry's fields."""
        entry = next((candidate for candidate in self._entries if candidate.found.path == path), None)
        if entry is None:
            return
        new = replace(entry, **known)  # type: ignore[arg-type]
        self._entries = tuple(new if other is entry else other for other in self._entries)
        self._list.update_entry(new)
        self._title()
        if self._list.cursor_path == path:
            self._details()

    # ---- display ----

    @property
    def _list(self) -> ExperimentList:
        return self.query_one(ExperimentList)

    @property
    def _query(self) -> str:
        return self.query_one("#search", Input).value

    @property
    def _current(self) -> HomeEntry | None:
        path = self._list.cursor_path
        return next((entry for entry in self._entries if entry.found.path == path), None)

    def _title(self) -> None:
        title = self.query_one(TitleBar)
        title.left = Content.assemble(("blis-tui", "$accent bold"), f"  {shown_folder(self._folder)}")
        lost = f", {plural(self._lost, 'golden')} without experiment" if self._lost else ""
        title.right = Content.styled((summary(self._entries) if self._entries else "looking") + lost, "$text-muted")

    def on_resize(self) -> None:
        """Redraw the details once they have their new size."""
        self.call_after_refresh(self._details)

    def _show(self, cursor: Path | None = None) -> None:
        query = self._query
        shown = matching(self._entries, query)
        self._list.show(shown, sections=not query.strip(), cursor=cursor)
        self.set_class(not shown and bool(self._entries), "-empty")
        self.query_one("#nothing", Static).update(f"No name matches {query!r}. esc shows all {len(self._entries)}.")
        self._title()
        self._details()

    @on(OptionList.OptionHighlighted)
    def _details(self) -> None:
        self.query_one("#headings", Static).update(self._list.headings())
        entry = self._current
        area = self.query_one("#details", VerticalScroll)
        dense = self.has_class("-narrow")
        nothing = Content.styled("Nothing to show.", "$text-muted")
        text = nothing if entry is None else details(entry, area.scrollable_content_region.width, dense=dense)
        self.refresh_bindings()
        if not self._complete:
            more = "This folder has too many files to search all of them: start blis-tui in a smaller one."
            text = Content("\n\n").join([text, Content.styled(more, "$warning")])
        self.query_one("#details Static", Static).update(text)

    # ---- search ----

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:  # noqa: ARG002  (Textual's)
        """Enable each search action only when it applies."""
        if action in ("home_mark", "home_compare") and self.is_mounted:
            return None if self._current is not None and self._current.found.is_study else True
        searching = self.has_class("-searching")
        return searching if action == "leave_search" else not searching if action == "home_search" else True

    @on(Input.Changed, "#search")
    def _narrow(self) -> None:
        self._show()
        if self._query.strip():
            self._list.action_first()

    @on(Input.Submitted, "#search")
    def _open_found(self) -> None:
        self.action_home_open()

    def action_home_search(self) -> None:
        """Start the search."""
        self.add_class("-searching")
        self.refresh_bindings()
        self.query_one("#search", Input).focus()

    def action_leave_search(self) -> None:
        """Leave the search, and show everything again."""
        self.remove_class("-searching")
        self.refresh_bindings()
        self.query_one("#search", Input).value = ""
        self._list.focus()

    def action_cursor(self, rows: int) -> None:
        """Move in the list while the search has the focus."""
        self._list.move(rows)

    # ---- actions ----

    @property
    def _app(self) -> Shell:
        return shell(self.app)

    def action_home_reload(self) -> None:
        """Load everything again."""
        self._scan()

    @on(OptionList.OptionSelected)
    def action_home_open(self) -> None:
        """Open the selected experiment or study."""
        entry = self._current
        if entry is not None:
            self._list.focus()  # on return, keys must be commands instead of search text
            (self._app.open_study if entry.found.is_study else self._app.open_experiment)(entry.found.source)

    def action_home_edit(self) -> None:
        """Edit the selected file at its first problem."""
        entry = self._current
        if entry is None:
            return
        if refusal := read_only(entry.found.path, self._folder):
            self.notify(refusal, markup=False)
            return
        problems = () if entry.checked is None else entry.checked.problems
        place = next((problem for problem in problems if problem.file and Path(problem.file).is_file()), None)
        path, line = (entry.found.path, 1) if place is None else (Path(place.file), place.line)
        self._edit(path, line)

    def _edit(self, path: Path, line: int) -> None:
        problem = edit(self.app, path, line)
        if problem:
            self.notify(problem, severity="warning", markup=False)
        self._wanted = path
        self.action_home_reload()

    def action_home_new(self) -> None:
        """Ask for a name, and create an experiment."""
        about = "A valid document with every key explained. Names have lower-case letters, digits, `.` and `-`."
        prompt = PromptScreen(
            "New experiment", about, placeholder="my-experiment", check=self._require_new, doing="writes the file"
        )
        self.app.push_screen(prompt, self._write_new)

    def _require_new(self, name: str) -> None:
        """Raise InputError unless an experiment of that name can be created."""
        from blis_tui.spec.authoring.project import file_name  # noqa: PLC0415  (only needed for new documents)
        from blis_tui.spec.reader import is_name  # noqa: PLC0415

        if not is_name(name):
            raise InputError(f"{name!r} is not a valid name.")
        path = self._folder / file_name("Experiment", name)
        if path.exists():
            raise InputError(f"{path.name} exists already.")

    def _write_new(self, name: str | None) -> None:
        from blis_tui.output.result_files import write_text  # noqa: PLC0415
        from blis_tui.spec.authoring.project import file_name, schema_reference, template  # noqa: PLC0415

        if name is None:
            return
        path = self._folder / file_name("Experiment", name)
        schema, _own = schema_reference("Experiment", self._folder)
        try:
            write_text(path, template("Experiment", name, schema))
        except BlisError as error:
            self.notify(str(error), title="Nothing was written", severity="error", markup=False)
            return
        self.notify(f"Wrote {path.name}.", markup=False)
        if self._query:
            self.action_leave_search()  # the new name may not match
        self._edit(path, 1)

    def action_home_mark(self) -> None:
        """Mark or unmark; a third mark removes the first."""
        entry = self._current
        if entry is None:
            return
        others = [other for other in self._entries if other.marked and other is not entry]
        if not entry.marked and len(others) == 2:
            self._change(others[0].found.path, marked=False)
        self._change(entry.found.path, marked=not entry.marked)

    def action_home_compare(self) -> None:
        """Compare two marked experiments, the marked one with the selected one, or the selected one with a change."""
        entry = self._current
        if entry is None:
            return
        marked = [entry for entry in self._entries if entry.marked]
        pair = marked if len(marked) == 2 else [*marked, entry] if marked and not entry.marked else []
        if pair:
            self._compare(pair[0].found, pair[1].found, ())
            return

        def compare(text: str | None) -> None:
            if text is not None:
                self._compare(entry.found, entry.found, read_changes(text))

        about = "One or more values to change on the other side; or mark a second experiment with space."
        title = f"Compare {entry.found.name} with a change"
        prompt = PromptScreen(
            title, about, placeholder="cluster.instances=2 policy=sjf", check=read_changes, doing="compares"
        )
        self.app.push_screen(prompt, compare)

    @work(exclusive=True, group="open")
    async def _compare(self, left: Found, right: Found, overrides: tuple[str, ...]) -> None:
        from blis_tui.spec.load import load  # noqa: PLC0415

        names = (left.name, " ".join((right.name, *overrides)))
        try:
            first = await asyncio.to_thread(load, left.source)
            other = await asyncio.to_thread(load, right.source, overrides=overrides)
        except BlisError as error:
            self._app.show_error(names[1], error, self.action_home_compare)
            return
        by = (LoadedBy(left.source), LoadedBy(right.source, overrides))
        self._app.open_compare(first, other, names, loaded_by=by)


_CHECK_WIDTH: Final = 10
_GOLDEN_WIDTH: Final = 9
_LABEL_WIDTH: Final = 11
_HEADING: Final = "experiment"
"""The heading above the names."""
_MIN_ABOUT: Final = 12
"""Minimum width of the description; below, it is left out."""

_GOLDEN_STYLES: Final = {"golden": "$success", "pending": "$warning", "orphan": "$warning", "none": "$text-muted"}
_GOLDEN_WORDS: Final = {"golden": "✓ golden", "pending": "! new", "orphan": "! orphan", "none": "-"}


@dataclass(frozen=True, slots=True)
class HomeEntry:
    """An experiment or a study with what is known so far."""

    found: Found
    checked: Checked | None = None
    """Result of its check; None = not checked yet."""
    golden: GoldenState = field(default_factory=GoldenState)
    marked: bool = False
    """Whether it is marked for comparison."""
    about: str = ""
    """Its description, as far as it can be read without a check."""


def matching(entries: Sequence[HomeEntry], query: str) -> tuple[HomeEntry, ...]:
    """Return the entries whose name or path matches a query, the best first."""
    if not query.strip():
        return tuple(entries)
    search = FuzzySearch()
    query = query.strip()
    scored = [(max(search.match(query, text)[0] for text in _texts(entry)), entry) for entry in entries]
    return tuple(entry for score, entry in sorted(scored, key=lambda pair: -pair[0]) if score > 0)


def _texts(entry: HomeEntry) -> tuple[str, ...]:
    return (entry.found.name,) if entry.found.shipped else (entry.found.name, entry.found.shown)


def name_width(entries: Sequence[HomeEntry], width: int) -> int:
    """Return the width of names: that of the longest if there is room."""
    longest = max((len(entry.found.name) for entry in entries), default=0)
    return max(len(_HEADING), min(longest, width // 3))


def row(entry: HomeEntry, names: int, width: int) -> Content:
    """Return a row: mark, name, validity, golden, description."""
    check = check_words(entry.checked)
    golden = Content.styled(_GOLDEN_WORDS[entry.golden.word], _GOLDEN_STYLES[entry.golden.word])
    if entry.found.is_study:
        golden = Content.styled("study", "$text-muted")
    about = width - 2 - names - 2 - _CHECK_WIDTH - 1 - _GOLDEN_WIDTH - 1
    parts = [
        Content.styled("● " if entry.marked else "  ", "$accent bold"),
        _fit(Content.styled(shorten(entry.found.name, names), "bold"), names + 2),
        _fit(check, _CHECK_WIDTH + 1),
        _fit(golden, _GOLDEN_WIDTH + 1),
    ]
    if about >= _MIN_ABOUT:
        parts.append(Content.styled(_words(" ".join(_description(entry).split()), about), "$text-muted"))
    return Content("").join(parts).truncate(width)  # wide characters may still exceed the width


def columns_line(names: int, width: int) -> Content:
    """The headings above the rows."""
    about = width - 2 - names - 2 - _CHECK_WIDTH - 1 - _GOLDEN_WIDTH - 1
    text = f"  {_HEADING:<{names + 2}}{'check':<{_CHECK_WIDTH + 1}}{'golden':<{_GOLDEN_WIDTH + 1}}"
    return Content.styled((text + ("about" if about >= _MIN_ABOUT else ""))[:width], "$text-muted")


def _fit(content: Content, width: int) -> Content:
    return content.pad_right(max(0, width - content.cell_length))


def _words(text: str, width: int) -> str:
    """Return as many whole words as fit."""
    if len(text) <= width:
        return text
    cut = text[: width - 1]
    return (cut if text[width - 1] == " " else cut.rpartition(" ")[0]).rstrip(" ,.;:") + "…"


def check_words(checked: Checked | None) -> Content:
    """Return the validity of an experiment, in a word or two."""
    if checked is None:
        return Content.styled("…", "$text-muted")
    if checked.unreadable:
        return Content.styled("✗ no file", "$error")
    if checked.problems:
        count = len(checked.problems)
        return Content.styled(f"✗ {plural(count, 'error')}" if count < 100 else "✗ 99+", "$error")
    return Content.styled("✓ ok", "$success")


def _description(entry: HomeEntry) -> str:
    checked = entry.checked
    if checked is None:
        return entry.about
    if checked.facts is not None:
        return checked.facts.description
    return checked.unreadable or checked.problems[0].message


def section(title: str) -> Content:
    """Return a heading within the list."""
    return Content.styled(title, "$text-muted bold")


def details(entry: HomeEntry, width: int, *, dense: bool = False) -> Content:
    """Return all that is known about an experiment.

    Args:
        entry: the experiment.
        width: available columns.
        dense: whether to put two short facts on one line, and leave out empty lines.
    """
    more = "  enter shows all" if entry.checked is not None and len(entry.checked.problems) > 1 else ""
    title = Content.assemble((entry.found.name, "bold"), "  ", check_words(entry.checked), (more, "$text-muted"))
    lines: list[Content] = [title]
    facts: list[tuple[str, Content]] = []
    checked = entry.checked
    if checked is None:
        lines += [Content(entry.about)] if entry.about else []
        lines.append(Content.styled("being checked", "$text-muted"))
    elif checked.facts is not None:
        lines += [Content(checked.facts.description)] if checked.facts.description else []
        facts += [(what, Content(how)) for what, how in checked.facts.lines]
    elif checked.unreadable:
        lines.append(Content.styled(checked.unreadable, "$error"))
    else:
        # Long lines are cut instead of wrapped, because marks must stay below what they mark.
        first = diagnostics_text(checked.problems[:1]).split("\n")
        lines += [line.truncate(max(1, width), ellipsis=True) for line in first]
    facts += [] if entry.found.is_study else [("golden", golden_sentence(entry))]
    facts.append(("file", Content(entry.found.shown)))
    lines += [] if dense else [Content("")]
    lines += _fact_lines(facts, width if dense else 0)
    return Content("\n").join(lines)


def _fact_lines(facts: Sequence[tuple[str, Content]], width: int) -> list[Content]:
    """Return facts one per line, or two if both fit into half of the columns."""
    half = width // 2
    lines: list[Content] = []
    waiting = list(facts)
    while waiting:
        line = _labelled(*waiting.pop(0))
        if waiting and line.cell_length < half and _LABEL_WIDTH + waiting[0][1].cell_length <= half:
            line = Content.assemble(_fit(line, half), _labelled(*waiting.pop(0)))
        lines.append(line)
    return lines


def _labelled(label: str, value: Content) -> Content:
    return Content.assemble((f"{label:<{_LABEL_WIDTH}}", "$text-muted"), value)


def golden_sentence(entry: HomeEntry) -> Content:
    """Return what there is to compare results with."""
    golden = entry.golden
    if golden.word == "none":
        return Content.styled("none here", "$text-muted")
    parts = [
        (golden.golden, f"{golden.golden} stored", "$success"),
        (golden.pending, f"{golden.pending} new, waiting for a decision", "$warning"),
        (golden.orphan, f"{golden.orphan} without a case", "$warning"),
    ]
    return Content(", ").join(Content.styled(text, style) for number, text, style in parts if number)


def summary(entries: Sequence[HomeEntry]) -> str:
    """Return the number of experiments and their states, for the title."""
    checked = [entry.checked for entry in entries if entry.checked is not None]
    wrong = len([entry for entry in checked if entry.facts is None])
    studies = len([entry for entry in entries if entry.found.is_study])
    count = plural(len(entries) - studies, "experiment")
    if studies:
        count += ", 1 study" if studies == 1 else f", {studies} studies"
    if len(checked) < len(entries):
        return f"{count}, checking {len(checked)}"
    return f"{count}, {wrong} with errors" if wrong else f"{count}, all valid"
