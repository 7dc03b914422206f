"""Self-contained HTML pages without scripts: their frame, their style and their tables."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_STYLE: Final = """
body { font: 14px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 72rem; padding: 0 1rem; color: #1d2433; }
table { border-collapse: collapse; margin: 1rem 0; }
th, td { text-align: left; padding: .3rem .7rem; border-bottom: 1px solid #d9dee8; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; }
svg { margin-right: 1rem; max-width: 100%; } svg text { font: 11px system-ui, sans-serif; fill: currentColor; }
line { stroke: currentColor; stroke-opacity: .5; }
@media (prefers-color-scheme: dark) { body { background: #14181f; color: #e5e9f0; } th, td { border-color: #333c4a; } }
"""


def plain_page(title: str, parts: Iterable[str], style: str) -> str:
    """The whole file.

    Args:
        title: what it is about.
        parts: HTML that stands below it.
        style: rules of this kind of page, beside those that all have.
    """
    head = (
        f"<!doctype html><html lang='en'><head><meta charset='utf-8'><title>{escape(title)}</title>",
        f"<meta name='viewport' content='width=device-width'><style>{_STYLE}{style}</style></head><body>",
        f"<h1>{escape(title)}</h1>",
    )
    return "\n".join([*head, *parts, "</body></html>\n"])


def plain_table(head: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: bool = True) -> str:
    """A table of texts; ``numbers``: all columns but the first hold figures. Without ``head`` it has none."""
    kind = " class='n'" if numbers else ""
    first, *others = head or ("",)
    top = f"<tr><th>{escape(first)}</th>" + "".join(f"<th{kind}>{escape(cell)}</th>" for cell in others) + "</tr>"
    body = (
        f"<tr><td>{escape(row[0])}</td>" + "".join(f"<td{kind}>{escape(cell)}</td>" for cell in row[1:]) + "</tr>"
        for row in rows
    )
    return f"<table>{top if head else ''}{''.join(body)}</table>"
