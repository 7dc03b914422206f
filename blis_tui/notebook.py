"""HTML tables for notebooks, without scripts, styles or network resources."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Cell = float | str | None


def html_table(title: str, head: Sequence[str], rows: Iterable[Sequence[Cell]], notes: Iterable[str] = ()) -> str:
    """Create a table with a title above and notes below; numbers are right-aligned, missing values empty."""
    lines = ["<table>", f'<caption style="caption-side: top; text-align: left">{escape(title)}</caption>']
    lines.append(f"<thead><tr>{''.join(f'<th>{escape(one)}</th>' for one in head)}</tr></thead>")
    lines.append("<tbody>")
    lines += [f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows]
    lines += ["</tbody>", "</table>"]
    lines += [f"<p>{escape(note)}</p>" for note in notes]
    return "\n".join(lines) + "\n"


def _cell(value: Cell) -> str:
    if value is None or isinstance(value, str):
        return f'<td style="text-align: left">{escape(value or "")}</td>'
    return f'<td style="text-align: right">{_number(value)}</td>'


def _number(value: float) -> str:
    """Format a number with as many digits as are useful."""
    if value == int(value) or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}"
