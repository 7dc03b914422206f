"""HTML tables, for notebooks and for self-contained pages without scripts and network resources."""

from __future__ import annotations

import sys
from html import escape
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Sequence


Cell = float | str | None


def html_table(title: str, head: Sequence[str], rows: Iterable[Sequence[Cell]], notes: Iterable[str] = ()) -> str:
    """Create a table with a title above and notes below; numbers are right-aligned, missing values empty."""
    lines = ["<table>", f'<caption style="caption-side: top; text-align: left">{escape(title)}</caption>']
    lines.append(f"<thead><tr>{''.join(f'<th>{escape(heading)}</th>' for heading in head)}</tr></thead>")
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


_STYLE: Final = """
body { font: 14px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 72rem; padding: 0 1rem; color: #1d2433; }
table { border-collapse: collapse; margin: 1rem 0; }
th, td { text-align: left; padding: .3rem .7rem; border-bottom: 1px solid #d9dee8; }
th[scope='row'] { font-weight: normal; } .wide { overflow-x: auto; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; }
svg { margin-right: 1rem; max-width: 100%; } svg text { font: 11px system-ui, sans-serif; fill: currentColor; }
line { stroke: currentColor; stroke-opacity: .5; }
@media (prefers-color-scheme: dark) { body { background: #14181f; color: #e5e9f0; } th, td { border-color: #333c4a; } }
"""


def plain_page(title: str, parts: Iterable[str], style: str) -> str:
    """Create the whole file.

    Args:
        title: the page's title.
        parts: HTML below the title.
        style: CSS rules in addition to the common ones.
    """
    head = (
        f"<!doctype html><html lang='en'><head><meta charset='utf-8'><title>{escape(title)}</title>",
        f"<meta name='viewport' content='width=device-width'><style>{_STYLE}{style}</style></head><body>",
        f"<h1>{escape(title)}</h1>",
    )
    return "\n".join([*head, *parts, "</body></html>\n"])


class Markup(str):
    """HTML that is inserted in a cell unescaped."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Text in rows and columns.

    Attributes:
        caption: a description for screen readers; optional.
        words: columns, counted from 0, that hold words rather than figures; the first always does.
        classes: a CSS class for each row; optional.
        sortable: whether readers can sort it by its columns, and filter its rows.
    """

    caption: str = ""
    head: Sequence[str]
    rows: Iterable[Sequence[str]]
    words: Container[int] = ()
    classes: Sequence[str] = ()
    sortable: bool = False

    def html(self) -> str:
        """Return the table as HTML, which scrolls if it is wider than the page."""
        head = "".join(
            f"<th scope='col'{self._kind(at)}>{escape(heading)}</th>" for at, heading in enumerate(self.head)
        )
        rows = []
        for number, row in enumerate(self.rows):
            kind = f" class='{escape(self.classes[number])}'" if self.classes else ""
            first, *others = row
            cells = "".join(f"<td{self._kind(at)}>{_content(cell)}</td>" for at, cell in enumerate(others, 1))
            rows.append(f"<tr{kind}><th scope='row'>{_content(first)}</th>{cells}</tr>")
        caption = f"<caption>{escape(self.caption)}</caption>" if self.caption else ""
        top = f"<thead><tr>{head}</tr></thead>" if any(self.head) else ""
        tall, sortable = (" tall", " data-sortable") if self.sortable else ("", "")
        return f"<div class='wide{tall}'><table{sortable}>{caption}{top}<tbody>{''.join(rows)}</tbody></table></div>"

    def _kind(self, column: int) -> str:
        return "" if column == 0 or column in self.words else " class='n'"


def _content(cell: str) -> str:
    return cell if isinstance(cell, Markup) else escape(cell)


def plain_table(head: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: bool = True) -> str:
    """Create a table of texts; ``numbers``: all columns but the first hold figures. ``head`` may be empty."""
    return Table(head=head, rows=rows, words=() if numbers else range(sys.maxsize)).html()
