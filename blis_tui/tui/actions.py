"""All user actions in one table, from which footer, help, command palette, rebinding and documentation derive.

An action ``step.event`` of the scope ``debugger`` is handled by the method ``action_step_event`` of that screen, unless
the table names another one; actions of the scope ``app`` by the application. A screen has its scope as ``SCOPE`` and
``BINDINGS = bindings(SCOPE)``.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from textual.binding import Binding
from textual.keys import format_key

from blis_tui.base.classes import dataclass
from blis_tui.tui.panes import PANES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from textual.binding import BindingType

APP: Final = "app"
"""Scope of the actions available on every screen."""
DIALOG: Final = "dialog"
"""Scope of the actions of dialogs; no other action works while a dialog is open."""
_SHOWN: Final = MappingProxyType({"enter": "enter", "backspace": "bksp"})
"""Names of keys whose usual glyphs are missing in many fonts."""
_FIXED: Final = "app.quit"
"""The only action that works regardless of the focus."""


@dataclass(frozen=True, slots=True)
class Action:
    """A user action."""

    name: str
    """Dotted name: a noun and a verb. Users rebind keys by it."""
    keys: tuple[str, ...]
    """Default keys: characters, or Textual's names; empty = only in the command palette."""
    title: str
    """A short title for lists."""
    help: str
    """A sentence of help."""
    group: str
    """Its heading in the help."""
    scope: str
    """The screen: ``app``, ``home``, ``debugger``, ``compare``, ``twin``, ``observing``, ``goldens``, ``study``,
    ``why``, ``whatif``, ``printed``, ``error`` or ``dialog``."""
    footer: str = ""
    """Its word in the key bar; empty = not shown there."""
    does: str = ""
    """A handler shared by several actions, with its parameters: ``pane_show('kv')``; empty = see ``handler``."""

    @property
    def handler(self) -> str:
        """Textual's name of the action; its method has the prefix ``action_``."""
        return self.does or self.name.replace(".", "_")


def _showing(pane: str) -> str:
    """Return the handler that goes to a pane."""
    return f"pane_show('{pane}')"


_STEP, _RUN, _GO = "Step", "Run", "Go"
_BREAK, _LOOK, _PANES = "Breakpoints", "Look", "Panes"
_COPY, _FILE, _APP, _DIALOG = "Copy and export", "Experiment", "Everywhere", "Windows"
_OPEN, _LIST, _DECIDE = "Open", "List", "Decide"

