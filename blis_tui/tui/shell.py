"""The interface of the application for screens and commands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypedDict, Unpack, cast

from blis_tui.base.classes import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
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
