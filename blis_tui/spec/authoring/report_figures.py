"""The meanings of report figures, request file columns and record fields, as data and as text.

``docs/reference/report.md`` and ``records.md`` use the same source, so a figure is explained only once, beside its
field. Source files are parsed instead of imported, because a report has some thirty modules, of which few runs need
most. None of them is compiled, so that every wheel contains their sources.
"""

from __future__ import annotations

import ast
import re
import sys
import textwrap
from functools import cache
from inspect import getsource
from itertools import pairwise
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import dataclass
from blis_tui.base.text import described
from blis_tui.spec.metric_names import COSTS, is_study_metric

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from blis_tui.base.source import Json


_PACKAGE: Final = Path(__file__).resolve().parents[2]
_UNITS: Final = (
    ("_us", "microseconds"),
    ("_ms", "milliseconds"),
    ("_percent", "percent"),
    ("_hours", "hours"),
    ("_blocks", "KV blocks"),
    ("_tokens", "tokens"),
    ("_bytes", "bytes"),
    ("_ppm", "parts per million"),
)
"""Suffix of a name -> unit; ``per_s`` and ``rps`` are rates of what comes before."""
_WORDS: Final = {"int": "whole number", "float": "number", "str": "text", "bool": "truth value"}
_DISTRIBUTION: Final = "Distribution"
NAME: Final = "NAME"
"""Placeholder in a path for a name from the run: a class, a tenant, a pool."""
NUMBER: Final = "N"
"""Placeholder in a path for a list position, from 0."""


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a record: its name, its type as written, and its meaning."""

    name: str
    annotation: str
    meaning: str

    @property
    def unit(self) -> str:
        """The unit that the name states; empty = none."""
        if self.name.endswith("_rps"):
            return "requests per second"
        if self.name.endswith("per_s"):
            return f"{self.name.removesuffix('_per_s').replace('_', ' ')} per second"
        return next((unit for end, unit in _UNITS if self.name.endswith(end)), "")

    @property
    def type(self) -> str:
        """The type in words, and whether the field can be null."""
        bare = self.annotation.removesuffix(" | None")
        held = re.fullmatch(r"(?:Mapping\[str, |tuple\[)(\w+)(?:, \.\.\.)?\]", bare)
        inner = _part_named(bare)
        if inner:
            word = "distribution" if inner == _DISTRIBUTION else "section"
        else:
            word = " or ".join(_WORDS.get(name, name) for name in (held[1] if held else bare).split(" | "))
        return f"{word} or null" if bare != self.annotation else word


@dataclass(frozen=True, slots=True)
class Part:
    """A record that is a part of reports, or is written on its own."""

    name: str
    about: str
    """Its docstring."""
    bases: tuple[str, ...]
    fields: tuple[Field, ...]
    """Its own fields, in order."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure or a section of reports."""

    path: str
    """Its path for ``expect``, with ``NAME`` and ``N`` for run-dependent parts."""
    way: tuple[Field, ...]
    """The field, preceded by the fields of the sections that contain it."""

    @property
    def field(self) -> Field:
        """The field of the figure."""
        return self.way[-1]

    @property
    def unit(self) -> str:
        """Its own unit; for a statistic, that of the summarised quantity."""
        return next((field.unit for field in reversed(self.way[-2:]) if field.unit), "")

    @property
    def is_statistic(self) -> bool:
        """Whether it is a statistic of a distribution."""
        return len(self.way) > 1 and _part_named(self.way[-2].annotation) == _DISTRIBUTION

    @property
    def is_distribution(self) -> bool:
        """Whether it is a distribution, whose statistics are figures."""
        return _part_named(self.field.annotation) == _DISTRIBUTION

    @property
    def is_section(self) -> bool:
        """Whether it contains figures."""
        return bool(_part_named(self.field.annotation))


def _read_part(node: ast.ClassDef) -> Part:
    """Return the part that the source of a record describes."""
    bases = tuple(map(ast.unparse, node.bases))
    return Part(node.name, ast.get_docstring(node) or "", bases, tuple(_read_fields(node)))


