"""An HTML page: sections, one style and one script, without external resources and without a date."""

from __future__ import annotations

import json
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING, Final

from blis_tui._version import ENGINE, __version__
from blis_tui.canonical import to_json
from blis_tui.pictures.library import plotly_script, plotly_version
from blis_tui.pictures.parts import Picture, paragraph, unfold
from blis_tui.plain_page import Table
from blis_tui.spec.yaml_text import yaml_body

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from blis_tui.pictures.parts import Section
    from blis_tui.spec.model import Experiment


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
