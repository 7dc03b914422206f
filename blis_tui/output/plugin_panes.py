"""Panes that plug-ins add to the debugger: functions from the debugger's view to lines of text.

Nothing here depends on the terminal: the mark is a record attached to the function, which the debugger's screen looks
up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from blis_tui.base.classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from types import ModuleType

    from blis_tui.engine.records import Record
    from blis_tui.model import Experiment

_MARK: Final = "__blis_pane__"


@dataclass(frozen=True, slots=True)
class PaneLine:
    """A line of a pane.

    Attributes:
        text: its text.
        style: a Textual style, such as ``bold`` or ``$warning``.
        event: an event that the line is about; enter goes there.
        request: a request that the line is about; enter shows its life.
    """

    text: str
    style: str = ""
    event: int | None = None
    request: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PastRecord:
    """A record of the run so far, as the debugger keeps it.

    Attributes:
        event: the number of its event.
        time_us: its simulated time.
        request: the request that it is about; empty = none.
        instance: the index of an instance; -1 = none.
        values: its figures by name (``Description.figures``), and its reason.
    """

    event: int
    time_us: int
    request: str
    instance: int
    values: Mapping[str, object]


class PaneView(Protocol):
    """What a pane may look at: the run up to the current position, and the selection."""

    @property
    def experiment(self) -> Experiment:
        """The simulated experiment."""

    @property
    def event(self) -> int:
        """The current event, from 1; 0 = before the first."""

    @property
    def time_us(self) -> int:
        """Its simulated time."""

    @property
    def request(self) -> str | None:
        """The selected request."""

    @property
    def instance(self) -> int | None:
        """The selected instance."""

    @property
    def records(self) -> tuple[Record, ...]:
        """The records of the current event so far; empty while the run plays."""

    def past_records(self, kind: str) -> Iterator[PastRecord]:
        """The records of a kind up to the current event, the latest first; one per event."""


Presenter: TypeAlias = "Callable[[PaneView, int], Iterable[PaneLine]]"
"""Returns the lines of a pane, given the view and the number of columns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginPane:
    """A plug-in's pane with its description; see :func:`pane`."""

    name: str
    about: str
    key: str
    present: Presenter
    module: str


def pane(name: str, about: str, *, key: str = "") -> Callable[[Presenter], Presenter]:
    """Mark a function as a pane of the debugger, in the lower row.

    Args:
        name: its name on the tab and in the border.
        about: what it shows, as a sentence without a full stop.
        key: the key that opens it; without one, or if the debugger already uses that key, the pane is opened by its
            tab, with tab, or from the command palette.
    """

    def mark(present: Presenter) -> Presenter:
        made = PluginPane(name=name, about=about, key=key, present=present, module=present.__module__)
        setattr(present, _MARK, made)
        return present

    return mark


def panes_in(modules: Iterable[ModuleType]) -> tuple[PluginPane, ...]:
    """Return the panes that modules define, in order of definition."""
    return tuple(
        value.__dict__[_MARK]
        for module in modules
        for value in vars(module).values()
        if getattr(value, "__module__", None) == module.__name__ and _MARK in getattr(value, "__dict__", {})
    )
