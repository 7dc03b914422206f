"""Checks of studies beyond their schema: paths, exclusions, metrics, seeds and sizes."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Final

from blis_tui.base.diagnostics import about, suggestion
from blis_tui.base.scalars import flow
from blis_tui.base.source import as_list, as_map
from blis_tui.spec.checks import expectation_problems
from blis_tui.spec.metric_names import COSTS, all_metrics, is_study_metric
from blis_tui.spec.study.axes import agrees, coordinates_of, count_points
from blis_tui.spec.study.study_records import MAX_POINTS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from blis_tui.base.source import DataPath, Document, Json
    from blis_tui.spec.compose import Problems
    from blis_tui.spec.study.study_records import Axis

_NEVER_NEGATIVE: Final = frozenset(
    {"cost", "duration_us", "instances", "kv", "latency", "offered", "pools", "requests", "sessions", "slo"}
    | {"slo_classes", "steady", "tenants", "throughput", "tokens"}
)
"""Sections of a report whose figures are never negative."""
_SHARES: Final = ("attainment", "hit_rate", "_share")
"""How the names of figures end that are shares of something."""
_SHOWN: Final = 8
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
    inner = next((one for one in before if one.startswith(f"{path}.")), None)
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
    axis = next(one for one in axes if path in one.paths)
    values = list({flow(value): value for row in axis.rows for value in [coordinates_of(row)[path]]}.values())
    if isinstance(wanted, dict):
        low, high = wanted.get("min"), wanted.get("max")
        if isinstance(low, int | float) and isinstance(high, int | float) and low > high:
            problems.add(about(document, (*at, "min"), "BLIS2008", f"min {low:.15g} is greater than max {high:.15g}"))
            return False
    single = not isinstance(wanted, list)
    for number, one in enumerate([wanted] if single else as_list(wanted)):
        if not any(agrees({path: one}, {path: value}) for value in values):
            shown = ", ".join(f"`{flow(value)}`" for value in values[:_SHOWN])
            more = f" and {len(values) - _SHOWN:,} more" if len(values) > _SHOWN else ""
            what = "within these bounds" if isinstance(one, dict) else f"`{flow(one)}`"
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
    found = entry.get(key, entry.get("equals"))
    return found if isinstance(found, int | float) and not isinstance(found, bool) else none


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
