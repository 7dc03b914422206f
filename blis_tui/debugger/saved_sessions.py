"""What is kept of an experiment between two runs of the program: position, breakpoints, moments and screen layout.

Each experiment has one small file in the user's state folder, never beside the experiment. A missing or damaged file
only loses what it held; a folder that cannot be written only causes a message.
"""

from __future__ import annotations

import json
import os
from dataclasses import field
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Final

from platformdirs import user_state_dir

from blis_tui.base.classes import dataclass
from blis_tui.base.errors import InputError
from blis_tui.base.input_files import read_input
from blis_tui.debugger.moments import from_data, to_data
from blis_tui.output.result_files import write_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from blis_tui.debugger.moments import Moment

STATE_VARIABLE: Final = "BLIS_TUI_STATE_DIR"
"""Environment variable that overrides the user's state folder."""
FORMAT: Final = 1
"""Version of the file format; files of other versions are not read."""
_MAX_BYTES: Final = 1024 * 1024

JsonScalar = bool | int | float | str


@dataclass(frozen=True, slots=True)
class Session:
    """What is remembered of one experiment."""

    source: str
    """The experiment's name or path, as the user gave it."""
    position_event: int = 0
    """The event of the reader's position; 0 = the start."""
    breakpoints: tuple[tuple[str, bool], ...] = ()
    """Text of each breakpoint, and whether it is enabled."""
    layout: Mapping[str, JsonScalar] = field(default_factory=dict)
    """Screen layout by name: the active tab, the speed and so on."""
    moments: tuple[Moment, ...] = ()
    """The events that the reader has kept, in order."""
    problem: str = field(default="", compare=False)
    """A sentence saying what was lost and why; empty if nothing was."""


def state_folder() -> Path:
    """Return the folder of the files: ``BLIS_TUI_STATE_DIR`` if set, otherwise the user's state folder."""
    return Path(os.environ.get(STATE_VARIABLE) or user_state_dir("blis-tui"))


def session_path(source: str) -> Path:
    """Return the file that remembers an experiment, given by name or path."""
    return state_folder() / "sessions" / f"{sha256(_identity(source)).hexdigest()[:32]}.json"


def _identity(source: str) -> bytes:
    """Return a stable identity of an experiment or bundle: its real path, or its name if there is no file."""
    if source == "-":
        return b"-"
    if source.endswith(".blis"):
        return os.fsencode(os.path.realpath(source))
    from blis_tui.spec.load import locate  # noqa: PLC0415 (the state folder is needed before any document is read)

    try:
        return os.fsencode(Path(os.path.realpath(locate(source))))
    except (InputError, OSError, ValueError):  # no experiment of that name; a path that the system does not allow
        return source.encode(errors="surrogatepass")


def load(source: str) -> Session:
    """Return what is remembered of an experiment, or a new session if there is nothing to read.

    Invalid parts are left out and named in ``problem``. Never raises.
    """
    path = session_path(source)
    try:
        data = json.loads(read_input(path, limit=_MAX_BYTES))  # our own file: any name of a file may be in it
    except InputError as error:
        return Session(source) if isinstance(error.__cause__, FileNotFoundError) else _fresh(source, error.message)
    except (ValueError, RecursionError):
        return _fresh(source, f"{path} is damaged")
    if not isinstance(data, dict):
        return _fresh(source, f"{path} is damaged")
    if data.get("format") != FORMAT:
        return _fresh(source, f"{path} was written by another version of blis-tui")
    return _session(source, data)


def _fresh(source: str, reason: str) -> Session:
    return Session(source, problem=f"The last session could not be restored: {reason}.")


def _session(source: str, data: Mapping[str, object]) -> Session:
    """Return a session from a file's data, without its invalid parts."""
    lost: list[str] = []
    position = data.get("position_event")
    if not isinstance(position, int) or isinstance(position, bool) or position < 0:
        lost.append("the position")
        position = 0
    listed = data.get("breakpoints")
    entries = listed if isinstance(listed, list) else [None]
    breakpoints = tuple(point for point in map(_breakpoint, entries) if point is not None)
    if len(breakpoints) < len(entries):
        lost.append("some breakpoints")
    named = data.get("layout")
    values = named if isinstance(named, dict) else {"": None}
    layout = {name: value for name, value in values.items() if isinstance(value, bool | int | float | str)}
    if len(layout) < len(values):
        lost.append("some of the layout")
    kept = data.get("moments", [])
    moments = from_data(kept) if isinstance(kept, list) else ()
    if not isinstance(kept, list) or len(moments) < len(kept):
        lost.append("some moments")
    problem = f"The last session was restored without {', '.join(lost)}: its file is damaged." if lost else ""
    return Session(source, position, breakpoints, layout, moments, problem)


def _breakpoint(entry: object) -> tuple[str, bool] | None:
    if isinstance(entry, dict):
        text, enabled = entry.get("text"), entry.get("enabled")
        if isinstance(text, str) and isinstance(enabled, bool):
            return (text, enabled)
    return None


def save(session: Session) -> str:
    """Save a session; return a sentence saying why that failed, or an empty string. Never raises."""
    path = session_path(session.source)
    content = {
        "format": FORMAT,
        "source": session.source,
        "position_event": session.position_event,
        "breakpoints": [{"text": text, "enabled": enabled} for text, enabled in session.breakpoints],
        "layout": dict(session.layout),
        "moments": to_data(session.moments),
    }
    text = json.dumps(content, indent=2) + "\n"
    if len(text) > _MAX_BYTES:
        return (
            f"The session could not be saved: it is larger than {_MAX_BYTES // 1024**2} MiB, which is all that is read."
        )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, text)
    except InputError as error:
        return f"The session could not be saved: {error.message}."
    except OSError as error:
        return f"The session could not be saved: cannot make the folder {path.parent}: {error.strerror or error}."
    return ""