_TABLE: Final[Mapping[str, tuple[tuple[str, ...], ...]]] = {
    APP: (
        ("app.help", "h f1", "help", "Show the keys of this screen and run one.", _APP, "help"),
        ("app.palette", ": ctrl+p", "commands", "Type a command or what to go to, or find it.", _APP, "commands"),
        ("goldens.open", "G", "goldens", "Review golden results; accept or reject new ones.", _APP),
        ("app.printed", "p", "plug-in output", "Show what plug-ins have printed.", _APP),
        ("app.theme", "", "choose a theme", "Choose a colour theme; the choice is saved.", _APP),
        ("app.back", "q", "back", "Leave this screen; quit if it is the first.", _APP, "back"),
        ("app.quit", "ctrl+q", "quit", "Leave blis-tui from anywhere.", _APP),
    ),
    "home": (
        ("home.open", "enter", "open", "Open the experiment under the cursor.", _OPEN, "open"),
        ("home.search", "/", "search", "Type part of a name to narrow the list.", _LIST, "search"),
        ("home.edit", "e", "edit", "Edit the file in your editor, at the first problem.", _FILE, "edit"),
        ("home.new", "n", "new", "Write a new experiment with every key explained.", _FILE, "new"),
        ("home.mark", "space", "mark", "Mark an experiment for comparison.", _LIST, "mark"),
        ("home.compare", "v", "compare", "Compare two marked ones, or this one with a change.", _OPEN, "compare"),
        ("home.reload", "r", "reload", "Search for experiments and check them again.", _LIST, "reload"),
    ),
    "debugger": (
        ("step.event", "n", "next event", "Process the next event.", _STEP, "event"),
        ("step.phase", "s", "next phase", "Advance to the next phase of an engine step.", _STEP, "phase"),
        ("step.batch", "f", "finish batch", "Run until the current step is done.", _STEP, "batch"),
        ("step.back", "[", "event back", "Go back one event.", _STEP, "back"),
        ("step.forward", "]", "event forward", "Go forward one event.", _STEP),
        ("step.back_phase", "{", "phase back", "Go back one phase.", _STEP),
        ("step.forward_phase", "}", "phase forward", "Go forward one phase.", _STEP),
        ("step.back_batch", "F", "batch back", "Go back to where the current step began.", _STEP),
        ("run.toggle", "c space", "run or pause", "Play at the set speed until a breakpoint, or pause.", _RUN, "run"),
        ("ask.why", "?", "why", "Explain what this request or event did, and why.", _LOOK, "why"),
        ("run.to_cursor", "t", "run to cursor", "Go to the event under the cursor.", _RUN),
        ("run.to_end", "end", "to the end", "Go to the last event.", _RUN),
        ("run.to_start", "home", "to the start", "Go to the start, before the first event.", _RUN),
        ("run.back_to_breakpoint", "ctrl+r", "back to breakpoint", "Go back to the last breakpoint hit.", _RUN),
        ("run.to_breakpoint", "r", "to next breakpoint", "Run at full speed to the next breakpoint hit.", _RUN),
        ("run.slower", "<", "slower", "Play at half the speed.", _RUN),
        ("run.faster", ">", "faster", "Play at twice the speed.", _RUN),
        ("run.speed_mode", "=", "speed unit", "Set the speed in events per second or simulated time.", _RUN),
        ("run.stop", "escape", "stop", "Stop what is running.", _RUN),
        ("go.to", "g", "go to", "Go to a time, an event or a request.", _GO, "go to"),
        ("go.time_back", "m", "back 100 ms", "Go back 100 ms of simulated time.", _GO),
        ("go.time_forward", "M", "forward 100 ms", "Go forward 100 ms of simulated time.", _GO),
        ("go.time_back_more", "o", "back 1 s", "Go back 1 s of simulated time.", _GO),
        ("go.time_forward_more", "O", "forward 1 s", "Go forward 1 s of simulated time.", _GO),
        ("go.last_change", "(", "last change", "Go back to the last change of what the cursor is on.", _GO),
        ("go.next_change", ")", "next change", "Go to the next change of what the cursor is on.", _GO),
        ("go.worst", "L", "worst request", "Go to the event of the run's worst request.", _GO),
        ("go.warning", "!", "first warning", "Go to the event that the first warning is about.", _GO),
        ("go.back_in_history", "backspace", "previous place", "Go back to where you were before.", _GO),
        ("break.toggle", "b", "breakpoint", "Set or remove a breakpoint here.", _BREAK, "break"),
        ("break.edit", "B", "conditional breakpoint", "Set a breakpoint with a condition.", _BREAK),
        ("break.watch", "w", "watch", "Watch a metric while you step.", _BREAK),
        ("break.print", "$", "print values", "Print an expression at each hit of a breakpoint.", _BREAK),
        ("break.list", "ctrl+b", "all breakpoints", "List, enable, disable and delete breakpoints.", _BREAK),
        ("moment.keep", "k", "keep moment", "Keep the present event, with a name and a note.", _BREAK),
        ("ask.whatif", "i", "what if", "Replay the run with this request routed elsewhere.", _LOOK),
        ("look.rank", "l", "rank requests", "Rank the requests; press again for the next metric.", _LOOK),
        ("look.mark", "*", "mark request", "Mark a request of the ranking, or unmark it.", _LOOK),
        ("look.measure", "u", "fleet metric", "Show the fleet; press again for the next metric.", _LOOK),
        ("look.arrivals", "a", "arrivals", "Show arrivals by client or tenant on the timeline.", _LOOK),
        ("look.diff", "d", "what changed", "Show what the last step changed.", _LOOK, "changes"),
        ("look.filter", "/", "filter", "Show only the events that match.", _LOOK, "filter"),
        ("look.next_hit", ".", "next match", "Go to the next event that matches.", _LOOK),
        ("look.previous_hit", ",", "previous match", "Go to the previous event that matches.", _LOOK),
        *(
            (
                f"pane.{pane.id}",
                pane.key,
                f"pane {pane.key}: {pane.name}",
                f"{pane.about}.",
                _PANES,
                "",
                _showing(pane.id),
            )
            for pane in PANES
        ),
        ("view.undo", "z", "view back", "Show the panes as they were before.", _PANES),
        ("view.redo", "Z", "view forward", "Show the panes as they were before going back.", _PANES),
        ("pane.next", "tab", "next pane", "Go to the next pane.", _PANES),
        ("pane.bigger", "+", "bigger", "Give this pane more of the screen.", _PANES),
        ("pane.smaller", "_", "smaller", "Give this pane less of the screen.", _PANES),
        ("pane.jump", "ctrl+o", "jump", "Show a letter on each pane and tab; press one.", _PANES),
        ("copy.value", "y", "copy value", "Copy the selected value.", _COPY),
        ("copy.path", "Y", "copy path", "Copy the path of the selected value.", _COPY),
        ("copy.command", "C", "copy command", "Copy the command that opens what the cursor is on.", _COPY),
        ("copy.yaml", "ctrl+y", "copy as YAML", "Copy the event or request at the cursor as YAML.", _COPY),
        ("export.open", "x", "export", "Write the report, the records or a picture to a file.", _COPY),
        ("spec.edit", "e", "edit", "Edit the experiment in your editor and reload it.", _FILE),
        ("compare.open", "v", "compare", "Compare this run with a changed value.", _FILE),
    ),
    "compare": (
        ("compare.event", "n", "next event", "Process the next event on either side.", _STEP, "event"),
        ("compare.step", "s f", "next step", "Run until one side has finished a step.", _STEP, "step"),
        (
            "compare.divergence",
            "D",
            "first divergence",
            "Go to the first event at which the two runs differ.",
            _GO,
            "diff",
        ),
        ("compare.back", "[", "event back", "Go back one event.", _STEP, "back"),
        ("compare.toggle", "c space", "run or pause", "Run both sides at full speed, or pause.", _RUN, "run"),
        ("compare.to_end", "end", "to the end", "Go to the end of both runs.", _RUN),
        ("compare.to_start", "home", "to the start", "Go to the start, before the first event.", _RUN),
        ("compare.stop", "escape", "stop", "Stop what is running.", _RUN),
        ("compare.go_to", "g", "go to", "Go to a time or an event on both sides.", _GO, "go to"),
        ("compare.why", "?", "why", "Explain this side's latest event, or the request.", _LOOK, "why"),
        ("compare.side", "tab", "other side", "Go to the other side, then to the tables.", _PANES, "side"),
        ("compare.open_side", "enter", "open side", "Open this side in the debugger.", _OPEN, "open"),
        ("compare.export", "x", "export", "Write the comparison as text to a file.", _COPY),
    ),
    "twin": (
        ("twin.step", "n s", "next step", "Go to the start of the next step on either side.", _STEP, "step"),
        ("twin.back", "[", "step back", "Go back to the start of a step on either side.", _STEP, "back"),
        (
            "twin.divergence",
            "D",
            "first divergence",
            "Go to the first step at which the two sides diverge.",
            _GO,
            "diff",
        ),
        ("twin.times", "t", "step times", "Simulate with more of the measured times.", _RUN, "times"),
        ("twin.toggle", "c space", "play or pause", "Play, or pause.", _RUN, "play"),
        ("twin.go_to", "g", "go to", "Go to a time, a step or a request.", _GO, "go to"),
        ("twin.time_back", "m", "back 100 ms", "Go back 100 ms.", _GO),
        ("twin.time_forward", "M", "forward 100 ms", "Go forward 100 ms.", _GO),
        ("twin.time_back_more", "o", "back 1 s", "Go back 1 s.", _GO),
        ("twin.time_forward_more", "O", "forward 1 s", "Go forward 1 s.", _GO),
        ("twin.to_end", "end", "to the end", "Go to the end of both sides.", _RUN),
        ("twin.to_start", "home", "to the start", "Go to the beginning.", _RUN),
        ("twin.side", "tab", "next box", "Go to the other side, then to the tables.", _PANES, "box"),
        ("twin.open_side", "enter", "debug", "Open the simulation in the debugger, at this time.", _OPEN, "debug"),
        ("twin.export", "x", "export", "Write what is shown as text to a file.", _COPY),
    ),
    "observing": (
        ("observing.stop", "escape s", "stop", "Stop sending, and write what has been recorded.", _RUN, "stop"),
    ),
    "goldens": (
        ("golden.accept", "a", "accept", "Make the waiting result the golden.", _DECIDE, "accept"),
        ("golden.reject", "r", "reject", "Discard the waiting result.", _DECIDE, "reject"),
        ("golden.accept_all", "A", "accept all", "Accept every waiting result listed.", _DECIDE),
        ("golden.reject_all", "R", "reject all", "Discard every waiting result listed.", _DECIDE),
        ("golden.compare", "v enter", "compare", "Open both runs at the first event that differs.", _OPEN, "compare"),
        ("golden.why", "?", "why", "Explain the state of this test.", _OPEN, "why"),
        ("golden.check", "c", "check", "Run this test now and compare.", _OPEN, "check"),
        ("golden.stop", "escape", "stop", "Stop the check, or leave the search.", _OPEN),
        ("golden.search", "/", "search", "Type part of a name to narrow the list.", _LIST, "search"),
        ("golden.reload", "u", "reload", "Reload the goldens.", _LIST),
    ),
    "study": (
        ("study.open", "enter", "open", "Open this point in the debugger.", _OPEN, "open"),
        ("study.seed", "o", "open with a seed", "Open this point with another of its seeds.", _OPEN),
        ("study.compare", "v", "compare", "Compare two points where their runs diverge.", _OPEN, "compare"),
        ("study.run", "c", "run or stop", "Make the missing runs, or stop.", _RUN, "run"),
        ("study.stop", "escape", "stop", "Stop the sweep, or leave the filter.", _RUN),
        ("study.mark", "space", "mark", "Mark a point for comparison.", _LIST, "mark"),
        ("study.search", "/", "filter", "Show only the points that match.", _LIST, "filter"),
        ("study.why", "?", "why", "Explain where this point stands.", _OPEN, "why"),
        ("study.sort", "s", "sort", "Sort by the next column.", _LIST, "sort"),
        ("study.reverse", "r", "reverse", "Reverse the order.", _LIST),
        ("study.export", "x", "export", "Write the rows or a picture to a file.", _COPY, "export"),
    ),
    "error": (
        ("error.edit", "e", "edit", "Edit the file at the first problem, then try again.", _FILE, "edit"),
        ("error.retry", "r", "try again", "Load the experiment again.", _FILE, "try again"),
    ),
    "why": (
        ("why.follow", "enter", "explain this", "Explain the selected request or event.", _LOOK, "explain"),
        ("why.next", "tab right", "next mention", "Select the next request or event.", _LOOK, "next"),
        ("why.previous", "shift+tab left", "previous mention", "Select the previous one.", _LOOK),
        ("why.back", "backspace", "back", "Show the previous explanation.", _LOOK, "back"),
        ("why.go", "g", "go there", "Go to the selected item, or to the one explained.", _GO, "go there"),
        ("why.copy", "y", "copy", "Copy the explanation as text.", _COPY, "copy"),
        ("why.close", "escape ?", "close", "Close the explanation.", _DIALOG, "close"),
    ),
    "whatif": (
        (
            "whatif.compare",
            "enter D",
            "compare",
            "Show both runs side by side where they diverge.",
            _OPEN,
            "side by side",
        ),
        ("whatif.copy", "y", "copy", "Copy the answer as text.", _COPY, "copy"),
        ("whatif.close", "escape i", "close", "Close the answer; a replay in progress stops.", _DIALOG, "close"),
    ),
    "printed": (
        ("printed.copy", "y", "copy", "Copy the lines.", _COPY, "copy"),
        ("printed.export", "x", "export", "Write the lines to a file.", _COPY, "export"),
        ("printed.close", "escape", "close", "Close the window.", _DIALOG, "close"),
    ),
    DIALOG: (("dialog.close", "escape", "close", "Close this window.", _DIALOG, "close"),),
}
"""Scope -> for each action: name, keys, title, sentence, group, and optionally its word in the key bar and its handler.
"""


