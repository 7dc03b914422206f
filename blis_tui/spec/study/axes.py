"""Converts the values to try in a document to axes: lists, ranges, and paths that change together."""

from __future__ import annotations

import json
from decimal import Decimal, localcontext
from itertools import product
from typing import TYPE_CHECKING, Final

from blis_tui.base.diagnostics import about
from blis_tui.base.scalars import flow
from blis_tui.base.source import Document, Location, Span, as_list, as_map, equal
from blis_tui.spec.overrides import Override
from blis_tui.spec.study.study_records import MAX_POINTS, Axis, Point

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from blis_tui.base.source import DataPath, Json
    from blis_tui.spec.compose import Problems


_SHOWN: Final = 60
"""Maximum length of a value in a message."""


def crossed(document: Document, at: DataPath, problems: Problems) -> Iterator[Axis]:
    """Yield an axis for each path of the map at ``at``."""
    for path in as_map(document.get(*at)):
        column = _column(document, (*at, path), path, problems)
        _check_repeats(document, [(*at, path)], [(one,) for one in column], problems)
        yield Axis((path,), tuple((one,) for one in column))


def zipped(document: Document, at: DataPath, problems: Problems) -> Iterator[Axis]:
    """Yield an axis for each entry of the list at ``at``, whose paths change together."""
    for number, entry in enumerate(as_list(document.get(*at))):
        here = (*at, number)
        columns = {path: _column(document, (*here, path), path, problems) for path in as_map(entry)}
        lengths = [len(column) for column in columns.values()]
        if 0 not in lengths and min(lengths) < max(lengths):
            said = ", ".join(f"`{path}` has {len(column):,}" for path, column in columns.items())
            message = f"paths that change together need the same number of values: {said}"
            problems.add(about(document, here, "BLIS2063", message))
        else:
            rows = list(zip(*columns.values(), strict=False))
            _check_repeats(document, [(*here, path) for path in columns], rows, problems)
            yield Axis(tuple(columns), tuple(rows))


def _check_repeats(
    document: Document, lists: Sequence[DataPath], rows: Sequence[tuple[Override, ...]], problems: Problems
) -> None:
    """Check that no row of an axis, whose values are listed at ``lists``, repeats another one."""
    if not all(isinstance(document.get(*at), list) for at in lists):
        return
    seen: dict[str, bool] = {}
    for number, row in enumerate(rows):
        values = [one.value.data for one in row]
        name = json.dumps([plain_value(one) for one in values], sort_keys=True)
        if seen.get(name) is False:
            shown = " with ".join(f"`{flow(value)[:_SHOWN]}`" for value in values)
            message = f"{shown} is listed twice: both runs would be the same"
            problems.add(about(document, (*lists[0], number), "BLIS2068", message, hint="list it once"))
        seen[name] = name in seen


