"""The description of a pane, and what the keys do with what its lines are about."""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import NamedTuple, dataclass
from blis_tui.cluster.state import FIGURES
from blis_tui.debugger.summary import WORST, kind_of, request_of
from blis_tui.debugger.why.explanation import Subject, event_ref, request_ref
from blis_tui.results.conditions.breakpoints import CHANGE, about_request, about_session
from blis_tui.results.conditions.language import quote
from blis_tui.results.conditions.vocabulary import REQUEST_FIGURES
from blis_tui.tui.view import Picked

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from textual.message import Message
    from textual.widget import Widget

    from blis_tui.model import Experiment
    from blis_tui.tui.drawing.lines import Line
    from blis_tui.tui.view import View


# ---- kinds of subjects ----


def _none(_view: View, _value: str) -> str:
    return ""


def _itself(_view: View, value: str) -> str:
    return value


class Kind(NamedTuple):
    """What the keys do with a subject of a kind, in any pane; each function is given the view and the value."""

    copy: Callable[[View, str], str] = _itself
    """Returns what ``y`` copies, unless its line says otherwise; empty = what its pane is about."""
    path: Callable[[View, str], str] = _none
    """Returns what ``Y`` copies; empty = the same as ``y``."""
    breaks: Callable[[View, str], str] = _none
    """Returns the breakpoint that ``b`` sets."""
    changes: Callable[[View, str], str] | None = None
    """Returns the breakpoint that stops where it changes; None = the same as ``breaks``."""
    explains: Callable[[View, str], Subject | None] = lambda _view, _value: None
    """Returns the event or the request that ``?`` explains; None = nothing has happened to it yet."""
    picks: Callable[[View, str, bool], Picked | None] = lambda _view, _value, _go: None
    """Returns what the cursor selects when it reaches it, and (with True) by enter or a double click."""


def session_of(view: View, request: str) -> str | None:
    """Return the session of a request; None if it belongs to none."""
    number = view.tape.number(request)
    session = None if number is None else view.tape.sessions.of_request(number)
    return None if session is None else view.tape.sessions.name(session)


def _latest_event(view: View, instance: str) -> Subject | None:
    event = view.tape.latest_on(int(instance), view.moment.event)
    return event_ref(event) if event else None


def _latest_call(view: View, session: str) -> Subject | None:
    """Return the latest call of a session; if it begins later, its first one."""
    place = view.tape.sessions.place(session)
    calls = () if place is None else view.tape.sessions.calls(place)
    sent = [call for call in calls if call.event <= view.moment.event] or calls[:1]
    return request_ref(view.tape.name(sent[-1].request)) if sent else None


def _of_event(view: View, event: str) -> str:
    """Return what stops at the events of the same request, or instance."""
    row = view.tape.row(int(event)) if int(event) else None
    if row is None or (row.request < 0 and row.instance < 0):
        return f"{CHANGE} event"
    return f"instance {row.instance}" if row.request < 0 else about_request(view.tape.name(row.request))


_PATHS: Final = {
    "waiting.count": "waiting",
    "running.count": "running",
    "kv.used_blocks": "kv.used",
    "kv.cached_free_blocks": "kv.free",
    "kv.blank_blocks": "kv.free",
    "life": "steps",
}
"""Paths below an instance -> the metric that changes with them, if it has another name."""
_OF_INSTANCE: Final = re.compile(r"instances\[(\d+)\]\.?(.*)")
_OF_REQUEST: Final = re.compile(r"requests\.(.*?)(?:\.(\w+))?", re.DOTALL)


def _of_path(path: str) -> str:
    """Return what stops where a value of the state changes, given its path."""
    instance, request = _OF_INSTANCE.fullmatch(path), _OF_REQUEST.fullmatch(path)
    if instance is not None:
        name = _PATHS.get(instance[2], instance[2])
        known = name in FIGURES and FIGURES[name].of_instance is not None
        return f"{CHANGE} instance[{instance[1]}].{name}" if known else f"instance {instance[1]}"
    if request is not None and request[1] != "*":
        if request[2] in REQUEST_FIGURES:
            return change_of_request(request[1], request[2])
        return about_request(request[1])
    return f"{CHANGE} {path}" if path in FIGURES else "step"


def change_of_request(name: str, figure: str) -> str:
    """Return what stops where a metric of a request changes."""
    return f"{CHANGE} request[{quote(name)}].{figure}"


def changes_of(view: View, subject: Subject) -> str:
    """Return the breakpoint that stops where something changes."""
    kind = KINDS[subject.kind]
    return (kind.changes or kind.breaks)(view, subject.value)


def _of_metric(view: View, path: str) -> str:
    """Return what stops where a figure of the summary changes; for the worst request, at the events of its life."""
    worst = request_of(view.summary, WORST) if path == WORST and view.summary is not None else None
    return about_request(worst) if worst else kind_of(path) or "step"


def _request_or_event(view: View, metric: str) -> Subject:
    """Return the request that a figure is of, else the present event, to which enter goes."""
    request = None if view.summary is None else request_of(view.summary, metric)
    return event_ref(view.moment.event) if request is None else request_ref(request)


