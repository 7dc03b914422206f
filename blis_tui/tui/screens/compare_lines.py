"""Two runs side by side, in words and tables: differences of the experiments and of the results."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from rich.cells import cell_len
from textual.content import Content

from blis_tui.base.classes import dataclass
from blis_tui.base.text import clip, cut
from blis_tui.base.units import count_text, plural, span_text, time_text
from blis_tui.debugger.lockstep import NOT_ARRIVED, RequestPair, RequestStatus
from blis_tui.engine.records import described
from blis_tui.runs.comparison_text import MARKS, both_names, comparison_text, value_change
from blis_tui.runs.divergence import divergence_lines
from blis_tui.tui.drawing.life_line import PHASE_STYLES
from blis_tui.tui.drawing.lines import shorten
from blis_tui.tui.panes.events import event_line, fitting, milliseconds

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from blis_tui.cluster.snapshot import PendingEvent
    from blis_tui.debugger.event_store import EventStore
    from blis_tui.debugger.history import Progress
    from blis_tui.debugger.lockstep import FigurePair
    from blis_tui.debugger.state import DebuggerState
    from blis_tui.runs.comparison import Affected, ComparedFigure, Comparison, RequestChanges
    from blis_tui.runs.divergence import Divergence, Fields
    from blis_tui.runs.documents import Difference


DIFFERS: Final = "≠"
LETTERS: Final = ("A", "B")
_LIT: Final = "$warning"
_MUTED: Final = "$text-muted"
_EVENTS: Final = 3
"""Number of latest events shown for each side; doubled on a wide screen."""
_WIDE: Final = 60
"""Width of a side from which it has room for more."""
_NAME: Final = 24
"""Maximum width of A's name in the title."""
_FILE: Final = re.compile(r"(.+?)(?:\.blis)?\.ya?ml(?=\s|$)")
"""An experiment's path at the start of a name, without its suffix."""
_NO_REQUESTS: Final = "Every request in flight is in the same state on both sides."
_IDLE: Final = "No request is in flight."
_NOTHING_YET: Final = "Nothing has happened yet: n processes the next event, c runs, D goes to the first divergence."


@dataclass(frozen=True, slots=True, kw_only=True)
class SideView:
    """One side at its present position."""

    moment: DebuggerState
    tape: EventStore
    upcoming: PendingEvent | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareView:
    """The state of the screen."""

    sides: tuple[SideView, SideView]
    documents: tuple[Difference, ...]
    searched: bool
    """Whether the first divergence was searched for."""
    divergence: Divergence | None
    figures: tuple[FigurePair, ...]
    metrics: tuple[ComparedFigure, ...]
    """The figures; empty before the first event."""
    under_way: bool
    """Whether a request is in progress on either side."""
    requests: tuple[RequestPair, ...]
    changes: RequestChanges | None
    """Changes of ended requests; None while running."""


# ---- title ----


def names_text(names: tuple[str, str]) -> Content:
    """Return the names of the two runs; a long left name is shortened."""
    left, right = short_names(names)
    left = clip(left, _NAME)
    return Content.assemble(("A ", "$accent bold"), (left, "bold"), ("  B ", "$accent bold"), (right, "bold"))


def short_names(names: tuple[str, str]) -> tuple[str, str]:
    """Return files by their stems, if these are distinct."""
    left, right = (_short(name) for name in names)
    return (left, right) if left != right else names


def _short(name: str) -> str:
    file = _FILE.match(name)
    return name if file is None else file[1].rpartition("/")[2] + name[file.end() :]


def activity(sides: tuple[SideView, SideView], time_us: int, label: str, progress: Progress | None) -> Content:
    """Return the time, and the current activity."""
    moments = [side.moment for side in sides]
    if label == "running":
        state = ("▶ running", "$success bold")
    elif label:
        events = "" if progress is None else f" {count_text(progress.event)}"
        state = (f"» {label}{events}, escape stops", "$accent bold")
    elif any(moment.failure for moment in moments) and all(moment.at_end for moment in moments):
        state = ("✗ cannot continue", "$error bold")
    elif all(moment.at_end for moment in moments):
        state = ("■ end of both", "$success bold")
    elif not any(moment.event for moment in moments):
        state = ("○ at the start", _MUTED)
    else:
        state = ("‖ paused", "$foreground bold")
    return Content.assemble(("t ", _MUTED), time_text(time_us), "  ", state)


# ---- differences ----


