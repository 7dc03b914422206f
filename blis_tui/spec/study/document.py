"""A study document -> the study: checked, with every point that it describes."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Final

from blis_tui.errors import SpecError
from blis_tui.spec.build import build_expectation
from blis_tui.spec.checks import METRICS, expectation_problems
from blis_tui.spec.compose import Problems, checked, open_reference
from blis_tui.spec.diagnostics import about, in_order, suggestion
from blis_tui.spec.document_parts import Part
from blis_tui.spec.hints import metric_hint
from blis_tui.spec.load import build, resolve_document
from blis_tui.spec.overrides import Override, parse_overrides
from blis_tui.spec.schema import complete
from blis_tui.spec.source import Document, as_list, as_map
from blis_tui.spec.study.metrics import COSTS, is_metric
from blis_tui.spec.study.model import MAX_POINTS, Axis, Objective, Study
from blis_tui.spec.study.points import how_many, points_of, steps_in, values_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from blis_tui.registry import Registry
    from blis_tui.spec.diagnostics import Diagnostic
    from blis_tui.spec.model import Expectation, Experiment
    from blis_tui.spec.resolve import Resolved
    from blis_tui.spec.source import DataPath, Json
    from blis_tui.spec.study.model import Point

_MOST_TRIED: Final = 64
"""Values of an axis that are tried out before anything runs."""
_OF_MEANING: Final = "BLIS2"
"""How the codes of problems begin that another value of another axis may solve."""


def read_study(
    document: Document, *, base: Document | None = None, given: Sequence[str] = (), plugins: Registry | None = None
) -> Study:
    """Check a study document and expand it.

    Args:
        document: the document; it is changed.
        base: its experiment, where that is not to be found by its name.
        given: ``path=value`` texts that all runs have, too.
        plugins: what the experiment may name besides this package's own plug-ins.

    Raises:
        SpecError: with every problem of the study, of its axes and of values that no point could have.
    """
    problems = Problems(plugins)
    if not checked(document, "Study", (), problems):
        raise SpecError(in_order(problems.found))
    if base is None:
        base = open_reference(document, ("experiment",), "Experiment", problems)
    axes = tuple(_axes(document, problems))
    _check_paths(document, problems)
    _check_exclusions(document, axes, problems)
    _check_metrics(document, problems)
    if how_many(axes) > MAX_POINTS and not problems.found:
        message = f"the axes give {how_many(axes):,} points, and at most {MAX_POINTS:,} are run"
        problems.add(about(document, ("axes",), "BLIS2061", message, key=True))
    if problems.found or base is None:
        raise SpecError(in_order(problems.found))
    data = as_map(complete(document.data, "Study", plugins))
    points = points_of(axes, [as_map(one) for one in as_list(data["exclude"])])
    if not points:
        raise SpecError([about(document, ("exclude",), "BLIS2060", "every point of the axes is excluded", key=True)])
    fixed = (*_assignments(document, ("set",)), *parse_overrides(given))
    _try_out(base, fixed, axes, points[0], plugins)
    first = _first_sound(document, base, fixed, points, plugins)
    return Study(
        name=str(document.get("metadata", "name")),
        description=str(as_map(data["metadata"])["description"]),
        experiment=str(data["experiment"]),
        base=base,
        fixed=fixed,
        axes=axes,
        points=points,
        seeds=_seeds(data["seeds"], first.document.get("seed")),
        objectives=tuple(_objective(as_map(one)) for one in as_list(data["objectives"])),
        constraints=tuple(_constraint(one) for one in as_list(data["constraints"])),
        plugins=plugins,
        document=data,
    )


def resolve_point(study: Study, point: Point, seed: int | None = None) -> Resolved:
    """The resolved experiment of a point. Raises SpecError: it is none."""
    seeded = () if seed is None else parse_overrides((), seed)
    return resolve_document(_fresh(study.base), (*study.fixed, *point.overrides, *seeded), study.plugins)


def experiment_of(study: Study, point: Point, seed: int) -> Experiment:
    """The experiment of a point, with one of the study's seeds. Raises SpecError: it is none."""
    return build(resolve_point(study, point, seed))


def _fresh(document: Document) -> Document:
    """A copy to resolve, which changes it."""
    return Document(copy.deepcopy(document.data), document.source, dict(document.keys), dict(document.values))


# ---- axes ----


