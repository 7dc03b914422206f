"""The look of requests' phases and of instances' stages, and a request's life as a bar and as a list."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from textual.content import Content

from blis_tui.base.classes import dataclass
from blis_tui.base.units import count_text, filled, percent_text, plural, span_text
from blis_tui.cluster.stages import DRAINING, FAILED, LOADING, SCHEDULING, TERMINATED, WARMING
from blis_tui.debugger.why.lifespans import AGAIN, LOST, PREEMPTION, STAGES
from blis_tui.engine.records import RECORD_KINDS, described
from blis_tui.tui.drawing.lines import fact

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from blis_tui.cluster.snapshot import InstanceSnapshot
    from blis_tui.debugger.event_store import EventStore, RequestEvent
    from blis_tui.debugger.why.lifespans import RequestLife, Span, Stage


@dataclass(frozen=True, slots=True)
class GlyphStyle:
    """A glyph, a word and a colour."""

    glyph: str
    word: str
    style: str

    @property
    def label(self) -> str:
        """Glyph and word."""
        return f"{self.glyph} {self.word}"


PHASE_STYLES: Final[Mapping[str, GlyphStyle]] = MappingProxyType(
    {
        "in-transit": GlyphStyle("→", "on the way", "$text-muted"),
        "waiting": GlyphStyle("○", "waiting", STAGES["wait"].style),
        "prefill": GlyphStyle("◐", "prefill", STAGES["prefill"].style),
        "decode": GlyphStyle("●", "decode", STAGES["decode"].style),
        "stalled": GlyphStyle("◌", "stalled", "$warning"),
    }
)
"""Looks of the phases of live requests, where a list shows each with a glyph."""
STATE_STYLES: Final[Mapping[str, GlyphStyle]] = MappingProxyType(
    {
        SCHEDULING: GlyphStyle("◌", "waiting for a node", "$accent"),
        LOADING: GlyphStyle("◔", "loading", "$accent"),
        WARMING: GlyphStyle("◑", "warming up", "$success"),
        DRAINING: GlyphStyle("↓", "draining", "$warning"),
        FAILED: GlyphStyle("✕", "failed", "$error"),
        TERMINATED: GlyphStyle("-", "gone", "$text-muted"),
    }
)
"""Looks of instances that are not active, shown instead of their bars."""


def state_of(instance: InstanceSnapshot) -> list[Content]:
    """Return the state of an instance that is not active."""
    look = STATE_STYLES.get(instance.life)
    return [] if look is None else [Content.styled(look.label, look.style)]


def name_of(instance: InstanceSnapshot) -> str:
    """Return an instance's name."""
    rank = instance.rank
    return f"instance {instance.index}" + ("" if rank is None else f" (rank {rank.rank} of replica {rank.replica})")


def rank_of(instance: InstanceSnapshot) -> list[Content]:
    """Return how often a rank ran dummy batches, and how long it waited for other ranks of its replica."""
    rank = instance.rank
    if rank is None or not rank.steps:
        return []
    dummies, waited = percent_text(rank.dummy_batches, rank.steps), percent_text(rank.waited_us, instance.busy_us)
    return [fact("dummy batches", dummies), fact("waited for ranks", waited)]


def running_of(instance: InstanceSnapshot) -> str:
    """Return the number of running requests and its maximum."""
    most = instance.profile.max_running
    running = count_text(instance.running_count)
    return running if most is None else f"{running} of {count_text(most)}"


_ENDERS: Final = (
    "retried",
    "scheduled",
    "transfer-finished",
    "routed",
    "queued",
    "held",
    "admitted",
    "deferred",
    "resumed",
    "dispatched",
    "stranded",
)
"""What ends an interval other than work; of several entries in one event, the first of these is the most informative.
"""


@dataclass(frozen=True, slots=True)
class LifeInterval:
    """An interval of a life.

    Attributes:
        what: the name of its stage.
        start_us: its start.
        end_us: its end, or the end of what is known.
        event: the event at which it began.
        open: whether its end is not known yet.
        later: whether it is after the present position.
        note: what was done in it.
        ending: what ended it; empty while it is open.
        lost: whether its work was lost in a preemption, or with the instance.
    """

    what: str
    start_us: int
    end_us: int
    event: int
    open: bool = False
    later: bool = False
    note: str = ""
    ending: str = ""
    lost: bool = False

    @property
    def duration_us(self) -> int:
        """Its length, in microseconds."""
        return self.end_us - self.start_us

    @property
    def look(self) -> Stage:
        """Its stage, which has its look."""
        return STAGES[self.what]


def life_intervals(life: RequestLife, tape: EventStore) -> tuple[LifeInterval, ...]:
    """Return all intervals of a life, except for those of no length."""
    intervals: list[LifeInterval] = []
    spans = life.spans
    for at, span in enumerate(spans):
        end = None if span.open else _ending_entry(life, span, spans[at + 1] if at + 1 < len(spans) else None)
        intervals.append(
            LifeInterval(
                what=AGAIN.name if span.what == "wait" and span.again else span.what,
                start_us=span.start_us,
                end_us=span.end_us,
                event=span.first,
                open=span.open,
                note=_note(life, span),
                ending="" if end is None else ending_text(life.name, end, tape, lost=_lost(life, span)),
                lost=_lost(life, span),
            )
        )
    return tuple(interval for interval in intervals if interval.duration_us or interval.open)


