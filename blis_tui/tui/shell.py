"""What screens and commands ask of the application around them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypedDict, Unpack, cast

from blis_tui.classes import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from textual.app import App
    from textual.screen import Screen

    from blis_tui.cluster.reroute import Routes
    from blis_tui.errors import BlisError
    from blis_tui.spec.model import Experiment
    from blis_tui.tui.actions import Action
    from blis_tui.tui.settings import Keymap


class LoadedBy(NamedTuple):
    """What an experiment was loaded by, and can be again."""

    source: str
    """Its name or path, as the user said it."""
    overrides: tuple[str, ...] = ()
    """What of the document was overridden, as ``--set`` says it."""
    seed: int | None = None


class ComparedFrom(TypedDict, total=False):
    """Where a comparison of two experiments starts, which is at the beginning if nothing is said; and what they are."""

    event: int | None
    time_us: int | None
    routes: Routes | None
    """Routing decisions that are overruled in the second one."""
    at_divergence: bool
    """At the first event that differs."""
    loaded_by: tuple[LoadedBy, LoadedBy]
    """What each was loaded by, if it is known."""


class Shell(Protocol):
    """The application, as far as it is more than Textual's."""

    folder: Path
    keymap: Keymap

    def open_experiment(self, source: str) -> object:
        """Show an experiment in the debugger."""

    def open_study(self, source: str) -> object:
        """Show a study."""

    def open_loaded(
        self, experiment: Experiment, by: LoadedBy, at: str | None = None, routes: Routes | None = None
    ) -> object:
        """Show an experiment that is loaded already: what it was loaded by, and where to go first."""

    def loaded_by(self, screen: Screen[None]) -> LoadedBy | None:
        """What the experiment of a debugger was loaded by; None = that is not known."""

    def reopen_experiment(self, source: str, at: str | None = None) -> object:
        """Read an experiment again, and go to where one was."""

    def show_error(self, source: str, error: BlisError, again: Callable[[], object]) -> None:
        """Say why an experiment cannot be opened, with a way to try again."""

    def open_compare(
        self, left: Experiment, right: Experiment, names: tuple[str, str], **start: Unpack[ComparedFrom]
    ) -> None:
        """Show two experiments side by side."""

    def theme_names(self) -> Iterable[str]:
        """The themes to choose from."""

    def scope_of(self, screen: Screen[object]) -> str:
        """The scope of a screen's actions."""

    def is_usable(self, action: Action, screen: Screen[object]) -> bool:
        """Whether a screen can run an action at present."""

    async def perform(self, action: Action, screen: Screen[object] | None = None) -> bool:
        """Run an action as if its key had been pressed."""


def shell(app: App[object]) -> Shell:
    """The application, which is always one of ours."""
    return cast("Shell", app)
