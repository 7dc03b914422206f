"""The result of the checks as text: warnings with advice, then the checks that passed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from textual.content import Content
from textual.style import Style

from blis_tui.classes import dataclass
from blis_tui.debugger.why.explanation import instance_ref
from blis_tui.tui.presenters.lines import with_hanging_indent
from blis_tui.units import plural

if TYPE_CHECKING:
    from blis_tui.metrics.lints.finding import Finding
    from blis_tui.metrics.lints.lints import Checkup

FINDING: Final = "finding"
"""Key of a warning's number in the style of its cells."""
_GLYPHS: Final = {"error": ("✗", "$error bold"), "warning": ("!", "$warning bold")}
_INDENT: Final = 2


@dataclass(frozen=True, slots=True)
class WarningsPage:
    """The lines, and for each warning its first line and the one after its last."""

    lines: tuple[Content, ...]
    places: tuple[tuple[int, int], ...]

    @property
    def content(self) -> Content:
        """All lines as one text."""
        return Content("\n").join(self.lines)


def warnings_page(checkup: Checkup | None, width: int, *, chosen: int | None, failure: str = "") -> WarningsPage:
    """Return the page for a width in cells.

    Args:
        checkup: the result of all checks; None = there is none yet.
        width: columns.
        chosen: index of the selected warning.
        failure: why the simulation cannot go on from its end; empty if it did not fail.
    """
    if checkup is None or not (checkup.event or checkup.done):
        nothing_yet = (
            "Nothing has happened yet: the checks start with the first event. Press n to process it, or c to run."
        )
        return WarningsPage(tuple(Content.styled(nothing_yet, "$text-muted").wrap(width)), ())
    lines = [*_failure(failure, width), *_summary(checkup).wrap(width)]
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
    """Return why the run failed, with its hints."""
    if not failure:
        return []
    said, *hints = failure.splitlines()
    lines = _hanging(Content.styled("✗ ", "$error bold"), Content.styled(said, "$error"), width)
    for hint in hints:
        if hint.strip(" |"):
            lines += _hanging(Content("  "), Content.styled(hint.strip(" ="), "$text-muted"), width)
    return [*lines, Content("")]


def _summary(checkup: Checkup) -> Content:
    count = len(checkup.findings)
    passed = f"{plural(len(checkup.passed), 'check')} passed"
    extent = (
        f"in the whole run ({plural(checkup.event, 'event')})" if checkup.done else f"up to event {checkup.event:,}"
    )
    if not count:
        return Content.assemble(("no warnings", "$success bold"), f": {passed}", (f" {extent}", "$text-muted"))
    return Content.assemble((plural(count, "warning"), "$warning bold"), f", {passed}", (f" {extent}", "$text-muted"))


def _finding(finding: Finding, number: int, width: int, *, chosen: bool) -> list[Content]:
    glyph, colour = _GLYPHS[finding.severity]
    lines = _hanging(Content.styled(f"{glyph} ", colour), _marked(finding), width)
    advice = Content.styled(finding.advice, "$text-muted")
    lines += [Content(" " * _INDENT) + line for line in advice.wrap(max(width - _INDENT, 10))]
    marked = [line.pad_right(max(width - line.cell_length, 0)) for line in lines]
    look = Style.from_meta({FINDING: number})
    done = [line.stylize(look) for line in marked]
    return [line.stylize("$block-cursor-foreground on $block-cursor-background") for line in done] if chosen else done


def _marked(finding: Finding) -> Content:
    """Return the message with its subject highlighted."""
    mention = finding.request or ("" if finding.instance is None else instance_ref(finding.instance).text)
    before, found, after = finding.message.rpartition(mention) if mention else (finding.message, "", "")
    return Content.assemble(before, (found, "$accent underline"), after)


def _hanging(head: Content, text: Content, width: int) -> list[Content]:
    return with_hanging_indent(head, text.wrap(max(width - _INDENT, 10)))
