"""Panes of plug-ins: the interface to the view, and their lines."""

from __future__ import annotations

from functools import cache, partial
from types import MappingProxyType, NoneType
from typing import TYPE_CHECKING, Final

from textual.style import Style

from blis_tui.base.classes import dataclass
from blis_tui.base.errors import in_words
from blis_tui.debugger.why.explanation import event_ref, request_ref
from blis_tui.model.plug_ins import place_in_plugin
from blis_tui.output.plugin_panes import PaneLine, PastRecord
from blis_tui.tui.drawing.lines import Line, line, words
from blis_tui.tui.panes.pane import Pane
from blis_tui.tui.settings import DARK

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from blis_tui.debugger.why.explanation import Subject
    from blis_tui.engine.records import Record
    from blis_tui.model import Experiment
    from blis_tui.output.plugin_panes import PluginPane
    from blis_tui.tui.view import View


_MOST_LINES: Final = 1000
"""Maximum number of lines taken, because a pane is redrawn at every step and may generate lines endlessly."""
_KINDS: Final[Mapping[str, tuple[type, ...]]] = MappingProxyType(
    {"text": (str,), "style": (str,), "event": (int, NoneType), "request": (str, NoneType)}
)
"""What the fields of a line may be."""


@dataclass(frozen=True, slots=True)
class Shown:
    """A :class:`blis_tui.output.plugin_panes.PaneView` of the debugger's view."""

    view: View

    @property
    def experiment(self) -> Experiment:
        """The simulated experiment."""
        return self.view.experiment

    @property
    def event(self) -> int:
        """The present event."""
        return self.view.moment.event

    @property
    def time_us(self) -> int:
        """Its simulated time."""
        return self.view.moment.time_us

    @property
    def request(self) -> str | None:
        """The selected request."""
        return self.view.selection.request

    @property
    def instance(self) -> int | None:
        """The selected instance."""
        return self.view.selection.instance

    @property
    def records(self) -> tuple[Record, ...]:
        """Records of the present event so far."""
        return self.view.moment.applied_records

    def past_records(self, kind: str) -> Iterator[PastRecord]:
        """Yield the records of a kind, the latest first."""
        tape = self.view.tape
        for event, values in tape.values_of_kind(kind, self.view.moment.settled):
            row = tape.row(event)
            yield PastRecord(
                event=event,
                time_us=row.time_us,
                request="" if row.request < 0 else tape.name(row.request),
                instance=row.instance,
                values=values,
            )


def plugin_pane_lines(pane: PluginPane, view: View, width: int, parse_style: Callable[[str], object]) -> list[Line]:
    """Return the lines of a plug-in's pane; if it raises an exception, or a line cannot be shown, what and where.

    ``parse_style`` raises an exception if a text is no style.
    """
    lines: list[Line] = []
    try:
        for pane_line in pane.present(Shown(view), width):
            _require_line(pane_line, parse_style)
            lines.append(line((pane_line.text, pane_line.style), subject=_subject(pane_line)))
            if len(lines) == _MOST_LINES:
                break
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001  (a defect of a plug-in must only cost its pane)
        text = in_words(error)
        place = place_in_plugin(error, (pane.module,))
        return [*(line(row) for row in words(text, width, "$error")), *(line(row) for row in words(place, width))]
    return lines


def _require_line(pane_line: object, parse_style: Callable[[str], object]) -> None:
    """Raise TypeError or ValueError for what would fail where it is drawn or picked."""
    if not isinstance(pane_line, PaneLine):
        raise TypeError(f"a line is {pane_line!r}, and must be a PaneLine")
    for name, kinds in _KINDS.items():
        if not isinstance(value := getattr(pane_line, name), kinds):
            raise TypeError(f"the {name} of a line is {value!r}")
    try:
        parse_style(pane_line.style)
    except Exception as error:
        raise ValueError(f"the style of a line is {pane_line.style!r}, which is none of Textual's") from error


def _subject(pane_line: PaneLine) -> Subject | None:
    if pane_line.event is not None:
        return event_ref(pane_line.event)
    return None if pane_line.request is None else request_ref(pane_line.request)


@cache
def _variables() -> dict[str, str]:
    """Return the variables that a style may name: every theme has the same ones."""
    return {**DARK.to_color_system().generate(), **DARK.variables}


def pane_of(pane: PluginPane) -> Pane:
    """Return a plug-in's pane; its lines about events and requests can be selected."""
    parse_style = partial(Style.parse, variables=_variables())
    return Pane(lines=lambda view, room: plugin_pane_lines(pane, view, room.width, parse_style))
