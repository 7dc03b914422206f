"""The application as screens see it, and the entries of its command palette.

Each entry begins with its noun, so that entries of a kind are adjacent.
"""

from __future__ import annotations

from functools import partial
from shlex import quote
from typing import TYPE_CHECKING, Protocol, TypedDict, Unpack, cast, runtime_checkable

from textual.command import DiscoveryHit, Hit, Hits, Provider

from blis_tui.base.classes import NamedTuple, dataclass
from blis_tui.golden.project import plugins_option
from blis_tui.spec.library import names
from blis_tui.tui.actions import ACTIONS, APP, shown_keys

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator
    from pathlib import Path

    from textual.app import App
    from textual.screen import Screen

    from blis_tui.base.errors import BlisError
    from blis_tui.cluster.decisions import RouteOverrides
    from blis_tui.model import Experiment
    from blis_tui.tui.actions import Action
    from blis_tui.tui.settings import Keymap


class LoadedBy(NamedTuple):
    """What an experiment was loaded from, for loading it again."""

    source: str
    """Its name or path, as the user gave it."""
    overrides: tuple[str, ...] = ()
    """The ``--set`` arguments."""
    seed: int | None = None

    def command(self, event: int, plugins: Iterable[str] = ()) -> str:
        """Return the shell command that opens the debugger at an event.

        Args:
            event: its number.
            plugins: the plug-ins to load, as a user names them.
        """
        changed = "".join(f" --set {quote(one)}" for one in self.overrides)
        seed = "" if self.seed is None else f" --seed {self.seed}"
        return f"blis-tui tui {quote(self.source)}{changed}{seed}{plugins_option(plugins)} --at {event}"


class ComparedFrom(TypedDict, total=False):
    """Where a comparison of two experiments starts (by default at the beginning), and their origins."""

    event: int | None
    time_us: int | None
    routes: RouteOverrides | None
    """Routing decisions overridden in the second experiment."""
    at_divergence: bool
    """Whether to start at the first event that differs."""
    loaded_by: tuple[LoadedBy, LoadedBy]
    """What each was loaded from, if known."""


class Shell(Protocol):
    """The application's own methods, beyond Textual's."""

    folder: Path
    keymap: Keymap

    def open_experiment(self, source: str) -> object:
        """Show an experiment in the debugger."""

    def open_study(self, source: str) -> object:
        """Show a study."""

    def open_loaded(
        self, experiment: Experiment, by: LoadedBy, at: str | None = None, routes: RouteOverrides | None = None
    ) -> object:
        """Show a loaded experiment, given what it was loaded from and the first position."""

    def loaded_by(self, screen: Screen[None]) -> LoadedBy | None:
        """Return what the experiment of a debugger was loaded from; None = unknown."""

    def reopen_experiment(self, source: str, at: str | None = None) -> object:
        """Load an experiment again, and return to the same position."""

    def show_error(self, source: str, error: BlisError, again: Callable[[], object]) -> None:
        """Show why an experiment cannot be opened, with a way to try again."""

    def open_compare(
        self, left: Experiment, right: Experiment, names: tuple[str, str], **start: Unpack[ComparedFrom]
    ) -> None:
        """Show two experiments side by side."""

    def theme_names(self) -> Iterable[str]:
        """Return the available themes."""

    def scope_of(self, screen: Screen[object]) -> str:
        """Return the scope of a screen's actions."""

    def is_usable(self, action: Action, screen: Screen[object]) -> bool:
        """Return whether a screen can currently run an action."""

    async def perform(self, action: Action, screen: Screen[object] | None = None) -> bool:
        """Run an action as if its key had been pressed."""


def shell(app: App[object]) -> Shell:
    """Return the application, which is always one of ours."""
    return cast("Shell", app)


@dataclass(frozen=True, slots=True)
class PaletteEntry:
    """An entry: ``Request: request_12``."""

    noun: str
    text: str
    run: Callable[[], object | Awaitable[object]]
    help: str = ""

    @property
    def title(self) -> str:
        """The text that is shown and searched."""
        return f"{self.noun}: {self.text}"


@runtime_checkable
class HasPalette(Protocol):
    """A screen with entries of its own, such as its requests."""

    def palette_entries(self, query: str) -> Iterable[PaletteEntry]:
        """Return the entries for a query (empty at first); a few dozen at most."""
        ...


class Commands(Provider):
    """All entries in one order: the screen's actions, its own entries, documents, themes."""

    _documents: tuple[PaletteEntry, ...] = ()

    async def startup(self) -> None:
        """Collect the names of experiments and studies, once."""
        app = self._app
        self._documents = tuple(
            PaletteEntry("Open", name, partial(app.open_experiment, name), "Open it in the debugger.")
            for name in names("Experiment", app.folder)
        ) + tuple(
            PaletteEntry("Study", name, partial(app.open_study, name), "Show its points and the front among them.")
            for name in names("Study", app.folder)
        )

    async def discover(self) -> Hits:
        """Yield the actions, which are offered before anything is typed."""
        for entry in self._actions():
            yield DiscoveryHit(entry.title, entry.run, help=entry.help or None)

    async def search(self, query: str) -> Hits:
        """Yield every match."""
        matcher = self.matcher(query)
        for entry in self._all(query):
            score = matcher.match(entry.title)
            if score > 0:
                yield Hit(score, matcher.highlight(entry.title), entry.run, text=entry.title, help=entry.help or None)

    @property
    def _app(self) -> Shell:
        return shell(self.app)

    def _all(self, query: str) -> Iterator[PaletteEntry]:
        yield from self._actions()
        if isinstance(self.screen, HasPalette):
            yield from self.screen.palette_entries(query)
        yield from self._documents
        for name in self._app.theme_names():
            yield PaletteEntry("Theme", name, partial(setattr, self.app, "theme", name))

    def _actions(self) -> Iterator[PaletteEntry]:
        app, screen = self._app, self.screen
        for scope in dict.fromkeys((app.scope_of(screen), APP)):
            for action in ACTIONS:
                if action.scope == scope and action.name != "app.palette" and app.is_usable(action, screen):
                    yield PaletteEntry(action.group, action.title, self._running(action), self._about(action))

    def _about(self, action: Action) -> str:
        keys = shown_keys(self._app.keymap.keys[action.name])
        return f"{action.help}  ({keys})" if keys else action.help

    def _running(self, action: Action) -> Callable[[], Awaitable[object]]:
        app, screen = self._app, self.screen
        return lambda: app.perform(action, screen)
