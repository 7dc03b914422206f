"""Where a user's own settings and what is remembered lie, and the few values remembered there."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Final

from platformdirs import user_config_path

from blis_tui.debugger.sessions import state_folder
from blis_tui.errors import InputError
from blis_tui.inputs import parse_json, read_input
from blis_tui.records.files import write_text

_APP: Final = "blis-tui"
_REMEMBERED: Final = "settings.json"
_MAX_BYTES: Final = 1024 * 1024


def config_folder() -> Path:
    """The folder of files the user writes, such as ``keys.yaml``; ``BLIS_TUI_CONFIG_DIR`` overrides it."""
    given = os.environ.get("BLIS_TUI_CONFIG_DIR")
    return Path(given) if given else user_config_path(_APP)


def remembered_theme() -> str:
    """The theme the user chose last; empty when none was, or nobody knows."""
    try:
        data = parse_json(read_input(state_folder() / _REMEMBERED, limit=_MAX_BYTES))
    except (InputError, ValueError):
        return ""
    theme = data.get("theme") if isinstance(data, dict) else None
    return theme if isinstance(theme, str) else ""


def remember_theme(name: str) -> str:
    """Remember a theme; returns why that was impossible, or nothing."""
    folder = state_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_text(folder / _REMEMBERED, json.dumps({"theme": name}, indent=2) + "\n")
    except (OSError, InputError) as error:
        return f"The theme could not be saved: {error}"
    return ""
