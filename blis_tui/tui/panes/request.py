"""One request: its state, its latencies, and its life since its arrival; or the ranking of all."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from textual.content import Content
from textual.message import Message

from blis_tui.base.classes import dataclass
from blis_tui.base.units import bar_text, count_text, filled, percent_text, plural, span_text, time_text
from blis_tui.debugger.why.breakdown import decode_lines, wait_lines
from blis_tui.debugger.why.common import FEWEST
from blis_tui.debugger.why.explanation import event_ref, request_ref
from blis_tui.debugger.why.lifespans import AGAIN, read_life
from blis_tui.debugger.why.ranking import ORDERS, Position
from blis_tui.debugger.why.relations import block_sharers, prefix_text, relations
from blis_tui.debugger.why.request_content import media_text
from blis_tui.engine.records import described
from blis_tui.tui.actions import named, shown_key
from blis_tui.tui.drawing.life_line import (
    PHASE_STYLES,
    legend,
    life_bar,
    past_and_later,
    position_mark,
    sum_text,
    totals,
)
from blis_tui.tui.drawing.lines import (
    BLANK,
    Line,
    fact,
    flow,
    heading,
    line,
    remark,
    shorten,
    with_hanging_indent,
    words,
)
from blis_tui.tui.panes.pane import Pane, PaneKey, pick

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from blis_tui.cluster.snapshot import RequestSnapshot
    from blis_tui.debugger.event_store import EventStore, RequestEvent
    from blis_tui.debugger.why.explanation import Subject
    from blis_tui.debugger.why.lifespans import RequestLife
    from blis_tui.debugger.why.ranked_group import RankedGroup
    from blis_tui.debugger.why.relations import Related, Relation
    from blis_tui.tui.drawing.life_line import LifeInterval
    from blis_tui.tui.view import Picked, View


_SESSION: Final = ("session-begun", "session-continued")
_FIRST: Final = 3
"""Number of first entries of a life that may contain the session's."""
RANKED: Final = (12, 30, 100)
"""Numbers of requests to rank."""
_EACH: Final = 5
"""Maximum number of requests named of each relation."""
_BAR: Final = 12

_ROOM: Final = 40
"""Minimum width of a latency's shares beside it."""
_TIP: Final = "enter: open; ?: why"
_MORE: Final = "m"
_MARKED: Final = "●"
_BRANCH, _LAST_BRANCH, _TRUNK = "├ ", "└ ", "│ "
_NARROW: Final = 50
"""Below this width, an interval's start has its own line."""

_HINT: Final = (
    "No request is selected. Move the cursor in the list of instances or events, click a request, or go to one by name."
)


@dataclass
class MoreRanked(Message):
    """The reader wants to rank more requests."""


@dataclass
class Marked(Message):
    """The reader marks a request of the ranking; None = no request is to be marked any more."""

    request: str | None
    switches: bool = False
    """Whether a mark is removed where there is one."""


def subject(view: View) -> str | None:
    """Return the selected request, else the subject of the present event; None if there is none.

    For a step, that is the request most affected by it. During a run there is none, because it would change many times
    a second.
    """
    if view.selection.request is not None:
        return view.selection.request
    event = view.moment.event
    if not event or view.playing:
        return None
    step = view.moment.step
    if step is not None:
        results = (*step.completed, *step.first_tokens) if view.moment.settled == event else ()
        return next(iter((*step.preempted, *results, *step.admitted)), None)
    number = view.tape.row(event).request
    return None if number < 0 else view.tape.name(number)


def inspector_lines(view: View, width: int, notes: Mapping[int, str], ranking: RankedGroup | None = None) -> list[Line]:
    """Return everything about the request.

    Args:
        view: the view.
        width: in cells.
        notes: the event at which an interval began -> a remark.
        ranking: what to show if no request is to be shown; None = nothing but a hint.
    """
    name = subject(view)
    if name is None or shows_ranking(view, name):
        return remark(_HINT, width) if ranking is None else ranking_lines(view, ranking, width)
    known = read_life(view.tape, name, len(view.tape))
    if known is None:
        missing = f"No request named {name} has arrived in the run so far."
        return remark(missing, width)
    now = read_life(view.tape, name, view.moment.event, view.moment.settled)
    parts = past_and_later(now, known, view.tape)
    lines = [heading(name), *map(line, flow(_facts(view, known, now), width)), BLANK]
    lines += _latencies(now, parts, width)
    if now is not None and now.now_us > view.moment.time_us:
        ahead = f"as of {time_text(now.now_us)}, when its current step ends"
        lines += remark(ahead, width)
    lines += [
        BLANK,
        heading("Life", "dimmed: later, already simulated" if any(part.later for part in parts) else "", width),
    ]
    mark = position_mark(parts, width)
    lines += [line(life_bar(parts, width)), *([] if mark is None else [line(mark)])]
    lines += [*map(line, flow(legend(parts), width)), BLANK]
    lines += _list(known, parts, width, notes)
    return lines if now is None or view.playing else lines + _related(view, now, width)


