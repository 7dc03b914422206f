"""What each figure of a report, column of a request file and field of a record is: read off the docstrings of fields.

``docs/reference/report.md`` and ``records.md`` are made from the same, so a figure is explained in one place, beside
the field that holds it. The sources are read and not imported: a report has some thirty modules, most of which few
runs need. None of these is compiled, so that every wheel has them.
"""

from __future__ import annotations

import ast
import re
import sys
from functools import cache
from inspect import getsource
from itertools import pairwise
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING, Final

from blis_tui.classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_PACKAGE: Final = Path(__file__).resolve().parents[1]
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
"""End of a name -> the unit that it says; ``per_s`` and ``rps`` are rates of what stands before them."""
_WORDS: Final = {"int": "whole number", "float": "number", "str": "text", "bool": "truth value"}
_DISTRIBUTION: Final = "Distribution"
NAME: Final = "NAME"
"""Stands in a path for what the run calls it: a class, a tenant, a pool."""
NUMBER: Final = "N"
"""Stands in a path for a place in a list, from 0."""


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a record: its name, its type as written, and what it means."""

    name: str
    annotation: str
    meaning: str

    @property
    def unit(self) -> str:
        """The unit that its name says; empty = it says none."""
        if self.name.endswith("_rps"):
            return "requests per second"
        if self.name.endswith("per_s"):
            return f"{self.name.removesuffix('_per_s').replace('_', ' ')} per second"
        return next((unit for end, unit in _UNITS if self.name.endswith(end)), "")

    @property
    def type(self) -> str:
        """Its type in words, and whether it can be null."""
        bare = self.annotation.removesuffix(" | None")
        held = re.fullmatch(r"(?:Mapping\[str, |tuple\[)(\w+)(?:, \.\.\.)?\]", bare)
        inner = _part_named(bare)
        if inner:
            word = "distribution" if inner == _DISTRIBUTION else "section"
        else:
            word = " or ".join(_WORDS.get(one, one) for one in (held[1] if held else bare).split(" | "))
        return f"{word} or null" if bare != self.annotation else word


@dataclass(frozen=True, slots=True)
class Part:
    """A record that a report consists of, or one that is written by itself."""

    name: str
    about: str
    """Its docstring."""
    bases: tuple[str, ...]
    fields: tuple[Field, ...]
    """Its own, in their order."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure of reports, or a section of them."""

    path: str
    """As ``expect`` names it, with ``NAME`` and ``N`` where it depends on the run."""
    way: tuple[Field, ...]
    """The field that holds it, behind those of the sections around it."""

    @property
    def field(self) -> Field:
        """What holds it."""
        return self.way[-1]

    @property
    def unit(self) -> str:
        """Its own unit; of a statistic, that of what it sums up."""
        return next((one.unit for one in reversed(self.way[-2:]) if one.unit), "")

    @property
    def is_statistic(self) -> bool:
        """Whether it is one figure of a distribution."""
        return len(self.way) > 1 and _part_named(self.way[-2].annotation) == _DISTRIBUTION

    @property
    def is_distribution(self) -> bool:
        """Whether it is a distribution, whose statistics are figures."""
        return _part_named(self.field.annotation) == _DISTRIBUTION

    @property
    def is_section(self) -> bool:
        """Whether there are figures below it."""
        return bool(_part_named(self.field.annotation))


def _read_part(node: ast.ClassDef) -> Part:
    """What the source of a record says."""
    bases = tuple(map(ast.unparse, node.bases))
    return Part(node.name, ast.get_docstring(node) or "", bases, tuple(_read_fields(node)))


def part_of(record: type) -> Part:
    """What the source of a record says; without one (of a plug-in that has none at hand), its fields alone."""
    try:
        known = _classes_in(record.__module__)
        # One that a function defines is not among those of its module.
        return known.get(record.__name__) or _read_classes(dedent(getsource(record)))[record.__name__]
    except (OSError, TypeError, KeyError):
        names = tuple(Field(name, str(kind), "") for name, kind in record.__annotations__.items())
        return Part(record.__name__, "", (), names)


