"""The cases of an experiment (named sets of values from ``cases`` and ``matrix``), and their checks."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import dataclass
from blis_tui.base.diagnostics import about, in_order, suggestion
from blis_tui.base.errors import SpecError
from blis_tui.base.source import as_list, as_map
from blis_tui.spec.load import resolve_document
from blis_tui.spec.study.axes import (
    assignments,
    check_replaced,
    coordinates_of,
    count_points,
    cross,
    crossed,
    plain_value,
)
from blis_tui.spec.study.study_records import MAX_POINTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from blis_tui.base.diagnostics import Diagnostic
    from blis_tui.base.source import DataPath, Document, Json
    from blis_tui.model import Experiment
    from blis_tui.model.plug_ins import Registry
    from blis_tui.spec.compose import Problems
    from blis_tui.spec.overrides import Override
    from blis_tui.spec.resolve import Resolved


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
    cases = [
        NamedCase(_name(case.name, point), case.line, (*case.overrides, *point))
        for case in cases or [NamedCase("", _line(document, "matrix") if axes else 1, ())]
        for point in points
    ]
    _check_names(document, cases, problems)
    return cases


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
            if over := next((above for above in matrix if f"{path}.".startswith(f"{above}.")), None):
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
    coordinates = (f"{override.steps[-1]}={_word(override.value.data)}" for override in point)
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


_MOST: Final = 1000
"""Maximum number of cases that are checked; each takes milliseconds."""
_OF_CASES: Final = (("cases",), ("matrix",))
_FEW: Final = 16
"""Number of cases that are checked in any case."""
_MOST_BYTES: Final = 2**30
"""Maximum total size of the traces that are read for that."""
_MOST_WRONG: Final = 20
"""Number of cases with errors after which no more are checked."""


@dataclass(frozen=True, slots=True)
class CheckedCases:
    """The result of checking the cases of an experiment."""

    count: int
    """Number of cases that were checked."""
    diagnostics: tuple[Diagnostic, ...]


def check_cases(
    document: Document,
    cases: Mapping[str, tuple[Override, ...]],
    *,
    plugins: Registry | None = None,
    trace_bytes: int = 0,
    also: Callable[[Resolved], None] = lambda _: None,
) -> CheckedCases:
    """Check the cases of a sound experiment, of very many a sample that has as many of their values as it can.

    A problem that several cases have is reported once, with the first of them.

    Args:
        document: the experiment as it was read.
        cases: the assignments of its cases, by name.
        plugins: additional plug-ins that it may name.
        trace_bytes: size of the experiment's trace, which is read for each case.
        also: another check of a resolved case, which raises SpecError.
    """
    diagnostics: dict[tuple[object, ...], Diagnostic] = {}
    wrong = count = 0
    most = min(_MOST, max(_FEW, _MOST_BYTES // max(trace_bytes, 1)))
    for name, overrides in _sample(cases, most):
        count += 1
        try:
            also(resolve_document(document.copy(), overrides, plugins))
        except SpecError as error:
            for diagnostic in error.diagnostics:
                diagnostics.setdefault(
                    (diagnostic.file, diagnostic.line, diagnostic.column, diagnostic.code, diagnostic.message),
                    _named(diagnostic, name, document),
                )
            wrong += 1
            if wrong == _MOST_WRONG:
                break
    return CheckedCases(count, tuple(in_order(diagnostics.values())))


def unknown_expectations(document: Document, experiment: Experiment) -> list[Diagnostic]:
    """Return a diagnostic for each expectation that is said to be broken (`golden.xfail`), but that there is not."""
    from blis_tui.results.conditions.course import text_of  # noqa: PLC0415  (few experiments have these)

    known = [*(expectation.metric for expectation in experiment.expect), *map(text_of, experiment.course)]
    diagnostics = []
    for at, name in enumerate(as_list(as_map(document.get("golden")).get("xfail"))):
        if name not in known:
            message = f"`{name}` is not an expectation of the experiment"
            hint = suggestion(str(name), known, otherwise="they are") if known else "it has no `expect`"
            diagnostics.append(about(document, ("golden", "xfail", at), "BLIS2013", message, hint=hint))
    return diagnostics


def _sample(cases: Mapping[str, tuple[Override, ...]], most: int) -> Iterator[tuple[str, tuple[Override, ...]]]:
    """Yield all cases, or of very many those with a new value (up to half of ``most``), and some of the others."""
    if len(cases) <= most:
        yield from cases.items()
        return
    seen: set[tuple[str, str]] = set()
    left = most // 2
    stride = -(-len(cases) // left)
    for number, case in enumerate(cases.items()):
        values = {(override.path, repr(override.value.data)) for override in case[1]} if left else seen
        new = not values <= seen
        if new or not number % stride:
            yield case
        if new:
            seen |= values
            left -= 1


def _named(diagnostic: Diagnostic, case: str, document: Document) -> Diagnostic:
    """Return a diagnostic that names the case, unless it is about a line of the cases."""
    written = (*document.keys.items(), *document.values.items())
    lines = {place.span.line for path, place in written if path[:1] in _OF_CASES and path[1:]}
    own = diagnostic.file == document.source.name and diagnostic.line in lines
    return diagnostic if own else replace(diagnostic, message=f"case `{case}`: {diagnostic.message}")
