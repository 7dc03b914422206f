"""An HTML page and its elements: one style, one script, tables, key figures, pictures.

Plotly, which draws the pictures in the browser; only the script in its Python package is used.

Figures are written as plain data (Plotly's JSON), which needs no import and no random ids; tests validate them against
Plotly's own schema.
"""

from __future__ import annotations

import json
import re
from dataclasses import field
from functools import cache
from html import escape
from importlib import import_module
from importlib.resources import files
from typing import TYPE_CHECKING, Final

from blis_tui._version import ENGINE, __version__
from blis_tui.base.canonical import to_json, to_sorted_json
from blis_tui.base.classes import NamedTuple, dataclass
from blis_tui.base.errors import InputError, install_command
from blis_tui.base.html import Table
from blis_tui.spec.yaml_text import yaml_body

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from blis_tui.model import Experiment


def require_plotly() -> None:
    """Raise InputError if the plotting library is not installed."""
    try:
        import_module("plotly.offline")
    except ImportError:
        raise InputError("an HTML page needs an extra package", help=install_command("html")) from None


@cache
def plotly_script() -> str:
    """Return the library's script for inclusion in a page. Raises InputError as :func:`require_plotly` does."""
    require_plotly()
    from plotly.offline import get_plotlyjs  # type: ignore[import-untyped]  # noqa: PLC0415  (an extra)

    script: str = get_plotlyjs()
    return script


def plotly_version() -> str:
    """Return the version in the script's header; ``unknown`` if it has none."""
    found = re.search(r"plotly\.js v([\w.-]+)", plotly_script()[:500])
    return "unknown" if found is None else found[1]


_NO_SCRIPT: Final = "The charts need JavaScript; the tables below them do not."


def page(title: str, about: str, sections: Sequence[Section]) -> str:
    """Return the whole file.

    Args:
        title: its title.
        about: a sentence below the title.
        sections: its sections, in order; empty ones are left out.

    Raises:
        InputError: the plotting library is not installed.
        ValueError: two elements have the same name, which must be unique for links and pictures.
    """
    shown = [section for section in sections if section.content]
    names = [section.name for section in shown]
    names += [part.name for section in shown for part in section.content if isinstance(part, Picture)]
    if len(dict.fromkeys(names)) < len(names):
        raise ValueError(f"names of sections and pictures must differ: {', '.join(names)}")
    links = "".join(f"<li><a href='#{escape(one.name)}'>{escape(one.title)}</a></li>" for one in shown)
    head = (
        f"<meta charset='utf-8'><title>{escape(title)}</title><meta name='viewport' content='width=device-width'>"
        f"<meta name='color-scheme' content='light dark'><style>{_file('page.css')}</style>"
    )
    return "\n".join(
        [
            f"<!doctype html><html lang='en'><head>{head}</head><body>",
            f"<header><h1>{escape(title)}</h1><p>{escape(about)}</p></header>",
            f"<nav aria-label='Contents'><ul>{links}</ul></nav><noscript><p>{_NO_SCRIPT}</p></noscript><main>",
            *(section.html() for section in shown),
            "</main>",
            f"<script>{plotly_script()}</script>",
            f"<script>{_file('page.js')}</script>",
            "</body></html>\n",
        ]
    )


def _file(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


# The origin of a page's figures: all settings, and identifiers.


def settings(experiment: Experiment, summary: str = "The resolved experiment") -> str:
    """Return all settings of an experiment as a document that can be unfolded."""
    about = "One document with everything that the experiment refers to and every default: it can be run as it is."
    return unfold(summary, paragraph(about) + document(experiment.document))


def document(data: Mapping[str, object]) -> str:
    """Return plain data as YAML."""
    return f"<pre>{escape(yaml_body(json.loads(to_json(data))))}</pre>"


def provenance(facts: Mapping[str, str]) -> Table:
    """What identifies a page's figures, and what made it."""
    made_by = {"Engine": ENGINE, "blis-tui": __version__, "plotly.js, which draws the charts": plotly_version()}
    rows = [*facts.items(), *made_by.items()]
    return Table(caption="Equal digests, seeds and engines give equal figures", head=("", ""), rows=rows, words=(1,))


class PictureView(NamedTuple):
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
    views: Mapping[str, PictureView]
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
