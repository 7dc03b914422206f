"""Plain data as the YAML of this package's own documents: short maps in one line, two blanks of indentation."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final

from blis_tui.spec.scalars import is_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from blis_tui.spec.source import Json

_WIDTH: Final = 100
_PLAIN: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./+-]*\Z")


def yaml_text(data: dict[str, Json]) -> str:
    """A document with its modeline."""
    kind = str(data["kind"]).lower()
    modeline = f"# yaml-language-server: $schema=../../schemas/{kind}.schema.json"
    return "\n".join([modeline, *_block(data, 0)]) + "\n"


def _block(data: dict[str, Json], indent: int) -> Iterator[str]:
    blanks = " " * indent
    for key, value in data.items():
        start = f"{blanks}{_scalar(key)}:"
        flow = _flow(value)
        opened = isinstance(value, dict | list) and value
        if opened and (len(start) + len(flow) >= _WIDTH or (indent == 0 and _is_deep(value)) or key == "metadata"):
            yield start
            yield from _block(value, indent + 2) if isinstance(value, dict) else _entries(value, indent + 2)
        else:
            yield f"{start} {flow}"


def _entries(values: Json, indent: int) -> Iterator[str]:
    for value in values if isinstance(values, list) else []:
        flow = _flow(value)
        if isinstance(value, dict) and value and (_is_deep(value) or indent + len(flow) >= _WIDTH):
            lines = list(_block(value, indent + 2))
            yield f"{' ' * indent}- {lines[0].lstrip()}"
            yield from lines[1:]
        else:
            yield f"{' ' * indent}- {flow}"


def _is_deep(value: Json) -> bool:
    """Whether something in it is a map or a list itself."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(isinstance(one, dict | list) for one in inner)


def _flow(value: Json) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_scalar(key)}: {_flow(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_flow, value)) + "]"
    return _scalar(value)


def _scalar(value: Json) -> str:
    if isinstance(value, str) and _PLAIN.match(value) and is_text(value):
        return value
    return json.dumps(value, ensure_ascii=False)