# ---- state ----


def _facts(view: View, known: RequestLife, now: RequestLife | None) -> list[Content]:
    if now is None:
        when = f"arrives later, at {time_text(known.arrival_us)} (event {count_text(known.entries[0].event)})"
        return [Content.styled(when, "$text-muted"), fact("prompt", plural(known.input_tokens, "token"))]
    live = view.moment.request(known.name)
    end = now.end
    if end is not None:
        facts = [Content.styled(*_fate(end)), *_ended(end)]
    elif live is not None:
        look = PHASE_STYLES[live.phase]
        facts = [Content.styled(look.label, look.style)]
    elif now.last("last-token") is not None:
        facts = [Content.styled("✓ completes when its step ends", "$success")]
    else:
        facts = [Content.styled("○ waiting, far back in a long queue", "$warning")]
    if now.instance >= 0:
        facts.append(Content(f"instance {now.instance}"))
    facts.append(fact("arrived", time_text(now.arrival_us)))
    facts.append(fact("prompt", plural(now.input_tokens, "token")))
    for entry in now.entries[:_FIRST]:
        if entry.what in _SESSION:
            text = filled(described(entry.what).line, view.tape.values_of(now.name, entry))
            facts.append(Content(text))
    media = view.tape.media(now.name)
    if media is not None:
        facts.append(fact("media", media_text(media)))
    if live is not None:
        facts += _standing(live)
    facts += _reasoning(view.tape, now, live)
    if now.preemptions:
        facts.append(fact(AGAIN.word, plural(len(now.preemptions), "time"), AGAIN.style))
    if now.restarts:
        facts.append(fact("started again", plural(len(now.restarts), "time"), "$warning"))
    return facts


def _fate(end: RequestEvent) -> tuple[str, str]:
    shown = described(end.what)
    return f"{shown.sign} {shown.label}", f"${shown.colour}" if shown.colour else ""


def _ended(end: RequestEvent) -> list[Content]:
    facts = [fact("at", time_text(end.time_us))]
    if "output_tokens" in described(end.what).figures:
        facts.append(fact("output", plural(end.first, "token")))
    return facts


def _standing(live: RequestSnapshot) -> list[Content]:
    facts: list[Content] = []
    if live.phase == "prefill":
        facts.append(fact("computed", f"{count_text(live.computed_tokens)} of {count_text(live.target_tokens)}"))
    if live.max_output_tokens:
        facts.append(fact("output", f"{count_text(live.generated_tokens)} of {count_text(live.max_output_tokens)}"))
    if live.cached_tokens:
        facts.append(fact("cached", plural(live.cached_tokens, "token")))
    if live.held_blocks:
        shared = f" ({count_text(live.shared_blocks)} shared)" if live.shared_blocks else ""
        facts.append(fact("holds", plural(live.held_blocks, "block") + shared))
    if live.priority:
        facts.append(fact("priority", str(live.priority)))
    if live.slo_class:
        facts.append(fact("class", live.slo_class))
    if live.tenant_id:
        facts.append(fact("tenant", live.tenant_id))
    if live.deadline_us is not None:
        facts.append(fact("deadline", time_text(live.deadline_us)))
    return facts


def _reasoning(tape: EventStore, life: RequestLife, live: RequestSnapshot | None) -> list[Content]:
    """Return the progress of reasoning, or the answer tokens since."""
    if life.answer is None:
        if live is None or not live.reasoning_tokens:
            return []
        done = min(live.generated_tokens, live.reasoning_tokens)
        return [fact("reasoning", f"{count_text(done)} of {count_text(live.reasoning_tokens)}")]
    facts = [fact("reasoned", plural(tape.reasoned(life.name), "token"))]
    end = life.end
    total = end.first if end is not None and end.what == "completed" else 0
    total = live.generated_tokens if live is not None else total
    return [*facts, fact("answer", plural(total - tape.reasoned(life.name), "token"))] if total else facts


# ---- latencies ----