def plain_value(value: Json) -> Json:
    """Return a value in which 2.0 is 2, so that equal values have equal texts."""
    if isinstance(value, dict):
        return {key: plain_value(one) for key, one in value.items()}
    if isinstance(value, list):
        return [plain_value(one) for one in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def assignments(document: Document, at: DataPath, problems: Problems) -> Iterator[Override]:
    """Yield the assignment of each path of the map at ``at``."""
    for path in as_map(document.get(*at)):
        here = (*at, path)
        if _is_path(document, here, path, problems):
            yield _override(document, here, path, document.branch(here))


def _column(document: Document, at: DataPath, path: str, problems: Problems) -> list[Override]:
    """Return the assignments of one path of an axis, each with the position of its value."""
    given = document.get(*at)
    if not _is_path(document, at, path, problems):
        return []
    if not isinstance(given, dict):
        found = enumerate(as_list(given))
        return [_override(document, at, path, document.branch((*at, number))) for number, _ in found]
    if wrong := _wrong_range(given):
        hint = "add `step: 1`, or `count: 4` for as many values" if "neither" in wrong else None
        problems.add(about(document, at, "BLIS2064", wrong, key=True, hint=hint))
        return []
    if (steps := steps_in(given)) > MAX_POINTS:
        count = f"{steps:,}" if steps < 10**15 else "far too many"
        message = f"this range has {count} values, and a study at most {MAX_POINTS:,} points"
        problems.add(about(document, at, "BLIS2061", message, key=True))
        return []
    values = values_of(given)
    if len(set(map(str, values))) < len(values):
        message = f"{given['count']} values from {given['from']} to {given['to']} are not all different in four digits"
        problems.add(about(document, at, "BLIS2064", message, key=True))
    place = document.place(at)
    return [_override(document, at, path, Document(value, place.source, values={(): place})) for value in values]


def _override(document: Document, at: DataPath, path: str, value: Document) -> Override:
    steps = tuple(path.split("."))
    return Override(steps, _places(document.place(at, key=True), steps), value)


def _places(key: Location, steps: tuple[str, ...]) -> tuple[Location, ...]:
    """Return the position of each part of a path; of a quoted path, the whole for each."""
    if key.span.end_column - key.span.column != len(".".join(steps)):
        return (key,) * len(steps)
    columns = [key.span.column + len(".".join(["", *steps[:at]])) for at in range(len(steps))]
    spans = [Span(key.span.line, column, column + len(step)) for column, step in zip(columns, steps, strict=True)]
    return tuple(Location(key.source, span) for span in spans)


def _is_path(document: Document, at: DataPath, path: str, problems: Problems) -> bool:
    if all(step.strip() for step in path.split(".")):
        return True
    message = f"`{path[:60]}` is not a path of keys"
    problems.add(about(document, at, "BLIS1009", message, key=True, hint="write it as `cluster.instances`"))
    return False


def _wrong_range(given: dict[str, Json]) -> str:
    """Return what is wrong with a range that the schema allows; empty = nothing."""
    if "step" in given and "count" in given:
        return "the range has both `step` and `count`: one follows from the other"
    if "step" not in given and "count" not in given:
        return "the range has neither `step` nor `count`"
    start, end = given["from"], given["to"]
    if not isinstance(start, int | float) or not isinstance(end, int | float):
        raise TypeError("the schema wants numbers")
    if start > end:
        return f"the range goes from {start} down to {end}: `from` must be the smaller one"
    if start == end and "count" in given:
        return f"the range goes from {start} to {end}, so it does not have {given['count']} different values"
    if given.get("scale") == "log" and "step" in given:
        return "a logarithmic range takes `count`, not `step`"
    if given.get("scale") == "log" and start <= 0:
        return f"a logarithmic range starts above 0, not at {start}"
    return ""


# Points: every value of one axis combined with every value of the others.

_DIGITS: Final = 4
"""Significant digits of values on a logarithmic scale."""


def count_points(axes: Sequence[Axis]) -> int:
    """Return the number of points before exclusions."""
    count = 1
    for axis in axes:
        count *= len(axis.rows)
    return count


def cross(axes: Sequence[Axis]) -> Iterator[tuple[Override, ...]]:
    """Yield all combinations; the last axis varies fastest."""
    for rows in product(*(axis.rows for axis in axes)):
        yield tuple(override for row in rows for override in row)


def points_of(axes: Sequence[Axis], exclude: Sequence[Mapping[str, Json]]) -> tuple[Point, ...]:
    """Return the points that are not excluded, numbered."""
    kept = (one for one in cross(axes) if not any(agrees(entry, coordinates_of(one)) for entry in exclude))
    return tuple(Point(number, overrides) for number, overrides in enumerate(kept))


def coordinates_of(overrides: Iterable[Override]) -> dict[str, Json]:
    """Return the assigned values by path."""
    return {one.path: one.value.data for one in overrides}


def agrees(entry: Mapping[str, Json], coordinates: Mapping[str, Json]) -> bool:
    """Return whether coordinates match an entry of ``exclude``."""
    return all(_is_meant(wanted, coordinates.get(path)) for path, wanted in entry.items())


def _is_meant(wanted: Json, value: Json) -> bool:
    if isinstance(wanted, list):
        return any(equal(one, value) for one in wanted)
    if not isinstance(wanted, dict):
        return equal(wanted, value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    low, high = wanted.get("min"), wanted.get("max")
    above = not isinstance(low, int | float) or value >= low
    return above and (not isinstance(high, int | float) or value <= high)


def values_of(given: Json) -> list[Json]:
    """Return the values of a list axis or a (checked) range, which is computed exactly in decimal."""
    if not isinstance(given, dict):
        return as_list(given)
    said = as_map(given)
    start, end = _decimal(said["from"]), _decimal(said["to"])
    if "step" in said:
        step = _decimal(said["step"])
        return [_number(start + at * step) for at in range(int((end - start) / step) + 1)]
    count = int(_decimal(said["count"]))
    with localcontext() as context:
        context.prec = 40
        if said.get("scale") == "log":
            ratio = (end / start).ln() / (count - 1)
            found = [start, *(_rounded(start * (ratio * at).exp()) for at in range(1, count - 1)), end]
        else:
            found = [start + (end - start) * at / (count - 1) for at in range(count)]
        return [_number(one) for one in found]


def steps_in(given: Mapping[str, Json]) -> int:
    """Return the number of values in a range, without generating them."""
    if "count" in given:
        return int(_decimal(given["count"]))
    return int((_decimal(given["to"]) - _decimal(given["from"])) / _decimal(given["step"])) + 1


def _decimal(value: Json) -> Decimal:
    """Return the number as it was written."""
    return Decimal(repr(value))


def _rounded(value: Decimal) -> Decimal:
    return value.quantize(Decimal(1).scaleb(value.adjusted() - _DIGITS + 1))


def _number(value: Decimal) -> Json:
    return int(value) if value == value.to_integral_value() else float(value)
