"""Finds goldens and waiting results, lists them, shows what would change, and decides on them."""

from __future__ import annotations

from fnmatch import fnmatch
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import dataclass
from blis_tui.base.errors import BlisError, InputError
from blis_tui.base.text import printable
from blis_tui.base.units import plural
from blis_tui.golden.case import cases_of
from blis_tui.golden.compare import compare
from blis_tui.golden.golden_divergence import record_lines
from blis_tui.golden.golden_store import all_goldens, unused_files
from blis_tui.golden.produce import run_watched
from blis_tui.golden.session import describe
from blis_tui.output.result_files import reporting_write_errors

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from blis_tui.golden.case import Case
    from blis_tui.golden.golden_store import Golden, GoldenFiles
    from blis_tui.model.plug_ins import Registry


def find(folder: Path, patterns: Sequence[str] = (), *, pending: bool = False) -> list[GoldenFiles]:
    """Return the goldens below a folder; if patterns are given, those that match one."""
    goldens = [files for files in all_goldens(folder) if not pending or files.exists(pending=True)]
    if not patterns:
        return goldens
    return [files for files in goldens if any(_matches(files, pattern) for pattern in patterns)]


def _matches(files: GoldenFiles, pattern: str) -> bool:
    """Return whether a pattern matches a golden's name, or pytest's name of its file or test."""
    name = files.name
    if fnmatch(name, pattern) or fnmatch(name.rpartition("/")[2], pattern):
        return True
    if ".y" not in pattern:
        return False
    try:
        stored = files.read(pending=not files.exists())
    except InputError:
        return False
    pattern = pattern.removeprefix("./")
    return fnmatch(stored.spec, pattern) or fnmatch(f"{stored.spec}::{stored.case}", pattern)


def case_of(files: GoldenFiles, root: Path, plugins: Registry | None = None) -> Case | None:
    """Return the case of a golden, if its spec still has it, or that of the result which waits in its place.

    The two differ where a spec and its golden have been renamed together.

    Raises:
        InputError: the golden is broken, or the spec cannot be read.
        SpecError: the spec is broken.
    """
    for pending in [new for new in (False, True) if files.exists(pending=new)] or [True]:  # reading what is gone raises
        stored = files.read(pending=pending)
        spec = root / stored.spec
        cases = (case for case in cases_of(spec, plugins) if case.name == stored.case) if spec.is_file() else ()
        for case in cases:
            return case
    return None


def waiting(files: GoldenFiles) -> Golden:
    """Return the result that waits. Raises InputError if there is none, or it is damaged."""
    if not files.exists(pending=True):
        raise InputError(f"no new result of {files.name} is waiting")
    return files.read(pending=True)


def difference_text(files: GoldenFiles, root: Path, plugins: Registry | None = None, new: Golden | None = None) -> str:
    """Return what a waiting result changes (``new``, if it is known), and the first divergent event if the spec exists.

    Raises:
        BlisError: none waits, a file is damaged, or the spec is broken.
    """
    new = waiting(files) if new is None else new
    if not files.exists():
        beginning = "\n".join(f"    {line}" for line in new.report.split("\n")[:40])
        return f"{printable(files.name)}: a new golden\n{beginning}"
    golden = files.read()
    case = case_of(files, root, plugins)
    if case is None:
        raise InputError(f"{new.spec} no longer has the case `{new.case}`")
    difference = compare(golden, new, case.comparison)
    return describe(case, files, golden, new, difference, case.load() if case.is_run else None)


def accept(files: GoldenFiles, *, force: bool = False, shown: Golden | None = None) -> None:
    """Make a waiting result the golden: the one that was shown, if one was.

    Raises:
        ReplacedError: another result waits now.
        InputError: none waits, or it was made by another Python or system than the golden (unless ``force``).
    """
    golden = _as_shown(files, shown)
    if files.exists() and not force:
        old, new = files.read().baseline, golden.baseline
        if old != new:
            raise InputError(
                f"the golden of {files.name} was written by {old.python} on {old.system}, the new result by "
                f"{new.python} on {new.system}",
                help="produce it again there, or accept it with --force",
            )
    files.write(golden)


def reject(files: GoldenFiles, *, shown: Golden | None = None) -> None:
    """Delete a waiting result: the one that was shown, if one was. Raises ReplacedError if another waits now."""
    if shown is not None:
        _as_shown(files, shown)
    files.drop_pending()


class ReplacedError(InputError):
    """A result waits that nobody was shown: a test has run again since."""


def _as_shown(files: GoldenFiles, shown: Golden | None) -> Golden:
    golden = waiting(files)
    if shown is not None and golden != shown:
        raise ReplacedError(f"{files.name} has got another new result since this one was shown")
    return golden


