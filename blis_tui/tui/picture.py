"""Pictures of the screen that look the same in every program, without a network."""

from __future__ import annotations

import re
from html import escape, unescape
from typing import Final

from rich.cells import cell_len

_FONTS: Final = "'DejaVu Sans Mono', 'Liberation Mono', Menlo, Consolas, 'Courier New', monospace"
"""Fonts of Linux, macOS and Windows with lines and blocks, all of about the same width."""
_CELL: Final = 20 * 0.61
"""Width of a cell in Rich's pictures: the size of the font and its aspect ratio."""
_FONT_FACE: Final = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
_TEXT: Final = re.compile(
    r'<text class="([\w-]+)" x="([\d.]+)" (y="[\d.]+") textLength="[\d.]+" ([^>]*)>([^<]*)</text>'
)
_WORD: Final = re.compile(r"\S+")
_FRAME: Final = re.compile(r'(clip-terminal">\s*<rect x="0" y="0" width="[\d.]+" height=")([\d.]+)')
_DESCENDERS: Final = 4
"""Height by which Rich cuts off the last line."""


def portable(svg: str) -> str:
    """Return Rich's picture of a terminal with fonts of the reader's system, and a place for every word.

    Rich loads its font from a network, and trusts that spaces keep their width and wide characters take one cell.
    Programs that ignore ``textLength``, or collapse spaces, would shift everything after them.
    """
    svg = _FONT_FACE.sub("", svg).replace("Fira Code, monospace", _FONTS)
    svg = svg.replace("<svg ", '<svg xml:space="preserve" ', 1)
    svg = _FRAME.sub(lambda found: f"{found[1]}{float(found[2]) + _DESCENDERS:g}", svg)
    return _TEXT.sub(_words, svg)


def _words(found: re.Match[str]) -> str:
    """Return a text of a line as one element for each of its words."""
    look, left, y, rest, content = found.groups()
    text = unescape(content)
    return "".join(
        f'<text class="{look}" x="{float(left) + cell_len(text[: word.start()]) * _CELL:g}" {y}'
        f' textLength="{cell_len(word[0]) * _CELL:g}" lengthAdjust="spacingAndGlyphs" {rest}>{escape(word[0])}</text>'
        for word in _WORD.finditer(text)
    )
