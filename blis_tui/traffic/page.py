"""A workload description as one self-contained HTML page, without scripts or external resources."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Final

from blis_tui._version import __version__
from blis_tui.plain_page import plain_page, plain_table
from blis_tui.traffic.text import GROUP_COLUMNS, LENGTH_COLUMNS, facts, group_cells, groupings, length_cells

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.traffic.figures import Bin, Course, Description

_WIDTH: Final = 720
_HEIGHT: Final = 140
_BAR: Final = 260
_ROW: Final = 18
_STYLE: Final = "rect, polygon { fill: #4c7bd9; }\n"


def page(found: Description) -> str:
    """Create a page with tables of all figures, the arrival curve and the lengths."""
    parts = [
        plain_table((), ((name, text) for name, text in facts(found).items()), numbers=False),
        "<h2>Requests over time</h2>",
        _course(found.arrivals),
        "<h2>Lengths in tokens</h2>",
        plain_table(
            ("", *LENGTH_COLUMNS),
            (("prompts", *length_cells(found.input_tokens)), ("outputs", *length_cells(found.output_tokens))),
        ),
        _bars("prompts", found.input_histogram),
        _bars("outputs", found.output_histogram),
    ]
    for heading, groups in groupings(found).items():
        parts.append(f"<h2>By {escape(heading)}</h2>")
        rows = ((name or "(none)", *group_cells(group, found.prefix_reuse)) for name, group in groups.items())
        parts.append(plain_table((heading, *GROUP_COLUMNS), rows))
    return plain_page(f"Workload {found.name}", [*parts, f"<p>blis-tui {__version__}</p>"], _STYLE)


def _course(course: Course) -> str:
    counts = course.requests
    top, step = max(counts), _WIDTH / len(counts)
    corners = [f"0,{_HEIGHT}"]
    for number, count in enumerate(counts):
        y = _HEIGHT * (1 - count / top)
        corners += [f"{number * step:.1f},{y:.1f}", f"{(number + 1) * step:.1f},{y:.1f}"]
    corners.append(f"{_WIDTH},{_HEIGHT}")
    end = course.start_s + course.window_s * len(counts)
    return (
        f"<svg width='{_WIDTH}' height='{_HEIGHT + 34}' viewBox='0 -14 {_WIDTH} {_HEIGHT + 34}' role='img'"
        f" aria-label='requests over time'><polygon points='{' '.join(corners)}'/>"
        f"<line x1='0' y1='{_HEIGHT}' x2='{_WIDTH}' y2='{_HEIGHT}'/>"
        f"<text x='0' y='-3'>at most {top:,} in {course.window_s:,.3g} s</text>"
        f"<text x='0' y='{_HEIGHT + 15}'>{course.start_s:,.1f} s</text>"
        f"<text x='{_WIDTH}' y='{_HEIGHT + 15}' text-anchor='end'>{end:,.1f} s</text></svg>"
    )


def _bars(heading: str, bins: Sequence[Bin]) -> str:
    top = max(one.requests for one in bins)
    height = _ROW * (len(bins) + 1)
    parts = [
        f"<svg width='{_BAR + 190}' height='{height}' role='img' aria-label='{escape(heading)}'>",
        f"<text x='0' y='12'>{escape(heading)}</text>",
    ]
    for number, one in enumerate(bins, 1):
        y = number * _ROW
        width = max(1.0, _BAR * one.requests / top) if one.requests else 0.0
        parts.append(
            f"<text x='110' y='{y + 12}' text-anchor='end'>{one.from_tokens:,} to {one.to_tokens:,}</text>"
            f"<rect x='118' y='{y + 2}' width='{width:.1f}' height='12'/>"
            f"<text x='{124 + width:.0f}' y='{y + 12}'>{one.requests:,}</text>"
        )
    return "".join([*parts, "</svg>"])