def unused(folder: Path, patterns: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the files below a folder that belong to no golden, if patterns are given those that match one."""
    names = (path.relative_to(folder).as_posix() for path in unused_files(folder))
    return tuple(name for name in names if not patterns or any(fnmatch(name, pattern) for pattern in patterns))


def delete_obsolete(
    folder: Path, root: Path, patterns: Sequence[str] = (), plugins: Registry | None = None
) -> list[str]:
    """Delete goldens whose experiment or case is gone, and files that belong to no golden; return what is deleted.

    A golden whose experiment is invalid stays: its case may be there.

    Raises:
        InputError: a file cannot be deleted.
    """
    obsolete = [entry for entry in survey(folder, root, patterns, plugins) if entry.state == "obsolete"]
    for entry in obsolete:
        entry.files.remove()
    files = unused(folder, patterns)
    for name in files:
        with reporting_write_errors(folder / name):
            (folder / name).unlink(missing_ok=True)
    return [*(entry.name for entry in obsolete), *files]


def record_full(files: GoldenFiles, root: Path, plugins: Registry | None = None) -> str:
    """Store the record stream of a golden, unless this engine gives another one; return what was done.

    Tests that are not a single run have no record stream.

    Raises:
        InputError: its case no longer exists.
    """
    if not files.exists():
        return "waits for its first review:"
    case = case_of(files, root, plugins)
    golden = files.read()
    if case is None:
        raise InputError(f"{golden.spec} no longer has the case `{golden.case}`")
    if not case.is_run:
        return "a study, which has no records:" if case.is_study else "a recording, which has no records:"
    experiment = case.load()
    _, chain = run_watched(experiment)
    if chain.sha256 != golden.chain.sha256:
        return "differs, left as it is:"
    files.write_records(record_lines(experiment))
    return "stored"


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldenEntry:
    """One golden test."""

    files: GoldenFiles
    spec: str
    """The experiment's file, relative to the folder in which the tests run; empty if unknown."""
    case: str
    state: str
    """``golden``, ``changed`` (another result waits), ``new`` (a first result waits), ``obsolete`` or ``broken``."""
    waiting: bool
    """Whether a new result waits for a decision."""
    problem: str = ""
    """Why it is broken: the golden cannot be read, or its experiment is invalid."""

    @property
    def name(self) -> str:
        """Path of the golden below its folder, without its suffixes."""
        return self.files.name

    def to_dict(self) -> dict[str, object]:
        """Return the entry as plain data."""
        return {
            "name": self.name,
            "spec": self.spec,
            "case": self.case,
            "golden": self.files.exists(),
            "pending": self.waiting,
            "orphan": self.state == "obsolete",
            "problem": self.problem,
        }


_STATES: Final = {
    "golden": "up to date",
    "changed": "changed",
    "new": "new",
    "obsolete": "obsolete",
    "broken": "broken",
}
"""State of a golden test -> how a sum of them is told."""


def summary(entries: Sequence[GoldenEntry]) -> str:
    """Return how many golden tests are in each state, each counted once, and how many new results wait."""
    waiting = len([entry for entry in entries if entry.waiting])
    states = [entry.state for entry in entries]
    counts = [f"{states.count(state)} {words}" for state, words in _STATES.items() if state in states]
    results = f"; {plural(waiting, 'new result')} waiting" if waiting else ""
    details = f": {', '.join(counts)}{results}" if counts else ""
    return f"{plural(len(entries), 'golden test')}{details}"


def survey(
    folder: Path, root: Path, patterns: Sequence[str] = (), plugins: Registry | None = None
) -> tuple[GoldenEntry, ...]:
    """Return every golden below a folder, in order of path; never raises."""
    return tuple(look(files, root, plugins) for files in find(folder, patterns))


def look(files: GoldenFiles, root: Path, plugins: Registry | None = None) -> GoldenEntry:
    """Return the current state of one golden."""
    golden, waiting = files.exists(), files.exists(pending=True)
    try:
        stored = [files.read(pending=pending) for pending, there in ((True, waiting), (False, golden)) if there]
    except BlisError as error:
        return GoldenEntry(files=files, spec="", case="", state="broken", waiting=waiting, problem=str(error))
    shown = next(
        (candidate for candidate in reversed(stored) if (root / candidate.spec).is_file()),
        stored[-1] if stored else None,
    )
    spec, case = ("", "") if shown is None else (shown.spec, shown.case)
    state, problem = "changed" if golden and waiting else "new" if waiting else "golden", ""
    try:
        if case_of(files, root, plugins) is None:
            state = "obsolete"
    except BlisError as error:
        state, problem = "broken", str(error)
    return GoldenEntry(files=files, spec=spec, case=case, state=state, waiting=waiting, problem=problem)
