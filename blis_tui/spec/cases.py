"""The cases of an experiment: named sets of values from ``cases`` and ``matrix``."""

from __future__ import annotations

import json
import re
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from blis_tui.classes import dataclass
from blis_tui.spec.diagnostics import about
from blis_tui.spec.source import as_map
from blis_tui.spec.study.axes import assignments, coordinates_of, count_points, cross, crossed, plain_value
from blis_tui.spec.study.checks import check_replaced
from blis_tui.spec.study.model import MAX_POINTS

if TYPE_CHECKING:
    from blis_tui.spec.compose import Problems
    from blis_tui.spec.overrides import Override
    from blis_tui.spec.source import DataPath, Document, Json


_FOREIGN: Final = re.compile(r"[^A-Za-z0-9._-]+")
"""What is in no name of a case or a value: names are those of files, on every system."""
_LONGEST_VALUE: Final = 40
_LONGEST: Final = 120


@dataclass(frozen=True, slots=True)
class NamedCase:
    """One variant of an experiment."""

    name: str
    """Name of the case; empty for the experiment itself."""
    line: int
    """Line of the case in the file, from 1."""
    overrides: tuple[Override, ...]

    @property
    def values(self) -> dict[str, Json]:
        """The assigned values by path."""
        return coordinates_of(self.overrides)


def expanded_cases(document: Document, problems: Problems) -> list[NamedCase]:
    """Return every case combined with every point of the matrix; without either, the unnamed experiment itself."""
    axes = tuple(crossed(document, ("matrix",), problems))
    if (count := count_points(axes)) > MAX_POINTS:
        message = f"the matrix expands to {count:,} cases; the limit is {MAX_POINTS:,}"
        problems.add(about(document, ("matrix",), "BLIS2061", message, key=True))
        return []
    cases = [
        NamedCase(name, _line(document, "cases", name), tuple(assignments(document, ("cases", name), problems)))
        for name in as_map(document.get("cases"))
    ]
    _check_assignments(document, problems)
    points = list(cross(axes))
    found = [
        NamedCase(_name(case.name, point), case.line, (*case.overrides, *point))
        for case in cases or [NamedCase("", _line(document, "matrix") if axes else 1, ())]
        for point in points
    ]
    _check_names(document, found, problems)
    return found


def _check_names(document: Document, cases: list[NamedCase], problems: Problems) -> None:
    """Check that no two cases have the same golden, also where names of files ignore case."""
    known: dict[str, str] = {}
    for case in cases if not problems.found else ():
        folded = case.name.casefold()
        if folded in known:
            other = known[folded]
            message = f"the cases `{other}` and `{case.name}` would have the same golden where files ignore case"
            part = ("cases", case.name) if ("cases", case.name) in document.keys else ("matrix",)
            problems.add(about(document, part, "BLIS2068", message, key=True, hint="rename one of them"))
            return
        known[folded] = case.name


def _check_assignments(document: Document, problems: Problems) -> None:
    """Check that each assignment of a case and of the matrix has an effect, and that cases differ."""
    matrix = as_map(document.get("matrix"))
    seen: dict[str, DataPath] = {}
    for path in matrix:
        check_replaced(document, ("matrix", path), seen, problems)
        seen[path] = ("matrix", path)
    known: dict[str, str] = {}
    for name, values in as_map(document.get("cases")).items():
        seen = {}
        for path in as_map(values):
            here = ("cases", name, path)
            if over := next((one for one in matrix if f"{path}.".startswith(f"{one}.")), None):
                message = f"`{path}` has no effect: the matrix gives every case its own `{over}`"
                problems.add(about(document, here, "BLIS2062", message, key=True, hint="remove it from one of the two"))
            check_replaced(document, here, seen, problems)
            seen[path] = here
        same = json.dumps(plain_value(values), sort_keys=True)
        if same in known:
            message = f"case `{name}` assigns the same values as case `{known[same]}`"
            hint = "give it values of its own, or remove it"
            problems.add(about(document, ("cases", name), "BLIS2068", message, key=True, hint=hint))
        known.setdefault(same, name)


def _line(document: Document, *path: str) -> int:
    place = document.keys.get(path)
    return 1 if place is None else place.span.line


def _name(case: str, point: tuple[Override, ...]) -> str:
    coordinates = (f"{one.steps[-1]}={_word(one.value.data)}" for one in point)
    name = ",".join(filter(None, (case, *coordinates)))
    return name if len(name) <= _LONGEST else f"{name[:_LONGEST]}-{_mark(name)}"


def _word(value: Json) -> str:
    """Return a value as part of a name; one that is no plain word becomes its first characters and a hash."""
    plain = value if isinstance(value, str) else repr(value)
    word = _FOREIGN.sub("-", plain)
    if word == plain and len(plain) <= _LONGEST_VALUE:
        return plain
    return f"{word.strip('-')[:_LONGEST_VALUE]}-{_mark(value)}"


def _mark(value: Json) -> str:
    return sha256(json.dumps(value).encode()).hexdigest()[:6]