def part_of(record: type) -> Part:
    """Return the part for a record class; without its source (a plug-in's may be missing), only its fields."""
    try:
        known = _classes_in(record.__module__)
        # A class defined in a function is not among those of its module.
        return known.get(record.__name__) or _read_classes(dedent(getsource(record)))[record.__name__]
    except (OSError, TypeError, KeyError):
        names = tuple(Field(name, str(kind), "") for name, kind in record.__annotations__.items())
        return Part(record.__name__, "", (), names)


@cache
def _classes_in(module: str) -> Mapping[str, Part]:
    """Return the classes of an imported module."""
    return _read_classes(getsource(sys.modules[module]))


def _read_classes(source: str) -> dict[str, Part]:
    return {node.name: _read_part(node) for node in ast.parse(source).body if isinstance(node, ast.ClassDef)}


def _read_fields(node: ast.ClassDef) -> Iterator[Field]:
    """Yield the fields of a class, each with the docstring below it."""
    for field, after in pairwise((*node.body, None)):
        if not isinstance(field, ast.AnnAssign) or "ClassVar" in ast.unparse(field.annotation):
            continue
        name = ast.unparse(field.target)
        if not name.startswith("_"):
            yield Field(name, ast.unparse(field.annotation), _text_of(after))


def _text_of(node: ast.stmt | None) -> str:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
        return as_code(" ".join(node.value.value.split()))
    return ""


def as_code(text: str) -> str:
    """Return a text with code names in single backticks, as in documents."""
    return re.sub(r"``([^`]*)``", r"`\1`", text)


@cache
def classes_of(folder: str) -> Mapping[str, Part]:
    """Return every public class in the modules of a folder of the package, by name."""
    parts: dict[str, Part] = {}
    for file in sorted((_PACKAGE / folder).rglob("*.py")):
        parts |= _read_classes(file.read_text(encoding="utf-8"))
    return {name: part for name, part in parts.items() if not name.startswith("_")}


def report_parts() -> Mapping[str, Part]:
    """Return the records that reports consist of, and others defined beside them."""
    return classes_of("results")


def fields_of(name: str) -> tuple[Field, ...]:
    """Return the fields of a part of reports, its own first."""
    part = report_parts()[name]
    inherited = [field for base in part.bases if base in report_parts() for field in fields_of(base)]
    return (*part.fields, *inherited)


def _part_named(annotation: str) -> str:
    """Return the part that a field of this type holds, alone, in a list or by name; empty = a plain value."""
    names = [name for name in re.findall(r"\w+", annotation) if name in report_parts()]
    return names[-1] if names else ""


def _steps(field: Field) -> tuple[str, ...]:
    """Return the path steps between a field's name and the names of what it holds."""
    if field.annotation.startswith("Mapping["):
        return (NAME,)
    return (NUMBER,) if field.annotation.startswith("tuple[") else ()


_NOT_WRITTEN: Final = frozenset({"experiment", "step_models", "rows", "left_out"})
"""Attributes of a report that exist only in Python."""


@cache
def all_figures() -> tuple[Figure, ...]:
    """Return every figure and section of reports; sections that few runs have come last."""
    fields = [field for field in fields_of("Report") if field.name not in _NOT_WRITTEN]
    return tuple(figure for field in fields for figure in _below((), (), field))


def _below(path: tuple[str, ...], way: tuple[Field, ...], field: Field) -> Iterator[Figure]:
    """Yield a field of a report, and everything in it."""
    here, way = (*path, field.name), (*way, field)
    inner = _part_named(field.annotation)
    yield Figure(".".join(here if inner else (*here, *_steps(field))), way)
    for child in fields_of(inner) if inner else ():
        yield from _below((*here, *_steps(field)), way, child)


def figures_at(path: str) -> list[Figure]:
    """Return the figure with that path, or for a single step those with that name; placeholders may be omitted."""
    steps = tuple(path.lower().split("."))
    exact = [figure for figure in all_figures() if _matches(figure.path.split("."), steps)]
    if exact or len(steps) > 1:
        return exact
    return [figure for figure in all_figures() if figure.field.name == steps[0] and not figure.is_statistic]


