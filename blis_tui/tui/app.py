"""The application: what all screens share, and how experiments, comparisons and goldens are opened."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
from functools import partial
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, ClassVar, Final
from weakref import WeakKeyDictionary

from rich.cells import cell_len
from rich.segment import Segment
from rich.text import Text
from textual import on, work
from textual._context import active_message_pump
from textual.actions import parse
from textual.binding import Binding
from textual.command import Command, CommandInput, CommandList, CommandPalette
from textual.filter import LineFilter
from textual.fuzzy import Matcher
from textual.theme import ThemeProvider
from textual.widgets import Input

from blis_tui.base.classes import dataclass
from blis_tui.base.errors import BlisError
from blis_tui.base.standard_output import Printed, Stream
from blis_tui.base.text import REPLACEMENT, control_characters
from blis_tui.tui.actions import APP, bindings, shown_key
from blis_tui.tui.drawing.lines import shorten
from blis_tui.tui.observing_start import ObservingStart
from blis_tui.tui.screens.windows import Completing, SmallScreen, is_too_small
from blis_tui.tui.settings import THEMES, config_folder, default_theme, load_keymap, remember_theme, remembered_theme
from blis_tui.tui.shell import QUOTED, CommandLine, Commands, LoadedBy
from blis_tui.tui.typed import OrderedInputApp

if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Mapping, Sequence
    from typing import Unpack

    from textual.actions import ActionParseResult
    from textual.color import Color
    from textual.command import Provider
    from textual.dom import DOMNode
    from textual.events import Resize
    from textual.notifications import Notify
    from textual.screen import Screen

    from blis_tui.cluster.decisions import RouteOverrides
    from blis_tui.debugger.moments import Moment
    from blis_tui.live.observe.recording import Recording
    from blis_tui.live.twin.twin import Twin
    from blis_tui.model import Experiment
    from blis_tui.spec.study.study_records import Study
    from blis_tui.study.store import Store
    from blis_tui.tui.actions import Action
    from blis_tui.tui.shell import ComparedFrom


# Protection of the terminal against control characters in names from documents and traces.

_ACTED_ON: Final = control_characters()


class ControlCharacterFilter(LineFilter):
    """Replaces control characters in every drawn line; all other characters keep their places."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:  # noqa: ARG002  (Textual's signature)
        """Return the segments with the widths that Textual computed."""
        if not any(_ACTED_ON.search(text) for text, _, _ in segments):
            return segments
        return [Segment(_ACTED_ON.sub(_as_wide, text), style, control) for text, style, control in segments]


def _as_wide(match: re.Match[str]) -> str:
    """Return the replacement of a character: nothing if Textual reserved no width for it."""
    return REPLACEMENT if cell_len(match[0]) else ""


_CONTROL_CHARACTER_FILTER: Final = ControlCharacterFilter()
_LONG_S: Final = 8.0
"""Duration in seconds of notifications that need careful reading."""
_MOST_NOTICES: Final = 2
"""Maximum number of notifications at a time; more would hide the screen."""
_GIVEN_BACK_S: Final = 2.0
"""Maximum wait at exit for a terminal that accepts output slowly or not at all, in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """An experiment to open at start."""

    experiment: Experiment
    source: str
    """Its name or path, as the user gave it."""
    at: str | None = None
    """First position: an event, a time or a request, as the user gave it."""
    breaks: tuple[str, ...] = ()
    """Breakpoints to set, as the user gave them."""
    overrides: tuple[str, ...] = ()
    """The ``--set`` arguments, for loading it again."""
    seed: int | None = None
    routes: RouteOverrides | None = None
    """Routing decisions to override."""
    moments: tuple[Moment, ...] = ()
    """Events that somebody has kept, besides the reader's own."""
    called: str = ""
    """The name by which others open it, if that is not its source: the file of a bundle."""
    remembers: bool = True
    """Whether the last session is restored, and this one saved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyStart:
    """A study to open at start."""

    study: Study
    store: Store | None = None
    """Where results are looked up and kept; None = the user's folder."""
    jobs: int | None = None
    """Number of simultaneous runs; None = one per core."""
    early_stop: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TwinStart:
    """A recording and its simulation to open at start."""

    twin: Twin
    recording: Recording
    source: str
    """The simulated experiment, as the user named it."""


