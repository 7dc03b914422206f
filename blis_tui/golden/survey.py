"""All goldens of a folder at a glance, also those that cannot be read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from blis_tui.errors import BlisError
from blis_tui.golden.review import case_of, find

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from blis_tui.golden.store import GoldenFiles
    from blis_tui.registry import Registry


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One golden test."""

    files: GoldenFiles
    spec: str
    """The experiment's file, relative to the folder the tests run in; empty when nobody knows."""
    case: str
    state: str
    """``golden``, ``changed`` (another result waits), ``new`` (a first result waits), ``obsolete`` or ``broken``."""
    waiting: bool
    """A new result waits for a decision."""
    problem: str = ""
    """Why it is broken: the golden cannot be read, or its experiment is wrong."""

    @property
    def name(self) -> str:
        """Path of the golden below its folder, without its endings."""
        return self.files.name

    def to_dict(self) -> dict[str, object]:
        """As plain data."""
        return {
            "name": self.name,
            "spec": self.spec,
            "case": self.case,
            "golden": self.files.exists(),
            "pending": self.waiting,
            "orphan": self.state == "obsolete",
            "problem": self.problem,
        }


def survey(
    folder: Path, root: Path, patterns: Sequence[str] = (), plugins: Registry | None = None
) -> tuple[Entry, ...]:
    """Every golden below a folder, in order of their paths; none raises."""
    return tuple(look(files, root, plugins) for files in find(folder, patterns))


def look(files: GoldenFiles, root: Path, plugins: Registry | None = None) -> Entry:
    """One golden, as it is now."""
    golden, waiting = files.exists(), files.exists(pending=True)
    try:
        stored = [files.read(pending=pending) for pending, there in ((True, waiting), (False, golden)) if there]
    except BlisError as error:
        return Entry(files=files, spec="", case="", state="broken", waiting=waiting, problem=str(error))
    spec, case = (stored[-1].spec, stored[-1].case) if stored else ("", "")
    state, problem = "changed" if golden and waiting else "new" if waiting else "golden", ""
    try:
        if case_of(files, root, plugins) is None:
            state = "obsolete"
    except BlisError as error:
        state, problem = "broken", str(error)
    return Entry(files=files, spec=spec, case=case, state=state, waiting=waiting, problem=problem)
