"""Text in columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Sequence

_WIDTH: Final = 100
_WIDEST: Final = 48
"""Widest name column with texts beside it; longer names push their own text to the right."""


def aligned(rows: Sequence[Sequence[str]], right: Container[int], gap: int = 2) -> Iterator[str]:
    """Format rows of cells as lines, with ``gap`` blanks between columns and no trailing blanks.

    Args:
        rows: rows of equal length.
        right: right-aligned columns, counted from 0.
        gap: blanks between two columns.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = enumerate(zip(row, widths, strict=True))
        line = (" " * gap).join(cell.rjust(width) if at in right else cell.ljust(width) for at, (cell, width) in cells)
        yield line.rstrip()


def described(rows: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Format names with their meanings beside them, wrapped and indented by four."""
    from textwrap import wrap  # noqa: PLC0415  (plain lists of names do not need it)

    listed = list(rows)
    width = min(max((len(name) for name, _ in listed), default=0), _WIDEST)
    for name, text in listed:
        first, *more = wrap(text, max(_WIDTH - width - 6, 30)) or [""]
        yield f"    {name:<{width}}  {first}".rstrip()
        yield from (f"    {'':<{width}}  {one}" for one in more)


def clip(text: str, room: int) -> str:
    """Shorten a text in the middle, because both ends of a path matter."""
    if len(text) <= room:
        return text
    head = (room - 1) // 2
    return f"{text[:head]}…{text[len(text) - (room - 1 - head) :]}"


def cut(text: str, room: int) -> str:
    """Shorten a text at its end."""
    return text if len(text) <= room else f"{text[: max(room - 1, 0)]}…"
