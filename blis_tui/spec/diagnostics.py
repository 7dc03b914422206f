"""Diagnostics: what is wrong with a document, where, and how to fix it, as text in rustc's style or as JSON."""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING, Final

from blis_tui.classes import dataclass
from blis_tui.printable import printable
from blis_tui.spec.nearness import begin_alike, nearest
from blis_tui.spec.source import DataPath, Document, Location, dotted

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

MAX_SHOWN: Final = 20
"""Maximum number of diagnostics shown as text; the rest are only counted."""

_MOST_NEAR: Final = 3
_MAX_NOTES: Final = 5
_MAX_NUMBERS: Final = 3
MOST_TRACE_PROBLEMS: Final = 50
"""Reading of a trace stops after this many problems."""
_MAX_LINE: Final = 160
"""Longer source lines are clipped around the marked columns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnostic:
    """One problem; ``line``, ``column`` and ``end_column`` count code points from 1 (0 = no position)."""

    code: str
    severity: str = "error"
    message: str
    file: str
    line: int = 0
    column: int = 0
    end_column: int = 0
    path: str = ""
    """Dotted path of the key or value in its document; empty = the document itself."""
    source_line: str = ""
    help: str | None = None
    notes: tuple[str, ...] = ()
    """Further places with the same kind of problem, one sentence each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceProblem:
    """One invalid cell of a trace file; ``line`` counts from 1 including the header, 0 = the whole file."""

    file: str
    line: int
    column: str
    """Name of the column; empty = the whole line."""
    message: str
    help: str | None = None
    cell: str = ""
    """The cell as quoted at the start of the message; messages about similarly invalid cells differ only in it."""


def located(code: str, message: str, place: Location, *, path: DataPath = (), hint: str | None = None) -> Diagnostic:
    """Return a diagnostic about the text at ``place``; without a hint, it has the remedy of its code."""
    lines = place.source.lines
    span = place.span
    return Diagnostic(
        code=code,
        message=message,
        file=place.source.name,
        line=span.line,
        column=span.column,
        end_column=span.end_column,
        path="" if place.source.is_argument else dotted(path),
        source_line=lines[span.line - 1] if span.line <= len(lines) else "",
        help=hint or _remedy(code),
    )


def _remedy(code: str) -> str:
    from blis_tui.spec.codes import CODES  # noqa: PLC0415  (only needed for wrong documents)

    words = CODES[code].remedy.removesuffix(".")
    return words[0].lower() + words[1:]


def about(
    document: Document,
    path: DataPath,
    code: str,
    message: str,
    *,
    key: bool = False,
    hint: str | None = None,
) -> Diagnostic:
    """Return a diagnostic about the value (or the key) at ``path`` of ``document``."""
    return located(code, message, document.place(path, key=key), path=path, hint=hint)


def suggestion(wrong: str, known: Iterable[str], *, otherwise: str = "one of", meant: Iterable[str] = ()) -> str:
    """Return a hint for an unknown name: its known synonym, else the nearest names, else all (at most a dozen).

    Args:
        wrong: the unknown name.
        known: the valid names.
        otherwise: words before the list of all names.
        meant: synonyms of ``wrong`` from other tools; those that are not known are ignored.
    """
    names = sorted(known)
    if not names:
        return "there are none"
    near = next((one for one in meant if one in names), None) or nearest(wrong, names)
    near_ones = [near] if near else begin_alike(wrong, names)
    if 0 < len(near_ones) <= _MOST_NEAR:
        return "did you mean " + " or ".join(f"`{one}`" for one in near_ones) + "?"
    shown = ", ".join(f"`{name}`" for name in names[:12])
    return f"{otherwise} {shown}" + (f" and {len(names) - 12} more" if len(names) > 12 else "")


def in_order(diagnostics: Iterable[Diagnostic]) -> list[Diagnostic]:
    """Return the diagnostics sorted by file and position; of those that say the same of a place, the first.

    What several pools inherit is written once, so that the same words about the same place are one diagnostic.
    """
    unique: dict[tuple[object, ...], Diagnostic] = {}
    for one in diagnostics:
        place = (one.line, one.column) if one.line else one.path
        known = unique.setdefault((one.file, place, one.code, one.message), one)
        if len(one.path) < len(known.path):
            unique[one.file, place, one.code, one.message] = one
    return sorted(unique.values(), key=lambda one: (one.file, one.line, one.column, one.code, one.message))