class _Palette(CommandPalette):
    """Textual's palette, in which commands can also be typed.

    Its list has no lines to move by until it has been drawn, and lags behind the keys: a whole command is run as it was
    typed, whatever the list shows.

    Args:
        line: what can be typed; None = only what the list has.
        text: what is typed already.
    """

    BINDINGS: ClassVar = [Binding("tab", "complete", "complete", show=False, priority=True)]

    def __init__(
        self,
        line: CommandLine | None = None,
        text: str = "",
        *,
        providers: Sequence[type[Provider]] | None = None,
        placeholder: str = "",
    ) -> None:
        super().__init__(providers=providers, placeholder=placeholder)
        self._line, self._text = line, text

    def on_mount(self) -> None:
        """Complete what is typed."""
        field = self.query_one(CommandInput)
        if self._line is not None:
            field.suggester = Completing(self._line.complete)
        if self._text:
            field.value = self._text
            field.action_end()

    def action_complete(self) -> None:
        """Accept the completion."""
        field = self.query_one(CommandInput)
        field.action_end()
        field.action_cursor_right()

    @on(Input.Submitted)
    def _entered(self, event: Input.Submitted) -> None:
        """Run what was typed, unless another line of the list was chosen; else the first line, if it still matches."""
        if self._line is None or self.query_one(CommandList).highlighted:
            return
        entry = self._line.typed(event.value)
        if entry is None and self._is_listed(event.value):
            return
        event.stop()
        event.prevent_default()
        if entry is None:
            self.app.notify(f"Nothing is named {shorten(event.value, QUOTED)!r}.", severity="error", markup=False)
            return
        if entry.problem:
            self.app.notify(entry.problem, title=entry.text, severity="error", markup=False)
            return
        self._cancel_gather_commands()
        self.dismiss()
        self.app.call_later(self._line.runs(entry))

    def _is_listed(self, text: str) -> bool:
        """Return whether a text, if there is one, matches the first line, which may be that of an earlier text."""
        if not text.strip():
            return True
        commands = self.query_one(CommandList)
        first = commands.get_option_at_index(0) if commands.option_count else None
        return isinstance(first, Command) and Matcher(text.strip()).match(str(first.hit.text)) > 0

    def _action_command_list(self, action: str) -> None:
        if action == "select" or self.query_one(CommandList).size.height:
            super()._action_command_list(action)


