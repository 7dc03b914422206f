"""The list of golden tests, and the details of the selected one."""

from __future__ import annotations

import re
from shlex import quote
from textwrap import wrap
from typing import TYPE_CHECKING, Final

from textual.content import Content

from blis_tui.base.units import count_text
from blis_tui.tui.drawing.lines import shorten

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from blis_tui.golden.golden_store import Golden
    from blis_tui.golden.review import GoldenEntry
    from blis_tui.golden.session import Outcome

_MUTED: Final = "$text-muted"
_STATES: Final[Mapping[str, tuple[str, str]]] = {
    "golden": ("✓", "$success"),
    "changed": ("≠", "$warning"),
    "new": ("+", "$warning"),
    "obsolete": ("○", "$text-muted"),
    "broken": ("✗", "$error"),
}
"""Glyph and colour of each state."""
_STATE_WIDTH: Final = 12
_SPEC_LEAST: Final = 12
"""Minimum width of the experiment's path; below, it is left out."""
EMPTY: Final = (
    "There is no golden yet.\n\n"
    "pytest runs every *.blis.yaml below the folder where it is started as a golden test. Each new result then waits "
    "here until you accept it. `blis-tui spec init NAME` creates a project that is set up for this."
)
"""Text for an empty list."""


def matching(entries: Sequence[GoldenEntry], query: str) -> tuple[GoldenEntry, ...]:
    """Return the entries that contain every word of a query in name, file, case or state."""
    words = query.lower().split()
    return tuple(
        entry
        for entry in entries
        if all(word in f"{entry.name} {entry.spec} {entry.case} {entry.state}".lower() for word in words)
    )


# ---- the list ----


def name_width(entries: Sequence[GoldenEntry], width: int) -> int:
    """Return the width of names: that of the longest if there is room."""
    longest = max((len(entry.name) for entry in entries), default=0)
    return max(8, min(longest, width - _STATE_WIDTH - 2))


def row(entry: GoldenEntry, names: int, width: int) -> Content:
    """Return a row: state, name, experiment and case."""
    glyph, colour = _STATES[entry.state]
    name = shorten(entry.name, names)
    parts: list[tuple[str, str]] = [(f"{glyph} {entry.state}".ljust(_STATE_WIDTH), colour), (name.ljust(names), "bold")]
    room = width - _STATE_WIDTH - names - 2
    if room >= _SPEC_LEAST:
        about = f"{entry.spec}::{entry.case}" if entry.spec else "cannot be read"
        parts += [("  ", ""), (shorten(about, room), _MUTED)]
    return Content.assemble(*parts)


def columns_line(names: int, width: int) -> Content:
    """The headings above the rows."""
    about = "experiment::case" if width - _STATE_WIDTH - names - 2 >= _SPEC_LEAST else ""
    return Content.styled(f"{'state':<{_STATE_WIDTH}}{'name':<{names}}  {about}"[:width].rstrip(), _MUTED)


def decision(decided: Sequence[GoldenEntry], done: str) -> str:
    """Return the decision, and how to undo it.

    Args:
        decided: the entries as they were before; at least one.
        done: ``accepted`` or ``rejected``.
    """
    said = f"{done}: {decided[0].name if len(decided) == 1 else len(decided)}."
    if done == "rejected":
        return f"{said} To undo, run pytest: it produces the result again."
    old = [_files(entry) for entry in decided if entry.state != "new"]
    new = [_files(entry) for entry in decided if entry.state == "new"]
    ways = [f"git checkout -- {_some(old)}"] if old else []
    ways += [f"delete {_some(new)}"] if new else []
    return f"{said} To undo: {'; '.join(ways)}"


_NAMED: Final = 3
"""Maximum number of golden tests whose files are named."""


def _some(patterns: Sequence[str]) -> str:
    return " ".join(patterns[:_NAMED]) + (" …" if len(patterns) > _NAMED else "")


def _files(entry: GoldenEntry) -> str:
    """Return a shell pattern for the files of a golden; the star is not quoted."""
    return f"{quote((entry.files.folder / entry.files.name).as_posix())}.*"


# ---- selected test ----


def heading(entry: GoldenEntry) -> Content:
    """Return the test's name and state."""
    glyph, colour = _STATES[entry.state]
    return Content.assemble((entry.name, "bold"), "  ", (f"{glyph} {entry.state}", colour))


_SAID: Final[Mapping[str, str]] = {
    "golden": "This is the accepted result. c runs the test now and compares.",
    "obsolete": (
        "No experiment has this test any more: its file or its case is gone. `pytest --blis-obsolete=delete` deletes "
        "obsolete goldens."
    ),
}


def standing(entry: GoldenEntry, stored: Golden | None) -> Content:
    """Return the details of a test without a result to compare."""
    if entry.problem:
        return failure(entry.problem)
    lines = [Content(_SAID.get(entry.state, ""))]
    if stored is not None:
        facts = (
            ("experiment", entry.spec),
            ("case", entry.case),
            ("events", count_text(stored.chain.events)),
            ("records", count_text(stored.chain.records)),
            ("engine", stored.engine),
            ("written by", f"{stored.baseline.python} on {stored.baseline.system}"),
        )
        lines += [Content(""), *(Content.assemble((f"{name:<12}", _MUTED), text) for name, text in facts)]
    return Content("\n").join(lines)


def failure(text: str) -> Content:
    """Return an error with its hint highlighted."""
    lines = text.splitlines()
    parts = [Content.styled(line, "$success" if line.lstrip().startswith("= help") else "$error") for line in lines]
    return Content("\n").join(parts)


_LINES: Final = (
    (re.compile(r"first divergence: .*|(experiment|report): .*|the engine .*"), "$warning bold"),
    (re.compile(r"(---|  -) .*"), "$error"),
    (re.compile(r"(\+\+\+|  \+) .*"), "$success"),
    (re.compile(r" +event .*"), "$text-muted"),
    (re.compile(r"(open it in the debugger|the new result is waiting|the result waits).*"), "$text-muted"),
    (re.compile(r" +blis-tui golden .*"), "$text-muted"),
)
"""Patterns of lines, and their colours."""


def difference(text: str, width: int) -> Content:
    """Return what a waiting result would change; colours only help to find things."""
    lines = text.splitlines()[1:]  # the first line names the test
    return Content("\n").join(_line(line, width) for line in lines)


def _line(text: str, width: int) -> Content:
    style = next((style for pattern, style in _LINES if pattern.match(text)), "")
    indent = len(text) - len(text.lstrip(" -+")) + 4
    if len(text) > width:
        text = "\n".join(wrap(text, max(width, indent + 8), subsequent_indent=" " * indent, break_on_hyphens=False))
    return Content.styled(text, style) if style else Content(text)


_OUTCOMES: Final[Mapping[str, tuple[str, str]]] = {
    "equal": ("✓ checked just now: matches the golden", "$success"),
    "missing": ("+ checked just now: there is no golden to compare with", "$warning"),
    "changed": ("≠ checked just now: differs from the golden", "$warning"),
    "unexpected": ("✗ checked just now: matches the golden, but an expectation of the experiment fails", "$error"),
}


def checked(outcome: Outcome) -> Content:
    """Return the outcome of a check."""
    text, style = _OUTCOMES.get(outcome.status, (f"✗ checked just now: {outcome.status}", "$error"))
    said = Content.styled(text, f"{style} bold")
    if outcome.status == "unexpected":
        return Content("\n").join([said, Content(outcome.text)])
    if outcome.status in ("changed", "missing") and not outcome.pending:
        said += Content.styled("; nothing was written, because this runs on CI", _MUTED)
    return said