def _action(
    scope: str, name: str, keys: str, title: str, about: str, group: str, footer: str = "", does: str = ""
) -> Action:
    return Action(name, tuple(keys.split()), title, about, group, scope, footer, does)


ACTIONS: Final = tuple(_action(scope, *row) for scope, rows in _TABLE.items() for row in rows)

_BY_NAME: Final[Mapping[str, Action]] = MappingProxyType({action.name: action for action in ACTIONS})


def named(name: str) -> Action:
    """Return the action with a name. Raises KeyError."""
    return _BY_NAME[name]


def of_scope(scope: str) -> Iterator[Action]:
    """Return the actions of a screen, in the table's order."""
    return (action for action in ACTIONS if action.scope == scope)


def bindings(scope: str) -> list[BindingType]:
    """Return the key bindings of a screen or the application; each has the action's name as its id, for rebinding."""
    return [
        Binding(
            key=textual_keys(action.keys),
            action=action.handler,
            description=action.footer or action.title,
            tooltip=action.help,
            show=bool(action.footer),
            id=action.name,
            priority=action.name == _FIXED,
        )
        for action in of_scope(scope)
        if action.keys
    ]


def textual_keys(keys: tuple[str, ...]) -> str:
    """Return several keys as one text, in the form of Textual's bindings and keymaps."""
    return ",".join("comma" if key == "," else key for key in keys)


def shown_key(key: str) -> str:
    """Return the display form of a key: ``^p`` for ``ctrl+p``, ``?`` for ``question_mark``."""
    if len(key) == 1:
        return key
    *modifiers, last = key.split("+")
    ctrl = "^" if "ctrl" in modifiers else ""
    others = "".join(f"{modifier}+" for modifier in modifiers if modifier != "ctrl")
    return others + ctrl + _SHOWN.get(last, format_key(last))


def shown_keys(keys: tuple[str, ...]) -> str:
    """Return the display form of several keys."""
    return " ".join(shown_key(key) for key in keys)