KINDS: Final[Mapping[str, Kind]] = MappingProxyType(
    {
        "event": Kind(
            copy=_none,
            breaks=lambda _, value: f"event {max(int(value), 1)}",
            changes=_of_event,
            explains=lambda _, value: event_ref(int(value)),
            picks=lambda _, value, go: Picked(event=int(value), go=go),
        ),
        "request": Kind(
            path=lambda _, value: f"requests.{value}",
            breaks=lambda _, value: about_request(value),
            explains=lambda _, value: request_ref(value),
            picks=lambda _, value, go: Picked(request=value, go=go),
        ),
        "instance": Kind(
            path=lambda _, value: f"instances[{value}]",
            breaks=lambda _, value: f"instance {value}",
            changes=lambda _, value: f"{CHANGE} instance[{value}].waiting",
            explains=_latest_event,
            picks=lambda _, value, go: Picked(instance=int(value), go=go),
        ),
        "session": Kind(
            breaks=lambda _, value: about_session(value),
            explains=_latest_call,
            picks=lambda _, value, go: Picked(session=value) if go else None,
        ),
        # A request as a part of its session: enter goes to where it was sent.
        "call": Kind(
            copy=lambda view, value: session_of(view, value) or "",
            path=_itself,
            breaks=lambda view, value: about_session(session_of(view, value) or ""),
            explains=lambda _, value: request_ref(value),
            picks=lambda view, value, go: Picked(
                request=value, event=view.tape.first_event_of(value) if go else None, go=go
            ),
        ),
        # A figure of the summary, by its path in the report.
        "metric": Kind(
            path=_itself,
            breaks=lambda view, value: kind_of(value) or f"event {max(view.moment.event, 1)}",
            changes=_of_metric,
            explains=_request_or_event,
            picks=lambda _, value, go: Picked(metric=value, go=go),
        ),
        # Of these, the panes say what is explained: the value of a path, a line of the list, a warning.
        "figure": Kind(copy=_none, path=_itself, changes=lambda _, value: _of_path(value)),
        "breakpoint": Kind(copy=_none),
        "finding": Kind(copy=_none),
    }
)
"""The kinds of subjects."""


def copied(view: View, subject: Subject, value: str = "", *, path: bool) -> str:
    """Return what is copied of a subject, or of the value on its line; empty = nothing of its own."""
    kind = KINDS[subject.kind]
    return (kind.path(view, subject.value) if path else "") or value or kind.copy(view, subject.value)


# ---- panes ----


class Room(NamedTuple):
    """The room for lines, in cells."""

    width: int
    height: int


class PaneKey(NamedTuple):
    """A key that only this pane has."""

    key: str
    does: str | Callable[[View, Subject | None], Message | None]
    """An action of every pane of lines (``move(1)``); or what it sends, given the cursor. If that is nothing, the key
    does what it does on the screen."""
    title: str = ""
    """Its word in the key bar; empty = it is not shown there."""


def stays(_view: View, left: Subject | None) -> Subject | None:
    """Leave the cursor where it was left."""
    return left


def selected(_view: View, _cursor: Subject | None) -> None:
    """Leave questions and breakpoints to what is selected: the lines have no history of their own."""


def at_selected(kind: str) -> Callable[[View, Subject | None], Subject | None]:
    """Return a rule: the cursor is at the selected ``request`` or ``instance``."""

    def cursor(view: View, _left: Subject | None) -> Subject | None:
        value = getattr(view.selection, kind)
        return None if value is None else Subject(kind, str(value))

    return cursor


def pick(view: View, subject: Subject, *, go: bool) -> Picked | None:
    """Select a subject as its kind says, or go there."""
    return KINDS[subject.kind].picks(view, subject.value, go)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pane:
    """What a pane shows, and what its lines do. Only ``lines`` is needed, or a widget of its own."""

    lines: Callable[[View, Room], Sequence[Line]] = lambda _view, _room: ()
    """Returns its lines."""
    hint: Callable[[View], str] = lambda _view: ""
    """Returns keys worth knowing, for the lower border."""
    lacks: Callable[[Experiment], str] = lambda _experiment: ""
    """Returns the end of the sentence "This run has no ...", if an experiment has no such pane; empty = it has one."""
    badge: Callable[[View], int] = lambda _view: 0
    """Returns the number on its tab."""
    keys: tuple[PaneKey, ...] = ()
    """Keys that only this pane has."""
    actions: tuple[str, ...] = ()
    """Actions of the screen that need this pane."""
    cursor: Callable[[View, Subject | None], Subject | None] = stays
    """Returns where the cursor is, given where it was left."""
    anew: Callable[[View], object] = lambda _view: None
    """Returns which list the lines are; where that changes, the cursor is left nowhere."""
    points: Callable[[View, Subject | None], Subject | None] = stays
    """Returns what questions and breakpoints are about, given the cursor; None = what is selected."""
    changes: Callable[[View, Subject | None], str] = lambda _view, _cursor: ""
    """Returns the breakpoint that stops where what the cursor is on changes; empty = as its kind says."""
    picks: Callable[..., Picked | None] = pick
    """Returns what a subject selects when the cursor reaches it, or (``go``) by enter or a double click."""
    marks: Callable[[View, Subject | None], Message | None] = lambda _view, _cursor: None
    """Returns what marks the cursor's line, for keys that mark it and the next one (``mark_and_move(1)``)."""
    blocks: bool = False
    """Whether a subject has several lines, all of which the cursor marks."""
    follows_selection: bool = True
    """Whether its display depends on the selected event or request."""
    widget: type[Widget] | None = None
    """A box of its own; None = that of lines with a cursor."""


def one_instance(experiment: Experiment) -> str:
    """Return that an experiment has no panes about several instances."""
    return "" if experiment.instance_numbers > 1 or experiment.cluster.varies else ": it has one instance."