def _matches(pattern: list[str], steps: tuple[str, ...]) -> bool:
    """Return whether a path matches a pattern, in which placeholders may be omitted."""
    if not pattern or not steps:
        return not steps and all(step in (NAME, NUMBER) for step in pattern)
    first, rest = pattern[0], pattern[1:]
    if first == NAME:
        return _matches(rest, steps[1:]) or _matches(rest, steps)
    if first == NUMBER:
        return _matches(rest, steps[1:] if steps[0].isdecimal() or steps[0] == NUMBER.lower() else steps)
    return first == steps[0] and _matches(rest, steps[1:])


def filled(pattern: str, path: str) -> str:
    """Fill the placeholders of a pattern with the steps of a similar path."""
    steps = path.split(".")
    places = [*steps, *pattern.split(".")[len(steps) :]]
    pairs = zip(pattern.split("."), places, strict=False)
    return ".".join(given if step in (NAME, NUMBER) else step for step, given in pairs)


def request_columns() -> tuple[Field, ...]:
    """Return the columns of request files."""
    return fields_of("RequestRow")


_WIDTH: Final = 100
_NEAR: Final = 6
_NUMERIC: Final = ("number", "whole number")


def is_named(figure: Figure) -> bool:
    """Return whether ``expect`` and studies can use the figure."""
    steps = ("0" if step == NUMBER else step for step in figure.path.split("."))
    return not figure.is_section and is_study_metric(".".join(steps).replace(NAME, "name"))


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
    below = [other for other in all_figures() if other.way[:-1] == figure.way]
    if below:
        lines += ["", "  figures", *described([(other.path, other.field.meaning) for other in below])]
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
    same = [other.path for other in all_figures() if other.path.split(".")[-depth:] == name]
    if figure.is_statistic:
        sums = [other for other in all_figures() if other.way[:-1] == figure.way[:-2] and other.is_distribution]
        beside = [f"{other.path}.{figure.field.name}" for other in sums]
    else:
        around = figure.way[:-1]  # top-level sections are unrelated
        beside = [other.path for other in all_figures() if around and other.way[:-1] == around and not other.is_section]
    return [path for path in dict.fromkeys((*same, *_around(beside, figure.path))) if path != figure.path][:_NEAR]


def _around(paths: list[str], path: str) -> list[str]:
    """Return the paths, sorted by distance from one of them."""
    at = paths.index(path) if path in paths else 0
    return sorted(paths, key=lambda candidate: abs(paths.index(candidate) - at))


def field_text(field: Field, of: str) -> str:
    """Return the description of a column or a field as text."""
    lines = [f"{field.name}: {of}", ""]
    lines += [*textwrap.wrap(field.meaning, _WIDTH), ""] if field.meaning else []
    lines += [f"  {name:<9}{text}" for name, text in (("type", field.type), ("unit", field.unit)) if text]
    return "\n".join(lines) + "\n"


def field_data(field: Field, what: str, of: str) -> dict[str, Json]:
    """Return the same as plain data; ``what``: a column or a field, ``of``: its file or kind of record."""
    return {what: field.name, "of": of, "meaning": field.meaning, "type": field.type, "unit": field.unit}


def together(figures: Sequence[Figure]) -> list[tuple[str, str]]:
    """Return figures with their meanings; the same figure of several parts of the cluster is one line."""
    paths: dict[Field, list[str]] = {}
    for figure in figures:
        paths.setdefault(figure.field, []).append(figure.path)
    also = {field: f" (Also {', '.join(others)}.)" if others else "" for field, (_, *others) in paths.items()}
    return [(first, f"{field.meaning}{also[field]}") for field, (first, *_) in paths.items()]


def listed(title: str, rows: Iterable[tuple[str, str]]) -> str:
    """Return several figures of one name, one per line."""
    return "\n".join([title, "", *described(rows)]) + "\n"


def overview() -> list[tuple[str, str]]:
    """Return every figure and section of reports, without single statistics, and then those of studies."""
    rows = [(figure.path, figure.field.meaning) for figure in all_figures() if not figure.is_statistic]
    return [*rows, *COSTS.items()]
