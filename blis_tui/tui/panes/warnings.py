"""Warnings with figures and advice, then the checks that passed."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.style import Style
from textual.widgets import Static

from blis_tui.base.classes import dataclass
from blis_tui.base.units import plural
from blis_tui.debugger.why.explanation import Subject, instance_ref, request_ref
from blis_tui.tui.drawing.lines import with_hanging_indent
from blis_tui.tui.panes.pane import InTime, Pane
from blis_tui.tui.view import Picked

if TYPE_CHECKING:
    from textual.app import ComposeResult
    from textual.binding import BindingType
    from textual.events import Click

    from blis_tui.results.lints.finding import Finding
    from blis_tui.results.lints.table import Checkup
    from blis_tui.tui.view import View


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


class WarningsPane(Pane):
    """Runs the report's checks at the present position, even while hidden, because other widgets show the number."""

    FOLLOWS_SELECTION = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "move(-1)", show=False),
        Binding("down", "move(1)", show=False),
        Binding("pageup", "page(-1)", show=False),
        Binding("pagedown", "page(1)", show=False),
        Binding("enter", "pick", show=False),
    ]
    DEFAULT_CSS = """
    WarningsPane {
        & > VerticalScroll { scrollbar-size-vertical: 1; }
        & Static { height: auto; width: 1fr; }
    }
    """

    class Counted(Message):
        """The number of warnings has changed."""

    _chosen: int | None = None
    _page: WarningsPage | None = None

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002  (Textual's name)
        super().__init__(id=id)
        self._checked = InTime(self, self._check)

    @property
    def checkup(self) -> Checkup | None:
        """The latest result of the checks; None before the first."""
        return self._checked.value

    @property
    def count(self) -> int:
        """Number of warnings."""
        return 0 if self.checkup is None else len(self.checkup.findings)

    def compose(self) -> ComposeResult:
        """Create the scrolled text."""
        with VerticalScroll(can_focus=False):
            yield Static()

    # ---- checks ----

    def watch_view(self) -> None:
        """Check a new view, at once or a little later, then show the result."""
        if self.view is not None:
            self._checked.follow(self.view)
        super().watch_view()

    def _check(self, view: View) -> Checkup:
        found = view.checkup()
        if len(found.findings) != self.count:
            self.post_message(self.Counted())
        if self.checkup is None or (self._chosen is not None and self._chosen >= len(found.findings)):
            self._chosen = None
        return found

    # ---- display ----

    def show(self, view: View) -> None:
        """Update the list."""
        scroll = self.query_one(VerticalScroll)
        width = max(scroll.size.width - 2, 20)
        self._page = warnings_page(
            self.checkup,
            width,
            chosen=self._chosen,
            failure=view.moment.failure,
        )
        self.query_one(Static).update(self._page.content)

    # ---- keys and mouse ----

    def action_move(self, rows: int) -> None:
        """Mark the next or the previous warning; beyond them, scroll."""
        scroll = self.query_one(VerticalScroll)
        target = (-1 if self._chosen is None else self._chosen) + rows
        if self._page is None or not 0 <= target < self.count:
            scroll.scroll_relative(y=rows, animate=False)
            return
        self._choose(target)
        first, end = self._page.places[target]
        top, height = round(scroll.scroll_y), scroll.size.height
        if target == 0:
            scroll.scroll_home(animate=False)
        elif first < top:
            scroll.scroll_to(y=first, animate=False)
        elif end > top + height:
            scroll.scroll_to(y=end - height, animate=False)

    def _choose(self, number: int) -> None:
        self._chosen = number
        self.refresh_view()

    def action_page(self, pages: int) -> None:
        """Scroll by pages."""
        scroll = self.query_one(VerticalScroll)
        scroll.scroll_relative(y=pages * max(1, scroll.size.height - 1), animate=False)

    def at_cursor(self) -> Subject | None:
        """Return the request or the instance of the marked warning."""
        if self.checkup is None or self._chosen is None:
            return None
        found = self.checkup.findings[self._chosen]
        if found.request is not None:
            return request_ref(found.request)
        return None if found.instance is None else instance_ref(found.instance)

    def action_pick(self) -> None:
        """Go to the subject of the marked warning."""
        self._pick(go=True)

    def _pick(self, *, go: bool) -> None:
        found = self.at_cursor()
        if found is not None and found.kind == "request":
            self.post_message(Picked(request=found.value, go=go))
        elif found is not None:
            self.post_message(Picked(instance=int(found.value)))

    def on_click(self, event: Click) -> None:
        """Mark the clicked warning; a double click goes to its subject."""
        number = event.style.meta.get(FINDING)
        if isinstance(number, int) and number < self.count:
            self._choose(number)
            self._pick(go=event.chain > 1)
