"""Axes -> points: every value of one axis with every value of the others."""

from __future__ import annotations

from decimal import Decimal, localcontext
from itertools import product
from typing import TYPE_CHECKING, Final

from blis_tui.spec.source import as_list, as_map
from blis_tui.spec.study.model import Point

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from blis_tui.spec.overrides import Override
    from blis_tui.spec.source import Json
    from blis_tui.spec.study.model import Axis

_DIGITS: Final = 4
"""Significant digits of the values of a logarithmic scale."""


def how_many(axes: Sequence[Axis]) -> int:
    """How many points there are before any is left out."""
    count = 1
    for axis in axes:
        count *= len(axis.rows)
    return count


def cross(axes: Sequence[Axis]) -> Iterator[tuple[Override, ...]]:
    """All combinations; the last axis varies fastest."""
    for rows in product(*(axis.rows for axis in axes)):
        yield tuple(override for row in rows for override in row)


def points_of(axes: Sequence[Axis], exclude: Sequence[Mapping[str, Json]]) -> tuple[Point, ...]:
    """The points that are not excluded, numbered."""
    kept = (one for one in cross(axes) if not any(agrees(entry, coordinates_of(one)) for entry in exclude))
    return tuple(Point(number, overrides) for number, overrides in enumerate(kept))


def coordinates_of(overrides: Iterable[Override]) -> dict[str, Json]:
    """Path -> value."""
    return {one.path: one.value.data for one in overrides}


def agrees(entry: Mapping[str, Json], coordinates: Mapping[str, Json]) -> bool:
    """Whether coordinates are those that an entry of ``exclude`` means."""
    return all(_is_meant(wanted, coordinates.get(path)) for path, wanted in entry.items())


def _is_meant(wanted: Json, value: Json) -> bool:
    if isinstance(wanted, list):
        return any(_equal(one, value) for one in wanted)
    if not isinstance(wanted, dict):
        return _equal(wanted, value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    low, high = wanted.get("min"), wanted.get("max")
    above = not isinstance(low, int | float) or value >= low
    return above and (not isinstance(high, int | float) or value <= high)


def _equal(one: Json, other: Json) -> bool:
    """Equality that keeps truth values and numbers apart."""
    return isinstance(one, bool) == isinstance(other, bool) and one == other


def values_of(given: Json) -> list[Json]:
    """The values of an axis that is a list, or a (checked) range: exact in decimal, as they are written."""
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
    """How many values a range gives, without making them."""
    if "count" in given:
        return int(_decimal(given["count"]))
    return int((_decimal(given["to"]) - _decimal(given["from"])) / _decimal(given["step"])) + 1


def _decimal(value: Json) -> Decimal:
    """The number as it was written."""
    return Decimal(repr(value))


def _rounded(value: Decimal) -> Decimal:
    return value.quantize(Decimal(1).scaleb(value.adjusted() - _DIGITS + 1))


def _number(value: Decimal) -> Json:
    return int(value) if value == value.to_integral_value() else float(value)
