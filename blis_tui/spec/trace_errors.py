"""What a trace reader complains about, as a diagnostic like those of documents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.errors import MOST_TRACE_PROBLEMS
from blis_tui.spec.diagnostics import Diagnostic

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.errors import TraceError, TraceProblem

_MAX_NOTES: Final = 5
_MAX_LINES: Final = 3


def from_trace_error(error: TraceError) -> tuple[Diagnostic, ...]:
    """What a trace reader complained about, as one diagnostic: the first place, and a note for each other kind."""
    kinds: dict[tuple[str, str], list[TraceProblem]] = {}
    for problem in error.problems:
        kinds.setdefault((problem.column, problem.message.removeprefix(problem.cell)), []).append(problem)
    first, *others = kinds.values()
    notes = [_note(same) for same in others[:_MAX_NOTES]]
    if len(first) > 1:
        notes.insert(0, f"also {_lines(first[1:])}")
    if len(others) > _MAX_NOTES:
        notes.append(f"and {len(others) - _MAX_NOTES} more kinds of problems")
    if len(error.problems) == MOST_TRACE_PROBLEMS:
        notes.append(f"the file was read up to the {MOST_TRACE_PROBLEMS}th problem")
    problem = first[0]
    return (
        Diagnostic(
            code="BLIS2100",
            message=problem.message,
            file=problem.file,
            line=problem.line,
            column=1,
            end_column=2,
            path=problem.column,
            help=problem.help,
            notes=tuple(notes),
        ),
    )


def _note(same: Sequence[TraceProblem]) -> str:
    """One kind of problem in a trace, with its places."""
    problem = same[0]
    where = f"line {problem.line}" + (f" ({problem.column})" if problem.column else "")
    also = f"; also {_lines(same[1:])}" if same[1:] else ""
    advice = f" ({problem.help})" if problem.help else ""
    return f"{where}: {problem.message}{advice}{also}"


def _lines(problems: Sequence[TraceProblem]) -> str:
    """The first few lines of some problems, and how many more there are."""
    numbers = [f"{one.line}" for one in problems[:_MAX_LINES]]
    more = f" and {len(problems) - _MAX_LINES} more" if len(problems) > _MAX_LINES else ""
    return f"in line{'' if len(problems) == 1 else 's'} {', '.join(numbers)}{more}"
