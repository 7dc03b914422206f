"""Several plots in one picture, with the colours and dashes that distinguish lines in all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import NamedTuple
from blis_tui.pictures.page import label

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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
