"""Runs golden tests again whenever a file that they read has changed.

A test reads its experiment, what that extends and names, traces, recordings, scripts of plug-ins, and its golden. Which
files these are is known once it has been loaded. They are looked at from time to time: a change counts as soon as two
looks in turn find the same, so that no file is read while an editor writes it.

An experiment that is not valid has a problem instead of tests. It is loaded again when a file that it has read changes,
and now and then in any case, because what it names may only come into being.
"""

from __future__ import annotations

import os
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import dataclass
from blis_tui.base.errors import BlisError, InputError, SimulationError, in_words
from blis_tui.base.input_files import clear_opened_inputs, opened_inputs
from blis_tui.golden.case import cases_of
from blis_tui.golden.golden_divergence import find_divergence
from blis_tui.golden.golden_store import ACCEPTED, HEADER, PENDING, REPORT
from blis_tui.golden.other_process import OtherProcess
from blis_tui.golden.project import SCRIPT, project_of, relative_to_cwd
from blis_tui.golden.review import accept, waiting
from blis_tui.golden.session import GoldenSettings, debugger_command, run_case
from blis_tui.model.plug_ins import place_in_plugin

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from typing import Self

    from blis_tui.golden.case import Case
    from blis_tui.golden.golden_store import Golden, GoldenFiles
    from blis_tui.golden.project import Project
    from blis_tui.golden.session import Outcome
    from blis_tui.model.plug_ins import Registry

_LEFT_OUT: Final = (".*", "*.egg", "_darcs", "build", "CVS", "dist", "node_modules", "venv", "{arch}")
"""Folders in which pytest looks for no tests."""
_RETRY: Final = 8
"""An invalid experiment is loaded again after this many looks in any case."""
_BRIEF: Final = ("report: ", "first divergence: ", "expectation failed: ", "invariant ")
"""Beginnings of the lines that say the most of a difference."""

