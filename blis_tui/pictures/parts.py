"""The parts that pages are put together from: tables, key figures, pictures, things to unfold."""

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
    """What a picture shows at a time: Plotly's traces and layout, as plain data."""

    traces: Sequence[Mapping[str, object]]
    layout: Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A plot with its title, and in words and figures what it shows.

    Attributes:
        name: the identifier of its element, unique in the page.
        title: what stands above it.
        description: what can be seen in it, for those who cannot see it.
        views: what it shows; of several, by the names of a selector, one at a time.
        height: in CSS pixels.
        table: the figures behind it, or those that matter.
        note: what to know when looking at it.
    """

    name: str
    title: str
    description: str
    views: Mapping[str, View]
    height: int = 360
    table: Table | None = None
    note: str = ""

    def html(self) -> str:
        """The picture as HTML; the page's script draws it."""
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
    """JSON that can stand inside of a script element: no text in it ends that, or begins a comment."""
    return to_sorted_json(value).replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def label(text: str) -> str:
    """A name as Plotly shows it: it would take `<b>` in it for markup."""
    return escape(text, quote=False)


def unfold(summary: str, content: str) -> str:
    """Content that is there when asked for."""
    return f"<details><summary>{escape(summary)}</summary>{content}</details>"


def paragraph(text: str) -> str:
    """A paragraph of plain text."""
    return f"<p>{escape(text)}</p>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """A key figure: what it is, its value, and what belongs to it."""

    name: str
    value: str
    more: str = ""


def cards(found: Iterable[Card]) -> str:
    """Key figures side by side."""
    parts = [
        f"<div class='card'><dt>{escape(one.name)}</dt>"
        f"<dd>{escape(one.value)}<small>{escape(one.more)}</small></dd></div>"
        for one in found
    ]
    return f"<dl class='cards'>{''.join(parts)}</dl>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A part of a page that its contents name."""

    name: str
    title: str
    content: Sequence[str | Picture | Table] = field(default=())

    def html(self) -> str:
        """The section as HTML."""
        name = escape(self.name)
        parts = [one if isinstance(one, str) else one.html() for one in self.content]
        title = escape(self.title)
        return (
            f"<section id='{name}' aria-labelledby='{name}-h'><h2 id='{name}-h'>{title}</h2>{''.join(parts)}</section>"
        )
