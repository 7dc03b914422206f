"""An HTML page that steps through a part of a run: the debugger's panes at each event, and explanations.

The page does not simulate. It contains the texts of the panes for each event, of which the script shows one set at a
time. A line shared by many events is stored once.
"""

from __future__ import annotations

import json
from html import escape
from importlib.resources import files
from itertools import pairwise
from string import Template
from typing import TYPE_CHECKING, Final

from blis_tui.base.errors import InputError
from blis_tui.base.text import printable
from blis_tui.base.units import count_text, plural, time_text
from blis_tui.debugger.debugger import Debugger
from blis_tui.debugger.history import run_to_stop
from blis_tui.debugger.why.explain import explain
from blis_tui.debugger.why.explanation import Subject, event_ref, request_ref
from blis_tui.tui.debug_session import DebugSession
from blis_tui.tui.drawing.why import explanation_page, mention_of
from blis_tui.tui.panes.changes import diff_lines
from blis_tui.tui.panes.events import event_line, event_text
from blis_tui.tui.panes.instances import instances_lines
from blis_tui.tui.panes.request import inspector_lines, subject
from blis_tui.tui.settings import DARK, LIGHT

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from textual.content import Content
    from textual.theme import Theme

    from blis_tui.debugger.places import Place
    from blis_tui.model import Experiment
    from blis_tui.tui.view import View

PANES: Final = ("instances", "why this event", "request", "why the request", "changes")
"""The panes beside the list of events."""
_WIDTH: Final = 72
"""Width of a pane, in cells."""
_ROOM: Final = 40
"""Maximum number of a queue's requests shown."""
_COLOURS: Final = (
    "primary",
    "secondary",
    "accent",
    "success",
    "warning",
    "error",
    "foreground",
    "background",
    "surface",
)


class _Lines:
    """The distinct lines of all panes, numbered."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def numbers(self, lines: Iterable[str]) -> list[int]:
        """Return the numbers of lines, numbering new ones."""
        return [self._numbers.setdefault(line, len(self._numbers)) for line in lines]

    @property
    def all(self) -> list[str]:
        """Return all lines in the order of their numbers."""
        return list(self._numbers)


def step_page(
    experiment: Experiment,
    source: str,
    *,
    place: Place | None = None,
    events: int = 200,
) -> str:
    """Return the whole file.

    Args:
        experiment: the experiment.
        source: the user's name for it, for the command that opens the same position in the debugger.
        place: the position in the middle; None = the end of the run.
        events: number of events.

    Raises:
        InputError: the run has no such place.
        SimulationError: it cannot go on.
    """
    opened = event_at(experiment, place)
    session = DebugSession(experiment)
    debugger = session.debugger
    run_to_stop(debugger.seek(max(0, opened - (events if place is None else events // 2))))
    lines = _Lines()
    states: list[Mapping[str, object]] = []
    while len(states) < events and debugger.step():
        session.moved()
        states.append(_state(session, lines))
    data = {"lines": lines.all, "states": states, "panes": PANES, "opened": opened}
    shown = f"events {count_text(debugger.event - len(states) + 1)} to {count_text(debugger.event)}"
    end = ", the end of the run" if debugger.at_end else ""
    about = f"seed {experiment.seed} · {shown}{end} · state {debugger.digest()[:12]}"
    return _page(printable(experiment.name), about, f"blis-tui tui {printable(source)} --at {opened}", data)


def event_at(experiment: Experiment, place: Place | None) -> int:
    """Return the event of a place, or the last one. Raises InputError if the run has no such place."""
    debugger = Debugger(experiment)
    stop = run_to_stop(debugger.to_end() if place is None else place.move(debugger))
    if place is not None and stop.reason == "unknown":
        raise InputError(f"the run has no request `{printable(place.request or '')}`")
    if place is not None and not place.end and stop.reason != "there":
        raise InputError(f"the run ends after {plural(debugger.event, 'event')}, at {time_text(debugger.time_us)}")
    return debugger.event


def _state(session: DebugSession, lines: _Lines) -> Mapping[str, object]:
    view = session.view()
    event = view.moment.event
    line = event_line(view.tape, event)
    return {
        "event": event,
        "time": time_text(view.moment.time_us),
        "sign": line.look.sign,
        "colour": line.look.colour,
        "text": printable(event_text(view.tape, event)),
        "panes": [lines.numbers(pane) for pane in _panes(session, view)],
    }


def _panes(session: DebugSession, view: View) -> Iterable[Sequence[str]]:
    """Yield the lines of each of `PANES`, as HTML."""
    name = subject(view)
    yield [_html(line.draw()) for line in instances_lines(view, _WIDTH, _ROOM)]
    yield _why(session, event_ref(view.moment.event))
    yield [] if name is None else [_html(line.draw()) for line in inspector_lines(view, _WIDTH, {})]
    yield [] if name is None else _why(session, request_ref(name))
    yield [_html(diff_line.draw()) for diff_line in diff_lines(view.moment, _WIDTH, playing=False)]


def _why(session: DebugSession, about: Subject) -> list[str]:
    explanation = explain(session.debugger, about)
    if explanation is None:
        return []
    page = explanation_page(explanation, _WIDTH)
    refs = [mention.ref for mention in page.mentions]
    return [_html(line, refs) for line in page.lines]


def _html(content: Content, refs: Sequence[Subject] = ()) -> str:
    """Return a line of a pane as HTML: colours as classes, references to events as links."""
    text = content.plain
    edges = sorted({0, len(text), *(edge for span in content.spans for edge in span[:2] if edge < len(text))})
    pieces = []
    for start, end in pairwise(edges):
        styles = [span.style for span in content.spans if span.start <= start < span.end]
        piece = escape(printable(text[start:end]))
        classes = " ".join(
            dict.fromkeys(word for style in styles if isinstance(style, str) for word in _classes(style))
        )
        if classes:
            piece = f"<b class='{classes}'>{piece}</b>"
        number = next((mentioned for mentioned in map(mention_of, styles) if mentioned is not None), None)
        if number is not None and number < len(refs) and refs[number].kind == "event":
            piece = f"<a href='#{int(refs[number].value)}'>{piece}</a>"
        pieces.append(piece)
    return "".join(pieces)


def _classes(style: str) -> Iterable[str]:
    """Return the classes for one of Textual's styles, such as ``bold $warning``; backgrounds are ignored."""
    foreground = style.partition("on ")[0]
    return (word.lstrip("$") for word in foreground.split() if word.lstrip("$").replace("-", "").isalpha())


def _page(name: str, about: str, command: str, data: Mapping[str, object]) -> str:
    # A name with a closing tag must not end the script.
    embedded = json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    return Template(_file("step_page.html")).substitute(
        title=escape(name),
        about=escape(about),
        command=escape(command),
        light=_variables(LIGHT),
        dark=_variables(DARK),
        style=_file("step_page.css"),
        script=_file("step_page.js"),
        data=embedded,
    )


def _variables(theme: Theme) -> str:
    known = {name: getattr(theme, name) for name in _COLOURS} | {"text-muted": theme.variables["text-muted"]}
    return " ".join(f"--{name}: {value};" for name, value in known.items())


def _file(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")
