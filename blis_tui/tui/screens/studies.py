"""A study: its points, the Pareto front, and a sweep that can be started and watched."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from time import perf_counter
from typing import TYPE_CHECKING, ClassVar, Final, Literal

from textual import on, work
from textual.binding import Binding
from textual.containers import Container, Vertical, VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.screen import Screen
from textual.widgets import Input, Static

from blis_tui.base.classes import dataclass
from blis_tui.base.errors import BlisError, InputError
from blis_tui.base.units import plural
from blis_tui.spec.study.document import experiment_of, override_texts, source_of
from blis_tui.study.parquet import write_rows
from blis_tui.study.study_rows import rows_csv, rows_jsonl
from blis_tui.tui.actions import bindings
from blis_tui.tui.bars import KeyBar, TitleBar
from blis_tui.tui.boxes import GUTTER, MARGIN, Rows
from blis_tui.tui.screens.file_windows import FilesScreen, Kind, text_bytes
from blis_tui.tui.screens.study_points import (
    Board,
    Order,
    columns_of,
    details,
    draw_front,
    explained,
    heading,
    headings,
    in_order,
    longest_bar,
    parse_filter,
    plot,
    point_name,
    standing,
    table,
    table_columns,
    title,
)
from blis_tui.tui.screens.windows import PromptScreen
from blis_tui.tui.shell import LoadedBy, shell

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import BinaryIO

    from textual.app import ComposeResult
    from textual.timer import Timer

    from blis_tui.study.study_rows import StudyResult
    from blis_tui.study.study_text import FrontPlot
    from blis_tui.tui.drawing.lines import Line
    from blis_tui.tui.screens.study_points import Matches, PointEntry
    from blis_tui.tui.screens.study_work import StudyWork


_TICK_S: Final = 0.1
_SHARE: Final = 4
"""Updating the display takes at most a quarter of the time."""
_LONG_S: Final = 10.0


class PointTable(Rows, can_focus=True):
    """One point per line. The cursor is the point, so it stays with it when the lines change."""

    BINDINGS: ClassVar = [
        Binding("up", "move(-1)", show=False),
        Binding("down", "move(1)", show=False),
        Binding("pageup", "page(-1)", show=False),
        Binding("pagedown", "page(1)", show=False),
        Binding("home", "ends(False)", show=False),
        Binding("end", "ends(True)", show=False),
    ]
    DEFAULT_CSS = """
    PointTable:focus > .rows--cursor { background: $block-cursor-background; }
    PointTable:focus:ansi > .rows--cursor { color: $block-cursor-foreground; }
    """

    @property
    def key(self) -> str:
        """The number of the point at the cursor; empty without points."""
        return "" if self.cursor is None else self.cursor.value

    @dataclass
    class Moved(Message):
        """The cursor has moved to another line; ``chosen``: by a double click."""

        key: str
        chosen: bool

    def show(self, lines: Sequence[Line]) -> None:
        """Show lines; the cursor stays with its line, or moves to one nearby."""
        points = [line.subject for line in lines]
        at = points.index(self.cursor) if self.cursor in points else min(self.at or 0, len(points) - 1)
        self.put(lines, at if points else None, points[at] if points else None)

    def go_to(self, key: str) -> None:
        """Move the cursor to a line, if it exists."""
        at = next((at for at, line in enumerate(self.lines) if line.subject and line.subject.value == key), None)
        if at is not None:
            self._go(at)

    def _go(self, at: int, *, chosen: bool = False) -> None:
        if self.lines:
            at = min(max(at, 0), len(self.lines) - 1)
            self.put(self.lines, at, self.lines[at].subject)
            self.reveal(at)
            self.post_message(self.Moved(self.key, chosen))

    def action_move(self, rows: int) -> None:
        """Move the cursor."""
        self._go((self.at or 0) + rows)

    def action_page(self, pages: int) -> None:
        """Move the cursor by a page."""
        self.action_move(pages * max(self.size.height - 1, 1))

    def action_ends(self, last: bool) -> None:
        """Go to the first or the last line."""
        self._go(len(self.lines) - 1 if last else 0)

    def on_rows_pointed(self, event: Rows.Pointed) -> None:
        """Select a clicked line."""
        event.stop()
        self._go(event.at, chosen=event.chain > 1)


class StudyScreen(Screen[None]):
    """The points of a study.

    Args:
        work: the study's runs.
    """

    SCOPE = "study"
    NAME = "study"
    AUTO_FOCUS = "PointTable"
    BINDINGS = [  # noqa: RUF012  (Textual's convention)
        *bindings(SCOPE),
        Binding("up", "cursor(-1)", show=False),
        Binding("down", "cursor(1)", show=False),
    ]
    CSS_PATH = "studies.tcss"

    def __init__(self, work: StudyWork) -> None:
        super().__init__()
        self.study = work.study
        self.board = Board(self.study)
        self._work = work
        self._order = Order()
        self._matches: Matches | None = None
        self._shown: tuple[PointEntry, ...] = ()
        self._clock: Timer | None = None
        self._then_run = False
        self._shown_problem = ""
        self._counted = -1
        self._top = 0.0
        self._standing = Content("")
        self._drawn: tuple[tuple[int, tuple[int, int]], FrontPlot] | None = None
        self._painted_s = self._paint_took_s = 0.0

    def compose(self) -> ComposeResult:
        """Create title, filter, points, front, the selected point, keys."""
        yield TitleBar(id="title")
        with Container(id="body"):
            with Vertical(id="list"):
                yield Input(placeholder="cluster.instances >= 2  ok  front  -stopped  part of a value", id="search")
                yield Static(id="wrong", markup=False)
                yield Static(id="headings")
                yield PointTable(id="points")
                yield Static(id="nothing", markup=False)
            with Container(id="about"):
                yield Static(id="front")
                with VerticalScroll(id="details"):
                    yield Static(id="text")
        yield KeyBar()

    def on_mount(self) -> None:
        """Look up known results after the first paint."""
        self.set_class(len(self.study.objectives) < 2, "-plain")
        self._clock = self.set_interval(_TICK_S, self.tick, pause=True)
        self.show()
        self.call_after_refresh(self._begin, "looking")

    def on_unmount(self) -> None:
        """Stop all runs when the screen is left."""
        self._work.stop()

    def on_resize(self) -> None:
        """Adapt everything to the new width."""
        self.call_after_refresh(self.show)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:  # noqa: ARG002  (Textual's signature)
        """Dim actions that are currently impossible."""
        if not self.is_mounted:
            return True
        entry = self.current
        if action == "study_open":
            return True if entry is not None and entry.status != "invalid" else None
        if action == "study_seed":
            return len(self.study.seeds) > 1
        if action in ("study_mark", "study_why"):
            return True if entry is not None else None
        if action == "study_run":
            return True if self._work.doing == "running" or self.board.done < self.study.runs else None
        return True

    # ---- runs ----

    def _begin(self, what: Literal["looking", "running"]) -> None:
        if self._clock is not None:
            self._clock.resume()
        self._work.begin(what)
        self._do()
        self._title()

    @work(thread=True, group="sweep")
    def _do(self) -> None:
        try:
            self._work.work()
        finally:
            self.call_later(self._over)

    def _over(self) -> None:
        """Handle the end of the runs."""
        if self._clock is not None:
            self._clock.pause()
        while rows := self._work.take():
            self.board.add(rows)
        self.show()
        self._warn()
        if self._then_run:
            self._then_run = False
            self._begin("running")

    def tick(self) -> None:
        """Show new results."""
        pause_s = perf_counter() - self._painted_s
        rows = self._work.take() if pause_s >= _SHARE * self._paint_took_s else []
        if rows:
            self.board.add(rows)
            self.show()
        else:
            self._title()
        self._warn()

    def _warn(self) -> None:
        problem = self._work.problem
        if problem and problem != self._shown_problem:
            self._shown_problem = problem
            message = f"{problem}. Results last until you leave this screen; --store names another folder."
            self.notify(message, title="Results are not kept", severity="warning", timeout=_LONG_S, markup=False)

    def action_study_run(self) -> None:
        """Make the missing runs, or stop."""
        if self._work.doing == "running":
            self._work.stop()
        elif self._work.doing:  # known results are being looked up, which the sweep also does
            self._then_run = True
            self._work.stop()
        elif self.board.done < self.study.runs:
            self._begin("running")

    def action_study_stop(self) -> None:
        """Leave the filter, stop the runs, or show all points again."""
        search = self.query_one("#search", Input)
        if self.focused is search or (self._work.doing != "running" and search.value):
            self.remove_class("-searching")
            search.value = ""
            self._table.focus()
        elif self._work.doing == "running":
            self._work.stop()

    # ---- display ----

    @property
    def _table(self) -> PointTable:
        return self.query_one(PointTable)

    @property
    def current(self) -> PointEntry | None:
        """The selected point."""
        key = self._table.key
        return self.board.entries[int(key)] if key else None

    def show(self) -> None:
        """Show everything that is known."""
        if not self.is_mounted:
            return
        began_s = perf_counter()
        entries = self.board.entries
        if self._counted != self.board.version:
            self._counted = self.board.version
            self._top = longest_bar(self.study, entries)
            self._standing = standing(self.study, entries, self.board.done)
        kept = entries if self._matches is None else [entry for entry in entries if self._matches(entry)]
        self._shown = tuple(in_order(kept, self._order))
        points = self._table
        # A table hidden for lack of matches has no size.
        width = max(self.query_one("#list").content_size.width - GUTTER - MARGIN, 10)
        columns = table_columns(self.study, self._top, self._order, width)
        points.show(table(columns, self._shown))
        self.query_one("#headings", Static).update(headings(columns, width))
        self.set_class(not self._shown, "-empty")
        self.query_one("#nothing", Static).update(f"No point matches. esc shows all {len(entries):,}.")
        self._title()
        self._about()
        self._painted_s = perf_counter()
        self._paint_took_s = self._painted_s - began_s

    def _title(self) -> None:
        bar = self.query_one(TitleBar)
        bar.left = title(self.study, None if self._matches is None else len(self._shown))
        words = self._work.words()
        if words:
            bar.right = Content.assemble((f"» {words}", "$accent bold"), (" escape stops", "$text-muted"))
        else:
            bar.right = self._standing
        self.refresh_bindings()

    def _about(self) -> None:
        """Show the selected point, and its place on the plot."""
        entry = self.current
        area = self.query_one("#details", VerticalScroll)
        text = Content("")
        if entry is not None:
            width = max(area.scrollable_content_region.width, 20)
            text = Content("\n").join([heading(entry), details(self.study, entry, width)])
        self.query_one("#text", Static).update(text)
        front = self.query_one("#front", Static)
        if front.display:
            selected = None if entry is None else entry.point.number
            front.update(plot(self._front(front.content_size), selected, front.content_size.width))
        self.refresh_bindings()

    def _front(self, size: tuple[int, int]) -> FrontPlot:
        """Return the plot, redrawn if points or the size have changed."""
        wanted = (self.board.version, size)
        if self._drawn is None or self._drawn[0] != wanted:
            self._drawn = (wanted, draw_front(self.study, self.board.entries, size))
        return self._drawn[1]

    @on(PointTable.Moved)
    def _moved(self, event: PointTable.Moved) -> None:
        self.query_one("#details", VerticalScroll).scroll_home(animate=False)
        self._about()
        if event.chosen:
            self.action_study_open()

    # ---- list ----

    def action_study_search(self) -> None:
        """Start the filter."""
        self.add_class("-searching")
        self.query_one("#search", Input).focus()

    @on(Input.Changed, "#search")
    def _narrow(self, event: Input.Changed) -> None:
        wrong = ""
        try:
            self._matches = parse_filter(event.value, self.study)
        except BlisError as error:
            wrong = f"{error.message}: {error.help}"
        self.set_class(bool(wrong), "-wrong")
        self.query_one("#wrong", Static).update(wrong)
        self.show()

    @on(Input.Submitted, "#search")
    def _narrowed(self) -> None:
        self.set_class(bool(self.query_one("#search", Input).value.strip()), "-searching")
        self._table.focus()

    def action_cursor(self, rows: int) -> None:
        """Move in the list while the filter has the focus."""
        self._table.action_move(rows)

    def action_study_sort(self) -> None:
        """Sort by the next column."""
        columns = columns_of(self.study)
        place = columns.index(self._order.column)
        self._list_by(Order(columns[(place + 1) % len(columns)]))

    def action_study_reverse(self) -> None:
        """Reverse the order."""
        self._list_by(replace(self._order, down=not self._order.down))

    def _list_by(self, order: Order) -> None:
        self._order = order
        self.show()
        self._table.go_to(self._table.key)

    def action_study_mark(self) -> None:
        """Mark or unmark; a third mark removes the first."""
        entry = self.current
        if entry is not None:
            self.board.mark(entry.point.number)
            self.show()

    def action_study_why(self) -> None:
        """Explain where the selected point stands; from there, it can be opened."""
        from blis_tui.tui.screens.why import WhyScreen  # noqa: PLC0415  (only needed for questions)

        entry = self.current
        if entry is not None:
            about = explained(self.study, self.board.entries, entry)
            self.app.push_screen(WhyScreen(None, about), lambda go: None if go is None else self.action_study_open())

    # ---- opening points ----

    def action_study_open(self) -> None:
        """Open the selected point with its first seed."""
        entry = self.current
        if entry is not None:
            self._open(entry, self.study.seeds[0])

    def action_study_seed(self) -> None:
        """Ask for a seed, and open the selected point with it."""
        entry = self.current
        if entry is None:
            return
        seeds = ", ".join(map(str, self.study.seeds))

        def check(text: str) -> None:
            if text not in map(str, self.study.seeds):
                raise InputError(f"The seeds of this study are {seeds}.")

        def go_on(text: str | None) -> None:
            if text is not None:
                self._open(entry, int(text))

        about = f"This point runs with the seeds {seeds}."
        first = str(self.study.seeds[0])
        prompt = PromptScreen("Open with a seed", about, value=first, check=check, doing="opens it")
        self.app.push_screen(prompt, go_on)

    @work(exclusive=True, group="open")
    async def _open(self, entry: PointEntry, seed: int) -> None:
        name = f"{source_of(self.study)} {point_name(self.study, entry)}"
        try:
            experiment = await asyncio.to_thread(experiment_of, self.study, entry.point, seed)
        except BlisError as error:
            shell(self.app).show_error(name, error, self.action_study_open)
            return
        texts = override_texts(self.study, entry.point)
        shell(self.app).open_loaded(experiment, LoadedBy(source_of(self.study), texts, seed))

    def action_study_compare(self) -> None:
        """Compare two marked points, or the marked one with the selected one, at their divergence."""
        marked, current = self.board.marked, self.current
        pair = marked if len(marked) == 2 or current is None or current.marked else (*marked, current)
        if len(pair) == 2:
            self._compare(pair[0], pair[1])
        else:
            self.notify("Mark a point with space, and go to another one: both are compared.", markup=False)

    @work(exclusive=True, group="open")
    async def _compare(self, entry: PointEntry, other: PointEntry) -> None:
        seed = self.study.seeds[0]
        names = (point_name(self.study, entry), point_name(self.study, other))
        try:
            left = await asyncio.to_thread(experiment_of, self.study, entry.point, seed)
            right = await asyncio.to_thread(experiment_of, self.study, other.point, seed)
        except BlisError as error:
            shell(self.app).show_error(" and ".join(names), error, self.action_study_compare)
            return
        source = source_of(self.study)
        texts = (override_texts(self.study, entry.point), override_texts(self.study, other.point))
        by = (LoadedBy(source, texts[0], seed), LoadedBy(source, texts[1], seed))
        shell(self.app).open_compare(left, right, names, at_divergence=True, loaded_by=by)

    # ---- files ----

    def action_study_export(self) -> None:
        """Open the export window."""
        self.app.push_screen(StudyExport(self.board.result(), self.app.export_screenshot))


# Export of a study's rows, as in ``blis-tui sweep``.

KINDS: Final = (
    Kind("csv", "csv", "one row per run"),
    Kind("jsonl", "jsonl", "one JSON object per run"),
    Kind("picture", "svg", "this screen as a picture"),
)
PARQUET: Final = Kind("parquet", "parquet", "one row per run, for data frames")
"""Offered only if the package that writes it is installed."""


class StudyExport(FilesScreen):
    """Offers kinds of files; enter writes one into the working folder.

    Args:
        result: the rows so far.
        picture: draws the screen below as SVG.
    """

    def __init__(self, result: StudyResult, picture: Callable[[], str]) -> None:
        *tables, picture_kind = KINDS
        kinds = (*tables, PARQUET, picture_kind) if find_spec("pyarrow") else KINDS
        super().__init__(kinds, f"All {plural(len(result.rows), 'run')} that have results.")
        self._result = result
        self._picture = picture()

    @property
    def stem(self) -> str:
        """The study's name."""
        return self._result.study.name

    def writer(self, kind: Kind) -> Callable[[BinaryIO], object]:
        """Return the writer of the rows of all runs, regardless of the filter."""
        if kind.id == "picture":
            return text_bytes(lambda out: out.write(self._picture))
        if kind.id == "parquet":
            return partial(write_rows, result=self._result)
        lines = rows_csv if kind.id == "csv" else rows_jsonl
        return text_bytes(lambda out: out.writelines(lines(self._result)))