def differences_text(view: CompareView, width: int) -> Content:
    """Return the first event that differs, if known, and the differences of the documents."""
    lines = _divergence(view, width)
    if not view.documents:
        lines.append(Content.styled("The two experiments are identical.", _MUTED))
    room = min(max((len(document.path) for document in view.documents), default=0), width // 2)
    lines += [_difference(document, room, width) for document in view.documents]
    return Content("\n").join(lines)


def _difference(difference: Difference, path_width: int, width: int) -> Content:
    value = value_change(difference, max(width - path_width - 4, 8), "→")
    mark = MARKS.get(difference.kind, DIFFERS)
    return Content.assemble((f"{mark} ", _LIT), f"{clip(difference.path, path_width):<{path_width}}  ", (value, "bold"))


def _divergence(view: CompareView, width: int) -> list[Content]:
    divergence = view.divergence
    if not view.searched:
        return []
    if divergence is None:
        return [Content.styled("✓ The two runs are identical, from the first event to the last.", "$success")]
    head = f"{DIFFERS} first at event {count_text(divergence.event)}: "
    changed = divergence.fields
    if changed:
        text = f"{_subject(divergence.left)}, " + "; ".join(
            f"{field.path} {value_change(field, width, '→')}" for field in changed
        )
    else:
        text = f"A {_subject(divergence.left)} · B {_subject(divergence.right)}"
    return [Content.assemble((head, f"{_LIT} bold"), cut(text, max(width - len(head), 10)))]


def _subject(record: Fields | None) -> str:
    """Return the subject of a record: ``scheduled request_12``, ``step i0``."""
    if record is None:
        return "the run has ended"
    request = record.get("request_id") or f"i{record.get('instance')}"
    return f"{record['kind']} {request}"


# ---- one side ----


def side_text(side: int, view: CompareView, width: int) -> Content:
    """Return a side's position, its latest events, and the figures of its instances."""
    own = view.sides[side]
    moment = own.moment
    known = f" of {count_text(moment.frontier)}{'' if moment.complete else '+'}"
    place = Content.assemble(("t ", _MUTED), time_text(moment.time_us), ("  event ", _MUTED), count_text(moment.event))
    if place.cell_length + len(known) <= width:
        place += Content.styled(known, _MUTED)
    count = 2 * _EVENTS if width >= _WIDE else _EVENTS
    latest = range(max(1, moment.event - count + 1), moment.event + 1)
    events = [_event(own.tape, event, moment.event, width) for event in latest]
    # Pad to as many lines as the other side, which may have begun earlier.
    events = [Content("")] * (count - len(events)) + events
    return Content("\n").join([place, _upcoming(own, width), *events, *_instances(view.figures, side, width)])


def _upcoming(side: SideView, width: int) -> Content:
    following = side.upcoming
    if following is None:
        failure = side.moment.failure
        if failure:
            return Content.styled(cut(f"✗ {failure.splitlines()[0]}", width), "$error")
        return Content.styled("■ end of the run", "$success")
    about = following.request_id or ("" if following.instance is None else f"i{following.instance}")
    text = cut(f"{milliseconds(following.time_us)} {following.kind} {about}", max(width - 5, 8))
    return Content.assemble(("next ", _MUTED), text)


def _event(tape: EventStore, event: int, here: int, width: int) -> Content:
    line = event_line(tape, event)
    head = f"{'▶' if event == here else ' '} {milliseconds(tape.time_us(event))} "
    parts: list[str | Content | tuple[str, str]] = [(head, "$accent" if event == here else _MUTED)]
    glyph, colour = line.look.sign, line.look.colour
    parts.append((f"{glyph} ", f"${colour}" if colour else ""))
    room = width - len(head) - 2
    parts.append(cut(line.subject, room))
    room -= len(line.subject) + 2
    if room > 8 and line.short:
        parts.append("  ")
        parts += [(run.text, _style(run.colour)) for run in fitting(line, room)]
    return Content.assemble(*parts)


def _style(colour: str) -> str:
    return "" if not colour else _MUTED if colour == "muted" else f"${colour}"


_COLUMNS: Final = (
    ("running", "run", "running", "running"),
    ("waiting", "wait", "waiting", "waiting"),
    ("kv", "KV", "KV used", "KV blocks used"),
    ("preemptions", "pre", "preempt", "preemptions"),
)
"""Figures of an instance, with titles from short to long."""
_LONG: Final = 3
"""Place of the long titles."""
_INDEX: Final = 3
"""Width of an instance's index."""


def _instances(figures: Sequence[FigurePair], side: int, width: int) -> list[Content]:
    """Return a row for each instance of either side, with differences marked."""
    wide = width >= _WIDE
    by_instance: dict[int, dict[str, FigurePair]] = {}
    for pair in figures:
        by_instance.setdefault(pair.instance, {})[pair.name] = pair
    room = width - _INDEX
    for deltas, length in ((True, _LONG), (False, _LONG), (False, 2), (False, 1)):
        table = [[_figure(pairs[name], side, deltas=deltas) for name, *_ in _COLUMNS] for pairs in by_instance.values()]
        heads = [column[length] for column in _COLUMNS]
        texts = [[text for text, _ in row] for row in table]
        least = [1 + max(map(cell_len, column)) for column in zip(heads, *texts, strict=True)]
        if sum(least) <= room and (wide or length < _LONG):
            break
    widths = _spread(least, room)
    lines = [Content.styled(" " * _INDEX + "".join(map(str.rjust, heads, widths)), _MUTED)]
    for index, row in zip(by_instance, table, strict=True):
        cells = [(text.rjust(cell), style) for (text, style), cell in zip(row, widths, strict=True)]
        lines.append(Content.assemble((f"i{index:<{_INDEX - 1}}", _MUTED), *cells))
    return lines


def _spread(least: Sequence[int], room: int) -> list[int]:
    """Return widths of columns that fill the room: equal ones if each column has enough of that, else a share more."""
    equal = room // len(least)
    if max(least) <= equal:
        return [equal] * len(least)
    spare = max(room - sum(least), 0) // len(least)
    return [width + spare for width in least]


def _figure(pair: FigurePair, side: int, *, deltas: bool) -> tuple[str, str]:
    """Return a figure and its style."""
    value = (pair.left, pair.right)[side]
    if value is None:
        return "-", _MUTED
    text = count_text(value)
    if not pair.differs:
        return text, ""
    if deltas and side == 1 and pair.delta is not None:
        text = f"{text} ({pair.delta:+,})"
    return f"{DIFFERS} {text}", _LIT


# ---- metrics ----

_METRICS: Final = (
    ("requests.completed", "completed"),
    ("latency.ttft_ms.p50", "TTFT p50 ms"),
    ("latency.ttft_ms.p99", "TTFT p99 ms"),
    ("latency.e2e_ms.p50", "E2E p50 ms"),
    ("latency.e2e_ms.p99", "E2E p99 ms"),
    ("throughput.output_tokens_per_s", "tokens/s"),
    ("kv.preemptions", "preemptions"),
    ("throughput.requests_per_s", "requests/s"),
    ("latency.itl_ms.p50", "ITL p50 ms"),
    ("latency.itl_ms.p99", "ITL p99 ms"),
    ("kv.hit_rate", "cache hits"),
    ("requests.rejected", "rejected"),
    ("requests.timed_out", "timed out"),
    ("requests.dropped_unservable", "dropped"),
)
"""Figures of the report and their titles, the most important first."""
_WORDS_FROM: Final = 46
"""Width from which `better` and `worse` are written out."""
_CHANGE: Final = 9
"""Width of a change: ``+9,876 %``, and a space before it."""
_NOTHING_MUCH: Final = 0.0005
"""Smaller relative changes would be shown as 0.0 %."""
_VERDICTS: Final[Mapping[str, tuple[str, str, str]]] = {
    "better": ("✓", "better", "$success"),
    "worse": ("✗", "worse", "$error"),
    "": (" ", "", ""),
}


def metrics_text(view: CompareView, width: int) -> Content:
    """Return the main figures of both sides so far, and how B compares with A."""
    if not view.metrics:
        return Content.styled(_NOTHING_YET, _MUTED)
    rows = {row.metric: row for row in view.metrics}
    words = width >= _WORDS_FROM
    last = 6 if words else 1
    cell = min((width - 12 - _CHANGE - last - 2) // 2, 12)
    lines = [Content.styled(f"{'so far':<12}{'A':>{cell}}{'B':>{cell}}{'change':>{_CHANGE}}", _MUTED)]
    for metric, title in _METRICS:
        row = rows.get(metric)
        if row is not None:
            lines.append(_metric(row, title, cell, words=words))
    return Content("\n").join(lines)


def _metric(row: ComparedFigure, title: str, cell: int, *, words: bool) -> Content:
    figures = f"{_number(row.a):>{cell}}{_number(row.b):>{cell}}"
    if not row.differs:
        return Content.assemble(f"{title:<12}{figures}", (f"{'=':>{_CHANGE}}", _MUTED))
    if row.is_noise:
        change = "≈" if abs(row.relative or 0) < _NOTHING_MUCH else _change(row)
        return Content.assemble(f"{title:<12}{figures}", (f"{change:>{_CHANGE}}", _MUTED))
    glyph, word, colour = _VERDICTS[row.verdict]
    verdict = word if words else glyph
    return Content.assemble(f"{title:<12}{figures}", (f"{_change(row):>{_CHANGE}}", _LIT), " ", (verdict, colour))


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    if isinstance(value, int):
        return count_text(value)
    return f"{value:.2f}" if abs(value) < 100 else f"{value:.1f}" if abs(value) < 1000 else f"{value:,.0f}"


def _change(row: ComparedFigure) -> str:
    if row.relative is not None:
        percent = 100 * row.relative
        return (
            f"{percent:+.1f} %" if abs(percent) < 100 else f"{percent:+,.0f} %" if abs(percent) < 10_000 else "> x 100"
        )
    return DIFFERS if row.change is None else f"{row.change:+g}"


# ---- requests ----


def requests_text(view: CompareView, width: int) -> Content:
    """Return the requests in different states, and how ended ones compare."""
    changes = view.changes
    done = () if changes is None else changes.most_affected
    completed = [_completed(affected) for affected in done]
    name = max((len(_names(pair)) for pair in (*view.requests, *completed)), default=0)
    renamed = any(pair.right_name not in ("", pair.name) for pair in view.requests)
    name = min(name, max(width - 26, 8))
    cell = max((width - name - 2) // 2, 8)
    lines: list[Content] = []
    if view.requests:
        lines.append(Content.styled(f"{'A/B' if renamed else '':<{name}} {'A':<{cell}} {'B':<{cell}}", _MUTED))
        lines += [_request(pair, name, cell) for pair in view.requests]
    else:
        started = any(side.moment.event for side in view.sides)
        message = _NO_REQUESTS if view.under_way else _IDLE if started else "No request has arrived."
        lines.append(Content.styled(message, _MUTED))
    if changes is not None and changes.compared:
        lines.insert(0, _summary(changes, width))
    if done:
        lines.append(Content.styled("completed, most affected", _MUTED))
        lines += [_request(pair, name, cell) for pair in completed]
    return Content("\n").join(lines)


def first_request(view: CompareView, side: int) -> str:
    """Return the first request of the table that a side has, by its name there; empty = there is none."""
    affected = () if view.changes is None else view.changes.most_affected
    pair: RequestPair | None = next(iter((*view.requests, *map(_completed, affected))), None)
    if pair is None:
        return ""
    return (pair.right_name or pair.name) if side else pair.name


def _completed(affected: Affected) -> RequestPair:
    left, right = (RequestStatus("completed", us) for us in (affected.a_us, affected.b_us))
    return RequestPair(affected.request_id, left, right, affected.b_request_id)


def _summary(changes: RequestChanges, width: int) -> Content:
    change = f"{changes.slower:,} slower, {changes.faster:,} faster"
    ways = (
        f"{plural(changes.compared, 'request')} done on both: {change} in B",
        f"done in both {changes.compared:,}: {change}",
        f"{changes.compared:,} done: {change}",
        change,
    )
    return Content(next((text for text in ways if len(text) <= width), cut(change, width)))


def _request(pair: RequestPair, name: int, cell: int) -> Content:
    left, right = (f"{cut(standing_text(request_status), cell):<{cell}}" for request_status in (pair.left, pair.right))
    return Content.assemble(
        f"{shorten(_names(pair), name):<{name}} ", (left, _colour(pair.left)), " ", (right, _colour(pair.right))
    )


def _names(pair: RequestPair) -> str:
    return both_names(pair.name, pair.right_name)


def standing_text(standing: RequestStatus) -> str:
    """Return the state of a request: ``done 3.21 s``, ``prefill 45 %``, ``decode 123``, ``waiting``."""
    if standing.state == "completed":
        return f"✓ {span_text(standing.done)}"
    if standing.state == "prefill":
        return f"prefill {100 * standing.done // max(standing.goal, 1)} %"
    if standing.state in ("decode", "stalled"):
        return f"{standing.state} {count_text(standing.done)}"
    return standing.state


def _colour(standing: RequestStatus) -> str:
    """Return the colour of a phase, or of the kind of record that ended the request."""
    if standing == NOT_ARRIVED:
        return _MUTED
    look = PHASE_STYLES.get(standing.state)
    return look.style if look is not None else _style(described(standing.state).colour)


# The comparison as a text file.


def file_stem(names: tuple[str, str]) -> str:
    """Return a file name without suffix: ``kv-pressure-vs-burst``."""
    left, right = (re.sub(r"[^A-Za-z0-9.=]+", "-", name).strip("-")[:40] or "run" for name in names)
    return f"{left}-vs-{right}"


def file_text(comparison: Comparison, view: CompareView) -> str:
    """Return the positions of both sides, the divergence, and all differences up to there."""
    lines = [
        f"{letter} at {time_text(side.moment.time_us)}, event {count_text(side.moment.event)}"
        f"{', the end of the run' if side.moment.at_end else ''}"
        for letter, side in zip(LETTERS, view.sides, strict=True)
    ]
    if view.searched:
        divergence = view.divergence
        same = "the two runs are identical, from the first event to the last"
        lines += ["", *([same] if divergence is None else divergence_lines(divergence, LETTERS))]
    return "\n".join(lines) + "\n\n" + comparison_text(comparison)
