"""What a metric of reports, a column of request files or a field of records is, as text or as plain data."""

from __future__ import annotations

import textwrap
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from blis_tui.authoring.figures import NAME, NUMBER, all_figures
from blis_tui.columns import described
from blis_tui.spec.study.metrics import COSTS, is_metric

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from blis_tui.authoring.figures import Field, Figure
    from blis_tui.spec.source import Json

_WIDTH: Final = 100
_NEAR: Final = 6
_NUMERIC: Final = ("number", "whole number")


def is_named(figure: Figure) -> bool:
    """Return whether ``expect`` and studies can use the figure."""
    steps = ("0" if step == NUMBER else step for step in figure.path.split("."))
    return not figure.is_section and is_metric(".".join(steps).replace(NAME, "name"))


def figure_data(figure: Figure) -> dict[str, Json]:
    """Return the description of a figure as plain data."""
    section = figure.way[0]
    return {
        "figure": figure.path,
        "meaning": _meaning(figure),
        "type": figure.field.type,
        "unit": figure.unit,
        "section": None if section is figure.field else section.name,
        "expect": is_named(figure),
        "near": [*near(figure)],
    }


def figure_text(figure: Figure) -> str:
    """Return the description of a figure as text."""
    section = figure.way[0]
    kind = "a section of reports" if figure.is_section and len(figure.way) == 1 else "a metric of reports"
    lines = [f"{figure.path}: {kind}", "", *textwrap.wrap(_meaning(figure), _WIDTH), ""]
    facts = {
        "section": "" if section is figure.field else f"{section.name}: {section.meaning}",
        "type": figure.field.type,
        "unit": figure.unit,
        "usable in": _named_by(figure),
        "written": _written(figure),
        "near": ", ".join(near(figure)),
    }
    for name, text in facts.items():
        lines += textwrap.wrap(text, _WIDTH, initial_indent=f"  {name:<9} ", subsequent_indent=" " * 12) if text else ()
    below = [one for one in all_figures() if one.way[:-1] == figure.way]
    if below:
        lines += ["", "  figures", *described([(one.path, one.field.meaning) for one in below])]
    return "\n".join(lines).rstrip() + "\n"


def _meaning(figure: Figure) -> str:
    """Return the meaning of a figure; for a statistic, also that of the summarised quantity."""
    meaning = figure.field.meaning
    return f"{meaning} Of {figure.way[-2].name}: {figure.way[-2].meaning}" if figure.is_statistic else meaning


def _named_by(figure: Figure) -> str:
    if not is_named(figure):
        return ""
    if figure.field.type.removesuffix(" or null") in _NUMERIC:
        return "`expect`, `plan --slo`, `sweep --slo`, and objectives and columns of studies"
    return "`expect` (`equals`)"


def _written(figure: Figure) -> str:
    """Return what the run-dependent parts of its path stand for."""
    steps = figure.path.split(".")
    names = [f"{NAME} is a name of {before}" for before, step in pairwise(steps) if step == NAME]
    places = [f"{NUMBER} is a place in {before}, from 0" for before, step in pairwise(steps) if step == NUMBER]
    return "; ".join((*names, *places))


def near(figure: Figure) -> list[str]:
    """Return related figures: those of the same name in other sections, then its neighbours."""
    if figure.is_section:
        return []
    depth = 2 if figure.is_statistic else 1
    name = figure.path.split(".")[-depth:]
    same = [one.path for one in all_figures() if one.path.split(".")[-depth:] == name]
    if figure.is_statistic:
        sums = [one for one in all_figures() if one.way[:-1] == figure.way[:-2] and one.is_distribution]
        beside = [f"{one.path}.{figure.field.name}" for one in sums]
    else:
        around = figure.way[:-1]  # top-level sections are unrelated
        beside = [one.path for one in all_figures() if around and one.way[:-1] == around and not one.is_section]
    return [one for one in dict.fromkeys((*same, *_around(beside, figure.path))) if one != figure.path][:_NEAR]


def _around(paths: list[str], path: str) -> list[str]:
    """Return the paths, sorted by distance from one of them."""
    at = paths.index(path) if path in paths else 0
    return sorted(paths, key=lambda one: abs(paths.index(one) - at))


def field_text(field: Field, of: str) -> str:
    """Return the description of a column or a field as text."""
    lines = [f"{field.name}: {of}", ""]
    lines += [*textwrap.wrap(field.meaning, _WIDTH), ""] if field.meaning else []
    lines += [f"  {name:<9}{text}" for name, text in (("type", field.type), ("unit", field.unit)) if text]
    return "\n".join(lines) + "\n"


def field_data(field: Field, what: str, of: str) -> dict[str, Json]:
    """Return the same as plain data; ``what``: a column or a field, ``of``: its file or kind of record."""
    return {what: field.name, "of": of, "meaning": field.meaning, "type": field.type, "unit": field.unit}


def together(found: Sequence[Figure]) -> list[tuple[str, str]]:
    """Return figures with their meanings; the same figure of several parts of the cluster is one line."""
    paths: dict[Field, list[str]] = {}
    for one in found:
        paths.setdefault(one.field, []).append(one.path)
    also = {field: f" (Also {', '.join(others)}.)" if others else "" for field, (_, *others) in paths.items()}
    return [(first, f"{field.meaning}{also[field]}") for field, (first, *_) in paths.items()]


def listed(title: str, rows: Iterable[tuple[str, str]]) -> str:
    """Return several figures of one name, one per line."""
    return "\n".join([title, "", *described(rows)]) + "\n"


def overview() -> list[tuple[str, str]]:
    """Return every figure and section of reports, without single statistics, and then those of studies."""
    found = [(one.path, one.field.meaning) for one in all_figures() if not one.is_statistic]
    return [*found, *COSTS.items()]