def _lost(life: RequestLife, span: Span) -> bool:
    return span.gone or (span.lost and not life.keeps_output)


def _ending_entry(life: RequestLife, span: Span, following: Span | None) -> RequestEvent | None:
    """Return what ended an interval: for a prefill its last chunk, else the entry that begins the next interval."""
    event = following.first if following is not None else life.entries[-1].event
    here = [entry for entry in life.entries if entry.event == event]
    ends = tuple(kind for kind, record in RECORD_KINDS.items() if record.shown.ends)
    wanted = {
        "planned": ("started", *ends),
        "prefill": ("first-token", "chunk", "preempted", "retried", *ends),
        "decode": ("preempted", "retried", *ends, "last-token"),
    }
    kinds = wanted.get(span.what, (*_ENDERS, *ends))
    return next((entry for kind in kinds for entry in here if entry.what == kind), None)


def ending_text(name: str, end: RequestEvent, tape: EventStore, *, lost: bool) -> str:
    """Return an entry of a request's life as the end of an interval.

    ``lost``: whether its work was lost in a preemption.
    """
    if end.what == "chunk":
        return "prompt and output are recomputed"
    if end.what == "started":
        return "its step started"
    if end.what == "first-token" and lost:
        return "first token, lost later"
    shown = described(end.what)
    plain = end.what == "scheduled" and not end.first
    return shown.label if plain else filled(shown.line, tape.values_of(name, end))


def _note(life: RequestLife, span: Span) -> str:
    if span.what != "prefill":
        return ""
    mine = [chunk for chunk in life.chunks if span.start_us <= chunk.start_us < span.end_us]
    if not mine:
        return ""
    tokens = plural(sum(chunk.tokens for chunk in mine), "token")
    if any(stretch.handed for stretch in life.spans):  # what follows happens on another instance
        tokens += f" on instance {span.instance}"
    return tokens if len(mine) == 1 else f"{len(mine)} chunks, {tokens}"


def past_and_later(now: RequestLife | None, known: RequestLife, tape: EventStore) -> tuple[LifeInterval, ...]:
    """Return the intervals up to the present position, then those known to follow, marked as later.

    Args:
        now: the life up to the position; None before its start.
        known: the whole recorded life.
        tape: the recorded run.
    """
    here_us = known.arrival_us if now is None else now.now_us
    later = (interval for interval in life_intervals(known, tape) if interval.end_us > here_us)
    return (
        *(() if now is None else life_intervals(now, tape)),
        *(replace(interval, start_us=max(interval.start_us, here_us), later=True) for interval in later),
    )


# ---- the bar ----


def life_bar(parts: Sequence[LifeInterval], width: int) -> Content:
    """Return the intervals side by side in proportion; short ones get a cell if there is room for all."""
    if not parts:
        return Content("")
    pieces: list[tuple[str, str]] = []
    for interval, size in zip(parts, shares([part.duration_us for part in parts], width), strict=True):
        style = interval.look.style
        pieces.append((interval.look.glyph * size, f"{style} dim" if interval.later else style))
    return Content.assemble(*pieces)


def position_mark(parts: Sequence[LifeInterval], width: int) -> Content | None:
    """Return the mark of the present position below the bar; None if the whole life is before it."""
    sizes = shares([part.duration_us for part in parts], width)
    before = sum(size for part, size in zip(parts, sizes, strict=True) if not part.later)
    if not any(part.later for part in parts):
        return None
    text = "▲ you are here"
    indent = max(before - 1, 0)
    if indent + len(text) > width and len(text) <= indent + 1:
        text = "you are here ▲"
        indent -= len(text) - 1
    return Content.styled(" " * indent + text, "$accent")


def shares(sizes: Sequence[int], width: int) -> list[int]:
    """Divide ``width`` cells in proportion; each part gets at least one while there are enough."""
    total = sum(sizes)
    least = 1 if len(sizes) <= width else 0
    if not total:
        return [width * (at == 0) for at in range(len(sizes))]
    room = width - least * len(sizes)
    cells: list[int] = []
    passed = given = 0
    for size in sizes:
        passed += size
        upto = passed * room // total
        cells.append(least + upto - given)
        given = upto
    return cells


def legend(parts: Iterable[LifeInterval]) -> list[Content]:
    """Return the meaning of a bar's glyphs."""
    words: dict[str, str] = {}
    for part in parts:
        look = part.look
        words.setdefault(look.glyph, "on the way" if look.glyph == "·" else look.word)
    styles = {look.glyph: look.style for look in STAGES.values()}
    return [Content.assemble((glyph, styles[glyph]), f" {word}") for glyph, word in words.items()]


def totals(parts: Iterable[LifeInterval]) -> dict[str, int]:
    """Return the total length of each kind of interval in microseconds; lost work is a separate kind."""
    ordinary = [name for name, stage in STAGES.items() if stage.group != PREEMPTION]
    sums = dict.fromkeys((*ordinary, AGAIN.name, LOST.name), 0)
    for part in parts:
        sums[LOST.name if part.lost else part.what] += part.duration_us
    return {what: us for what, us in sums.items() if us}


def sum_text(us: Mapping[str, int], rest: int = 0) -> str:
    """Return the composition of a latency: ``queue 3.1 ms + prefill 4.3 ms + client 20 us``."""
    pieces = [f"{STAGES[what].word} {span_text(part)}" for what, part in us.items()]
    if rest > 0:
        pieces.append(f"client {span_text(rest)}")
    return " + ".join(pieces)
