"""The experiments and studies there are: found in a folder and shipped, checked, with the state of their goldens."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from blis_tui.classes import dataclass
from blis_tui.errors import BlisError, InputError
from blis_tui.inputs import real_path
from blis_tui.printable import printable
from blis_tui.spec.library import entries, find, suffix
from blis_tui.tui.presenters.problems import diagnostics_of
from blis_tui.units import plural

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from blis_tui.spec.diagnostics import Diagnostic
    from blis_tui.spec.model import Experiment

MAX_FOUND: Final = 500
"""Experiments listed of one folder."""
MAX_FOLDERS: Final = 5_000
"""Folders looked into."""
_SKIPPED: Final = ("node_modules", "__pycache__", "venv", "site-packages")
_KINDS: Final = ("Experiment", "Study")
_ENDING: Final = suffix("Experiment")
_STUDY_ENDING: Final = suffix("Study")
_ENDINGS: Final = (_ENDING, _STUDY_ENDING)


def shown_folder(folder: Path) -> str:
    """Where a folder is, for people: ``~/experiments``."""
    home = Path.home()
    return f"~/{folder.relative_to(home).as_posix()}".rstrip("/.") if folder.is_relative_to(home) else str(folder)


@dataclass(frozen=True, slots=True)
class Found:
    """A file with an experiment or a study."""

    path: Path
    name: str
    """What to call it: the file's name, with its folder where two have the same."""
    source: str
    """What to load it by: its path, or its name when it is shipped."""
    shown: str
    """Where it is, for people."""
    shipped: bool
    is_study: bool = False


@dataclass(frozen=True, slots=True)
class Catalog:
    """The experiments and studies of a folder and the shipped ones."""

    found: tuple[Found, ...]
    complete: bool
    """False = the folder holds more than were looked at."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What a valid experiment or study says, in words."""

    description: str
    lines: tuple[tuple[str, str], ...]
    """What and how: ``("model", "llama-3.1-8b-instruct")``."""


@dataclass(frozen=True, slots=True)
class Checked:
    """The outcome of loading a document: facts, or problems."""

    facts: Facts | None
    problems: tuple[Diagnostic, ...] = ()
    unreadable: str = ""
    """Why the file could not even be read; empty = it could."""


@dataclass(frozen=True, slots=True)
class GoldenState:
    """What golden results an experiment has; each a number of its cases."""

    golden: int = 0
    pending: int = 0
    orphan: int = 0

    @property
    def word(self) -> str:
        """The one that needs attention most."""
        if self.pending:
            return "pending"
        if self.orphan:
            return "orphan"
        return "golden" if self.golden else "none"


# ---- finding ----


def find_documents(folder: Path) -> Catalog:
    """Every experiment and study below a folder, then those that the package ships and that were not among them."""
    paths, complete = _below(folder)
    names = _names(paths, folder)
    found = [
        Found(
            path,
            names[path],
            _source(path, folder),
            printable(_relative(path, folder)),
            False,
            path.name.endswith(_STUDY_ENDING),
        )
        for path in paths
    ]
    seen = {real_path(path) for path in paths}
    for entry in entries(None):
        if entry.kind in _KINDS and real_path(entry.path) not in seen:
            source = entry.name if find(entry.kind, entry.name, folder) == entry.path else str(entry.path)
            is_study = entry.kind == "Study"
            found.append(Found(entry.path, entry.name, source, "shipped with blis-tui", True, is_study))
    return Catalog(tuple(found), complete)


def _below(folder: Path) -> tuple[list[Path], bool]:
    """Experiments and studies below a folder in order of their paths, and whether the search was complete."""
    found: list[Path] = []
    for count, (here, folders, files) in enumerate(os.walk(folder), 1):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in _SKIPPED)
        found += [Path(here, name) for name in sorted(files) if name.endswith(_ENDINGS) and not name.startswith(".")]
        if len(found) > MAX_FOUND or count >= MAX_FOLDERS:
            return found[:MAX_FOUND], False
    return found, True


def _names(paths: list[Path], folder: Path) -> dict[Path, str]:
    """The files' names, with their folders where two are the same."""
    short = {path: _stem(printable(path.name)) for path in paths}
    counts: dict[str, int] = {}
    for name in short.values():
        counts[name] = counts.get(name, 0) + 1
    return {
        path: name if counts[name] == 1 else _stem(printable(_relative(path, folder))) for path, name in short.items()
    }


def _stem(name: str) -> str:
    return name.removesuffix(_ENDING).removesuffix(_STUDY_ENDING)


def _source(path: Path, folder: Path) -> str:
    """What a user would type for a file: short where the folder is the working folder."""
    return _relative(path, folder) if folder == Path.cwd() else str(path)


def _relative(path: Path, folder: Path) -> str:
    return path.relative_to(folder).as_posix() if path.is_relative_to(folder) else str(path)


# ---- checking ----