def _latencies(life: RequestLife | None, parts: Sequence[LifeInterval], width: int) -> list[Line]:
    """Return the latencies that its client has measured so far, and their shares."""
    if life is None:
        return []
    past = [part for part in parts if not part.later]
    lines: list[Line] = []
    first = life.first_token
    loss = life.first_token_loss
    if loss is not None:
        cause = "it was lost with its instance" if loss.what == "retried" else "preemption discarded it"
        gone = f"no first token now: {cause} at event {count_text(loss.event)}"
        lines += remark(gone, width)
    if first is not None:
        shares = totals(_until(past, first.first))
        own = first.first - life.arrival_us
        lines += _latency("time to first token", first.second, sum_text(shares, first.second - own), width)
        counts = _which_counts(life)
        lines += remark(counts, width) if counts else []
    answer = life.answer
    if answer is not None:
        shares = totals(_until(past, answer.first))
        own = answer.first - life.arrival_us
        lines += _latency("time to first answer token", answer.second, sum_text(shares, answer.second - own), width)
    end = life.end
    if end is not None and end.what == "completed":
        own = end.time_us - life.arrival_us
        lines += _latency("end to end", end.second, sum_text(totals(past), end.second - own), width)
    elif end is None:
        lines += _latency("so far", life.now_us - life.arrival_us, sum_text(totals(past)), width)
    return lines


def _which_counts(life: RequestLife) -> str:
    """Return which of several first tokens counts; empty if there was only one."""
    lost = [entry.event for entry in life.entries if entry.what == "first-token"][:-1]
    if not lost or (life.keeps_output and not life.restarts):
        return ""
    taken = "the one before was" if len(lost) == 1 else f"the {count_text(len(lost))} before were"
    return f"the last first token counts; {taken} lost {'with an instance' if life.restarts else 'to preemption'}"


def _until(parts: Sequence[LifeInterval], end_us: int) -> list[LifeInterval]:
    return [replace(part, end_us=min(part.end_us, end_us)) for part in parts if part.start_us < end_us]


def _latency(label: str, us: int, consists: str, width: int) -> list[Line]:
    head = Content.assemble((f"{label} ", "$text-muted"), (span_text(us), "bold"))
    if not consists:
        return [line(head)]
    pieces = [Content(piece if at == 0 else f"+ {piece}") for at, piece in enumerate(consists.split(" + "))]
    pieces[0] = Content("= ") + pieces[0]
    if width - head.cell_length < _ROOM:
        return [line(head), *map(line, with_hanging_indent(Content("  "), flow(pieces, width - 2, " ")))]
    head += Content(" ")
    return [line(row) for row in with_hanging_indent(head, flow(pieces, width - head.cell_length, " "))]


# ---- list of intervals ----


def _list(life: RequestLife, parts: Sequence[LifeInterval], width: int, notes: Mapping[int, str]) -> list[Line]:
    # Shares refer to the time so far, so later intervals do not count.
    past_us = sum(part.duration_us for part in parts if not part.later)
    lines: list[Line] = []
    for part in parts:
        lines += _stretch(part, past_us, width, notes.get(part.event, "") if not part.later else "")
    end = life.end
    if end is not None and not parts:
        lines.append(line(_fate(end), subject=event_ref(end.event)))
    return lines


def _stretch(part: LifeInterval, past_us: int, width: int, note: str) -> list[Line]:
    look = part.look
    dim = "$text-muted dim" if part.later else ""
    start = (time_text(part.start_us), dim or "$text-muted")
    narrow = width < _NARROW
    head = Content.assemble(
        "" if narrow else (f"{start[0]:>14}  ", start[1]),
        (f"{look.glyph} {look.word:<9}", dim or look.style),
        (f" {span_text(part.duration_us):>9}", dim),
        (f" {'' if part.later else percent_text(part.duration_us, past_us):>5}", "$text-muted"),
    )
    pieces = [Content.styled(text, dim) for text in _texts(part) if text]
    if narrow:
        pieces.insert(0, Content.assemble(("from ", start[1]), start))
    about = None if part.later and part.open else event_ref(part.event)
    room = width - head.cell_length - 2
    first = Content("  ").join(pieces) if pieces else Content("")
    lines: list[Line] = []
    if not pieces or first.cell_length <= room:
        lines.append(line(head, "  " if pieces else "", first, subject=about))
    else:
        lines.append(line(head, subject=about))
        lines += map(line, with_hanging_indent(Content(" " * 4), flow(pieces, width - 4)))
    if note:
        lines += map(line, with_hanging_indent(Content(" " * 4), words(note, width - 4, "$warning")))
    return lines


