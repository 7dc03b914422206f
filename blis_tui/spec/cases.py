"""The cases of an experiment: what ``cases`` and ``matrix`` assign, by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.classes import dataclass
from blis_tui.spec.diagnostics import about
from blis_tui.spec.source import as_map
from blis_tui.spec.study.axes import assignments, coordinates_of, cross, crossed, how_many
from blis_tui.spec.study.model import MAX_POINTS

if TYPE_CHECKING:
    from blis_tui.spec.compose import Problems
    from blis_tui.spec.overrides import Override
    from blis_tui.spec.source import Document, Json


@dataclass(frozen=True, slots=True)
class NamedCase:
    """One variant of an experiment."""

    name: str
    """Empty for the experiment itself."""
    line: int
    """Line of the case in the file, from 1."""
    overrides: tuple[Override, ...]

    @property
    def values(self) -> dict[str, Json]:
        """Path -> value."""
        return coordinates_of(self.overrides)


def expanded_cases(document: Document, problems: Problems) -> list[NamedCase]:
    """Every case combined with every point of the matrix; without either, the experiment itself, without a name."""
    axes = tuple(crossed(document, ("matrix",), problems))
    if (count := how_many(axes)) > MAX_POINTS:
        message = f"the matrix expands to {count:,} cases; the limit is {MAX_POINTS:,}"
        problems.add(about(document, ("matrix",), "BLIS2061", message, key=True))
        return []
    cases = [
        NamedCase(name, _line(document, "cases", name), tuple(assignments(document, ("cases", name), problems)))
        for name in as_map(document.get("cases"))
    ]
    points = list(cross(axes))
    return [
        NamedCase(",".join(filter(None, (case.name, _coordinates(point)))), case.line, (*case.overrides, *point))
        for case in cases or [NamedCase("", _line(document, "matrix") if axes else 1, ())]
        for point in points
    ]


def _line(document: Document, *path: str) -> int:
    place = document.keys.get(path)
    return 1 if place is None else place.span.line


def _coordinates(point: tuple[Override, ...]) -> str:
    return ",".join(f"{one.steps[-1]}={_word(one.value.data)}" for one in point)


def _word(value: Json) -> str:
    """A value as part of a name."""
    return value if isinstance(value, str) else repr(value).replace(" ", "").replace("/", "-")
