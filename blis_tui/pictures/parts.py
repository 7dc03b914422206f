"""The elements of pages: tables, key figures, pictures, collapsible content."""

from __future__ import annotations

from dataclasses import field
from html import escape
from typing import TYPE_CHECKING

from blis_tui.canonical import to_sorted_json
from blis_tui.classes import NamedTuple, dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from blis_tui.plain_page import Table


class View(NamedTuple):
    """One view of a picture: Plotly's traces and layout, as plain data."""

    traces: Sequence[Mapping[str, object]]
    layout: Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A plot with its title, its description, and its figures.

    Attributes:
        name: the id of its element, unique in the page.
        title: its title.
        description: what it shows, for readers who cannot see it.
        views: its views; several are selected by name, one at a time.
        height: in CSS pixels.
        table: the underlying figures, or the most important of them.
        note: a remark for the reader.
    """

    name: str
    title: str
    description: str
    views: Mapping[str, View]
    height: int = 360
    table: Table | None = None
    note: str = ""

    def html(self) -> str:
        """Return the picture as HTML; the page's script draws it."""
        name, several = escape(self.name), len(self.views) > 1
        plain = [{"data": list(view.traces), "layout": view.layout} for view in self.views.values()]
        options = "".join(f"<option>{escape(label)}</option>" for label in self.views)
        parts = [
            f"<figure class='picture' id='{name}'><h3 id='{name}-title'>{escape(self.title)}</h3>",
            f"<label class='choice'>Show <select data-for='{name}-plot'>{options}</select></label>" if several else "",
            f"<div class='plot' id='{name}-plot' role='img' aria-label='{escape(self.description)}'",
            f" style='height:{self.height}px' data-height='{self.height}'></div>",
            f"<script type='application/json' id='{name}-plot-data'>{script_json(plain)}</script>",
            f"<figcaption>{escape(self.note)}</figcaption>" if self.note else "",
            unfold("The data behind it", self.table.html()) if self.table is not None else "",
            "</figure>",
        ]
        return "".join(parts)


def script_json(value: object) -> str:
    """Return JSON that is safe in a script element: no text in it can end the element or begin a comment."""
    return to_sorted_json(value).replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def label(text: str) -> str:
    """Escape a name for Plotly, which would interpret `<b>` as markup."""
    return escape(text, quote=False)


def unfold(summary: str, content: str) -> str:
    """Return collapsible content."""
    return f"<details><summary>{escape(summary)}</summary>{content}</details>"


def paragraph(text: str) -> str:
    """Return a paragraph of plain text."""
    return f"<p>{escape(text)}</p>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """A key figure: its name, its value, and a remark."""

    name: str
    value: str
    more: str = ""


def cards(found: Iterable[Card]) -> str:
    """Return key figures side by side."""
    parts = [
        f"<div class='card'><dt>{escape(one.name)}</dt>"
        f"<dd>{escape(one.value)}<small>{escape(one.more)}</small></dd></div>"
        for one in found
    ]
    return f"<dl class='cards'>{''.join(parts)}</dl>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A section of a page, listed in its table of contents."""

    name: str
    title: str
    content: Sequence[str | Picture | Table] = field(default=())

    def html(self) -> str:
        """Return the section as HTML."""
        name = escape(self.name)
        parts = [one if isinstance(one, str) else one.html() for one in self.content]
        title = escape(self.title)
        return (
            f"<section id='{name}' aria-labelledby='{name}-h'><h2 id='{name}-h'>{title}</h2>{''.join(parts)}</section>"
        )