Stamp = tuple[int, int, int] | None
"""When a file was changed, its size and its number; None = it does not exist."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedTest:
    """A golden test and the files that it reads."""

    case: Case
    files: GoldenFiles
    project: Project
    reads: frozenset[Path]

    @property
    def spec(self) -> str:
        """Its experiment's path, as it is stored in the golden."""
        return Path(os.path.relpath(self.case.spec, self.project.root)).as_posix()


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What has become of a test, or of an experiment that has none because it is not valid."""

    name: str
    """Name of the golden, or the path of the experiment."""
    status: str
    """That of an outcome (``equal``, ``changed``, …), ``skipped``, ``xfail``, ``error`` or ``gone``."""
    text: str = ""
    """Everything about it, as a failing test says it."""
    test: WatchedTest | None = None
    shown: Golden | None = None
    """The result that waits for a decision."""

    def line(self) -> str:
        """Return it in one line: what a long text says first, how much differs and where that begins."""
        lines = self.text.split("\n")
        if self.status != "changed":
            place = next((line.strip().removeprefix("--> ") for line in lines if line.startswith(" --> ")), "")
            reason = lines[0] if not place else f"{place}: {lines[0]}"
        else:
            reason = "; ".join(line for line in lines if line.startswith(_BRIEF))
        return f"{self.status:<8}  {self.name}{f'  {reason}' if reason else ''}"


@dataclass(frozen=True, slots=True)
class _Spec:
    """A file with golden tests, or with the reason why it has none."""

    tests: tuple[WatchedTest, ...]
    problem: str
    reads: frozenset[Path]


@dataclass(frozen=True, slots=True)
class Round:
    """What a change is about."""

    verdicts: tuple[Verdict, ...]
    """What is known without a run: invalid experiments, and those that are gone."""
    tests: tuple[WatchedTest, ...]
    """What is to be run."""


def spec_files(folder: Path, patterns: Sequence[str]) -> Iterator[Path]:
    """Yield the files below a folder that pytest collects as golden tests, in order of path."""
    for at, folders, names in os.walk(folder):
        here = Path(at)
        folders[:] = sorted(
            name
            for name in folders
            if not any(fnmatch(name, pattern) for pattern in _LEFT_OUT) and not (here / name / "pyvenv.cfg").is_file()
        )
        yield from (here / name for name in sorted(names) if _is_spec(here / name, patterns))


def _is_spec(path: Path, patterns: Sequence[str]) -> bool:
    return any(path.match(pattern) for pattern in patterns)


def stamp(path: Path) -> Stamp:
    """Return what changes whenever a file does."""
    try:
        status = path.stat()
    except (OSError, ValueError):
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


class Watch:
    """The golden tests of a project and what they read.

    Leaving its context ends the process that repeats runs.

    Args:
        project: where the tests run.
        paths: files and folders with the tests to watch; empty = where pytest looks for tests.
        plugins: further plug-ins that experiments may name.
    """

    def __init__(self, project: Project, paths: Sequence[Path] = (), plugins: Sequence[str] = ()) -> None:
        root, spec_root, golden_dir = map(_absolute, (project.root, project.spec_root, project.golden_dir))
        self._project = replace(project, root=root, spec_root=spec_root, golden_dir=golden_dir)
        self._paths = tuple(map(_absolute, paths)) or tuple(root / path for path in project.test_paths) or (root,)
        self._plugins = tuple(plugins)
        self._registries: dict[Project, Registry | None] = {}
        self._specs: dict[Path, _Spec] = {}
        self._acted: dict[Path, Stamp] = {}
        self._seen: dict[Path, Stamp] = {}
        self._looks = 0
        self._other = OtherProcess()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._other.__exit__(*error)

    def begin(self) -> tuple[Verdict, ...]:
        """Load everything; return which experiments are not valid.

        Raises:
            InputError: a path does not exist, or no test is there.
            BlisError: plug-ins cannot be loaded.
        """
        for path in self._paths:
            if not path.exists():
                raise InputError(f"cannot watch {relative_to_cwd(path)}: there is no such file or folder")
            if path.is_file() and not _is_spec(path, self._project.spec_glob):
                raise InputError(
                    f"{relative_to_cwd(path)} is no golden test: pytest runs {', '.join(self._project.spec_glob)}",
                    help="rename it, or add its pattern to `blis_spec_glob` in pytest's configuration",
                )
        specs = self._spec_files()
        if not specs:
            raise InputError(
                f"there is no golden test in {', '.join(map(relative_to_cwd, self._paths))}",
                help=f"pytest runs {', '.join(self._project.spec_glob)}: `blis-tui spec init` makes a first one",
            )
        self._registry(self._project)
        for spec in specs:
            self._load(spec)
        self._seen = self._acted = self._stamps()
        return tuple(_problem(path, watched) for path, watched in self._specs.items() if watched.problem)

    @property
    def tests(self) -> tuple[WatchedTest, ...]:
        """All tests."""
        return tuple(test for spec in self._specs.values() for test in spec.tests)

    @property
    def packages(self) -> tuple[str, ...]:
        """Packages with plug-ins, which are imported once."""
        named = dict.fromkeys(name for project in self._registries for name in (*project.plugins, *self._plugins))
        return tuple(name for name in named if not name.endswith(SCRIPT))

    def look(self) -> Round | None:
        """Look at all files; return what a change that is complete is about, None if there is none."""
        self._looks += 1
        now = self._stamps()
        settled, self._seen = now == self._seen, now
        retry = not self._looks % _RETRY and any(spec.problem for spec in self._specs.values())
        if not settled or (now == self._acted and not retry):
            return None
        changed = frozenset(path for path in (*now, *self._acted) if now.get(path) != self._acted.get(path))
        self._acted = now
        return self._react(changed)

    def _react(self, changed: frozenset[Path]) -> Round:
        verdicts: list[Verdict] = []
        tests: list[WatchedTest] = []
        for project in [registry for registry in self._registries if changed & self._scripts(registry)]:
            del self._registries[project]
        specs = self._spec_files()
        for path in [spec for spec in self._specs if spec not in specs]:
            del self._specs[path]
            verdicts.append(Verdict(name=relative_to_cwd(path), status="gone", text="its goldens belong to no test"))
        for path in specs:
            before = self._specs.get(path)
            is_new = before is None or not before.reads.isdisjoint(changed)
            if not is_new and before is not None and not before.problem:
                continue
            after = self._load(path)
            if after.problem and (is_new or before is None or after.problem != before.problem):
                verdicts.append(_problem(path, after))
            old = {} if before is None else {test.case.name: test.reads for test in before.tests}
            everything = before is None or bool(before.problem)
            tests += [
                test
                for test in after.tests
                if everything or not changed.isdisjoint(test.reads | old.get(test.case.name, test.reads))
            ]
        self._note_new()
        return Round(_distinct(verdicts), tuple(tests))

    def run(self, test: WatchedTest) -> Verdict:
        """Run a test like pytest, whose new results wait beside the goldens; errors are verdicts, too."""
        case, name = test.case, test.files.name
        if case.skip:
            return Verdict(name=name, status="skipped", text=case.skip, test=test)
        clear_opened_inputs()
        settings = GoldenSettings(mode="new", checks=test.project.checks)
        try:
            outcome = run_case(case, test.files, test.spec, settings, other=self._other)
            shown = waiting(test.files) if outcome.pending else None
        except BlisError as error:
            return Verdict(name=name, status="error", text=str(error), test=test)
        except Exception as error:
            if not (place := place_in_plugin(error)):
                raise
            failure = SimulationError(in_words(error), help=place)
            return Verdict(name=name, status="error", text=str(failure), test=test)
        finally:
            self._reads_also(test, _opened())
        return _verdict(test, outcome, shown)

    def accept(self, verdict: Verdict) -> None:
        """Make the result that a verdict has shown the golden.

        Raises:
            ReplacedError: another result waits now.
            InputError: it was made by another Python or system than the golden, or cannot be written.
        """
        if verdict.test is None or verdict.shown is None:
            raise InputError(f"no new result of {verdict.name} is waiting")
        accept(verdict.test.files, shown=verdict.shown)
        for path in _golden_paths(verdict.test.files):
            self._acted[path] = self._seen[path] = stamp(path)

    def is_current(self, test: WatchedTest) -> bool:
        """Return whether nothing that a test reads has changed since the last round."""
        return all(stamp(path) == self._acted.get(path) for path in test.reads)

    def _spec_files(self) -> dict[Path, None]:
        """Return the files with tests."""
        patterns = self._project.spec_glob
        return {
            spec: None
            for path in self._paths
            for spec in ([path] if path.is_file() else spec_files(path, patterns))
            if not spec.is_symlink() or spec.exists()
        }

    def _load(self, spec: Path) -> _Spec:
        """Load the tests of a file, and note what they read."""
        clear_opened_inputs()
        reads = {spec}
        try:
            project = project_of(spec, self._project)
            scripts = self._scripts(project)
            reads |= scripts
            plugins = self._registry(project)
            clear_opened_inputs()
            cases = cases_of(spec, plugins)
            reads |= _opened()
            tests = tuple(self._test(case, project, scripts) for case in cases)
            loaded = _Spec(tests, "", frozenset({spec}.union(*(test.reads for test in tests))))
        except BlisError as error:
            before = self._specs.get(spec)
            reads = reads.union(_opened(), before.reads if before else ())
            loaded = _Spec((), str(error), frozenset(reads))
        self._specs[spec] = loaded
        return loaded

    def _test(self, case: Case, project: Project, scripts: frozenset[Path]) -> WatchedTest:
        clear_opened_inputs()
        files = project.files(case.spec, case.name)
        if case.is_study:
            case.load_study()
            uses = True
        else:
            uses = bool(case.load_experiment().plugins_used())
        reads = {case.spec, *_opened(), *_golden_paths(files)}
        if uses:
            reads |= scripts
        if case.twin is not None:
            folder = case.spec.parent / case.twin.recording
            reads |= {folder, *(path for path in folder.rglob("*") if path.is_file())}
        return WatchedTest(case=case, files=files, project=project, reads=frozenset(reads))

    def _reads_also(self, test: WatchedTest, opened: Iterable[Path]) -> None:
        """Note files that a test has been found to read only when it was run."""
        known = self._specs.get(test.case.spec)
        if known is None or test.reads.issuperset(opened):
            return
        wider = replace(test, reads=test.reads.union(opened))
        tests = tuple(wider if other.case.name == test.case.name else other for other in known.tests)
        self._specs[test.case.spec] = _Spec(tests, known.problem, known.reads | wider.reads)
        self._note_new()

    def _note_new(self) -> None:
        """Note the state of files that have become known since the last look."""
        for path in self._watched():
            if path not in self._acted:
                self._acted[path] = self._seen[path] = stamp(path)

    def _scripts(self, project: Project) -> frozenset[Path]:
        names = (*project.plugins, *self._plugins)
        return frozenset(_absolute(Path(name)) for name in names if name.endswith(SCRIPT))

    def _registry(self, project: Project) -> Registry | None:
        if project not in self._registries:
            self._registries[project] = project.registry(self._plugins)
        return self._registries[project]

    def _watched(self) -> dict[Path, None]:
        return {path: None for spec in self._specs.values() for path in spec.reads}

    def _stamps(self) -> dict[Path, Stamp]:
        return {path: stamp(path) for path in (self._watched() | self._spec_files())}


def divergence_text(verdict: Verdict) -> str:
    """Return the first event at which a verdict's result diverges from its golden, or why none is known.

    Raises:
        BlisError: the golden is damaged, or the experiment has become invalid.
    """
    test, new = verdict.test, verdict.shown
    if test is None or new is None or not test.files.exists():
        return f"{verdict.name} has no golden to diverge from"
    if not test.case.is_run:
        return f"{verdict.name} is {'a study' if test.case.is_study else 'a recording'}, which has no events"
    divergence = find_divergence(test.files.read(), new, test.case.load(), test.files)
    if divergence is None:
        return "no event diverges: the records are the same"
    command = debugger_command(test.case, divergence.event)
    return divergence.text() + (f"\nopen it in the debugger: {command}" if command else "")


def _verdict(test: WatchedTest, outcome: Outcome, shown: Golden | None) -> Verdict:
    if test.case.xfail and not outcome.ok:
        return Verdict(name=test.files.name, status="xfail", text=test.case.xfail, test=test)
    return Verdict(name=test.files.name, status=outcome.status, text=outcome.text, test=test, shown=shown)


def _problem(path: Path, spec: _Spec) -> Verdict:
    return Verdict(name=relative_to_cwd(path), status="error", text=spec.problem)


def _distinct(verdicts: Iterable[Verdict]) -> tuple[Verdict, ...]:
    """Return the verdicts without those that only repeat a text, as all experiments with a broken plug-in do."""
    texts: Mapping[tuple[str, str], Verdict] = {
        (verdict.status, verdict.text if verdict.status == "error" else verdict.name): verdict
        for verdict in reversed(list(verdicts))
    }
    return tuple(reversed([*texts.values()]))


def _golden_paths(files: GoldenFiles) -> tuple[Path, ...]:
    return tuple(_absolute(files.file(kind)) for kind in (HEADER, REPORT))


def _opened() -> frozenset[Path]:
    """Return the files read since the list was cleared, without results that only wait."""
    return frozenset(_absolute(Path(path)) for path in opened_inputs() if not str(path).endswith((PENDING, ACCEPTED)))


def _absolute(path: Path) -> Path:
    return Path(os.path.abspath(path))  # noqa: PTH100  (follows no links)
