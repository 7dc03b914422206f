"""The requests that took longest so far: where most questions begin."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from textual.content import Content

from blis_tui.tui.presenters.lines import BLANK, Line, heading, line, words
from blis_tui.tui.presenters.units import bar_text, plural, span_text

if TYPE_CHECKING:
    from blis_tui.tui.view import View

REQUEST_KEY: Final = "request "
"""Begins the key of a line that stands for a request."""
_COUNT: Final = 12
_BAR: Final = 12


def shows_slowest(view: View, name: str | None) -> bool:
    """Whether the list is what helps: nothing is selected, and the present event is about nobody, or the last one."""
    return view.selection.request is None and not view.playing and (name is None or view.moment.at_end)


def slowest_lines(view: View, width: int, hint: str) -> list[Line]:
    """The list, slowest first; before anybody has completed, only the hint."""
    found = view.tape.slowest(view.moment.event, _COUNT)
    told = [line((row.plain, "$text-muted")) for row in words(hint, width)]
    if not found:
        return told
    top = found[0][1]
    names = max(len(name) for name, _ in found)
    lines = [heading("Slowest so far", "end to end, of those completed", width)]
    for name, e2e_us in found:
        preemptions = len([1 for one in view.tape.life(name, view.moment.event) if one.what == "preempted"])
        bar = bar_text(e2e_us, top, _BAR) if width >= names + _BAR + 26 else ""
        parts = [
            (f"{name:<{names}}", "bold"),
            (f"  {span_text(e2e_us):>8}", ""),
            (f"  {bar}" if bar else "", "$primary"),
        ]
        if preemptions:
            parts.append((f"  \N{MULTIPLICATION SIGN} {plural(preemptions, 'preemption')}", "$error"))
        lines.append(line(Content.assemble(*parts), key=REQUEST_KEY + name, tip="enter: its life; ?: why"))
    keys = Content.assemble(
        ("up down", "$accent bold"),
        (" choose  ", "$text-muted"),
        ("enter", "$accent bold"),
        (" its life  ", "$text-muted"),
        ("?", "$accent bold"),
        (" why", "$text-muted"),
    )
    return [*lines, BLANK, line(keys)]
