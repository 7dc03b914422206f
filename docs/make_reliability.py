"""How often the quoted errors hold: a picture for ``docs/accuracy.md``.

    python docs/make_reliability.py

One row for each group of measured runs, with each server left out of the fit and of the bands: the shares of errors
within the quoted median (nominally half) and within the 90 % band.
"""

from __future__ import annotations

import sys
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks.accuracy import JUDGED, held

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.accuracy import Held

PICTURE: Final = Path(__file__).with_name("img") / "reliability.svg"
ZONES: Final = {"within the median": (50, 40, 60), "within the band": (90, 80, 97)}
"""The nominal share in percent, and the range that counts as close enough."""
LEFT: Final = 330
WIDTH: Final = 400
_TOP: Final = 56
_ROW: Final = 30
_COLORS: Final = dict(zip(JUDGED, ("#e45756", "#4c78a8", "#54a24b"), strict=True))
_ZONES: Final = ("#dfe8f3", "#e3f1e0")


def at(percent: float) -> float:
    """Horizontal position of a share."""
    return round(LEFT + WIDTH * percent / 100, 1)


def picture(rows: Sequence[Held]) -> str:
    """An SVG file: a row of dots for each group, hollow for the median and full for the band."""
    groups = list(dict.fromkeys(row.group for row in rows))
    bottom = _TOP + _ROW * len(groups)
    whole = (LEFT + WIDTH + 30, bottom + 46)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {whole[0]} {whole[1]}" font-family="sans-serif">',
        f'<rect width="{whole[0]}" height="{whole[1]}" fill="white"/>',
    ]
    for (name, (meant, low, high)), color in zip(ZONES.items(), _ZONES, strict=True):
        box = f'x="{at(low)}" y="{_TOP}" width="{at(high) - at(low):.1f}" height="{bottom - _TOP}"'
        parts.append(f'<rect {box} fill="{color}"/>')
        parts.append(f'<path d="M{at(meant)} {_TOP}V{bottom}" stroke="#888" stroke-dasharray="3 3"/>')
        parts.append(_text(at(meant), _TOP - 8, f"{name}: {meant} % meant", "#222"))
    parts += [_text(at(value), bottom + 16, f"{value} %", "#666") for value in range(0, 101, 20)]
    for number, group in enumerate(groups):
        middle = _TOP + _ROW * number + _ROW // 2
        count = max(row.number for row in rows if row.group == group)
        parts.append(_text(LEFT - 8, middle + 4, f"{group.replace('`', '')} ({count})", "#222", anchor="end"))
        parts.append(f'<path d="M{LEFT} {middle + _ROW // 2}H{LEFT + WIDTH}" stroke="#eee"/>')
        for row in rows:
            if row.group == group:
                parts += _dots(row, middle + 8 * (JUDGED.index(row.metric) - 1))
    for number, (metric, color) in enumerate(_COLORS.items()):
        x = LEFT + 60 * number
        parts.append(f'<circle cx="{x}" cy="{bottom + 32}" r="4" fill="{color}"/>')
        parts.append(_text(x + 8, bottom + 36, metric.upper(), color, anchor="start"))
    parts.append(_text(at(100), bottom + 36, "hollow: median, full: band", "#222", anchor="end"))
    return "\n".join((*parts, "</svg>", ""))


def _dots(one: Held, y: int) -> list[str]:
    color = _COLORS[one.metric]
    places = (at(100 * one.within_median), at(100 * one.within_band))
    title = f"<title>{escape(one.group)}, {one.metric.upper()}</title>"
    return [
        f'<circle cx="{places[0]}" cy="{y}" r="3.5" fill="white" stroke="{color}" stroke-width="1.5">{title}</circle>',
        f'<circle cx="{places[1]}" cy="{y}" r="3.5" fill="{color}">{title}</circle>',
    ]


def _text(x: float, y: int, words: str, color: str, *, anchor: str = "middle") -> str:
    return f'<text x="{x}" y="{y}" fill="{color}" font-size="11" text-anchor="{anchor}">{escape(words)}</text>'


if __name__ == "__main__":
    PICTURE.write_text(picture(held("operators")), encoding="utf-8")
    sys.stderr.write(f"wrote {PICTURE}\n")
