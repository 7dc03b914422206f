"""How values are written as YAML: without quotes where a word means the same without them."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final

from blis_tui.spec.scalars import is_text

if TYPE_CHECKING:
    from blis_tui.spec.source import Json

_WORD: Final = re.compile(r"[A-Za-z_./][A-Za-z0-9_./+-]*\Z")
"""A word that is the same in every context and version of YAML, but for the words below."""
_NOT_TEXT_ELSEWHERE: Final = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})
"""Words that YAML 1.1 (and so many a tool) takes for truth values."""


def is_bare(text: str) -> bool:
    """Whether a text is a plain word that needs no quotes anywhere."""
    return bool(_WORD.match(text)) and is_text(text) and text.lower() not in _NOT_TEXT_ELSEWHERE


def quoted(text: str) -> str:
    """A text in double quotes; what no editor shows is escaped as YAML does it."""
    return "".join(char if char.isprintable() else _escape(char) for char in json.dumps(text, ensure_ascii=False))


def _escape(char: str) -> str:
    return f"\\u{ord(char):04x}" if ord(char) <= 0xFFFF else f"\\U{ord(char):08x}"


def flow(value: Json) -> str:
    """A value on one line: ``{kind: gaussian, mean: 256}``."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{flow(key)}: {flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(flow(item) for item in value) + "]"
    if isinstance(value, str):
        return value if is_bare(value) else quoted(value)
    return json.dumps(value, ensure_ascii=False, allow_nan=False)
