"""The outcome of the checks as text: warnings with what to do, then what was checked without finding anything."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from textual.content import Content
from textual.style import Style

from blis_tui.debugger.units import plural
from blis_tui.debugger.why.explanation import Ref

if TYPE_CHECKING:
    from blis_tui.debugger.lints.checks import Finding
    from blis_tui.debugger.lints.lints import Checkup

FINDING: Final = "finding"
"""Name, in the style of a warning's cells, of its number."""
_GLYPHS: Final = {"error": ("✗", "$error bold"), "warning": ("!", "$warning bold")}
_INDENT: Final = 2


@dataclass(frozen=True, slots=True)
class WarningsPage:
    """The lines, and for each warning the first line and the one after its last."""

    lines: tuple[Content, ...]
    places: tuple[tuple[int, int], ...]

    @property
    def content(self) -> Content:
        """All lines as one text."""
        return Content("\n").join(self.lines)


def warnings_page(
    checkup: Checkup | None, width: int, *, chosen: int | None, complete: bool, known: int, failure: str = ""
) -> WarningsPage:
    """The page for a width in cells.

    Args:
        checkup: the outcome of all checks; None = there is none yet.
        width: columns.
        chosen: number of the warning under the cursor.
        complete: whether the whole run is known.
        known: how many events are known.
        failure: why the simulation cannot go on from its end; empty when it did not fail.
    """
    if checkup is None or not checkup.events:
        told = "Nothing has happened yet: the checks begin with the first event. Press n for one, or c to run."
        return WarningsPage(tuple(Content.styled(told, "$text-muted").wrap(width)), ())
    lines = [*_failure(failure, width), *_summary(checkup, complete=complete, known=known).wrap(width)]
    places: list[tuple[int, int]] = []
    for number, finding in enumerate(checkup.findings):
        lines.append(Content(""))
        start = len(lines)
        lines += _finding(finding, number, width, chosen=number == chosen)
        places.append((start, len(lines)))
    lines.append(Content(""))
    for promise in checkup.passed:
        lines += _hanging(Content.styled("✓ ", "$success"), Content.styled(promise, "$text-muted"), width)
    for promise, reason in checkup.skipped:
        unchecked = Content.styled(f"{promise}: not checked, {reason}", "$text-muted")
        lines += _hanging(Content.styled("- ", "$text-muted"), unchecked, width)
    return WarningsPage(tuple(lines), tuple(places))


def _failure(failure: str, width: int) -> list[Content]:
    """Why the run ended before its time, and what helps."""
    if not failure:
        return []
    said, *hints = failure.splitlines()
    lines = _hanging(Content.styled("✗ ", "$error bold"), Content.styled(said, "$error"), width)
    for hint in hints:
        if hint.strip(" |"):
            lines += _hanging(Content("  "), Content.styled(hint.strip(" ="), "$text-muted"), width)
    return [*lines, Content("")]


def _summary(checkup: Checkup, *, complete: bool, known: int) -> Content:
    count = len(checkup.findings)
    passed = f"{plural(len(checkup.passed), 'check')} passed"
    if checkup.events < known:
        extent = f"after {checkup.events:,} of {plural(known, 'known event')}"
    else:
        extent = (
            f"in the whole run ({plural(known, 'event')})"
            if complete
            else f"in the {plural(known, 'event')} known so far"
        )
    if not count:
        return Content.assemble(("no warnings", "$success bold"), f": {passed}", (f" {extent}", "$text-muted"))
    return Content.assemble((plural(count, "warning"), "$warning bold"), f", {passed}", (f" {extent}", "$text-muted"))


def _finding(finding: Finding, number: int, width: int, *, chosen: bool) -> list[Content]:
    glyph, colour = _GLYPHS[finding.severity]
    pieces = [
        Content.styled(piece.text, "$accent underline") if isinstance(piece, Ref) else Content(piece)
        for piece in finding.sentence
    ]
    lines = _hanging(Content.styled(f"{glyph} ", colour), Content("").join(pieces), width)
    advice = Content.styled(finding.advice, "$text-muted")
    lines += [Content(" " * _INDENT) + line for line in advice.wrap(max(width - _INDENT, 10))]
    marked = [line.pad_right(max(width - line.cell_length, 0)) for line in lines]
    look = Style.from_meta({FINDING: number})
    done = [line.stylize(look) for line in marked]
    return [line.stylize("$block-cursor-foreground on $block-cursor-background") for line in done] if chosen else done


def _hanging(head: Content, text: Content, width: int) -> list[Content]:
    first, *rest = text.wrap(max(width - _INDENT, 10))
    return [head + first, *(Content(" " * _INDENT) + line for line in rest)]