class BlisApp(OrderedInputApp, inherit_bindings=False):
    """The terminal interface.

    Args:
        start: what to open; None = the list of experiments and studies.
        folder: folder of the user's experiments; by default the working folder.
        survive: whether to show unexpected exceptions and go on. Tests let them propagate.
    """

    TITLE = "blis-tui"
    CSS_PATH: ClassVar = [Path(__file__).with_name(name) for name in ("app.tcss", "debugger.tcss")]
    BINDINGS: ClassVar = [
        *bindings(APP),
        Binding("ctrl+c", "help_quit", show=False, system=True),
        Binding("question_mark", "app_help", show=False),  # for screens that do not use this key
    ]
    COMMANDS: ClassVar = {Commands}
    ENABLE_COMMAND_PALETTE = False  # our own table has its key
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (100, "-normal"), (140, "-wide")]  # noqa: RUF012  (Textual's type)

    def __init__(
        self,
        start: Start | StudyStart | TwinStart | ObservingStart | None = None,
        *,
        folder: Path | None = None,
        survive: bool = False,
    ) -> None:
        super().__init__()
        self.use_command_palette = True
        self.start = start
        self.folder = Path.cwd() if folder is None else folder
        self.keymap = load_keymap(config_folder())
        self._survive = survive
        self._starts: WeakKeyDictionary[DOMNode, Start] = WeakKeyDictionary()
        self._theme_remembered = False
        self.printed = Printed()
        stream = Stream(self._keep_printed)
        self._capture_stdout = self._capture_stderr = stream  # type: ignore[assignment]  # Textual's has no `buffer`
        for theme in THEMES:
            self.register_theme(theme)
        wanted = os.environ.get("TEXTUAL_THEME") or remembered_theme()
        self.theme = wanted if wanted in self.available_themes else default_theme(os.environ)
        self.set_keymap({name: ",".join(keys) for name, keys in self.keymap.changed.items()})

    def get_line_filters(self) -> Sequence[LineFilter]:
        """Return Textual's filters, and the one against control characters."""
        return [*super().get_line_filters(), _CONTROL_CHARACTER_FILTER]

    def export_screenshot(self, *, title: str | None = None, simplify: bool = False) -> str:
        """Return the screen as SVG, as Textual does, but such that it looks the same everywhere."""
        from blis_tui.tui.screens.export import portable  # noqa: PLC0415  (only needed to export one)

        return portable(super().export_screenshot(title=title, simplify=simplify))

    def _keep_printed(self, text: str) -> None:
        """Keep printed output from any thread, and announce it once."""
        self._print(text)
        first = not self.printed.total
        self.printed.write(text)
        if first and self.printed.total:
            self.call_later(self._say_printed)

    def _say_printed(self) -> None:
        key = shown_key(self.keymap.keys["app.printed"][0])
        self.notify(f"Something was printed and kept: {key} shows it.", timeout=_LONG_S, markup=False)

    # ---- start ----

    def show(self) -> None:
        """Run until the user leaves, and then stop the threads for input and output in any case.

        A signal during the restoration of the terminal (its window was closed) keeps Textual from stopping its input
        thread, for which the process would wait forever, at full load if the terminal is gone. If a signal arrives
        outside of the application, Textual may not wait for the output thread, which has not restored the terminal by
        then.
        """
        try:
            self.run()
        finally:
            left = getattr(self._driver, "exit_event", None)
            if isinstance(left, Event):
                left.set()
            if self._driver is not None:
                written = Thread(target=self._driver.close, daemon=True)  # blocks if the terminal accepts no output
                written.start()
                written.join(_GIVEN_BACK_S)

    async def on_mount(self) -> None:
        """Show the first screen, and report problems of the user's keys."""
        self._theme_remembered = True
        await self.push_screen(self._first())
        self._cover_if_small(*self.size)
        if self.keymap.problems:
            problems = "\n".join(self.keymap.problems)
            self.notify(problems, title="Keys", severity="warning", timeout=_LONG_S, markup=False)

    def _first(self) -> Screen[None]:
        """Return the requested first screen."""
        if self.start is None:
            return self._home()
        if isinstance(self.start, ObservingStart):
            from blis_tui.tui.screens.observing import ObservingScreen  # noqa: PLC0415  (as below)

            return ObservingScreen(self.start)
        if isinstance(self.start, TwinStart):
            from blis_tui.tui.screens.twin import TwinScreen  # noqa: PLC0415  (screens are imported on demand)

            return TwinScreen(self.start.twin, self.start.recording, self.start.source)
        return self._study(self.start) if isinstance(self.start, StudyStart) else self._debugger(self.start)

    def _home(self) -> Screen[None]:
        """Return the list of experiments."""
        from blis_tui.tui.screens.home import HomeScreen  # noqa: PLC0415  (not needed to start with an experiment)

        return HomeScreen(self.folder)

    def on_ready(self) -> None:
        """Keep the garbage collector from delaying keys.

        All objects so far, mostly modules, live as long as the program; examining them takes 70 ms, several times a
        second during a run.
        """
        gc.collect()
        gc.freeze()

    def _debugger(self, start: Start) -> Screen[None]:
        """Return the debugger of an experiment, or a screen with the experiment's problems."""
        from blis_tui.tui.screens.debugger import DebuggerScreen  # noqa: PLC0415  (screens are imported on demand)

        try:
            screen = DebuggerScreen(
                start.experiment,
                source=start.source,
                at=start.at,
                breaks=start.breaks,
                overrides=start.overrides,
                moments=start.moments,
                called=start.called,
                remembers=start.remembers,
                **({} if start.routes is None else {"routes": start.routes}),
            )
        except BlisError as error:
            from blis_tui.tui.screens.error import ErrorScreen  # noqa: PLC0415

            how = (start.source, start.overrides, start.seed, start.at, start.breaks)
            return ErrorScreen(start.source, error, partial(self.open_experiment, *how))
        self._starts[screen] = start
        return screen

    def _study(self, start: StudyStart) -> Screen[None]:
        """Return the screen of a study."""
        from blis_tui.study.store import FolderStore  # noqa: PLC0415  (screens are imported on demand)
        from blis_tui.tui.screens.studies import StudyScreen  # noqa: PLC0415
        from blis_tui.tui.screens.study_work import StudyWork  # noqa: PLC0415

        store = FolderStore.of_user() if start.store is None else start.store
        prints = self._keep_printed
        work = StudyWork(start.study, store, jobs=start.jobs, early_stop=start.early_stop, prints=prints)
        return StudyScreen(work)

    def show_error(self, source: str, error: BlisError, again: Callable[[], object]) -> None:
        """Show the problems of an experiment, with a way to try again."""
        from blis_tui.tui.screens.error import ErrorScreen  # noqa: PLC0415

        self.push_screen(ErrorScreen(source, error, again))

    def on_notify(self, event: Notify) -> None:
        """Make room for a notification: keep only the latest other one, and no duplicate."""
        notices = [
            notification for notification in self._notifications if notification.message != event.notification.message
        ]
        kept = notices[-(_MOST_NOTICES - 1) :]
        for notification in list(self._notifications):
            if notification not in kept:
                self._unnotify(notification, refresh=False)

    # ---- opening ----

    @work(exclusive=True, group="open")
    async def open_experiment(
        self,
        source: str,
        overrides: tuple[str, ...] = (),
        seed: int | None = None,
        at: str | None = None,
        breaks: tuple[str, ...] = (),
        *,
        in_place: bool = False,
    ) -> None:
        """Load an experiment and show it in the debugger (``in_place`` of the top screen), or show its problems."""
        from blis_tui.spec.load import load  # noqa: PLC0415  (YAML and schemas are only needed to open something)

        try:
            experiment = await asyncio.to_thread(load, source, overrides=overrides, seed=seed)
        except BlisError as error:
            again = partial(self.open_experiment, source, overrides, seed, at, breaks, in_place=in_place)
            self.show_error(source, error, again)
            return
        start = Start(experiment=experiment, source=source, at=at, breaks=breaks, overrides=overrides, seed=seed)
        if in_place:
            await self.switch_screen(self._debugger(start))
        else:
            await self.push_screen(self._debugger(start))

    def open_loaded(
        self, experiment: Experiment, by: LoadedBy, at: str | None = None, routes: RouteOverrides | None = None
    ) -> None:
        """Show a loaded experiment, given what it was loaded from and the first position."""
        source, overrides, seed = by
        start = Start(experiment=experiment, source=source, at=at, overrides=overrides, seed=seed, routes=routes)
        self.push_screen(self._debugger(start))

    def loaded_by(self, screen: Screen[None]) -> LoadedBy | None:
        """Return what the experiment of a debugger was loaded from; None = unknown."""
        start = self._starts.get(screen)
        return None if start is None else LoadedBy(start.source, start.overrides, start.seed)

    @work(exclusive=True, group="open")
    async def open_study(self, source: str) -> None:
        """Read a study and show it, or its problems."""
        from blis_tui.spec.study.document import (  # noqa: PLC0415
            open_study_or_experiment,
            read_study,
        )

        def read() -> Study:
            document, base = open_study_or_experiment(source)
            return read_study(document, base=base)

        try:
            study = await asyncio.to_thread(read)
        except BlisError as error:
            self.show_error(source, error, partial(self.open_study, source))
            return
        await self.push_screen(self._study(StudyStart(study=study)))

    def reopen_experiment(self, source: str, at: str | None = None) -> None:
        """Load the experiment of the top debugger again, in the same way, and replace that screen.

        Args:
            source: its name or path.
            at: first position.
        """
        before = self._starts.get(self.screen)
        overrides, seed = ((), None) if before is None else (before.overrides, before.seed)
        self.open_experiment(source, overrides, seed, at, in_place=True)

    def open_compare(
        self, left: Experiment, right: Experiment, names: tuple[str, str], **start: Unpack[ComparedFrom]
    ) -> None:
        """Show two experiments side by side; ``start``: the first position."""
        from blis_tui.tui.screens.compare import CompareScreen  # noqa: PLC0415

        self.push_screen(CompareScreen(left, right, names, **start))

    # ---- actions ----

    @property
    def first_screen(self) -> Screen[object] | None:
        """The first screen, which ends the program when it closes; below it is only Textual's empty one."""
        return self.screen_stack[1] if len(self.screen_stack) > 1 else None

    def scope_of(self, screen: Screen[object]) -> str:
        """Return the scope of a screen's actions."""
        scope = getattr(screen, "SCOPE", APP)
        return scope if isinstance(scope, str) else APP

    def is_usable(self, action: Action, screen: Screen[object]) -> bool:
        """Return whether a screen can currently run an action."""
        target: DOMNode = self if action.scope == APP else screen
        _, name, parameters = parse(action.handler)
        return hasattr(target, f"action_{name}") and bool(target.check_action(name, parameters))

    async def perform(self, action: Action, screen: Screen[object] | None = None) -> bool:
        """Run an action as if its key had been pressed."""
        target: DOMNode = self if action.scope == APP else (self.screen if screen is None else screen)
        return await self.run_action(action.handler, target)

    def action_app_help(self) -> None:
        """Show the keys."""
        from blis_tui.tui.screens.help import HelpScreen  # noqa: PLC0415

        screen = self.screen
        scope = self.scope_of(screen)
        title = str(getattr(screen, "NAME", scope))

        def run(action: Action | None) -> None:
            if action is not None:
                self.call_later(self.perform, action, screen)

        def usable(action: Action) -> bool:
            return self.is_usable(action, screen)

        self.push_screen(HelpScreen(scope, title, self.keymap.keys, usable), run)

    def action_command_palette(self) -> None:
        """Show the palette. Unlike Textual's it has no ID, since the one before may not be gone yet."""
        self.open_palette()

    action_app_palette = action_command_palette

    def open_palette(self, text: str = "") -> None:
        """Show the palette, with a text to go on with."""
        if isinstance(self.screen, CommandPalette):  # called from the palette, which is about to close
            if text:
                self.set_timer(0.05, partial(self.open_palette, text))
            return
        line = CommandLine(self, self.screen)
        self.push_screen(_Palette(line, text, placeholder="A command, a pane, a request, an event …"))

    def action_app_theme(self) -> None:
        """Show the palette of themes."""
        self.push_screen(_Palette(providers=[ThemeProvider], placeholder="Search for themes…"))

    def action_goldens_open(self) -> None:
        """Show the golden results and the results that wait for a decision."""
        from blis_tui.tui.screens.goldens import GoldensScreen  # noqa: PLC0415

        if not isinstance(self.screen, GoldensScreen):
            self.push_screen(GoldensScreen())

    def action_app_printed(self) -> None:
        """Show printed output."""
        from blis_tui.tui.screens.file_windows import PrintedScreen  # noqa: PLC0415

        self.push_screen(PrintedScreen(self.printed))

    async def action_app_back(self) -> None:
        """Leave this screen; leaving the first one ends the program."""
        if isinstance(self.screen, CommandPalette):  # called from the palette, which is about to close
            self.set_timer(0.05, self.action_app_back)
        elif self.screen is self.first_screen:
            self.exit()
        else:
            self.clear_notifications()  # notifications are about the screen that closes
            await self.pop_screen()

    def action_app_quit(self) -> None:
        """End the program."""
        self.exit()

    def action_help_quit(self) -> None:
        """Tell the user how to quit: ctrl+c stops programs elsewhere, and must not lose the user's work here."""
        keys = self.keymap.keys
        quit_key, back = shown_key(keys["app.quit"][0]), shown_key(keys["app.back"][0])
        self.notify(f"{quit_key} quits, {back} goes back.", markup=False)

    # ---- palette ----

    def theme_names(self) -> tuple[str, ...]:
        """All themes, our own first."""
        own = [theme.name for theme in THEMES]
        return (*own, *sorted(name for name in self.available_themes if name not in own))

    def watch_theme(self, name: str) -> None:
        """Remember the user's theme."""
        if self._theme_remembered:
            problem = remember_theme(name)
            if problem:
                self.notify(problem, severity="warning", markup=False)

    # ---- size ----

    def on_resize(self, event: Resize) -> None:
        """Cover the screen while the terminal is too small."""
        if self.first_screen is not None:
            self._cover_if_small(*event.size)

    def _cover_if_small(self, width: int, height: int) -> None:
        covered = isinstance(self.screen, SmallScreen)
        small = is_too_small(width, height)
        if small and not covered:
            self.push_screen(SmallScreen())
        elif covered and not small:
            self.pop_screen()

    # ---- unexpected exceptions ----

    async def run_action(
        self,
        action: str | ActionParseResult,
        default_namespace: DOMNode | None = None,
        namespaces: Mapping[str, DOMNode] | None = None,
    ) -> bool:
        """Run an action as Textual does, but show errors instead of ending the program."""
        try:
            return await super().run_action(action, default_namespace, namespaces)
        except BlisError as error:
            self.notify(str(error), title="Command failed", severity="error", timeout=_LONG_S, markup=False)
            return True
        except Exception as error:
            if not self._survive:
                raise
            self.show_defect(error)
            return True

    def show_defect(self, error: Exception, *, dead: bool = False) -> None:
        """Show an unexpected exception.

        Args:
            error: the exception.
            dead: whether a part of the screen stopped working; then the only way on is the list of experiments.
        """
        from blis_tui.tui.screens.error import CrashScreen  # noqa: PLC0415

        self.stop_waiting()
        if any(isinstance(screen, CrashScreen) for screen in self.screen_stack):
            return  # one window is enough: later exceptions are usually consequences

        def go_on(_: None) -> None:
            if dead:
                self.call_later(self._reopen_home)

        self.push_screen(CrashScreen(error, self._bundle(error)), go_on)

    async def _reopen_home(self) -> None:
        """Leave all screens and open a new list of experiments."""
        while self.first_screen is not None:
            await self.pop_screen()
        await self.push_screen(self._home())

    def _bundle(self, error: BaseException) -> str:
        """Return the text of a bug report, with the context of the topmost screen that has one."""
        from blis_tui.tui.screens.error import crash_bundle  # noqa: PLC0415

        about: dict[str, str] = {}
        for screen in self.screen_stack:
            circumstances = getattr(screen, "bug_report_facts", None)
            if callable(circumstances):
                about |= {str(name): str(value) for name, value in dict(circumstances()).items()}
        return crash_bundle(error, about)

    def _handle_exception(self, error: Exception) -> None:
        """Handle an exception outside of actions: a part of the screen is dead, but the program goes on.

        If nothing is left to go on with, the program ends as Textual does it.
        """
        own = active_message_pump.get(None) is self
        if not self._survive or own or not self.is_running or self._exit:
            super()._handle_exception(error)
        else:
            self.call_later(self.show_defect, error, dead=True)

    def _fatal_error(self) -> None:
        """End after an unexpected exception, with the report instead of pages of local variables."""
        error = sys.exc_info()[1]
        if not self._survive or error is None:
            super()._fatal_error()
        else:
            self.panic(Text(f"This is a bug in blis-tui; please report it with this text:\n\n{self._bundle(error)}"))
