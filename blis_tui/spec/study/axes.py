"""Converts the values to try in a document to axes, and checks studies beyond their schema.

Axes are lists, ranges, and paths that change together; checked are paths, exclusions, metrics, seeds and sizes.
"""

from __future__ import annotations

import json
from decimal import Decimal, localcontext
from itertools import product
from math import inf
from typing import TYPE_CHECKING, Final

from blis_tui.base.diagnostics import about, suggestion
from blis_tui.base.scalars import flow
from blis_tui.base.source import Document, Location, Span, as_list, as_map, equal
from blis_tui.spec.checks import expectation_problems
from blis_tui.spec.metric_names import COSTS, all_metrics, is_study_metric
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
        _check_repeats(document, [(*at, path)], [(override,) for override in column], problems)
        yield Axis((path,), tuple((override,) for override in column))


def zipped(document: Document, at: DataPath, problems: Problems) -> Iterator[Axis]:
    """Yield an axis for each entry of the list at ``at``, whose paths change together."""
    for number, entry in enumerate(as_list(document.get(*at))):
        here = (*at, number)
        columns = {path: _column(document, (*here, path), path, problems) for path in as_map(entry)}
        lengths = [len(column) for column in columns.values()]
        if 0 not in lengths and min(lengths) < max(lengths):
            counts = ", ".join(f"`{path}` has {len(column):,}" for path, column in columns.items())
            message = f"paths that change together need the same number of values: {counts}"
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
        values = [override.value.data for override in row]
        name = json.dumps([plain_value(value) for value in values], sort_keys=True)
        if seen.get(name) is False:
            shown = " with ".join(f"`{flow(value)[:_SHOWN]}`" for value in values)
            message = f"{shown} is listed twice: both runs would be the same"
            problems.add(about(document, (*lists[0], number), "BLIS2068", message, hint="list it once"))
        seen[name] = name in seen