@cache
def _classes_in(module: str) -> Mapping[str, Part]:
    """The classes of a module that has been imported."""
    return _read_classes(getsource(sys.modules[module]))


def _read_classes(source: str) -> dict[str, Part]:
    return {node.name: _read_part(node) for node in ast.parse(source).body if isinstance(node, ast.ClassDef)}


def _read_fields(node: ast.ClassDef) -> Iterator[Field]:
    """Its fields, each with the text below it."""
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
    """The text with names of code between single backticks, as documents have them."""
    return re.sub(r"``([^`]*)``", r"`\1`", text)


@cache
def classes_of(folder: str) -> Mapping[str, Part]:
    """Every public class in the modules of a folder of the package, by name."""
    found: dict[str, Part] = {}
    for file in sorted((_PACKAGE / folder).rglob("*.py")):
        found |= _read_classes(file.read_text(encoding="utf-8"))
    return {name: part for name, part in found.items() if not name.startswith("_")}


def report_parts() -> Mapping[str, Part]:
    """The records that reports consist of, and others that are written beside them."""
    return classes_of("metrics")


def fields_of(name: str) -> tuple[Field, ...]:
    """The fields of a part of reports, its own first."""
    part = report_parts()[name]
    inherited = [field for base in part.bases if base in report_parts() for field in fields_of(base)]
    return (*part.fields, *inherited)


def _part_named(annotation: str) -> str:
    """The part that a field of this type holds, alone, in a list or by name; empty = it holds a plain value."""
    found = [name for name in re.findall(r"\w+", annotation) if name in report_parts()]
    return found[-1] if found else ""


def _steps(field: Field) -> tuple[str, ...]:
    """What comes behind a field's name in a path, before the names of what it holds."""
    if field.annotation.startswith("Mapping["):
        return (NAME,)
    return (NUMBER,) if field.annotation.startswith("tuple[") else ()


_NOT_WRITTEN: Final = frozenset({"experiment", "step_models", "rows", "left_out"})
"""What a report has in Python alone."""


@cache
def all_figures() -> tuple[Figure, ...]:
    """Every figure and section of reports, those of sections that few runs have last."""
    fields = [field for field in fields_of("Report") if field.name not in _NOT_WRITTEN]
    return tuple(figure for field in fields for figure in _below((), (), field))


def _below(path: tuple[str, ...], way: tuple[Field, ...], field: Field) -> Iterator[Figure]:
    """A field of a report, and all that it holds."""
    here, way = (*path, field.name), (*way, field)
    inner = _part_named(field.annotation)
    yield Figure(".".join(here if inner else (*here, *_steps(field))), way)
    for one in fields_of(inner) if inner else ():
        yield from _below((*here, *_steps(field)), way, one)


def figures_at(path: str) -> list[Figure]:
    """The figure of that path; those with that name where it is one step. Names and places may be left out."""
    steps = tuple(path.lower().split("."))
    exact = [one for one in all_figures() if _matches(one.path.split("."), steps)]
    if exact or len(steps) > 1:
        return exact
    return [one for one in all_figures() if one.field.name == steps[0] and not one.is_statistic]


def _matches(pattern: list[str], steps: tuple[str, ...]) -> bool:
    """Whether a path is one of that pattern, in which names and places may be left out."""
    if not pattern or not steps:
        return not steps and all(one in (NAME, NUMBER) for one in pattern)
    first, rest = pattern[0], pattern[1:]
    if first == NAME:
        return _matches(rest, steps[1:]) or _matches(rest, steps)
    if first == NUMBER:
        return _matches(rest, steps[1:] if steps[0].isdecimal() or steps[0] == NUMBER.lower() else steps)
    return first == steps[0] and _matches(rest, steps[1:])


def filled(pattern: str, path: str) -> str:
    """The pattern with the names and places of a path that is like it."""
    steps = path.split(".")
    places = [*steps, *pattern.split(".")[len(steps) :]]
    pairs = zip(pattern.split("."), places, strict=False)
    return ".".join(given if step in (NAME, NUMBER) else step for step, given in pairs)


def request_columns() -> tuple[Field, ...]:
    """The columns of request files."""
    return fields_of("RequestRow")
