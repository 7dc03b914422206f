"""The available experiments and studies, those of a folder and the shipped ones, with checks and golden states."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import dataclass
from blis_tui.base.errors import BlisError, InputError
from blis_tui.base.input_files import real_path
from blis_tui.base.portable_math import whole_sum
from blis_tui.base.text import printable
from blis_tui.base.units import plural
from blis_tui.spec.library import entries, find, suffix
from blis_tui.tui.drawing.lines import diagnostics_of
from blis_tui.workload.arrivals import CLOSED_LOOP

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from blis_tui.base.diagnostics import Diagnostic
    from blis_tui.model import Experiment

MAX_FOUND: Final = 500
"""Maximum number of experiments listed from one folder."""
MAX_FOLDERS: Final = 5_000
"""Maximum number of folders searched."""
_SKIPPED: Final = ("node_modules", "__pycache__", "venv", "site-packages")
_KINDS: Final = ("Experiment", "Study")
_ENDING: Final = suffix("Experiment")
_STUDY_ENDING: Final = suffix("Study")
_ENDINGS: Final = (_ENDING, _STUDY_ENDING)


def shown_folder(folder: Path) -> str:
    """Return the display form of a folder: ``~/experiments``."""
    home = Path.home()
    return f"~/{folder.relative_to(home).as_posix()}".rstrip("/.") if folder.is_relative_to(home) else str(folder)


@dataclass(frozen=True, slots=True)
class Found:
    """A file with an experiment or a study."""

    path: Path
    name: str
    """Its name: the file's name, with its folder if the name is not unique."""
    source: str
    """What loads it: its path, or its name if it is shipped."""
    shown: str
    """Its location for display."""
    shipped: bool
    is_study: bool = False


@dataclass(frozen=True, slots=True)
class Catalog:
    """The experiments and studies of a folder, and the shipped ones."""

    found: tuple[Found, ...]
    complete: bool
    """False = the folder holds more than were searched."""


@dataclass(frozen=True, slots=True)
class Facts:
    """A summary of a valid experiment or study."""

    description: str
    lines: tuple[tuple[str, str], ...]
    """Label and value: ``("model", "llama-3.1-8b-instruct")``."""


@dataclass(frozen=True, slots=True)
class Checked:
    """The result of loading a document: facts, or problems."""

    facts: Facts | None
    problems: tuple[Diagnostic, ...] = ()
    unreadable: str = ""
    """Why the file could not be read; empty = it could."""


@dataclass(frozen=True, slots=True)
class GoldenState:
    """The golden results of an experiment: numbers of cases by state."""

    golden: int = 0
    pending: int = 0
    orphan: int = 0

    @property
    def word(self) -> str:
        """The state that needs attention most."""
        if self.pending:
            return "pending"
        if self.orphan:
            return "orphan"
        return "golden" if self.golden else "none"


# ---- search ----


