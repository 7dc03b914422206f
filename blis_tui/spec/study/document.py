"""Finds and reads a study, or an experiment to study, and expands it to a checked study with all its points."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from blis_tui.base.diagnostics import about, in_order, located, suggestion
from blis_tui.base.errors import BlisError, InputError, SpecError
from blis_tui.base.input_files import real_path
from blis_tui.base.source import Document, as_list, as_map
from blis_tui.model import Expectation
from blis_tui.spec.build import Part, decode
from blis_tui.spec.cases import expanded_cases
from blis_tui.spec.compose import Problems, checked, is_path, open_reference, shown
from blis_tui.spec.library import find, names
from blis_tui.spec.load import build, locate, open_source, resolve_document
from blis_tui.spec.overrides import as_text, parse_overrides
from blis_tui.spec.read import read_document
from blis_tui.spec.reader import complete
from blis_tui.spec.study.axes import (
    assignments,
    check_exclusions,
    check_figures,
    check_paths,
    check_seeds,
    count_points,
    crossed,
    points_of,
    zipped,
)
from blis_tui.spec.study.study_records import Objective, Study

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.base.diagnostics import Diagnostic
    from blis_tui.base.source import Json
    from blis_tui.model import Experiment
    from blis_tui.model.plug_ins import Registry
    from blis_tui.spec.overrides import Override
    from blis_tui.spec.resolve import Resolved
    from blis_tui.spec.study.study_records import Axis, Point


_MOST_TRIED: Final = 64
"""Maximum number of an axis's values that are checked before anything runs."""
_OF_MEANING: Final = "BLIS2"
"""Prefix of the codes of problems that other values on other axes may solve."""


def read_study(
    document: Document, *, base: Document | None = None, given: Sequence[str] = (), plugins: Registry | None = None
) -> Study:
    """Check a study document and expand it.

    Args:
        document: the document; it is changed.
        base: its experiment, if it cannot be found by its name.
        given: additional ``path=value`` texts for all runs.
        plugins: additional plug-ins that the experiment may name.

    Raises:
        SpecError: with every problem of the study, of its axes, and of values that are invalid at every point.
    """
    problems = Problems(plugins)
    checked(document, "Study", (), problems)
    problems.stop()
    if base is None:
        base = open_reference(document, ("experiment",), "Experiment", problems)
    fixed = tuple(assignments(document, ("set",), problems))
    axes = (*crossed(document, ("axes",), problems), *zipped(document, ("zip",), problems))
    check_paths(document, problems)
    check_figures(document, problems)
    if not problems.found:
        check_exclusions(document, axes, problems)
        check_seeds(document, axes, problems)
    if problems.found or base is None:
        raise SpecError(in_order(problems.found))
    data = as_map(complete(document.data, "Study", plugins))
    points = points_of(axes, [as_map(entry) for entry in as_list(data["exclude"])])
    if not points:
        message = f"every one of the {count_points(axes):,} points of the axes is excluded"
        raise SpecError([about(document, ("exclude",), "BLIS2060", message, key=True)])
    added = parse_overrides(given)
    _check_added(added, axes, problems)
    fixed = (*_case(document, base, problems), *fixed, *added)
    problems.stop()
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
        objectives=tuple(decode(Objective, part) for part in Part(data, "").parts("objectives")),
        constraints=tuple(decode(Expectation, part) for part in Part(data, "").parts("constraints")),
        prices={name: float(str(price)) for name, price in as_map(data.get("prices")).items()},
        plugins=plugins,
        document=data,
        written=document,
    )


def _check_added(added: tuple[Override, ...], axes: tuple[Axis, ...], problems: Problems) -> None:
    """Check that no assignment for all runs is replaced by the values of an axis in each of them."""
    for override in added:
        for path in (path for axis in axes for path in axis.paths):
            if f"{override.path}.".startswith(f"{path}."):
                message = f"`{override.path}` has no effect: every point has its own `{path}`"
                problems.add(located("BLIS2062", message, override.places[-1], hint="remove it, or the axis"))


def _case(document: Document, base: Document, problems: Problems) -> tuple[Override, ...]:
    """Return the assignments of the experiment's case that the study selects."""
    name = document.get("case")
    if name is None:
        return ()
    known = {case.name: case for case in expanded_cases(base, problems)}
    if name in known:
        return known[str(name)].overrides
    if not problems.found:
        names = known.keys() - {""}
        hint = (
            suggestion(str(name), names, otherwise="its cases are") if names else "it has neither `cases` nor `matrix`"
        )
        message = f"the experiment has no case `{name}`"
        problems.add(about(document, ("case",), "BLIS2001", message, hint=hint))
    return ()


def resolve_point(study: Study, point: Point, seed: int | None = None) -> Resolved:
    """Return the resolved experiment of a point. Raises SpecError if it is invalid."""
    seeded = () if seed is None else parse_overrides((), seed)
    base = study.base.copy()  # resolving changes it
    return resolve_document(base, (*study.fixed, *point.overrides, *seeded), study.plugins)