def render_text(diagnostics: Sequence[Diagnostic], *, limit: int | None = MAX_SHOWN) -> str:
    """Render diagnostics for people; beyond ``limit`` only their number is given; None = there is no limit."""
    parts = [_render_one(one) for one in diagnostics[:limit]]
    hidden = len(diagnostics) - len(parts)
    if hidden > 0:
        parts.append(f"... and {hidden} more error{'' if hidden == 1 else 's'}: `blis-tui check --all` shows them")
    return "\n\n".join(parts)


def _render_one(one: Diagnostic) -> str:
    lines = [f"{one.severity}[{one.code}]: {printable(one.message)}"]
    file = printable(one.file)
    place = f"{file}:{one.line}:{one.column}" if one.line and not one.file.startswith("--") else file
    gutter = " " * len(str(one.line)) if one.line else " "
    lines.append(f"{gutter}--> {place}" + (f"  ({printable(one.path)})" if one.path else ""))
    if one.source_line.strip():
        text, start, width = _marked(one)
        lines.append(f"{gutter} |")
        lines.append(f"{one.line} | {text}")
        lines.append(f"{gutter} | {' ' * start}{'^' * width}")
    lines += [f"{gutter} = note: {printable(note)}" for note in one.notes]
    if one.help:
        lines.append(f"{gutter} = help: {printable(one.help)}")
    return "\n".join(lines)


def _marked(one: Diagnostic) -> tuple[str, int, int]:
    """Return the source line as shown, and the terminal column and width of its mark."""
    line, start, end = one.source_line, one.column - 1, one.end_column - 1
    if len(line) > _MAX_LINE:
        left = max(0, min(start - 20, len(line) - _MAX_LINE))
        line = line[left : left + _MAX_LINE]
        start, end = start - left, end - left
    before, marked = printable(line[:start]), printable(line[start:end])
    return before + marked + printable(line[end:].rstrip()), cells(before), max(1, cells(marked))


def cells(text: str) -> int:
    """Return the terminal width of a text: two columns for wide East Asian characters and emoji, none for combining."""
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in {"W", "F"} else 1
        for char in text
    )


def from_trace_problems(problems: Sequence[TraceProblem]) -> Diagnostic:
    """Return one diagnostic for the problems of a trace: the first one, and a note for each other kind."""
    kinds: dict[tuple[str, str], list[TraceProblem]] = {}
    for problem in problems:
        kinds.setdefault((problem.column, problem.message.removeprefix(problem.cell)), []).append(problem)
    first, *others = kinds.values()
    notes = [_note(same) for same in others[:_MAX_NOTES]]
    if len(first) > 1:
        notes.insert(0, f"also {_lines(first[1:])}")
    if len(others) > _MAX_NOTES:
        notes.append(f"and {len(others) - _MAX_NOTES} more kinds of problems")
    if len(problems) == MOST_TRACE_PROBLEMS:
        notes.append(f"the file was read up to the {MOST_TRACE_PROBLEMS}th problem")
    problem = first[0]
    return Diagnostic(
        code="BLIS2100",
        message=problem.message,
        file=problem.file,
        line=problem.line,
        column=1 if problem.line else 0,
        end_column=2 if problem.line else 0,
        path=problem.column,
        help=problem.help,
        notes=tuple(notes),
    )


def _note(same: Sequence[TraceProblem]) -> str:
    """Return the note for one kind of problem in a trace, with its places."""
    problem = same[0]
    where = f"line {problem.line}" + (f" ({problem.column})" if problem.column else "")
    also = f"; also {_lines(same[1:])}" if same[1:] else ""
    advice = f" ({problem.help})" if problem.help else ""
    return f"{where}: {problem.message}{advice}{also}"


def _lines(problems: Sequence[TraceProblem]) -> str:
    """Return the first few line numbers of some problems, and how many more there are."""
    numbers = [f"{one.line}" for one in problems[:_MAX_NUMBERS]]
    more = f" and {len(problems) - _MAX_NUMBERS} more" if len(problems) > _MAX_NUMBERS else ""
    return f"in line{'' if len(problems) == 1 else 's'} {', '.join(numbers)}{more}"
