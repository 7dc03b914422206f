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
    match = re.search(r"plotly\.js v([\w.-]+)", plotly_script()[:500])
    return "unknown" if match is None else match[1]


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
    links = "".join(f"<li><a href='#{escape(section.name)}'>{escape(section.title)}</a></li>" for section in shown)
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


def cards(shown: Iterable[Card]) -> str:
    """Return key figures side by side."""
    parts = [
        f"<div class='card'><dt>{escape(card.name)}</dt>"
        f"<dd>{escape(card.value)}<small>{escape(card.more)}</small></dd></div>"
        for card in shown
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
        parts = [part if isinstance(part, str) else part.html() for part in self.content]
        title = escape(self.title)
        return (
            f"<section id='{name}' aria-labelledby='{name}-h'><h2 id='{name}-h'>{title}</h2>{''.join(parts)}</section>"
        )


PALETTE: Final = ("#0072B2", "#D55E00", "#009E73", "#E69F00", "#CC79A7", "#56B4E9", "#8A8F98")
"""Okabe and Ito's palette, which is distinguishable with any colour vision; grey replaces black and yellow, which are
hard to see on a dark or a white background."""
MS_AXIS: Final = {"rangemode": "tozero", "ticksuffix": " ms"}
"""Plotly's settings of an axis in milliseconds."""
_FEW_VALUES: Final = 8
_WIDE: Final = 8
_DASHES: Final = ("solid", "dash", "dot", "dashdot")


class Panel(NamedTuple):
    """A plot: its title and Plotly's settings of its axes."""

    title: str
    x: Mapping[str, object]
    y: Mapping[str, object]


def axes(number: int) -> tuple[str, str]:
    """Return Plotly's names for the axes of a panel, counted from 0."""
    return (f"x{number + 1}", f"y{number + 1}") if number else ("x", "y")


def panels_layout(panels: Sequence[Panel], columns: int = 1, *, shared_x: bool = False) -> dict[str, object]:
    """Return the layout of panels, row by row.

    Args:
        panels: the plots.
        columns: number of plots per row.
        shared_x: whether they share a horizontal axis, which zooms together and has its title at the bottom only.
    """
    rows = -(-len(panels) // columns)
    layout: dict[str, object] = {}
    titles = []
    for number, panel in enumerate(panels):
        x, y = axes(number)
        inner = shared_x and number < len(panels) - 1
        matches = {"matches": "x"} if shared_x and number else {}
        hidden = {"title": {"text": ""}, "showticklabels": False} if inner else {}
        layout[f"xaxis{x[1:]}"] = {**panel.x, **matches, **hidden}
        layout[f"yaxis{y[1:]}"] = {**panel.y}
        titles.append(
            {
                "text": f"<b>{label(panel.title)}</b>",
                "showarrow": False,
                "x": 0,
                "xref": f"{x} domain",
                "xanchor": "left",
                "y": 1,
                "yref": f"{y} domain",
                "yanchor": "bottom",
                "yshift": 3,
            }
        )
    gap = 0.24 if shared_x else 0.36
    grid = {"rows": rows, "columns": columns, "pattern": "independent", "xgap": 0.16, "ygap": gap}
    legend = {"legend": {"orientation": "h", "x": 0, "y": 1.06, "yanchor": "bottom"}}
    return {**layout, "grid": grid, "annotations": titles, "margin": {"t": 56, "l": 64, "r": 16, "b": 48}, **legend}


def trace(panel: int, name: str, **settings: object) -> dict[str, object]:
    """Return a trace (by default a line) in a panel; traces of one name share a legend entry."""
    x, y = axes(panel)
    known: dict[str, object] = {"type": "scatter", "mode": "lines", "xaxis": x, "yaxis": y, "name": label(name)}
    return {**known, "legendgroup": label(name), "showlegend": panel == 0, **settings}


def line_of(number: int, width: float = 2) -> dict[str, object]:
    """Return the colour and dash of a line by number, equal in every panel."""
    turn, color = divmod(number, len(PALETTE))
    return {"color": PALETTE[color], "dash": _DASHES[turn % len(_DASHES)], "width": width}


def value_axis(title: str, values: Sequence[float]) -> dict[str, object]:
    """Return Plotly's settings of an axis: a few integers have one tick each, a wide range is logarithmic.

    A logarithmic axis also has ticks at 2 and 5 times powers of ten.
    """
    axis: dict[str, object] = {"title": {"text": label(title)}, "rangemode": "tozero"}
    if values and all(value == int(value) for value in values) and len({*values}) <= _FEW_VALUES:
        return {**axis, "tickvals": sorted({*values})}
    wide = bool(values) and 0 < _WIDE * min(values) < max(values)
    return {**axis, "type": "log", "dtick": "D2"} if wide else axis


def bound_line(axis: str, value: float) -> dict[str, object]:
    """Return a line at an upper bound of an axis."""
    other = "y" if axis == "x" else "x"
    along = {f"{other}0": 0, f"{other}1": 1, f"{other}ref": "paper"}
    text = {"text": f"at most {value:,g}", "textposition": "end", "font": {"color": PALETTE[1], "size": 11}}
    line = {"dash": "dash", "width": 1.2, "color": PALETTE[1]}
    return {
        "type": "line",
        f"{axis}0": value,
        f"{axis}1": value,
        f"{axis}ref": axis,
        **along,
        "line": line,
        "label": text,
    }


def spread_line(
    xs: Sequence[float], ys: Sequence[float], low: Sequence[float], high: Sequence[float], *, shown: bool = True
) -> dict[str, object]:
    """Return a line with a mark for each value, and if ``shown`` a bar from its lowest to its highest value."""
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "x": [*xs],
        "y": [*ys],
        "error_y": {
            "type": "data",
            "symmetric": False,
            "array": [top - y for top, y in zip(high, ys, strict=True)],
            "arrayminus": [y - bottom for bottom, y in zip(low, ys, strict=True)],
            "visible": shown,
            "thickness": 1,
            "width": 3,
        },
    }


def star(x: float, y: float, color: int, size: int, *, hollow: bool = False) -> dict[str, object]:
    """Return a highlighted value, in a line's colour."""
    marker = {"symbol": "star-open" if hollow else "star", "size": size, "color": PALETTE[color % len(PALETTE)]}
    return {"type": "scatter", "mode": "markers", "x": [x], "y": [y], "marker": marker}