def check(found: Found) -> Checked:
    """Load a document. Takes some ten milliseconds, and a few hundred the first time; a study has several to load."""
    from blis_tui.spec.load import load  # noqa: PLC0415  (the list appears before this loads)

    try:
        return Checked(_study_facts(found.path) if found.is_study else facts_of(load(found.path)))
    except BlisError as error:
        problems = diagnostics_of(error)
        return Checked(None, problems, unreadable="" if problems else error.message)


def facts_of(experiment: Experiment) -> Facts:
    """What an experiment says, in words."""
    pools, policy = experiment.pools, experiment.policy
    parallel = _each(f", {pool.tensor_parallel} GPUs each" if pool.tensor_parallel > 1 else "" for pool in pools)
    lines = (
        ("model", _each(pool.model.name for pool in pools)),
        ("hardware", _each(pool.hardware.name for pool in pools)),
        ("cluster", _size(experiment) + parallel),
        ("step time", _each(pool.latency.kind for pool in pools)),
        ("workload", f"{experiment.workload.name}: {_requests(experiment)}"),
        ("policy", f"{policy.name}: {policy.scheduling.kind}, {policy.batching.kind} batching"),
        ("expects", _expected(experiment)),
        ("seed", str(experiment.seed)),
    )
    return Facts(experiment.description, lines)


def _size(experiment: Experiment) -> str:
    """How many instances, or ranks of how many replicas."""
    if all(pool.engine.data_parallel == 1 for pool in experiment.pools):
        return plural(experiment.instances, "instance")
    replicas = 0
    for pool in experiment.pools:
        replicas += pool.instances // pool.engine.data_parallel
    return f"{plural(experiment.instances, 'rank')} of {plural(replicas, 'replica')}"


def _expected(experiment: Experiment) -> str:
    figures = plural(len(experiment.expect), "metric") if experiment.expect else ""
    course = f"{plural(len(experiment.course), 'condition')} over time" if experiment.course else ""
    return ", ".join(filter(None, (figures, course))) or "nothing"


def _study_facts(path: Path) -> Facts:
    """What a study says, in words. Raises SpecError and InputError: something is wrong with it."""
    from blis_tui.spec.study.document import read_study  # noqa: PLC0415
    from blis_tui.spec.study.opening import open_study_or_experiment  # noqa: PLC0415
    from blis_tui.study.text import bound_text  # noqa: PLC0415

    document, base = open_study_or_experiment(str(path))
    study = read_study(document, base=base)
    seeds = f", {plural(len(study.seeds), 'seed')} each" if len(study.seeds) > 1 else ""
    lines = (
        ("experiment", study.experiment),
        ("axes", ", ".join(study.paths) or "none"),
        ("points", f"{len(study.points):,}{seeds}"),
        ("objectives", ", ".join(f"{one.goal} {one.metric}" for one in study.objectives) or "none"),
        ("bounds", ", ".join(map(bound_text, study.constraints)) or "none"),
    )
    return Facts(study.description, lines)


def _each(facts: Iterable[str]) -> str:
    """What is said of each pool, each fact once."""
    return ", ".join(dict.fromkeys(facts))


def _requests(experiment: Experiment) -> str:
    workload = experiment.workload
    if workload.trace is not None:
        amount = "" if workload.requests is None else f"{workload.requests:,} requests of "
        return f"{amount}recorded {Path(workload.trace.path).name}"
    amount = "requests until the horizon" if workload.requests is None else plural(workload.requests, "request")
    return f"{amount}, {workload.rate_per_s:g}/s"


# ---- goldens ----


def golden_states(folder: Path) -> tuple[Mapping[Path, GoldenState], int]:
    """The goldens below a folder's ``golden/`` by the experiment they belong to, and how many belong to none."""
    states: dict[Path, GoldenState] = {}
    lost = 0
    for spec, state in _goldens(folder):
        if not spec.is_file():
            lost += 1
            continue
        before = states.get(spec, GoldenState())
        states[spec] = GoldenState(
            golden=before.golden + state.golden,
            pending=before.pending + state.pending,
            orphan=before.orphan + state.orphan,
        )
    return states, lost


def _goldens(folder: Path) -> Iterator[tuple[Path, GoldenState]]:
    """Each golden's experiment and its state; what cannot be read says nothing here."""
    from blis_tui.golden.project import home  # noqa: PLC0415
    from blis_tui.golden.review import survey  # noqa: PLC0415

    try:
        project = home(real_path(folder))
    except InputError:  # who opens the screen of goldens is told
        return
    for entry in survey(project.golden_dir, project.root) if project.golden_dir.is_dir() else ():
        if entry.spec:
            orphan = entry.state == "obsolete"
            golden = entry.files.exists() and not orphan
            yield (
                real_path(project.root / entry.spec),
                GoldenState(golden=int(golden), pending=int(entry.waiting), orphan=int(orphan)),
            )


def known_golden(states: Mapping[Path, GoldenState], found: Found) -> GoldenState:
    """The state of an experiment's goldens."""
    return states.get(real_path(found.path), GoldenState())
