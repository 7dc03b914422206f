"""The requests that had most to bear so far: where most questions begin."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from textual.content import Content

from blis_tui.debugger.why.ranking import ORDERS, Position, ranking
from blis_tui.tui.actions import named, shown_key
from blis_tui.tui.presenters.lines import BLANK, Line, heading, line, words
from blis_tui.units import bar_text, count_text, plural, span_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.debugger.why.ranking import Ranked
    from blis_tui.tui.view import View

REQUEST_KEY: Final = "request "
"""Begins the key of a line that stands for a request."""
_COUNT: Final = 12
_BAR: Final = 12


def shows_ranking(view: View, name: str | None) -> bool:
    """Whether the ranking is what helps: it was asked for, or the present event is about nobody, or the last one."""
    selection = view.selection
    return selection.request is None and not view.playing and (name is None or view.moment.at_end or selection.ranking)


def ranked_requests(view: View) -> Sequence[Ranked]:
    """The first of all requests in the order that the reader chose, as of the position."""
    here = Position(view.moment.event, view.moment.settled)
    return ranking(view.tape, view.selection.order, here, _COUNT)


def ranking_lines(view: View, found: Sequence[Ranked], width: int, hint: str) -> list[Line]:
    """The ranking; where there is nobody to rank yet, only the hint."""
    hints = [line((row.plain, "$text-muted")) for row in words(hint, width)]
    if not found:
        return hints
    order = ORDERS[view.selection.order]
    top = found[0].value
    names = max(len(one.name) for one in found)
    counts = view.selection.order == "preemptions"
    lines = [heading(f"By {order.title}", order.scope, width)]
    for one in found:
        bar = bar_text(one.value, top, _BAR) if width >= names + _BAR + 26 else ""
        parts = [
            (f"{one.name:<{names}}", "bold"),
            (f"  {count_text(one.value) if counts else span_text(one.value):>8}", ""),
            (f"  {bar}" if bar else "", "$primary"),
        ]
        preemptions = len([1 for what in view.tape.life(one.name, view.moment.event) if what.what == "preempted"])
        if preemptions and not counts:
            parts.append((f"  \N{MULTIPLICATION SIGN} {plural(preemptions, 'preemption')}", "$error"))
        lines.append(line(Content.assemble(*parts), key=REQUEST_KEY + one.name, tip="enter: open; ?: why"))
    keys = Content.assemble(
        ("up down", "$accent bold"),
        (" choose  ", "$text-muted"),
        ("enter", "$accent bold"),
        (" its life  ", "$text-muted"),
        ("?", "$accent bold"),
        (" why  ", "$text-muted"),
        (shown_key(named("look.rank").keys[0]), "$accent bold"),
        (" rank by another metric", "$text-muted"),
    )
    return [*lines, BLANK, line(keys)]