def _axes(document: Document, problems: Problems) -> Iterator[Axis]:
    for path in as_map(document.get("axes")):
        columns = [_column(document, ("axes", path), path, problems)]
        yield Axis((path,), tuple((one,) for one in columns[0]))
    for at, entry in enumerate(as_list(document.get("zip"))):
        paths = tuple(as_map(entry))
        columns = [_column(document, ("zip", at, path), path, problems) for path in paths]
        lengths = [len(column) for column in columns]
        if min(lengths) < max(lengths):
            said = ", ".join(f"`{path}` {length}" for path, length in zip(paths, lengths, strict=True))
            message = f"paths that change together need equally many values: {said}"
            problems.add(about(document, ("zip", at), "BLIS2063", message))
            continue
        yield Axis(paths, tuple(zip(*columns, strict=True)))


def _column(document: Document, at: DataPath, path: str, problems: Problems) -> list[Override]:
    """The assignments of one path of an axis; each points to where its value was written."""
    steps = tuple(path.split("."))
    given = document.get(*at)
    if any(not step.strip() for step in steps):
        hint = "write it as `cluster.instances`"
        problems.add(about(document, at, "BLIS1009", f"`{path[:60]}` is not a path of keys", key=True, hint=hint))
        return []
    if isinstance(given, dict) and (wrong := _wrong_range(given)):
        problems.add(about(document, at, "BLIS2064", wrong, key=True))
        return []
    if isinstance(given, dict) and steps_in(given) > MAX_POINTS:
        message = f"this range has {steps_in(given):,} values, and at most {MAX_POINTS:,} points are run"
        problems.add(about(document, at, "BLIS2061", message, key=True))
        return []
    return [_override(document, at, steps, number, value) for number, value in enumerate(values_of(given))]


def _override(document: Document, at: DataPath, steps: tuple[str, ...], number: int, value: Json) -> Override:
    key = document.place(at, key=True)
    written = isinstance(document.get(*at), list)
    branch = document.branch((*at, number)) if written else Document(value, key.source, values={(): key})
    return Override(steps, (key,) * len(steps), branch)


def _assignments(document: Document, at: DataPath) -> Iterator[Override]:
    for path in as_map(document.get(*at)):
        place = document.place((*at, path), key=True)
        steps = tuple(path.split("."))
        yield Override(steps, (place,) * len(steps), document.branch((*at, path)))


def _wrong_range(given: dict[str, Json]) -> str:
    """What is wrong with a range; empty = nothing."""
    missing = [f"`{key}`" for key in ("from", "to") if key not in given]
    if missing:
        return f"the range lacks {' and '.join(missing)}"
    if ("step" in given) == ("count" in given):
        return "the range has both `step` and `count`" if "step" in given else "the range lacks `step` or `count`"
    start, end = given["from"], given["to"]
    if not isinstance(start, int | float) or not isinstance(end, int | float):
        return "the range is not of numbers"
    if start >= end:
        return f"the range goes from {start:g} to {end:g}: `from` must be smaller"
    if given.get("scale") == "log":
        if "step" in given:
            return "a logarithmic range takes `count`, not `step`"
        if start <= 0:
            return f"a logarithmic range cannot start at {start:g}"
    return ""


# ---- checks ----


def _check_paths(document: Document, problems: Problems) -> None:
    """No path may be assigned to twice."""
    places: list[DataPath] = [("set", path) for path in as_map(document.get("set"))]
    places += [("axes", path) for path in as_map(document.get("axes"))]
    for at, entry in enumerate(as_list(document.get("zip"))):
        places += [("zip", at, path) for path in as_map(entry)]
    seen: dict[str, DataPath] = {}
    for place in places:
        path = str(place[-1])
        if path in seen:
            message = f"`{path}` is assigned to twice, also under `{seen[path][0]}`"
            problems.add(about(document, place, "BLIS2062", message, key=True))
        seen.setdefault(path, place)
        if path == "seed":
            message = "`seed` is no axis: each point runs once with each of the study's seeds"
            problems.add(about(document, place, "BLIS2062", message, key=True, hint="write `seeds: [1, 2, 3]`"))
        elif any(not step.strip() for step in path.split(".")) and place[0] == "set":
            problems.add(about(document, place, "BLIS1009", f"`{path[:60]}` is not a path of keys", key=True))