def _texts(part: LifeInterval) -> tuple[str, ...]:
    arrow = f"→ {part.ending}" if part.ending else ("… so far" if part.open and not part.later else "")
    return (part.note, arrow, "(later)" if part.later else "")


# ---- other requests ----


def _related(view: View, life: RequestLife, width: int) -> list[Line]:
    """Return the requests that it has had to do with so far, as a tree; those that hold its KV blocks come first."""
    sharing = view.kv_sharing(life.name)
    sharers = None if sharing is None else block_sharers(view.tape, life, sharing)
    lines: list[Line] = []
    if sharing is not None and sharers is not None:
        lines += _branches(sharers, width, prefix_text(sharing))
    for relation in relations(view.tape, life):
        lines += _branches(relation, width)
    return [BLANK, heading("Other requests", "so far", width), *lines] if lines else []


def _branches(relation: Relation, width: int, about: str = "") -> list[Line]:
    """Return a relation and its latest requests, one per line; ``about``: what it is about."""
    named = relation.requests[-_EACH:]
    count = count_text(len(relation.requests)) if len(relation.requests) > 1 else ""
    title = shorten(relation.title, width - 8)
    lines = [line(Content.assemble((title, "$text-muted"), "  ", (count, "bold")))]
    if about:
        lines += map(line, with_hanging_indent(Content(_TRUNK), words(about, width - len(_TRUNK), "$text-muted")))
    if len(named) < len(relation.requests):
        earlier = plural(len(relation.requests) - len(named), "earlier one")
        lines.append(line(Content.styled(f"{_BRANCH}{earlier}", "$text-muted")))
    for place, other in enumerate(named, 1):
        lines += _branch(other, width, last=place == len(named))
    return lines


def _branch(other: Related, width: int, *, last: bool) -> list[Line]:
    """Return a request and what it has to do with this one; where that is too long, below it."""
    head = Content.assemble((_LAST_BRANCH if last else _BRANCH, "$text-muted"), (other.request, "bold"))
    row = Content.assemble(head, f"  {other.remark}" if other.remark else "")
    about = request_ref(other.request)
    if row.cell_length <= width:
        return [line(row, subject=about, tip=_TIP)]
    trunk = "    " if last else f"{_TRUNK}  "
    below = [Content.assemble((trunk, "$text-muted"), text) for text in words(other.remark, width - len(trunk))]
    return [line(head.truncate(width, ellipsis=True), subject=about, tip=_TIP), *map(line, below)]


# ---- ranking ----


def shows_ranking(view: View, name: str | None) -> bool:
    """Return whether to show the ranking: on request, or if the present event has no subject or is the last."""
    selection = view.selection
    return selection.request is None and not view.playing and (name is None or view.moment.at_end or selection.ranking)


def here_in(view: View) -> Position:
    """Return the position of a view."""
    return Position(view.moment.event, view.moment.settled)


def marked_in(view: View) -> tuple[str, ...]:
    """Return the marked requests that have arrived by the position."""
    event, tape = view.moment.event, view.tape
    return tuple(name for name in view.selection.marked if 0 < tape.first_event_of(name) <= event)


def ranking_lines(view: View, ranking: RankedGroup, width: int) -> list[Line]:
    """Return the ranking, below what its requests have in common; if no request has arrived, only a hint."""
    ranked = ranking.ranked
    if not ranked:
        return remark(_unread_text(ranking) if ranking.reading else _HINT, width)
    order = ORDERS[view.selection.order]
    top = ranked[0].value
    names = max(len(each.name) for each in ranked)
    counts = view.selection.order == "preemptions"
    lines = [heading(f"By {order.title}", order.scope, width), *_common(view, ranking, width)]
    marked = view.selection.marked
    for each in ranked:
        bar = bar_text(each.value, top, _BAR) if width >= names + _BAR + 26 else ""
        mark = [(f"{_MARKED if each.name in marked else ' '} ", "$accent bold")] if marked else []
        parts = [
            *mark,
            (f"{each.name:<{names}}", "bold"),
            (f"  {count_text(each.value) if counts else span_text(each.value):>8}", ""),
            (f"  {bar}" if bar else "", "$primary"),
        ]
        life = read_life(view.tape, each.name, view.moment.event, view.moment.settled)
        preemptions = 0 if life is None else len(life.preemptions)
        if preemptions and not counts:
            parts.append((f"  {AGAIN.sign} {plural(preemptions, 'preemption')}", AGAIN.style))
        lines.append(line(Content.assemble(*parts), subject=request_ref(each.name), tip=_TIP))
    again = shown_key(named("look.rank").keys[0])
    keys = {
        "up down": "choose",
        "enter": "its life",
        "?": "why",
        again: "rank by another metric",
        _MORE: "rank more",
        "space": "mark",
        "shift+up/down": "mark several",
        **({"delete": "unmark all"} if marked else {}),
    }
    hints = [Content.assemble((key, "$accent bold"), (f" {does}", "$text-muted")) for key, does in keys.items()]
    return [*lines, BLANK, *map(line, flow(hints, width))]


