"""A page: its sections, one style and one script; nothing in it comes from elsewhere, or says when it was made."""

from __future__ import annotations

from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING, Final

from blis_tui.pictures.library import plotly_script
from blis_tui.pictures.parts import Picture

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.pictures.parts import Section

_NO_SCRIPT: Final = "The pictures need JavaScript; the tables below them do not."


def page(title: str, about: str, sections: Sequence[Section]) -> str:
    """The whole file.

    Args:
        title: what it is about.
        about: a sentence below the title.
        sections: its parts, in order; those without content are left out.

    Raises:
        InputError: the plotting library is not installed.
        ValueError: two of its elements have one name, so that links and pictures would mix them up.
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
