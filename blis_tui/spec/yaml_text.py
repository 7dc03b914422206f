"""Writes generated documents as YAML for people: short maps on one line, two spaces of indentation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.base.scalars import flow
from blis_tui.base.text import printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from blis_tui.base.source import Json

_WIDTH: Final = 100


def yaml_text(data: dict[str, Json], remarks: Sequence[str] = ()) -> str:
    """Return a document as YAML: remarks as comments, then the keys.

    It names no schema, because where it will lie is not known: the text is the same in a file and on standard output.

    Args:
        data: the document.
        remarks: lines of comment, escaped so that they cannot become anything else.
    """
    comments = [f"# {printable(remark)}".rstrip() for remark in remarks]
    return "\n".join([*comments, yaml_body(data)])


def yaml_body(data: dict[str, Json]) -> str:
    """Return the keys alone."""
    return "\n".join(_block(data, 0)) + "\n"


def _block(data: dict[str, Json], indent: int) -> Iterator[str]:
    blanks = " " * indent
    for key, value in data.items():
        start = f"{blanks}{flow(key)}:"
        text = flow(value)
        opened = isinstance(value, dict | list) and value
        if opened and (len(start) + len(text) >= _WIDTH or (indent == 0 and _is_deep(value)) or key == "metadata"):
            yield start
            yield from _block(value, indent + 2) if isinstance(value, dict) else _entries(value, indent + 2)
        else:
            yield f"{start} {text}"


def _entries(values: Json, indent: int) -> Iterator[str]:
    for value in values if isinstance(values, list) else []:
        text = flow(value)
        if isinstance(value, dict) and value and (_is_deep(value) or indent + len(text) >= _WIDTH):
            lines = list(_block(value, indent + 2))
            yield f"{' ' * indent}- {lines[0].lstrip()}"
            yield from lines[1:]
        else:
            yield f"{' ' * indent}- {text}"


def _is_deep(value: Json) -> bool:
    """Return whether a value contains a map or a list."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(isinstance(element, dict | list) for element in inner)
