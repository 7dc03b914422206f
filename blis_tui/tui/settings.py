"""The user's settings: the theme chosen last, our own themes, and keys from ``keys.yaml``.

Colours: our own two themes in addition to Textual's.

Every colour has one meaning on all screens: ``success`` completed or good, ``warning`` waiting or in need of attention,
``error`` preempted, dropped or failed, ``accent`` the cursor and the current item, ``primary`` decode, ``secondary``
prefill, ``text-muted`` unimportant. No meaning depends on colour alone.

    step.event: n, j
    run.toggle: [c, space]

Invalid parts of the file are reported with their places; the rest applies.
"""

from __future__ import annotations

import json
import os
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Final

from platformdirs import user_config_path
from textual.keys import Keys, key_to_character
from textual.theme import Theme

from blis_tui.base.classes import dataclass
from blis_tui.base.diagnostics import suggestion
from blis_tui.base.errors import InputError, SpecError
from blis_tui.base.input_files import parse_json, read_input
from blis_tui.debugger.saved_sessions import state_folder
from blis_tui.output.result_files import write_text
from blis_tui.tui.actions import ACTIONS, APP, DIALOG, shown_key

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from blis_tui.base.source import Document, Json
    from blis_tui.tui.actions import Action


DEFAULT: Final = "blis-dark"
FEW_COLOURS: Final = "ansi-dark"
"""For terminals with sixteen colours, which would round the other themes to greys."""

# Colours can be told apart with protanopia, deuteranopia and tritanopia, too: a test simulates them.
DARK: Final = Theme(
    name=DEFAULT,
    dark=True,
    primary="#76a4ee",
    secondary="#d5ade7",
    accent="#25c5a0",
    success="#9ff5ba",
    warning="#f8bc53",
    error="#f48972",
    foreground="#dde2ea",
    background="#12161c",
    surface="#171c23",
    panel="#222932",
    variables={
        "text-muted": "#a0aab8",
        "block-cursor-foreground": "#f4f7fb",
        "block-cursor-background": "#1d3b54",
        "block-cursor-text-style": "none",
        "block-cursor-blurred-foreground": "#dde2ea",
        "block-cursor-blurred-background": "#242c36",
        "border": "#25c5a0",
        "border-blurred": "#3b4552",
        "footer-key-foreground": "#25c5a0",
        "input-selection-background": "#25c5a0 35%",
        "scrollbar": "#3b4552",
        "scrollbar-hover": "#56657a",
        "scrollbar-active": "#25c5a0",
        "scrollbar-background": "#171c23",
        "scrollbar-background-hover": "#171c23",
        "scrollbar-background-active": "#171c23",
        "scrollbar-corner-color": "#171c23",
    },
)

LIGHT: Final = Theme(
    name="blis-light",
    dark=False,
    primary="#1d60b0",
    secondary="#6e2a8d",
    accent="#265349",
    success="#117140",
    warning="#885803",
    error="#78000d",
    foreground="#1c2228",
    background="#fcfcfa",
    surface="#f5f6f4",
    panel="#e8ebe9",
    variables={
        "text-muted": "#525c67",
        "block-cursor-foreground": "#10151a",
        "block-cursor-background": "#cfe3ee",
        "block-cursor-text-style": "none",
        "block-cursor-blurred-foreground": "#1c2228",
        "block-cursor-blurred-background": "#e3e8ea",
        "border": "#265349",
        "border-blurred": "#b9c1c6",
        "footer-key-foreground": "#265349",
        "input-selection-background": "#265349 25%",
        "scrollbar": "#b9c1c6",
        "scrollbar-hover": "#93a0a8",
        "scrollbar-active": "#265349",
        "scrollbar-background": "#f5f6f4",
        "scrollbar-background-hover": "#f5f6f4",
        "scrollbar-background-active": "#f5f6f4",
        "scrollbar-corner-color": "#f5f6f4",
    },
)

THEMES: Final = (DARK, LIGHT)


def default_theme(environment: Mapping[str, str]) -> str:
    """Return the theme for a terminal, given its environment variables."""
    terminal = environment.get("TERM", "")
    few = terminal in ("linux", "ansi", "screen", "vt100", "vt220", "xterm") or terminal.endswith("-16color")
    return FEW_COLOURS if few and not environment.get("COLORTERM") else DEFAULT


FILE: Final = "keys.yaml"
_MODIFIERS: Final = ("ctrl", "alt", "shift", "super", "meta", "hyper")
_NAMES: Final = tuple(sorted({key.value for key in Keys if "+" not in key.value and not key.value.startswith("<")}))


@dataclass(frozen=True, slots=True)
class Keymap:
    """The keys of each action."""

    keys: Mapping[str, tuple[str, ...]]
    """Action name -> its keys, for every action of the table."""
    changed: Mapping[str, tuple[str, ...]]
    """The user's changes only."""
    problems: tuple[str, ...]
    """What could not be applied, each with its place and a hint."""


@dataclass(frozen=True, slots=True)
class _KeymapLine:
    """A valid line of the file."""

    action: Action
    keys: tuple[str, ...]
    where: str


def default_keymap(*problems: str) -> Keymap:
    """Return the table's own keys, with the problems of the user's file."""
    return Keymap({action.name: action.keys for action in ACTIONS}, {}, problems)


