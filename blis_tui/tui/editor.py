"""Opens a file in the user's editor, at a line."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Final

from textual.app import App, SuspendNotSupported

from blis_tui.base.input_files import real_path
from blis_tui.spec.library import entries, find, suffix
from blis_tui.spec.shipped import shipped_specs
from blis_tui.tui.catalog import is_searched

if TYPE_CHECKING:
    from collections.abc import Mapping

_PLUS: Final = (
    "vi",
    "vim",
    "nvim",
    "view",
    "nano",
    "pico",
    "emacs",
    "emacsclient",
    "micro",
    "kak",
    "joe",
    "ne",
    "ed",
)
"""Editors that accept ``+LINE FILE``."""
_COLON_LINE: Final = ("hx", "helix", "subl", "zed")
"""Editors that accept ``FILE:LINE``."""
_GOTO: Final = ("code", "codium", "cursor")
"""Editors that accept ``--goto FILE:LINE``, and need ``--wait`` to block."""


def editor_command(path: Path, line: int, environment: Mapping[str, str]) -> list[str]:
    """Return the command that edits a file at a line (from 1); empty if the user has named no editor."""
    words = shlex.split(environment.get("VISUAL") or environment.get("EDITOR") or "")
    if not words:
        return []
    program = PurePath(words[0]).stem
    if line > 1 and program in _PLUS:
        return [*words, f"+{line}", str(path)]
    if program in _COLON_LINE:
        return [*words, f"{path}:{line}"]
    if program in _GOTO:
        return [*words, *(() if "--wait" in words or "-w" in words else ("--wait",)), "--goto", f"{path}:{line}"]
    return [*words, str(path)]


def read_only(path: Path, folder: Path) -> str:
    """Return why a file is not for editing and what copies it to a folder; empty if it is for editing.

    Shipped files are not, unless they are among the folder's own: in a checkout of this package.
    """
    path, folder = real_path(path), real_path(folder)
    if not path.is_relative_to(real_path(shipped_specs())) or is_searched(path, folder):
        return ""
    entry = next((library_entry for library_entry in entries(None) if real_path(library_entry.path) == path), None)
    if entry is None:
        return f"{path.name} is shipped with blis-tui: read-only."
    name = entry.name if find(entry.kind, entry.name, folder) == entry.path else str(entry.path)
    kind = "" if entry.kind == "Experiment" else f"--kind {entry.kind.lower()} "
    copy = f"blis-tui spec show {kind}{name} > my-{entry.name}{suffix(entry.kind)}"
    return f"{entry.name} is shipped with blis-tui: read-only. For a copy of your own: {copy}"


def edit(app: App[None], path: Path, line: int = 1) -> str:
    """Let the user edit a file; return a sentence about an error, or an empty text.

    The application suspends itself while the editor uses the terminal.
    """
    if refusal := read_only(path, Path.cwd()):
        return refusal
    try:
        command = editor_command(path, line, os.environ)
    except ValueError as error:
        return f"$EDITOR is not a command: {error}."
    if not command:
        return f"No editor is set: start again with EDITOR=nano, or edit {path} in another window and reload."
    problem = ""
    try:
        with app.suspend():
            try:
                code = subprocess.run(command, check=False).returncode
                problem = f"{command[0]} ended with exit code {code}." if code else ""
            except OSError as error:
                problem = f"$EDITOR cannot be started: {command[0]}: {error.strerror or error}."
    except SuspendNotSupported:
        return f"There is no terminal here for an editor: edit {path} where blis-tui runs, then reload."
    return problem
