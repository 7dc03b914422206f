"""Warnings with figures and advice, then the checks that passed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from textual.content import Content

from blis_tui.base.units import plural
from blis_tui.debugger.why.explanation import Subject, instance_ref, request_ref
from blis_tui.tui.drawing.lines import BLANK, line, remark, with_hanging_indent
from blis_tui.tui.panes.pane import Pane, pick

if TYPE_CHECKING:
    from blis_tui.results.lints.finding import Finding
    from blis_tui.results.lints.table import Checkup
    from blis_tui.tui.drawing.lines import Line
    from blis_tui.tui.view import Picked, View

_GLYPHS: Final = {"error": ("✗", "$error bold"), "warning": ("!", "$warning bold")}
_INDENT: Final = 2


def warning_lines(checkup: Checkup | None, width: int, failure: str = "") -> list[Line]:
    """Return the warnings, then the checks that passed.

    Args:
        checkup: the result of all checks; None = there is none yet.
        width: columns.
        failure: why the simulation cannot go on from its end; empty if it did not fail.
    """
    if checkup is None or not (checkup.event or checkup.done):
        return remark(
            "Nothing has happened yet: the checks start with the first event. Press n to process it, or c to run.",
            width,
        )
    lines = [line(row) for row in (*_failure(failure, width), *_summary(checkup).wrap(width))]
    for number, finding in enumerate(checkup.findings):
        about = Subject("finding", str(number))
        lines += [BLANK, *(line(row, subject=about) for row in _finding(finding, width))]
    lines.append(BLANK)
    for promise in checkup.passed:
        lines += map(line, _hanging(Content.styled("✓ ", "$success"), Content.styled(promise, "$text-muted"), width))
    for promise, reason in checkup.skipped:
        unchecked = Content.styled(f"{promise}: not checked, {reason}", "$text-muted")
        lines += map(line, _hanging(Content.styled("- ", "$text-muted"), unchecked, width))
    return lines


def _failure(failure: str, width: int) -> list[Content]:
    """Return why the run failed, with its hints."""
    if not failure:
        return []
    message, *hints = failure.splitlines()
    lines = _hanging(Content.styled("✗ ", "$error bold"), Content.styled(message, "$error"), width)
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


def _finding(finding: Finding, width: int) -> list[Content]:
    glyph, colour = _GLYPHS[finding.severity]
    lines = _hanging(Content.styled(f"{glyph} ", colour), _marked(finding), width)
    advice = Content.styled(finding.advice, "$text-muted")
    return lines + [Content(" " * _INDENT) + row for row in advice.wrap(max(width - _INDENT, 10))]


def _marked(finding: Finding) -> Content:
    """Return the message with its subject highlighted."""
    mention = finding.request or ("" if finding.instance is None else instance_ref(finding.instance).text)
    before, mentioned, after = finding.message.rpartition(mention) if mention else (finding.message, "", "")
    return Content.assemble(before, (mentioned, "$accent underline"), after)


def _hanging(head: Content, text: Content, width: int) -> list[Content]:
    return with_hanging_indent(head, text.wrap(max(width - _INDENT, 10)))


# ---- the pane ----


def _points(view: View, cursor: Subject | None) -> Subject | None:
    """Return the request or the instance of the warning at the cursor."""
    findings = () if view.checked is None else view.checked.findings
    if cursor is None or int(cursor.value) >= len(findings):
        return None
    finding = findings[int(cursor.value)]
    if finding.request is not None:
        return request_ref(finding.request)
    return None if finding.instance is None else instance_ref(finding.instance)


def _picks(view: View, subject: Subject, *, go: bool) -> Picked | None:
    """Select what a warning is about, or go to a request."""
    about = _points(view, subject)
    return None if about is None else pick(view, about, go=go and about.kind == "request")


PANE: Final = Pane(
    lines=lambda view, room: warning_lines(view.checked, room.width, view.moment.failure),
    badge=lambda view: 0 if view.checked is None else len(view.checked.findings),
    points=_points,
    picks=_picks,
    blocks=True,
    follows_selection=False,
)