def load_keymap(folder: Path) -> Keymap:
    """Return the table's keys with the user's changes; a missing file changes nothing."""
    path = folder / FILE
    if not path.exists():
        return default_keymap()
    from blis_tui.spec.read import read_document  # noqa: PLC0415  (most users have no such file)

    try:
        document = read_document(path, str(path))
    except SpecError as error:
        return default_keymap(
            *(f"{diagnostic.file}:{diagnostic.line}: {diagnostic.message}" for diagnostic in error.diagnostics)
        )
    except InputError as error:
        return default_keymap(error.message)
    if not isinstance(document.data, dict):
        return default_keymap(f"{path}:1: expected lines such as `step.event: n, j`")
    problems: list[str] = []
    wishes = list(_keymap_lines(document, problems))
    changed = {wish.action.name: wish.keys for wish in _without_clashes(wishes, problems)}
    return Keymap({**default_keymap().keys, **changed}, changed, tuple(problems))


def _keymap_lines(document: Document, problems: list[str]) -> Iterator[_KeymapLine]:
    names = {action.name: action for action in ACTIONS}
    for name, value in document.data.items() if isinstance(document.data, dict) else ():
        where = f"{document.source.name}:{document.place((name,), key=True).span.line}"
        if name not in names:
            problems.append(f"{where}: there is no action `{name}`; {suggestion(name, names)}")
            continue
        keys = _keys(value)
        wrong = next((key for key in keys if not is_key(key)), None)
        if not keys:
            problems.append(f"{where}: `{name}` needs a key, or several separated by commas")
        elif wrong is not None:
            near = suggestion(wrong.rpartition("+")[2], _NAMES, otherwise="names are")
            problems.append(f"{where}: there is no key `{wrong}`; {near}")
        else:
            yield _KeymapLine(names[name], keys, where)


def _keys(value: Json) -> tuple[str, ...]:
    """Parse keys: ``n, j`` or a list; a lone comma is the key itself."""
    if isinstance(value, list):
        return tuple(chain.from_iterable(_keys(entry) for entry in value))
    if isinstance(value, bool) or not isinstance(value, str | int):
        return ()
    text = str(value)
    if text.strip() == ",":
        return (",",)
    if text == " ":
        return ("space",)
    return tuple(key for part in text.split(",") if (key := part.strip()))


def is_key(key: str) -> bool:
    """Return whether a terminal could send a key of that name."""
    if len(key) == 1:
        return key.isprintable() and key != " "
    *modifiers, last = key.split("+")
    if any(modifier not in _MODIFIERS for modifier in modifiers) or len(set(modifiers)) < len(modifiers):
        return False
    return last in _NAMES or (len(last) == 1 and bool(modifiers) and last.isprintable()) or _is_character(last)


def _is_character(name: str) -> bool:
    """Return whether a name is that of a character, such as ``question_mark``."""
    return len(name) > 1 and key_to_character(name) is not None


def _without_clashes(wishes: list[_KeymapLine], problems: list[str]) -> list[_KeymapLine]:
    """Return the changes without conflicts: of two actions with one key, the later line of the file is dropped."""
    granted = list(wishes)
    while granted:
        keys = {action.name: action.keys for action in ACTIONS} | {wish.action.name: wish.keys for wish in granted}
        clash = next(((wish, other) for wish in reversed(granted) if (other := _clash(wish, keys)) is not None), None)
        if clash is None:
            break
        wish, (key, other_name) = clash
        granted.remove(wish)
        problems.append(
            f"{wish.where}: the key {shown_key(key)} of `{wish.action.name}` already runs `{other_name}`; "
            "choose another, or give that action another key as well"
        )
    return granted


def _clash(wish: _KeymapLine, keys: Mapping[str, tuple[str, ...]]) -> tuple[str, str] | None:
    """Return a key of this change that another action of the same screen has, and that action."""
    for action in ACTIONS:
        if action.name != wish.action.name and scopes_overlap(action.scope, wish.action.scope):
            shared = {shown_key(key) for key in keys[action.name]}
            key = next((key for key in wish.keys if shown_key(key) in shared), None)
            if key is not None:
                return key, action.name
    return None


def scopes_overlap(scope: str, other: str) -> bool:
    """Return whether actions of two scopes can be reached at the same time."""
    return scope == other or (APP in (scope, other) and DIALOG not in (scope, other))


# ---- folder and theme ----

_REMEMBERED: Final = "settings.json"
_MAX_BYTES: Final = 1024 * 1024


def config_folder() -> Path:
    """Return the folder of the user's files, such as ``keys.yaml``; ``BLIS_TUI_CONFIG_DIR`` overrides it."""
    given = os.environ.get("BLIS_TUI_CONFIG_DIR")
    return Path(given) if given else user_config_path("blis-tui")


def remembered_theme() -> str:
    """Return the theme that the user chose last; empty if there is none, or it cannot be read."""
    try:
        data = parse_json(read_input(state_folder() / _REMEMBERED, limit=_MAX_BYTES))
    except (InputError, ValueError):
        return ""
    theme = data.get("theme") if isinstance(data, dict) else None
    return theme if isinstance(theme, str) else ""


def remember_theme(name: str) -> str:
    """Save the theme; return why that failed, or an empty text."""
    folder = state_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_text(folder / _REMEMBERED, json.dumps({"theme": name}, indent=2) + "\n")
    except (OSError, InputError) as error:
        return f"The theme could not be saved: {error}"
    return ""
