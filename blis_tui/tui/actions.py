"""What the user can do, as one table: footer, help, command palette, rebinding and documentation derive from it.

An action ``step.event`` of the scope ``debugger`` is handled by the method ``action_step_event`` of that screen; those
of the scope ``app`` by the application. A screen names its scope as ``SCOPE`` and has ``BINDINGS = bindings(SCOPE)``.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from textual.binding import Binding
from textual.keys import format_key

from blis_tui.tui.layout import PANES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from textual.binding import BindingType

APP: Final = "app"
"""Scope of the actions that every screen has."""
DIALOG: Final = "dialog"
"""Scope of the actions of small windows above a screen; nothing else works while one is open."""
_SHOWN: Final = MappingProxyType({"enter": "enter", "backspace": "bksp"})
"""Keys whose usual glyphs many fonts lack."""
_FIXED: Final = "app.quit"
"""The only action that works whatever has the focus."""


@dataclass(frozen=True, slots=True)
class Action:
    """One thing the user can do."""

    name: str
    """Dotted: a noun and a verb. Users rebind by it."""
    keys: tuple[str, ...]
    """Default keys: characters, or Textual's names; none = only in the command palette."""
    title: str
    """A few words, for lists."""
    help: str
    """One sentence."""
    group: str
    """Heading in the help."""
    scope: str
    """The screen: ``app``, ``home``, ``debugger``, ``compare``, ``goldens``, ``why``, ``error`` or ``dialog``."""
    footer: str = ""
    """One word for the line of keys; empty = not shown there."""

    @property
    def handler(self) -> str:
        """Name of the action as Textual knows it; its method has ``action_`` before it."""
        return self.name.replace(".", "_")


_STEP, _RUN, _GO = "Step", "Run", "Go"
_BREAK, _LOOK, _PANES = "Breakpoints", "Look", "Panes"
_COPY, _FILE, _APP, _DIALOG = "Copy and export", "Experiment", "Everywhere", "Windows"
_OPEN, _LIST, _DECIDE = "Open", "List", "Decide"