def experiment_of(study: Study, point: Point, seed: int) -> Experiment:
    """Return the experiment of a point with one of the study's seeds. Raises SpecError if it is invalid."""
    return build(resolve_point(study, point, seed))


def _try_out(
    base: Document, fixed: tuple[Override, ...], axes: tuple[Axis, ...], first: Point, plugins: Registry | None
) -> None:
    """Try each value of each axis once, with the first point's values on the other axes.

    Unknown keys and values of the wrong type are invalid at every point, so they are reported before anything runs.
    Semantic problems (a model that does not fit on a GPU) may disappear with other values on other axes; such points
    become rows without results.

    Raises:
        SpecError: with the problems that every point has.
    """
    diagnostics: list[Diagnostic] = []
    usual = {override.steps: override for override in first.overrides}
    for axis in axes:
        stride = -(-len(axis.rows) // _MOST_TRIED)
        for row in (*axis.rows[::stride], axis.rows[-1]):
            tried = {**usual, **{override.steps: override for override in row}}
            diagnostics += _wrong_form(base, (*fixed, *tried.values()), plugins)
    if diagnostics:  # the values of a range have one place: one of them tells what is wrong
        places = {
            (
                diagnostic.file,
                diagnostic.source_line,
                diagnostic.line,
                diagnostic.column,
                diagnostic.code,
                diagnostic.path,
            ): diagnostic
            for diagnostic in diagnostics[::-1]
        }
        raise SpecError(in_order(places.values()))


def _first_sound(
    document: Document,
    base: Document,
    fixed: tuple[Override, ...],
    points: tuple[Point, ...],
    plugins: Registry | None,
) -> Resolved:
    """Return the first valid point of a sample spread over all points. Raises SpecError if there is none."""
    wrong: SpecError | None = None
    tried = points[:: -(-len(points) // _MOST_TRIED)]
    for point in tried:
        try:
            return resolve_document(base.copy(), (*fixed, *point.overrides), plugins)
        except SpecError as error:
            wrong = wrong or error
    diagnostics = () if wrong is None else wrong.diagnostics
    if len(points) > 1:
        some = (
            f"{len(tried)} points, spread over all {len(points):,},"
            if len(tried) < len(points)
            else f"{len(points)} points"
        )
        message = f"none of {some} can run; the first one:"
        diagnostics = (about(document, ("axes",), "BLIS2067", message, key=True), *diagnostics)
    raise SpecError(diagnostics)


def _wrong_form(base: Document, overrides: tuple[Override, ...], plugins: Registry | None) -> list[Diagnostic]:
    try:
        resolve_document(base.copy(), overrides, plugins)
    except SpecError as error:
        unknown = [
            diagnostic for diagnostic in error.diagnostics if diagnostic.code in {"BLIS2001", "BLIS2002", "BLIS2013"}
        ]
        return [
            diagnostic for diagnostic in error.diagnostics if not diagnostic.code.startswith(_OF_MEANING)
        ] or unknown
    return []


# ---- parts ----


def _seeds(given: Json, own: Json) -> tuple[int, ...]:
    if isinstance(given, list):
        return tuple(int(str(seed)) for seed in given)
    first = int(str(own))
    return tuple(range(first, first + int(str(given))))


def open_study_or_experiment(source: str, stdin_text: str | None = None) -> tuple[Document, Document | None]:
    """Read a study, or an experiment as the second result, with an empty study around it.

    Args:
        source: a path, a name, or ``-`` for ``stdin_text``; a study takes precedence over an experiment of that name.
        stdin_text: the document itself, for ``-``.

    Raises:
        SpecError: it is not one strict YAML document.
        InputError: it cannot be read, or nothing has that name.
    """
    here = Path.cwd()
    if source != "-" and not is_path(source):
        if (path := find("Study", source, here)) is not None:
            return read_document(path, shown(path)), None
        if find("Experiment", source, here) is None:
            known = {*names("Study", here), *names("Experiment", here)}
            hint = suggestion(source, known, otherwise="known names are")
            raise InputError(f"no study and no experiment is named `{source}`", help=hint)
    document = open_source(source, stdin_text)
    if document.get("kind") == "Study":
        return document, None
    name = document.get("metadata", "name")
    header: Json = {
        "apiVersion": "blis/v1",
        "kind": "Study",
        "metadata": {"name": name if isinstance(name, str) else "study"},
        "experiment": "standard input" if source == "-" else source,
    }
    return Document(header, document.source), document


def source_of(study: Study) -> str:
    """Return what a user would type for the study's experiment: its name if that finds the file, else the path."""
    path = study.base.source.name
    try:
        same = real_path(locate(study.experiment)) == real_path(Path(path))
    except BlisError:
        same = False
    return study.experiment if same else path


def override_texts(study: Study, point: Point) -> tuple[str, ...]:
    """Return the ``--set`` arguments that turn the experiment into that of the point."""
    return tuple(
        as_text(".".join(override.steps), override.value.data) for override in (*study.fixed, *point.overrides)
    )
