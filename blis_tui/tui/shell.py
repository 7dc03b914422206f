"""What screens and commands ask of the application around them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, cast

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


class Shell(Protocol):
    """The application, as far as it is more than Textual's."""

    folder: Path
    keymap: Keymap

    def open_experiment(self, source: str) -> object:
        """Show an experiment in the debugger."""

    def open_study(self, source: str) -> object:
        """Show a study."""

    def open_loaded(self, experiment: Experiment, source: str, overrides: tuple[str, ...], seed: int) -> object:
        """Show an experiment that is loaded already: what it was loaded by, and with which values."""

    def reopen_experiment(self, source: str, at: str | None = None) -> object:
        """Read an experiment again, and go to where one was."""

    def show_error(self, source: str, error: BlisError, again: Callable[[], object]) -> None:
        """Say why an experiment cannot be opened, with a way to try again."""

    def open_compare(
        self,
        left: Experiment,
        right: Experiment,
        names: tuple[str, str],
        event: int | None = None,
        time_us: int | None = None,
        routes: Routes | None = None,
        *,
        at_divergence: bool = False,
    ) -> None:
        """Show two experiments side by side, at an event, a time or where they part; the other perhaps rerouted."""

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
