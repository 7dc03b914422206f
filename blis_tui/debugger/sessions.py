"""What is remembered of an experiment between two runs of the program: position, breakpoints, how the screen looked.

One small file each, in the user's state folder and never beside the experiment. A file that is missing or damaged
costs what it remembered and nothing else; a folder that cannot be written costs a sentence.
"""

from __future__ import annotations

import json
import os
from dataclasses import field
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Final

from platformdirs import user_state_dir

from blis_tui.classes import dataclass
from blis_tui.errors import InputError
from blis_tui.inputs import parse_json, read_input
from blis_tui.records.files import write_text

if TYPE_CHECKING:
    from collections.abc import Mapping

STATE_VARIABLE: Final = "BLIS_TUI_STATE_DIR"
"""Environment variable that overrides the user's state folder."""
FORMAT: Final = 1
"""Version of the files; a file of another version is not read."""
_MAX_BYTES: Final = 1024 * 1024

Plain = bool | int | float | str


@dataclass(frozen=True, slots=True)
class Session:
    """What is remembered of one experiment."""

    source: str
    """The experiment's name or path, as the user gave it."""
    position_event: int = 0
    """The event the reader was at; 0 = the start."""
    breakpoints: tuple[tuple[str, bool], ...] = ()
    """Texts of breakpoints, and whether they are enabled."""
    layout: Mapping[str, Plain] = field(default_factory=dict)
    """How the screen looked: the active tab, the speed and the like, by name."""
    problem: str = field(default="", compare=False)
    """Why something that was remembered is lost, in a sentence; empty when nothing is."""


def state_folder() -> Path:
    """Where the files are: the user's state folder, or what ``BLIS_TUI_STATE_DIR`` says."""
    return Path(os.environ.get(STATE_VARIABLE) or user_state_dir("blis-tui"))


def session_path(source: str) -> Path:
    """The file that remembers an experiment, given by name or path."""
    return state_folder() / "sessions" / f"{sha256(_identity(source)).hexdigest()[:32]}.json"


def _identity(source: str) -> bytes:
    """What stays the same however the experiment is called: its file, or the name where there is no file."""
    if source == "-":
        return b"-"
    from blis_tui.spec.load import locate  # noqa: PLC0415  (where the folder is, is asked before documents are read)

    try:
        return os.fsencode(Path(os.path.realpath(locate(source))))
    except (InputError, OSError, ValueError):  # no such name; a path no system could have
        return source.encode(errors="surrogatepass")


def load(source: str) -> Session:
    """What is remembered of an experiment; a fresh session where nothing is, or nothing can be read.

    What no longer makes sense is left out, and ``problem`` says so. Never raises.
    """
    path = session_path(source)
    try:
        data = parse_json(read_input(path, limit=_MAX_BYTES))
    except InputError as error:
        return Session(source) if isinstance(error.__cause__, FileNotFoundError) else _fresh(source, error.message)
    except ValueError:
        return _fresh(source, f"{path} is damaged")
    if not isinstance(data, dict):
        return _fresh(source, f"{path} is damaged")
    if data.get("format") != FORMAT:
        return _fresh(source, f"{path} was written by another version of blis-tui")
    return _session(source, data)


def _fresh(source: str, reason: str) -> Session:
    return Session(source, problem=f"The last session could not be restored: {reason}.")


def _session(source: str, data: Mapping[str, object]) -> Session:
    """A session from what a file says, without what makes no sense."""
    lost: list[str] = []
    position = data.get("position_event")
    if not isinstance(position, int) or isinstance(position, bool) or position < 0:
        lost.append("the position")
        position = 0
    listed = data.get("breakpoints")
    entries = listed if isinstance(listed, list) else [None]
    breakpoints = tuple(one for one in map(_breakpoint, entries) if one is not None)
    if len(breakpoints) < len(entries):
        lost.append("some breakpoints")
    named = data.get("layout")
    values = named if isinstance(named, dict) else {"": None}
    layout = {name: value for name, value in values.items() if isinstance(value, bool | int | float | str)}
    if len(layout) < len(values):
        lost.append("some of the layout")
    problem = f"The last session was restored without {', '.join(lost)}: its file is damaged." if lost else ""
    return Session(source, position, breakpoints, layout, problem)


def _breakpoint(entry: object) -> tuple[str, bool] | None:
    if isinstance(entry, dict):
        text, enabled = entry.get("text"), entry.get("enabled")
        if isinstance(text, str) and isinstance(enabled, bool):
            return (text, enabled)
    return None


def save(session: Session) -> str:
    """Remember a session; returns why that was impossible, in a sentence, or nothing. Never raises."""
    path = session_path(session.source)
    content = {
        "format": FORMAT,
        "source": session.source,
        "position_event": session.position_event,
        "breakpoints": [{"text": text, "enabled": enabled} for text, enabled in session.breakpoints],
        "layout": dict(session.layout),
    }
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, json.dumps(content, indent=2) + "\n")
    except InputError as error:
        return f"The session could not be saved: {error.message}."
    except OSError as error:
        return f"The session could not be saved: cannot make the folder {path.parent}: {error.strerror or error}."
    return ""