def find_documents(folder: Path) -> Catalog:
    """Return every experiment and study below a folder, then the shipped ones that were not among them."""
    paths, complete = _below(folder)
    names = _names(paths, folder)
    documents = [
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
            documents.append(Found(entry.path, entry.name, source, "shipped with blis-tui", True, is_study))
    return Catalog(tuple(documents), complete)


def is_searched(path: Path, folder: Path) -> bool:
    """Return whether a file is where experiments of one's own are searched for below a folder."""
    return path.is_relative_to(folder) and all(map(_is_searched, path.relative_to(folder).parts[:-1]))


def _is_searched(name: str) -> bool:
    return not name.startswith(".") and name not in _SKIPPED


def _below(folder: Path) -> tuple[list[Path], bool]:
    """Return experiments and studies below a folder, sorted by path, and whether the search was complete."""
    paths: list[Path] = []
    for count, (here, folders, files) in enumerate(os.walk(folder), 1):
        folders[:] = sorted(filter(_is_searched, folders))
        paths += [Path(here, name) for name in sorted(files) if name.endswith(_ENDINGS) and not name.startswith(".")]
        if len(paths) > MAX_FOUND or count >= MAX_FOLDERS:
            return paths[:MAX_FOUND], False
    return paths, True


def _names(paths: list[Path], folder: Path) -> dict[Path, str]:
    """Return the files' names, with folders where names repeat."""
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
    """Return what a user would type for a file: a short path if the folder is the working folder."""
    return _relative(path, folder) if folder == Path.cwd() else str(path)


def _relative(path: Path, folder: Path) -> str:
    return path.relative_to(folder).as_posix() if path.is_relative_to(folder) else str(path)


# ---- checks ----


def check(document: Found) -> Checked:
    """Load a document, which takes about ten milliseconds, more the first time; a study loads several."""
    from blis_tui.spec.load import load  # noqa: PLC0415  (the list appears before this loads)

    try:
        return Checked(_study_facts(document.path) if document.is_study else facts_of(load(document.path)))
    except BlisError as error:
        problems = diagnostics_of(error)
        return Checked(None, problems, unreadable="" if problems else error.message)


def facts_of(experiment: Experiment) -> Facts:
    """Return a summary of an experiment."""
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
    """Return the number of instances, or of ranks and replicas."""
    if all(pool.engine.data_parallel == 1 for pool in experiment.pools):
        return plural(experiment.instances, "instance")
    replicas = whole_sum([pool.instances // pool.engine.data_parallel for pool in experiment.pools])
    return f"{plural(experiment.instances, 'rank')} of {plural(replicas, 'replica')}"


def _expected(experiment: Experiment) -> str:
    figures = plural(len(experiment.expect), "metric") if experiment.expect else ""
    course = f"{plural(len(experiment.course), 'condition')} over time" if experiment.course else ""
    return ", ".join(filter(None, (figures, course))) or "nothing"


def _study_facts(path: Path) -> Facts:
    """Return a summary of a study. Raises SpecError and InputError if it is invalid."""
    from blis_tui.spec.study.document import (  # noqa: PLC0415
        open_study_or_experiment,
        read_study,
    )
    from blis_tui.study.study_text import bound_text  # noqa: PLC0415

    document, base = open_study_or_experiment(str(path))
    study = read_study(document, base=base)
    seeds = f", {plural(len(study.seeds), 'seed')} each" if len(study.seeds) > 1 else ""
    lines = (
        ("experiment", study.experiment),
        ("axes", ", ".join(study.paths) or "none"),
        ("points", f"{len(study.points):,}{seeds}"),
        ("objectives", ", ".join(f"{objective.goal} {objective.metric}" for objective in study.objectives) or "none"),
        ("bounds", ", ".join(map(bound_text, study.constraints)) or "none"),
    )
    return Facts(study.description, lines)


def _each(facts: Iterable[str]) -> str:
    """Return the facts of all pools, each fact once."""
    return ", ".join(dict.fromkeys(facts))


def _requests(experiment: Experiment) -> str:
    workload = experiment.workload
    if workload.trace is not None:
        amount = "" if workload.requests is None else f"{plural(workload.requests, 'request')} of "
        return f"{amount}recorded {Path(workload.trace.path).name}"
    counts = {"request": workload.requests, "session": workload.sessions, "stage": len(workload.stages) or None}
    limits = [plural(count, what) for what, count in counts.items() if count is not None]
    if not limits:
        limits = [f"requests until {'the rate is 0' if experiment.horizon_us is None else 'the horizon'}"]
    rates = [stage.rate_per_s for stage in workload.stages] or [workload.rate_per_s]
    least, most = min(rates), max(rates)
    load = [f"{most:g}/s" if least == most else f"{least:g} to {most:g}/s"] if most else []
    loops = [client.arrivals.settings for client in workload.clients if client.arrivals.kind == CLOSED_LOOP]
    users = whole_sum([int(str(settings.get("users", 1))) for settings in loops])
    load += [plural(users, "user")] if users else []
    return ", ".join([*limits, *load])


# ---- goldens ----


def golden_states(folder: Path) -> tuple[Mapping[Path, GoldenState], int]:
    """Return the goldens below a folder's ``golden/`` by experiment, and the number of goldens without one."""
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
    """Yield each golden's experiment and state; unreadable ones are skipped."""
    from blis_tui.golden.project import project_of_folder  # noqa: PLC0415
    from blis_tui.golden.review import survey  # noqa: PLC0415

    try:
        project = project_of_folder(real_path(folder))
    except InputError:  # the screen of goldens reports this
        return
    for entry in survey(project.golden_dir, project.root) if project.golden_dir.is_dir() else ():
        if entry.spec:
            orphan = entry.state == "obsolete"
            golden = entry.files.exists() and not orphan
            yield (
                real_path(project.root / entry.spec),
                GoldenState(golden=int(golden), pending=int(entry.waiting), orphan=int(orphan)),
            )


def known_golden(states: Mapping[Path, GoldenState], document: Found) -> GoldenState:
    """Return the state of an experiment's goldens."""
    return states.get(real_path(document.path), GoldenState())
