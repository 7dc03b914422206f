"""Texts in columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Sequence

_WIDTH: Final = 100
_WIDEST: Final = 48
"""Of names that have a text beside them; a longer one pushes its own to the right."""


def aligned(rows: Sequence[Sequence[str]], right: Container[int], gap: int = 2) -> Iterator[str]:
    """Rows of cells as lines, with ``gap`` blanks between columns and none at the end.

    Args:
        rows: of equal length.
        right: the columns that are flush right, from 0.
        gap: between two columns.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = enumerate(zip(row, widths, strict=True))
        line = (" " * gap).join(cell.rjust(width) if at in right else cell.ljust(width) for at, (cell, width) in cells)
        yield line.rstrip()


def described(rows: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Names with what they mean beside them, on as many lines as that takes, indented by four."""
    from textwrap import wrap  # noqa: PLC0415  (lists of names alone need it not)

    listed = list(rows)
    width = min(max((len(name) for name, _ in listed), default=0), _WIDEST)
    for name, text in listed:
        first, *more = wrap(text, max(_WIDTH - width - 6, 30)) or [""]
        yield f"    {name:<{width}}  {first}".rstrip()
        yield from (f"    {'':<{width}}  {one}" for one in more)


def clip(text: str, room: int) -> str:
    """The text, its middle left out where it is too long: both ends of a path matter."""
    if len(text) <= room:
        return text
    head = (room - 1) // 2
    return f"{text[:head]}…{text[len(text) - (room - 1 - head) :]}"


def cut(text: str, room: int) -> str:
    """The text, its end left out where it is too long."""
    return text if len(text) <= room else f"{text[: max(room - 1, 0)]}…"
