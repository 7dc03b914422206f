"""Waiting results: find them, show them, decide about them."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatch
from typing import TYPE_CHECKING

from blis_tui.errors import InputError
from blis_tui.golden.case import cases_of
from blis_tui.golden.compare import compare
from blis_tui.golden.divergence import record_lines
from blis_tui.golden.produce import run_watched
from blis_tui.golden.session import describe
from blis_tui.golden.store import places

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from blis_tui.golden.case import Case
    from blis_tui.golden.store import Place


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """One golden as ``golden status`` shows it."""

    name: str
    """Path of the golden below the folder that was searched, without its endings."""
    spec: str
    case: str
    golden: bool
    """There is a golden."""
    pending: bool
    """A new result waits."""
    orphan: bool
    """Its spec, or the case in it, is no longer there."""


def find(folder: Path, patterns: Sequence[str] = (), *, pending: bool = False) -> list[Place]:
    """Goldens below a folder; those whose path or name matches one of the patterns, if there are any."""
    found = [place for place in places(folder) if not pending or place.exists(pending=True)]
    if not patterns:
        return found
    return [place for place in found if any(_matches(place, folder, pattern) for pattern in patterns)]


def shown_name(place: Place, folder: Path) -> str:
    """A golden's path below the folder."""
    return (place.folder / place.name).relative_to(folder).as_posix()


def _matches(place: Place, folder: Path, pattern: str) -> bool:
    return fnmatch(shown_name(place, folder), pattern) or fnmatch(place.name, pattern)


def state(place: Place, folder: Path, root: Path) -> State:
    """What is there, and whether anything still stands behind it."""
    stored = place.read(pending=not place.exists())
    return State(
        name=shown_name(place, folder),
        spec=stored.spec,
        case=stored.case,
        golden=place.exists(),
        pending=place.exists(pending=True),
        orphan=case_of(place, root) is None,
    )


def case_of(place: Place, root: Path) -> Case | None:
    """The case behind a golden, if its spec still has it.

    Raises:
        InputError: the golden is broken, or the spec cannot be read.
        SpecError: the spec is broken.
    """
    stored = place.read(pending=not place.exists())
    spec = root / stored.spec
    if not spec.is_file():
        return None
    return next((case for case in cases_of(spec) if case.name == stored.case), None)


def difference_text(place: Place, root: Path) -> str:
    """What a waiting result would change, the first divergent event included where the spec is still there."""
    if not place.exists(pending=True):
        raise InputError(f"no new result of {place.name} is waiting")
    new = place.read(pending=True)
    if not place.exists():
        return f"{place.name}: a new golden\n" + "\n".join(f"    {line}" for line in new.report.splitlines()[:40])
    golden = place.read()
    case = case_of(place, root)
    if case is None:
        raise InputError(f"{new.spec} no longer has the case `{new.case}`")
    experiment = case.load()
    difference = compare(golden, new, case.comparison)
    return describe(case.name, place, golden, new, difference, experiment)


def accept(place: Place, *, force: bool = False) -> None:
    """Make a waiting result the golden.

    Raises:
        InputError: none waits, or it was made by another Python or system than the golden (unless ``force``).
    """
    if not place.exists(pending=True):
        raise InputError(f"no new result of {place.name} is waiting")
    if place.exists() and not force:
        old, new = place.read().baseline, place.read(pending=True).baseline
        if old != new:
            raise InputError(
                f"the golden of {place.name} was written by {old.python} on {old.system}, the new result by "
                f"{new.python} on {new.system}",
                help="produce it again there, or accept it with --force",
            )
    place.accept()


def record_full(place: Place, root: Path) -> bool:
    """Store the record stream of a golden; False when this engine gives another one.

    Raises:
        InputError: its case is no longer there.
    """
    case = case_of(place, root)
    golden = place.read()
    if case is None:
        raise InputError(f"{golden.spec} no longer has the case `{golden.case}`")
    experiment = case.load()
    _, chain = run_watched(experiment)
    if chain.sha256 != golden.chain.sha256:
        return False
    place.write_records(record_lines(experiment))
    return True
