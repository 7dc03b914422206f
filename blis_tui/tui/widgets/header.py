"""The first line of a screen: what it shows on the left, how it stands on the right.

Textual's ``Header`` has one title in the middle, which is cut off where it does not fit.
"""

from __future__ import annotations

from textual.content import Content
from textual.reactive import reactive
from textual.widget import Widget

_GAP = 2
"""Columns at least between left and right."""


_REMARK = "$text-muted"
"""Style of what can be left out if one blank joins it to what it remarks on: ``paused in the past``."""


def title_line(left: Content, right: Content, width: int) -> Content:
    """Both ends of a line of that many columns.

    Where they do not fit, muted remarks are left out, one after the other from the left; then the left gives way with
    an ellipsis.
    """
    inner = max(0, width - 2)
    while left.cell_length + _GAP + right.cell_length > inner:
        shorter = _without_remark(left)
        if shorter is None:
            break
        left = shorter
    while left.cell_length + _GAP + right.cell_length > inner:
        shorter = _without_remark(right)
        if shorter is None:
            break
        right = shorter
    right = right.truncate(inner, ellipsis=True) if right.cell_length > inner else right
    room = inner - right.cell_length - (_GAP if right.cell_length else 0)
    left = left.truncate(max(0, room), ellipsis=True) if left.cell_length > room else left
    gap = inner - left.cell_length - right.cell_length
    return Content.assemble(" ", left, " " * gap, right, " ")


def _without_remark(text: Content) -> Content | None:
    """Without the first muted piece that can go; None when there is none."""
    for span in text.spans:
        words = text.plain[span.start : span.end]
        if span.style == _REMARK and words.startswith(" ") and words == f" {words.strip()}":
            return text[: span.start] + text[span.end :]
    return None


class TitleBar(Widget):
    """One line with two ends; set ``left`` and ``right``."""

    DEFAULT_CSS = """
    TitleBar {
        height: 1;
        background: $panel;
        color: $foreground;
        text-wrap: nowrap;
    }
    """

    left: reactive[Content] = reactive(Content(""))
    right: reactive[Content] = reactive(Content(""))

    def __init__(self, left: Content | str = "", right: Content | str = "", *, id: str | None = None) -> None:  # noqa: A002  (Textual's name)
        super().__init__(id=id)
        self.set_reactive(TitleBar.left, Content(left) if isinstance(left, str) else left)
        self.set_reactive(TitleBar.right, Content(right) if isinstance(right, str) else right)

    def render(self) -> Content:
        """The line."""
        return title_line(self.left, self.right, self.size.width)