ACTIONS: Final[tuple[Action, ...]] = (
    # ---- everywhere ----
    Action("app.help", ("h", "f1"), "help", "Show the keys of this screen and run one.", _APP, "app", "help"),
    Action("app.palette", ("ctrl+p",), "commands", "Find a command by its name.", _APP, "app", "commands"),
    Action("goldens.open", ("G",), "goldens", "Look at golden results; accept or reject new ones.", _APP, "app"),
    Action("app.theme", (), "choose a theme", "Choose the colours; the choice is saved.", _APP, "app"),
    Action("app.back", ("q",), "back", "Leave this screen; on the first one, quit.", _APP, "app", "back"),
    Action("app.quit", ("ctrl+q",), "quit", "Leave blis-tui from anywhere.", _APP, "app"),
    # ---- home ----
    Action("home.open", ("enter",), "open", "Open the experiment under the cursor.", _OPEN, "home", "open"),
    Action("home.search", ("/",), "search", "Type part of a name to narrow the list.", _LIST, "home", "search"),
    Action("home.edit", ("e",), "edit", "Edit the file in your editor, at the first problem.", _FILE, "home", "edit"),
    Action("home.new", ("n",), "new", "Write a new experiment with every key explained.", _FILE, "home", "new"),
    Action("home.mark", ("space",), "mark", "Mark an experiment to compare it.", _LIST, "home", "mark"),
    Action(
        "home.compare",
        ("v",),
        "compare",
        "Compare two marked ones, or this one with a change.",
        _OPEN,
        "home",
        "compare",
    ),
    Action("home.reload", ("r",), "reload", "Look for experiments and check them again.", _LIST, "home", "reload"),
    # ---- debugger ----
    Action("step.event", ("n",), "next event", "Process the next event.", _STEP, "debugger", "event"),
    Action(
        "step.phase", ("s",), "next phase", "Go on to the next phase of an engine step.", _STEP, "debugger", "phase"
    ),
    Action("step.batch", ("f",), "finish batch", "Run until the current step is done.", _STEP, "debugger", "batch"),
    Action("step.back", ("[",), "event back", "Go back one event.", _STEP, "debugger", "back"),
    Action("step.forward", ("]",), "event forward", "Go forward one event.", _STEP, "debugger"),
    Action("step.back_phase", ("{",), "phase back", "Go back one phase.", _STEP, "debugger"),
    Action("step.forward_phase", ("}",), "phase forward", "Go forward one phase.", _STEP, "debugger"),
    Action("step.back_batch", ("F",), "batch back", "Go back to where the current step began.", _STEP, "debugger"),
    Action(
        "run.toggle",
        ("c", "space"),
        "run or pause",
        "Play, at the speed set, until a breakpoint; or pause.",
        _RUN,
        "debugger",
        "run",
    ),
    Action("run.to_cursor", ("t",), "run to cursor", "Go to the event under the cursor.", _RUN, "debugger"),
    Action("run.to_end", ("end",), "to the end", "Go to the last event.", _RUN, "debugger"),
    Action("run.to_start", ("home",), "to the start", "Go to before the first event.", _RUN, "debugger"),
    Action(
        "run.back_to_breakpoint",
        ("ctrl+r",),
        "back to breakpoint",
        "Go back to the last breakpoint hit.",
        _RUN,
        "debugger",
    ),
    Action(
        "run.to_breakpoint",
        ("r",),
        "to next breakpoint",
        "Run at full speed to the next breakpoint hit.",
        _RUN,
        "debugger",
    ),
    Action("run.slower", ("<",), "slower", "Play at half the speed.", _RUN, "debugger"),
    Action("run.faster", (">",), "faster", "Play at twice the speed.", _RUN, "debugger"),
    Action(
        "run.speed_mode",
        ("=",),
        "unit of speed",
        "Set the speed in events per second or simulated time.",
        _RUN,
        "debugger",
    ),
    Action("run.stop", ("escape",), "stop", "Stop what is running.", _RUN, "debugger"),
    Action("go.to", ("g",), "go to", "Go to a time, an event or a request.", _GO, "debugger", "go to"),
    Action("go.time_back", ("m",), "time back", "Go back 100 ms of simulated time.", _GO, "debugger"),
    Action("go.time_forward", ("M",), "time forward", "Go forward 100 ms of simulated time.", _GO, "debugger"),
    Action("go.time_back_more", ("o",), "time back, far", "Go back a second of simulated time.", _GO, "debugger"),
    Action(
        "go.time_forward_more", ("O",), "time forward, far", "Go forward a second of simulated time.", _GO, "debugger"
    ),
    Action("go.back_in_history", ("backspace",), "where I was", "Go back to where you were before.", _GO, "debugger"),
    Action("break.toggle", ("b",), "breakpoint", "Set or remove a breakpoint here.", _BREAK, "debugger", "break"),
    Action("break.edit", ("B",), "breakpoint with condition", "Write a breakpoint's condition.", _BREAK, "debugger"),
    Action("break.watch", ("w",), "watch", "Watch a figure while you step.", _BREAK, "debugger"),
    Action("break.list", ("ctrl+b",), "all breakpoints", "List, switch and delete breakpoints.", _BREAK, "debugger"),
    Action("ask.why", ("?",), "why", "Explain what this request or event did, and why.", _LOOK, "debugger", "why"),
    Action(
        "look.rank",
        ("l",),
        "rank requests",
        "Rank the requests; again: by the next metric.",
        _LOOK,
        "debugger",
    ),
    Action("look.diff", ("d",), "what changed", "Show what the last step changed.", _LOOK, "debugger", "changes"),
    Action("look.filter", ("/",), "filter", "Show only the events that match.", _LOOK, "debugger", "filter"),
    Action("look.next_hit", (".",), "next match", "Go to the next event that matches.", _LOOK, "debugger"),
    Action("look.previous_hit", (",",), "previous match", "Go to the previous event that matches.", _LOOK, "debugger"),
    *(
        Action(f"pane.{pane.id}", (pane.key,), f"pane {pane.key}: {pane.name}", f"{pane.about}.", _PANES, "debugger")
        for pane in PANES
    ),
    Action("pane.next", ("tab",), "next pane", "Go to the next pane.", _PANES, "debugger"),
    Action("pane.bigger", ("+",), "bigger", "Give this pane more of the screen.", _PANES, "debugger"),
    Action("pane.smaller", ("_",), "smaller", "Give this pane less of the screen.", _PANES, "debugger"),
    Action("pane.jump", ("ctrl+o",), "jump", "Show a letter on each pane; press it to go there.", _PANES, "debugger"),
    Action("copy.value", ("y",), "copy value", "Copy the selected value.", _COPY, "debugger"),
    Action("copy.path", ("Y",), "copy path", "Copy the path of the selected value.", _COPY, "debugger"),
    Action("export.open", ("x",), "export", "Write the report, the records or a picture to a file.", _COPY, "debugger"),
    Action("spec.edit", ("e",), "edit", "Edit the experiment in your editor and load it again.", _FILE, "debugger"),
    Action("compare.open", ("v",), "compare", "Compare this run with a changed value.", _FILE, "debugger"),
    # ---- comparison ----
    Action("compare.event", ("n",), "next event", "Process the next event on either side.", _STEP, "compare", "event"),
    Action(
        "compare.step", ("s", "f"), "next step", "Run until one side has finished a step.", _STEP, "compare", "step"
    ),
    Action(
        "compare.divergence",
        ("D",),
        "first divergence",
        "Go to the first event at which the two runs differ.",
        _GO,
        "compare",
        "diff",
    ),
    Action("compare.back", ("[",), "event back", "Go back one event.", _STEP, "compare", "back"),
    Action(
        "compare.toggle",
        ("c", "space"),
        "run or pause",
        "Run both sides at full speed, or pause.",
        _RUN,
        "compare",
        "run",
    ),
    Action("compare.to_end", ("end",), "to the end", "Go to the end of both runs.", _RUN, "compare"),
    Action("compare.to_start", ("home",), "to the start", "Go to before the first event.", _RUN, "compare"),
    Action("compare.stop", ("escape",), "stop", "Stop what is running.", _RUN, "compare"),
    Action("compare.go_to", ("g",), "go to", "Go to a time or an event on both sides.", _GO, "compare", "go to"),
    Action(
        "compare.side", ("tab",), "other side", "Go to the other side, then to the tables.", _PANES, "compare", "side"
    ),
    Action("compare.open_side", ("enter",), "open side", "Open this side in the debugger.", _OPEN, "compare", "open"),
    Action("compare.export", ("x",), "export", "Write the comparison as text to a file.", _COPY, "compare"),
    # ---- goldens ----
    Action("golden.accept", ("a",), "accept", "Make the waiting result the golden.", _DECIDE, "goldens", "accept"),
    Action("golden.reject", ("r",), "reject", "Discard the waiting result.", _DECIDE, "goldens", "reject"),
    Action("golden.accept_all", ("A",), "accept all", "Accept every waiting result listed.", _DECIDE, "goldens"),
    Action("golden.reject_all", ("R",), "reject all", "Discard every waiting result listed.", _DECIDE, "goldens"),
    Action(
        "golden.compare",
        ("v", "enter"),
        "compare",
        "Open both runs at the first event that differs.",
        _OPEN,
        "goldens",
        "compare",
    ),
    Action("golden.check", ("c",), "check", "Run this test now and compare.", _OPEN, "goldens", "check"),
    Action("golden.stop", ("escape",), "stop", "Stop the check, or leave the search.", _OPEN, "goldens"),
    Action("golden.search", ("/",), "search", "Type part of a name to narrow the list.", _LIST, "goldens", "search"),
    Action("golden.reload", ("u",), "reload", "Read the goldens again.", _LIST, "goldens"),
    # ---- an experiment that cannot be opened ----
    Action("error.edit", ("e",), "edit", "Edit the file at the first problem, then try again.", _FILE, "error", "edit"),
    Action("error.retry", ("r",), "try again", "Load the experiment again.", _FILE, "error", "try again"),
    # ---- explanations ----
    Action("why.follow", ("enter",), "explain this", "Explain what is marked.", _LOOK, "why", "explain"),
    Action("why.next", ("tab", "right"), "next mention", "Mark the next request or event.", _LOOK, "why", "next"),
    Action("why.previous", ("shift+tab", "left"), "previous mention", "Mark the previous one.", _LOOK, "why"),
    Action("why.back", ("backspace",), "back", "Show the previous explanation.", _LOOK, "why", "back"),
    Action("why.go", ("g",), "go there", "Go to what is marked, or to what is explained.", _GO, "why", "go there"),
    Action("why.copy", ("y",), "copy", "Copy the explanation as text.", _COPY, "why", "copy"),
    Action("why.close", ("escape", "?"), "close", "Close the explanation.", _DIALOG, "why", "close"),
    # ---- windows ----
    Action("dialog.close", ("escape",), "close", "Close this window.", _DIALOG, DIALOG, "close"),
)

_BY_NAME: Final[Mapping[str, Action]] = MappingProxyType({action.name: action for action in ACTIONS})


def named(name: str) -> Action:
    """The action of that name. Raises KeyError."""
    return _BY_NAME[name]


def of_scope(scope: str) -> Iterator[Action]:
    """The actions of a screen, in the table's order."""
    return (action for action in ACTIONS if action.scope == scope)


def bindings(scope: str) -> list[BindingType]:
    """A screen's (or the application's) key bindings; each has the action's name as its id, for rebinding."""
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
    """Several keys as one text, as Textual's bindings and keymaps take them."""
    return ",".join("comma" if key == "," else key for key in keys)


def shown_key(key: str) -> str:
    """A key as a person reads it: ``^p`` for ``ctrl+p``, ``?`` for ``question_mark``."""
    if len(key) == 1:
        return key
    *modifiers, last = key.split("+")
    ctrl = "^" if "ctrl" in modifiers else ""
    others = "".join(f"{modifier}+" for modifier in modifiers if modifier != "ctrl")
    return others + ctrl + _SHOWN.get(last, format_key(last))


def shown_keys(keys: tuple[str, ...]) -> str:
    """Several keys as a person reads them."""
    return " ".join(shown_key(key) for key in keys)
