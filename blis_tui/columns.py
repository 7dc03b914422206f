"""Texts in columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Sequence


def aligned(rows: Sequence[Sequence[str]], right: Container[int]) -> Iterator[str]:
    """Rows of cells as lines, two blanks between columns; those in ``right``, from 0, are flush right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = enumerate(zip(row, widths, strict=True))
        yield "  ".join(cell.rjust(width) if at in right else cell.ljust(width) for at, (cell, width) in cells)