def plain_value(value: Json) -> Json:
    """Return a value in which 2.0 is 2, so that equal values have equal texts."""
    if isinstance(value, dict):
        return {key: plain_value(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [plain_value(entry) for entry in value]
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
        entries = enumerate(as_list(given))
        return [_override(document, at, path, document.branch((*at, number))) for number, _ in entries]
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
    kept = (
        overrides for overrides in cross(axes) if not any(agrees(entry, coordinates_of(overrides)) for entry in exclude)
    )
    return tuple(Point(number, overrides) for number, overrides in enumerate(kept))


def coordinates_of(overrides: Iterable[Override]) -> dict[str, Json]:
    """Return the assigned values by path."""
    return {override.path: override.value.data for override in overrides}


def agrees(entry: Mapping[str, Json], coordinates: Mapping[str, Json]) -> bool:
    """Return whether coordinates match an entry of ``exclude``."""
    return all(_is_meant(wanted, coordinates.get(path)) for path, wanted in entry.items())


def _is_meant(wanted: Json, value: Json) -> bool:
    if isinstance(wanted, list):
        return any(equal(meant, value) for meant in wanted)
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
    limits = as_map(given)
    start, end = _decimal(limits["from"]), _decimal(limits["to"])
    if "step" in limits:
        step = _decimal(limits["step"])
        return [_number(start + at * step) for at in range(int((end - start) / step) + 1)]
    count = int(_decimal(limits["count"]))
    with localcontext() as context:
        context.prec = 40
        if limits.get("scale") == "log":
            ratio = (end / start).ln() / (count - 1)
            decimals = [start, *(_rounded(start * (ratio * at).exp()) for at in range(1, count - 1)), end]
        else:
            decimals = [start + (end - start) * at / (count - 1) for at in range(count)]
        return [_number(decimal) for decimal in decimals]


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


_NEVER_NEGATIVE: Final = frozenset(
    {"cost", "duration_us", "instances", "kv", "latency", "offered", "pools", "requests", "sessions", "slo"}
    | {"slo_classes", "steady", "tenants", "throughput", "tokens"}
)
"""Sections of a report whose figures are never negative."""
_SHARES: Final = ("attainment", "hit_rate", "_share")
"""How the names of figures end that are shares of something."""
_MOST_VALUES: Final = 8
"""Maximum number of an axis's values named in a message."""


def check_paths(document: Document, problems: Problems) -> None:
    """Check that no path is assigned twice, or replaced by an assignment to a part that contains it."""
    places: list[DataPath] = [("set", path) for path in as_map(document.get("set"))]
    places += [("axes", path) for path in as_map(document.get("axes"))]
    for at, entry in enumerate(as_list(document.get("zip"))):
        places += [("zip", at, path) for path in as_map(entry)]
    seen: dict[str, DataPath] = {}
    for place in places:
        path = str(place[-1])
        if path == "seed":
            message = "`seed` is not for `set` and axes: each point runs once with each of the study's seeds"
            given = document.place(place, key=True).source.is_argument
            hint = "write `--seeds 1,2,3`" if given else "write `seeds: [1, 2, 3]`"
            problems.add(about(document, place, "BLIS2062", message, key=True, hint=hint))
        elif path in seen:
            message = f"`{path}` is assigned to twice, here and under `{seen[path][0]}`"
            problems.add(about(document, place, "BLIS2062", message, key=True))
        else:
            check_replaced(document, place, seen, problems)
        seen.setdefault(path, place)


def check_replaced(document: Document, place: DataPath, before: Mapping[str, DataPath], problems: Problems) -> None:
    """Check that an assignment replaces none of those before it, by path, through a part that contains theirs."""
    path = str(place[-1])
    inner = next((other for other in before if other.startswith(f"{path}.")), None)
    if inner is not None:
        message = f"`{path}` replaces what `{inner}` (under `{before[inner][0]}`) assigns"
        hint = f"list `{path}` first, or give its values their own `{inner.removeprefix(f'{path}.')}`"
        problems.add(about(document, place, "BLIS2062", message, key=True, hint=hint))


def check_exclusions(document: Document, axes: Sequence[Axis], problems: Problems) -> None:
    """Check that each exclusion refers to existing values."""
    known = [path for axis in axes for path in axis.paths]
    for at, entry in enumerate(map(as_map, as_list(document.get("exclude")))):
        here = ("exclude", at)
        sound = True
        for path, wanted in entry.items():
            if path not in known:
                message = f"no axis varies `{path}`"
                hint = suggestion(path, known, otherwise="axes are")
                problems.add(about(document, (*here, path), "BLIS2066", message, key=True, hint=hint))
                sound = False
            else:
                sound = _check_values(document, (*here, path), wanted, axes, problems) and sound
        for axis in axes if sound else ():
            own = {path: wanted for path, wanted in entry.items() if path in axis.paths}
            if len(own) > 1 and not any(agrees(own, coordinates_of(row)) for row in axis.rows):
                message = f"{' and '.join(f'`{path}`' for path in own)} never have these values together"
                problems.add(about(document, here, "BLIS2066", message))


def _check_values(document: Document, at: DataPath, wanted: Json, axes: Sequence[Axis], problems: Problems) -> bool:
    """Return whether an axis has each value that is to be excluded."""
    path = str(at[-1])
    axis = next(candidate for candidate in axes if path in candidate.paths)
    values = list({flow(value): value for row in axis.rows for value in [coordinates_of(row)[path]]}.values())
    if isinstance(wanted, dict):
        low, high = wanted.get("min"), wanted.get("max")
        if isinstance(low, int | float) and isinstance(high, int | float) and low > high:
            problems.add(about(document, (*at, "min"), "BLIS2008", f"min {low:.15g} is greater than max {high:.15g}"))
            return False
    single = not isinstance(wanted, list)
    for number, entry in enumerate([wanted] if single else as_list(wanted)):
        if not any(agrees({path: entry}, {path: value}) for value in values):
            shown = ", ".join(f"`{flow(value)}`" for value in values[:_MOST_VALUES])
            more = f" and {len(values) - _MOST_VALUES:,} more" if len(values) > _MOST_VALUES else ""
            what = "within these bounds" if isinstance(entry, dict) else f"`{flow(entry)}`"
            place = at if single else (*at, number)
            message = f"`{path}` is never {what}"
            problems.add(about(document, place, "BLIS2066", message, hint=f"its values are {shown}{more}"))
            return False
    return True


def _check_ranges(document: Document, problems: Problems) -> None:
    """Check that figures may have values within their bounds: none of these is negative, and shares are at most 1."""
    for at, entry in enumerate(map(as_map, as_list(document.get("constraints")))):
        metric = str(entry["metric"])
        low, high = _limit(entry, "min", 0.0), _limit(entry, "max", 1.0)
        message = hint = ""
        if high < 0 and metric.partition(".")[0] in _NEVER_NEGATIVE:
            message, hint = f"`{metric}` is never below 0", "bound it from above by a number that it can have"
        elif low > 1 and metric.rpartition(".")[2].endswith(_SHARES):
            message, hint = f"`{metric}` is a share, never above 1", f"write {low:g} % as {low / 100:g}"
        if message:
            problems.add(about(document, ("constraints", at), "BLIS2065", message, hint=hint))


def check_figures(document: Document, problems: Problems) -> None:
    """Check that objectives and constraints name existing metrics, with bounds that can hold."""
    for at, entry in enumerate(map(as_map, as_list(document.get("objectives")))):
        metric = str(entry["metric"])
        if not is_study_metric(metric):
            from blis_tui.spec.hints import metric_hint  # noqa: PLC0415  (only needed for wrong documents)

            near = metric_hint(metric, all_metrics() | COSTS.keys())
            message = f"there is no metric named `{metric}`"
            problems.add(about(document, ("objectives", at, "metric"), "BLIS2013", message, hint=near))
    problems.found.extend(expectation_problems(document, ("constraints",), COSTS.keys(), "constraint"))
    _check_ranges(document, problems)
    seen: dict[str, list[tuple[int, float, float]]] = {}
    for at, entry in enumerate(map(as_map, as_list(document.get("constraints")))):
        low, high = _limit(entry, "min", -inf), _limit(entry, "max", inf)
        for other, least, most in seen.setdefault(str(entry["metric"]), []):
            if max(low, least) > min(high, most) and low <= high and least <= most:
                message = (
                    f"`{entry['metric']}` cannot be at least {max(low, least):.15g} and at most {min(high, most):.15g}"
                )
                hint = f"see also `constraints.{other}`"
                problems.add(about(document, ("constraints", at), "BLIS2065", message, hint=hint))
        seen[str(entry["metric"])].append((at, low, high))


def _limit(entry: dict[str, Json], key: str, none: float) -> float:
    value = entry.get(key, entry.get("equals"))
    return value if isinstance(value, int | float) and not isinstance(value, bool) else none


def check_seeds(document: Document, axes: Sequence[Axis], problems: Problems) -> None:
    """Check that seeds differ, and that there are not too many points or runs."""
    given = document.get("seeds")
    listed = as_list(given)
    for at, seed in enumerate(listed):
        if seed in listed[:at]:
            message = f"seed {seed} is listed twice: its runs would be the same"
            problems.add(about(document, ("seeds", at), "BLIS2068", message))
    points, seeds = count_points(axes), len(listed) or (given if isinstance(given, int) else 1)
    if points > MAX_POINTS:
        message = f"the axes give {points:,} points, and a study has at most {MAX_POINTS:,}"
        place = "axes" if "axes" in as_map(document.data) else "zip"
        problems.add(about(document, (place,), "BLIS2061", message, key=True))
    elif points * seeds > MAX_POINTS:
        runs = f"{points:,} points with {seeds:,} seeds each are {points * seeds:,} runs"
        message = f"{runs}, and a study has at most {MAX_POINTS:,}"
        problems.add(about(document, ("seeds",), "BLIS2061", message, key=True))