def _unread_text(ranking: RankedGroup) -> str:
    return f"{count_text(ranking.unread)} requests are still to be read."


def _common(view: View, ranking: RankedGroup, width: int) -> list[Line]:
    """Return what the marked requests have in common, or without any the ranked ones, and how rare that is."""
    if ranking.reading:
        return remark(_unread_text(ranking), width)
    marked, rows = marked_in(view), list[Line]()
    of = f"the {count_text(len(marked))} marked" if marked else f"these {count_text(len(ranking.ranked))}"
    shared = ranking.common
    for each in shared:
        share = percent_text(each.among, each.looked_at)
        rows += remark(f"{each.text}: {count_text(each.having)} of {of}, {share} of all", width)
    if marked and len(marked) < FEWEST:
        rows += remark(f"{count_text(len(marked))} marked: what {FEWEST} or more have in common is shown here.", width)
    elif marked and not shared:
        rows += remark(f"{of[:1].upper()}{of[1:]} have nothing in common that is rare among all.", width)
    return rows


# ---- the pane ----


def _lines(view: View, width: int) -> list[Line]:
    ranks = not view.playing and shows_ranking(view, subject(view))
    return inspector_lines(view, width, _notes(view), view.ranking() if ranks else None)


def _notes(view: View) -> Mapping[int, str]:
    """Return remarks on waits and slow decodes; empty during a run, because they take long."""
    name = subject(view)
    if name is None or view.playing:
        return {}
    life = read_life(view.tape, name, view.moment.event, view.moment.settled)
    if life is None:
        return {}
    return {**wait_lines(view.tape, life), **decode_lines(view.tape, life)}


def _ranking(view: View) -> object:
    """Return which ranking is shown; None if a life is."""
    if not shows_ranking(view, subject(view)):
        return None
    return view.place, view.selection.order


def _cursor(view: View, left: Subject | None) -> Subject | None:
    """Return where the cursor was left; in a ranking that does not have it, the first request, once that is known."""
    if not shows_ranking(view, subject(view)):
        return left
    ranking = view.ranking()
    ranked = [request_ref(entry.name) for entry in ranking.ranked]
    return left if left in ranked else None if ranking.reading else next(iter(ranked), None)


def _points(view: View, cursor: Subject | None) -> Subject | None:
    """Return the request of the line, else that whose life is shown."""
    name = subject(view)
    if cursor is not None and cursor.kind == "request":
        return cursor
    return request_ref(name) if name is not None and not shows_ranking(view, name) else None


def _picks(view: View, pointed: Subject, *, go: bool) -> Picked | None:
    """Select the start of an interval; show a request of the ranking only by enter."""
    return None if pointed.kind == "request" and not go else pick(view, pointed, go=go)


def _more(view: View, _cursor: Subject | None) -> Message | None:
    return MoreRanked() if shows_ranking(view, subject(view)) else None


def mark_at(view: View, cursor: Subject | None, *, switches: bool = True) -> Marked | None:
    """Return what marks the request at the cursor, or removes its mark; None where no ranking is shown."""
    ranks = shows_ranking(view, subject(view))
    return Marked(cursor.value, switches) if ranks and cursor is not None and cursor.kind == "request" else None


def _unmarks(view: View, _cursor: Subject | None) -> Message | None:
    return Marked(None) if view.selection.marked and shows_ranking(view, subject(view)) else None


PANE: Final = Pane(
    lines=lambda view, room: _lines(view, room.width),
    keys=(
        PaneKey(_MORE, _more),
        PaneKey("space", mark_at),
        PaneKey("shift+up", "mark_and_move(-1)"),
        PaneKey("shift+down", "mark_and_move(1)"),
        PaneKey("delete", _unmarks),
    ),
    marks=partial(mark_at, switches=False),
    cursor=_cursor,
    anew=_ranking,
    points=_points,
    picks=_picks,
)
