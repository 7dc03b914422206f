"""The text of a report in a golden file, and where another text parts from it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.canonical import to_json, to_line
from blis_tui.classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping

_RUNS: Final = "runs"
"""What a study's report has, and no experiment's."""


def report_text(report: Mapping[str, object]) -> str:
    """A report as its golden holds it: as ``blis-tui run`` prints it; of a study a line for each run."""
    runs = report.get(_RUNS)
    if not isinstance(runs, dict):
        return to_json(report)
    head = [f"  {to_line(key)}: {to_line(value)}," for key, value in report.items() if key != _RUNS]
    lines = [f"    {to_line(name)}: {to_line(run)}" for name, run in runs.items()]
    return "\n".join(["{", *head, f'  "{_RUNS}": {{', ",\n".join(lines), "  }", "}"]) + "\n"


@dataclass(frozen=True, slots=True)
class OtherLine:
    """The first line in which two texts differ."""

    number: int
    """From 1."""
    found: str | None
    """None = the text ends before it."""
    expected: str | None

    def __str__(self) -> str:
        return f"line {self.number} is {_quoted(self.found)}, and would be {_quoted(self.expected)}"


def _quoted(line: str | None) -> str:
    return "not there" if line is None else f"`{line}`" if line else "empty"


_MOST: Final = 60
"""Characters of a line that are shown."""


def first_other_line(found: str, expected: str) -> OtherLine | None:
    """Where a text is not as expected; None = nowhere."""
    if found == expected:
        return None
    lines = found.split("\n"), expected.split("\n")
    same = next((at for at, (one, other) in enumerate(zip(*lines, strict=False)) if one != other), min(map(len, lines)))
    return OtherLine(same + 1, *(side[same].strip()[:_MOST] if same < len(side) else None for side in lines))