def _check_exclusions(document: Document, axes: tuple[Axis, ...], problems: Problems) -> None:
    known = [path for axis in axes for path in axis.paths]
    for at, entry in enumerate(as_list(document.get("exclude"))):
        for path in as_map(entry):
            if path not in known:
                message = f"no axis varies `{path}`"
                hint = suggestion(path, known, otherwise="axes are")
                problems.add(about(document, ("exclude", at, path), "BLIS2066", message, key=True, hint=hint))


def _check_metrics(document: Document, problems: Problems) -> None:
    for at, entry in enumerate(map(as_map, as_list(document.get("objectives")))):
        metric = str(entry["metric"])
        if not is_metric(metric):
            near = metric_hint(metric, METRICS | COSTS.keys())
            message = f"there is no metric named `{metric}`"
            problems.add(about(document, ("objectives", at, "metric"), "BLIS2013", message, hint=near))
    problems.found.extend(expectation_problems(document, ("constraints",), COSTS.keys()))
    least: dict[str, tuple[float, int]] = {}
    most: dict[str, tuple[float, int]] = {}
    for at, entry in enumerate(map(as_map, as_list(document.get("constraints")))):
        metric = str(entry["metric"])
        low, high = entry.get("min", entry.get("equals")), entry.get("max", entry.get("equals"))
        if isinstance(low, int | float) and low > least.get(metric, (-1e308, 0))[0]:
            least[metric] = (low, at)
        if isinstance(high, int | float) and high < most.get(metric, (1e308, 0))[0]:
            most[metric] = (high, at)
    for metric, (low, at) in least.items():
        high, other = most.get(metric, (1e308, at))
        if other != at and low > high:
            message = f"`{metric}` cannot be at least {low:g} and at most {high:g}"
            problems.add(about(document, ("constraints", max(at, other)), "BLIS2065", message))


def _try_out(
    base: Document, fixed: tuple[Override, ...], axes: tuple[Axis, ...], first: Point, plugins: Registry | None
) -> None:
    """Try each value of each axis once, with the first point's values of the others.

    Keys that do not exist and values of the wrong type are wrong at every point, so nothing should run before they are
    told. What is wrong in meaning (a model that does not fit on a GPU) may be right with other values of other axes:
    such points are rows without results.

    Raises:
        SpecError: with those problems.
    """
    found: list[Diagnostic] = []
    usual = {one.steps: one for one in first.overrides}
    for axis in axes:
        stride = -(-len(axis.rows) // _MOST_TRIED)
        for row in (*axis.rows[::stride], axis.rows[-1]):
            tried = {**usual, **{one.steps: one for one in row}}
            found += _wrong_form(base, (*fixed, *tried.values()), plugins)
    if found:
        raise SpecError(in_order(found))


def _first_sound(
    document: Document,
    base: Document,
    fixed: tuple[Override, ...],
    points: tuple[Point, ...],
    plugins: Registry | None,
) -> Resolved:
    """The first point (of some, spread over all) that is an experiment. Raises SpecError: none is."""
    wrong: SpecError | None = None
    for point in points[:: -(-len(points) // _MOST_TRIED)]:
        try:
            return resolve_document(_fresh(base), (*fixed, *point.overrides), plugins)
        except SpecError as error:
            wrong = wrong or error
    found = () if wrong is None else wrong.diagnostics
    if len(points) > 1:
        message = f"none of the {len(points):,} points that were tried can run"
        found = (about(document, ("axes",), "BLIS2067", message, key=True), *found)
    raise SpecError(found)


def _wrong_form(base: Document, overrides: tuple[Override, ...], plugins: Registry | None) -> list[Diagnostic]:
    try:
        resolve_document(_fresh(base), overrides, plugins)
    except SpecError as error:
        unknown = [one for one in error.diagnostics if one.code in {"BLIS2001", "BLIS2002", "BLIS2013"}]
        return [one for one in error.diagnostics if not one.code.startswith(_OF_MEANING)] or unknown
    return []


# ---- parts ----


def _seeds(given: Json, own: Json) -> tuple[int, ...]:
    if isinstance(given, list):
        return tuple(int(str(one)) for one in given)
    first = int(str(own))
    return tuple(range(first, first + int(str(given))))


def _objective(data: dict[str, Json]) -> Objective:
    return Objective(metric=str(data["metric"]), goal="max" if data["goal"] == "max" else "min")


def _constraint(data: Json) -> Expectation:
    return build_expectation(Part(as_map(data), "constraints"))
