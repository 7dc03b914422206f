"""The golden tests in a file: one for each case and each twin of an experiment, or one for a study."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import dataclass
from blis_tui.base.diagnostics import about, nearest
from blis_tui.base.errors import InputError
from blis_tui.base.source import as_list, as_map
from blis_tui.golden.compare import ComparisonOptions, Tolerance
from blis_tui.golden.golden_store import stem_of
from blis_tui.model.experiment import TwinTest, TwinTolerance
from blis_tui.spec.cases import expanded_cases
from blis_tui.spec.compose import Problems, checked, shown
from blis_tui.spec.load import load
from blis_tui.spec.metric_names import all_metrics, unknown_step
from blis_tui.spec.overrides import WrittenAssignment
from blis_tui.spec.read import read_document
from blis_tui.spec.study.document import read_study

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from blis_tui.base.source import DataPath, Document, Json
    from blis_tui.model import Experiment
    from blis_tui.model.plug_ins import Registry
    from blis_tui.spec.study.study_records import Study

DEFAULT: Final = "default"
"""Name of the only test of a study, and of an experiment without cases."""
_TWIN: Final = "twin+"
"""Prefix of the names of twin tests; no case can have such a name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One golden test."""

    spec: Path
    name: str
    line: int
    """Line of the case in the file, from 1."""
    overrides: Mapping[str, object]
    """The assigned values by path."""
    assignments: tuple[str, ...] = ()
    """The same as texts, which know where the file has them."""
    tags: tuple[str, ...]
    skip: str
    """Why it is skipped; empty = it is run."""
    xfail: str
    """Why it is known to fail; empty = it should pass."""
    known: tuple[str, ...] = ()
    """Expectations known to be broken; the test passes while they are."""
    comparison: ComparisonOptions
    plugins: Registry | None = None
    """Additional plug-ins that it may name; None = none."""
    is_study: bool = False
    """Whether it is a study with many runs, instead of one run of an experiment."""
    twin: TwinTest | None = None
    """The recording that is compared with a simulation; None = it is no twin test."""

    @property
    def is_run(self) -> bool:
        """Whether it is one run of an experiment, with a report and records."""
        return not self.is_study and self.twin is None

    @property
    def what(self) -> str:
        """Its name in messages."""
        return "the study" if self.is_study else f"case `{self.name}`" if self.twin is None else f"`{self.name}`"

    def load(self) -> Experiment:
        """Return the experiment of this case. Raises SpecError and InputError, also if it is not a single run."""
        if self.is_study:
            raise InputError(f"{shown(self.spec)} is a study: it has many runs, not a single one to open")
        if self.twin is not None:
            raise InputError(
                f"{self.what} of {shown(self.spec)} is a recording with its simulation, not a single run to open",
                help="`blis-tui tui SPEC --twin RECORDING` shows both",
            )
        return self.load_experiment()

    def load_experiment(self) -> Experiment:
        """Return the experiment to run, or to compare with a recording. Raises SpecError and InputError."""
        return load(self.spec, overrides=self.assignments, plugins=self.plugins)

    def load_study(self) -> Study:
        """Return the study. Raises SpecError and InputError."""
        return read_study(read_document(self.spec, shown(self.spec)), plugins=self.plugins)


def cases_of(spec: Path, plugins: Registry | None = None) -> tuple[Case, ...]:
    """Return all golden tests of an experiment or a study; none for another kind of document.

    Raises:
        SpecError: the file is no valid document.
        InputError: it cannot be read, or its name is that of the golden of another file's case.
    """
    _require_own_goldens(spec)
    return cases_in(read_document(spec, shown(spec)), spec, plugins)


def _require_own_goldens(spec: Path) -> None:
    """Raise InputError if a file ``NAME@CASE`` lies beside ``NAME``, whose case would have the same golden."""
    stem = stem_of(spec)
    for at in (at for at, character in enumerate(stem) if character == "@"):
        other = spec.with_name(stem[:at] + spec.name.removeprefix(stem))
        if other.is_file():
            raise InputError(
                f"{shown(spec)}: a case `{stem[at + 1 :]}` of {shown(other)} would have the same golden, `{stem}`",
                help="rename the file; `NAME@CASE` is what the golden of a case is called",
            )


def cases_in(document: Document, spec: Path, plugins: Registry | None = None) -> tuple[Case, ...]:
    """Return all golden tests of a parsed document.

    Raises:
        SpecError: it is no valid document.
    """
    data = document.data
    if isinstance(data, dict) and data.get("kind") == "Study":
        return (_study(spec, plugins),)
    if not isinstance(data, dict) or data.get("kind") != "Experiment":
        return ()
    problems = Problems(plugins)
    cases = expanded_cases(document, problems) if checked(document, "Experiment", (), problems) else []
    if cases:
        _check_twins(document, problems)
        _check_pointers(document, problems)
    problems.stop()
    runs = tuple(
        Case(
            spec=spec,
            name=case.name or DEFAULT,
            line=case.line,
            overrides=case.values,
            assignments=tuple(map(WrittenAssignment, case.overrides)),
            tags=tuple(str(tag) for tag in as_list(data.get("tags"))),
            skip=str(data.get("skip") or ""),
            xfail=str(data.get("xfail") or ""),
            known=tuple(str(name) for name in as_list(as_map(data.get("golden")).get("xfail"))),
            comparison=_comparison(as_map(data.get("golden"))),
            plugins=plugins,
        )
        for case in cases
    )
    return (*runs, *_twins(document, runs[:1]))


def _twins(document: Document, runs: tuple[Case, ...]) -> Iterator[Case]:
    """Yield a test for each recording of the experiment, with the tags and other settings of its cases."""
    twins = as_list(document.get("twins"))
    if not twins:
        return
    from blis_tui.golden.twins import comparison  # noqa: PLC0415  (few projects have recordings)

    for at, entry in enumerate(twins):
        twin = _twin(as_map(entry))
        for run in runs:
            yield replace(
                run,
                name=f"{_TWIN}{twin.name}",
                line=document.place(("twins", at)).span.line,
                overrides={},
                assignments=(),
                known=(),
                comparison=comparison(twin.tolerance),
                twin=twin,
            )


def _twin(data: Mapping[str, Json]) -> TwinTest:
    tolerance = TwinTolerance(**_bounds(as_map(data.get("tolerance"))))
    steps = {"steps": str(data["steps"])} if "steps" in data else {}
    return TwinTest(name=str(data["name"]), recording=str(data["recording"]), tolerance=tolerance, **steps)


def _check_twins(document: Document, problems: Problems) -> None:
    """Report recordings with equal names."""
    seen: dict[Json, int] = {}
    for at, entry in enumerate(as_list(document.get("twins"))):
        name = as_map(entry).get("name")
        if name in seen:
            hint = f"the first is on line {document.place(('twins', seen[name], 'name')).span.line}"
            message = f"two recordings are named `{name}`"
            problems.add(about(document, ("twins", at, "name"), "BLIS2021", message, hint=hint))
        seen.setdefault(name, at)


def _check_pointers(document: Document, problems: Problems) -> None:
    """Report pointers to what no report has: values would be compared exactly, or stay readable, after all."""
    golden = as_map(document.get("golden"))
    places: list[tuple[str, DataPath, bool]] = [
        (pointer, ("golden", "tolerance", pointer), True) for pointer in as_map(golden.get("tolerance"))
    ]
    places += [
        (str(redacted), ("golden", "redact", at), False) for at, redacted in enumerate(as_list(golden.get("redact")))
    ]
    for pointer, place, is_key in places:
        steps = tuple(step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:])
        at = unknown_step(steps)
        if at is not None:
            near = nearest(".".join(steps), all_metrics())
            hint = None if near is None else f"did you mean `/{near.replace('.', '/')}`?"
            message = f"no report has `{pointer[:80]}`"
            problems.add(about(document, place, "BLIS2013", message, key=is_key, hint=hint))


def _study(spec: Path, plugins: Registry | None) -> Case:
    return Case(
        spec=spec,
        name=DEFAULT,
        line=1,
        overrides={},
        tags=(),
        skip="",
        xfail="",
        comparison=ComparisonOptions(),
        plugins=plugins,
        is_study=True,
    )


def _comparison(data: Mapping[str, Json]) -> ComparisonOptions:
    tolerance = {
        pointer: Tolerance(**_bounds(as_map(bounds))) for pointer, bounds in as_map(data.get("tolerance")).items()
    }
    return ComparisonOptions(
        records=data.get("records") is not False,
        tolerance=tolerance,
        redact=tuple(str(pointer) for pointer in as_list(data.get("redact"))),
    )


def _bounds(data: Mapping[str, Json]) -> dict[str, float]:
    return {name: float(bound) for name, bound in data.items() if isinstance(bound, int | float)}
