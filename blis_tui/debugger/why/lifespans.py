"""A request's life as consecutive intervals from its arrival to its end or to now.

All values are read from the tape, to the microsecond. The intervals of a finished request add up to its end-to-end time
without the part that its client adds.
"""

from __future__ import annotations

from dataclasses import field, replace
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import NamedTuple, dataclass
from blis_tui.engine.records import RECORD_KINDS, Preempted, described

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from blis_tui.debugger.event_store import EventStore, RequestEvent


class Stage(NamedTuple):
    """A stage of a request's life: what it is called, and how it looks wherever a request is shown in it."""

    name: str
    label: str
    """What its share of a latency is called."""
    group: str = ""
    """The group in which it is compared with other requests' shares; empty = its parts are."""
    word: str = ""
    """What an interval of it is called."""
    glyph: str = ""
    """Fills its part of a bar; empty = such intervals have the glyph of what was done in them."""
    tone: str = ""
    """A colour of the theme."""
    sign: str = ""
    """Stands before a number of such requests."""
    begins: tuple[str, ...] = ()
    """Kinds of entries that begin it."""

    @property
    def style(self) -> str:
        """The colour as styles name it."""
        return f"${self.tone}"


_TO_QUEUE: Final = "reaching the queue"
_DEFERRED: Final = "deferred until the cluster was idle"
_GATEWAY: Final = "waiting in the gateway"
_NO_INSTANCE: Final = "waiting for an instance to come up"
_QUEUE: Final = "waiting in the queue"
_PLANNED: Final = "planned for the next step"
PREEMPTION: Final = "preemption"
"""The group of what only preemptions cause."""
_TO_ROUTING: Final = ("admitted", "dispatched", "retried", "transfer-finished")

AGAIN: Final = Stage(
    "again",
    "waiting again",
    PREEMPTION,
    word=Preempted.shown.label,
    glyph="\N{BOX DRAWINGS LIGHT DIAGONAL CROSS}",
    tone=Preempted.shown.colour,
    sign="\N{MULTIPLICATION SIGN}",
)
"""The stage of a request that waits because it was preempted."""
LOST: Final = Stage("lost", "lost work", PREEMPTION, "lost work")
_ALL: Final = (
    Stage("admission", "admission control", _TO_QUEUE, "admission", "·", "text-muted", begins=("arrived",)),
    Stage("deferral", _DEFERRED, _GATEWAY, "deferred", "∙", "warning", begins=("deferred",)),
    Stage("gateway", _GATEWAY, _GATEWAY, "gateway", "┆", "warning", begins=("held",)),
    Stage("routing", "routing", _TO_QUEUE, "routing", "·", "text-muted", begins=_TO_ROUTING),
    Stage("stranded", _NO_INSTANCE, _NO_INSTANCE, "stranded", "¦", "warning", begins=("stranded",)),
    Stage("gone", "failed attempts", "failed attempts"),
    Stage("intake", "tokenization and enqueue", _TO_QUEUE, "enqueue", "·", "text-muted", begins=("routed",)),
    Stage("wait", _QUEUE, _QUEUE, "queue", "░", "warning", begins=("queued",)),
    Stage("planned", _PLANNED, _PLANNED, "planned", "▹", "text-muted"),
    LOST,
    AGAIN,
    Stage("prefill", "prefill", "prefill", "prefill", "▒", "secondary"),
    Stage("transfer", "KV transfer", "KV transfer", "transfer", "→", "accent"),
    Stage("recompute", "prefill again", PREEMPTION),
    Stage("decode", "decode", "", "decode", "█", "primary"),
    Stage("decode-only", "decode-only steps", "decode"),
    Stage("pipeline", "passes through the pipeline", "decode"),
    Stage("beside-prefill", "steps with prefill of others", "prefill of others in decode steps"),
    Stage("stalled", "stalled steps (no token)", "stalls"),
    Stage("client", "client side", "client side"),
)
STAGES: Final = {stage.name: stage for stage in _ALL}
"""All stages, in the order in which shares of a latency are shown. ``gone``, ``lost``, ``again`` and ``recompute`` are
what becomes of others after a preemption or a restart; those from ``decode-only`` to ``stalled`` divide ``decode``;
``client`` is no interval, but what the client adds."""
STAGE_GROUPS: Final = {
    group: tuple(stage.name for stage in STAGES.values() if stage.group == group)
    for group in dict.fromkeys(stage.group for stage in STAGES.values() if stage.group)
}
"""The stages of each group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """An interval of a request's life: in one of ``STAGES``.

    It is in ``admission`` until admission control decided, in ``routing`` until an instance was chosen, in ``intake``
    until it was queued, and ``planned`` if steps are planned ahead and it is scheduled for the step after the current
    one.
    """

    what: str
    start_us: int
    end_us: int
    first: int
    """The event at which the interval began."""
    attempt: int
    """Number of preemptions before the interval."""
    instance: int
    """The instance; -1 = none yet."""
    handed: bool = False
    """Whether the prompt was computed on another instance."""
    lost: bool = False
    """Whether a later preemption discarded what was computed."""
    again: bool = False
    """Whether the request had been preempted since its latest restart."""
    gone: bool = False
    """Whether the work was lost because an instance went away and the request restarted."""
    open: bool = False
    """Whether the interval is still in progress."""

    @property
    def duration_us(self) -> int:
        """Its length (so far), in microseconds."""
        return self.end_us - self.start_us


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunks:
    """The tokens that a request computed in the steps of its prefills."""

    event: int
    start_us: int
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestLife:
    """What is known of a request up to an event."""

    name: str
    entries: tuple[RequestEvent, ...]
    spans: tuple[Span, ...]
    chunks: tuple[Chunks, ...]
    prefilled_us: tuple[int, ...]
    """End times of its prefills, each of which produced a token; the decode that follows may take no time."""
    preemptions: tuple[RequestEvent, ...]
    """Its preemptions. A request whose last token is being computed completes even if it loses its blocks."""
    restarts: tuple[RequestEvent, ...]
    """Its restarts from the beginning after its instance went away."""
    stalls: tuple[tuple[int, int], ...]
    """Intervals in which it ran without getting tokens: from and to, in microseconds."""
    keeps_output: bool
    """Whether a preempted request keeps its generated tokens (a trait of the batching rule)."""
    until: int
    settled: int
    """The last event whose results are in effect (see ``DebuggerState.settled``)."""
    now_us: int
    """The time up to which it is known: that of the position, or the end of the latest step that computed for it."""

    @property
    def arrival_us(self) -> int:
        """Arrival time."""
        return self.entries[0].time_us

    @property
    def input_tokens(self) -> int:
        """Prompt length."""
        return self.entries[0].first

    @property
    def instance(self) -> int:
        """The instance to which it was last sent; -1 = none yet."""
        return next((entry.first for entry in reversed(self.entries) if entry.what in ("routed", "queued")), -1)

    @property
    def end(self) -> RequestEvent | None:
        """Its end, or None."""
        return next((entry for entry in reversed(self.entries) if described(entry.what).ends), None)

    @property
    def first_token(self) -> RequestEvent | None:
        """Its current first token; None before the first one, and after it was discarded."""
        return None if self.first_token_loss is not None else self.last("first-token")

    @property
    def first_token_loss(self) -> RequestEvent | None:
        """The preemption or restart that discarded its first token; None if it has one or never had one."""
        return self._loss_of("first-token")

    @property
    def answer(self) -> RequestEvent | None:
        """The start of its current answer, after the reasoning; None before it, and after it was discarded."""
        return None if self.answer_loss is not None else self.last("answer-begun")

    @property
    def answer_loss(self) -> RequestEvent | None:
        """The preemption or restart that discarded the start of its answer."""
        return self._loss_of("answer-begun")

    def _loss_of(self, what: str) -> RequestEvent | None:
        takes = ("retried",) if self.keeps_output else ("retried", "preempted")
        loss = None
        for entry in reversed(self.entries):
            if entry.what == what:
                return loss
            if entry.what in takes:
                loss = entry
        return None

    @property
    def began_us(self) -> int:
        """Start of the current attempt: the latest restart, or the arrival."""
        return self.restarts[-1].time_us if self.restarts else self.arrival_us

    def last(self, what: str) -> RequestEvent | None:
        """Return the latest entry of a kind."""
        return next((entry for entry in reversed(self.entries) if entry.what == what), None)


def read_life(tape: EventStore, name: str, until: int, settled: int | None = None) -> RequestLife | None:
    """Return a request's life up to an event; None if it has not arrived by then.

    Args:
        tape: the recorded run.
        name: the request.
        until: the last event to include.
        settled: the last event whose results are in effect; None = ``until``.
    """
    settled = until if settled is None else settled
    entries = tape.life(name, until, settled)
    if not entries:
        return None
    keeps = tape.keeps_output
    reader = _Reader(tape, keeps_output=keeps, input_tokens=entries[0].first, start_us=entries[0].time_us)
    for entry in entries:
        reader.read(entry)
    now_us = tape.time_us(until)
    if reader.what in _WORK:
        now_us = max(now_us, _end_of_latest_step(tape, reader.instance, settled))
    spans = tuple(reader.finish(now_us))
    return RequestLife(
        name=name,
        entries=entries,
        spans=spans,
        chunks=tuple(reader.chunks),
        prefilled_us=tuple(reader.prefilled_us),
        preemptions=tuple(reader.preemptions),
        restarts=tuple(reader.restarts),
        stalls=tuple(reader.stalls if reader.stalled_us < 0 else [*reader.stalls, (reader.stalled_us, now_us)]),
        keeps_output=keeps,
        until=until,
        settled=settled,
        now_us=max(now_us, *(span.end_us for span in spans), entries[0].time_us),
    )


def _end_of_latest_step(tape: EventStore, instance: int, settled: int) -> int:
    """Return the end of an instance's latest step whose results are in effect."""
    event = last_step(tape, instance, settled)
    return tape.time_us(event) + tape.step(tape.row(event).step).duration_us if event else 0


_BEGUN: Final = {kind: stage.name for stage in STAGES.values() for kind in stage.begins}
"""The stage that each kind of entry begins."""
_HANDOVER: Final = ("prefilled", "transfer-started")
"""Entries that begin the transfer to the decode instance, which may start with the step that computes the prompt."""
_WORK: Final = ("prefill", "decode")
_OUTSIDE: Final = ("admission", "deferral", "gateway", "stranded")
"""Intervals that belong to no attempt."""


@dataclass(slots=True)
class _Reader:
    """Divides a life into intervals.

    ``target``: number of computed tokens at which the current prefill is done: the prompt, plus generated tokens kept
    through a preemption. Of ``n`` known tokens, a decoding request has computed all but the last.
    """

    tape: EventStore
    keeps_output: bool
    input_tokens: int
    start_us: int
    spans: list[Span] = field(default_factory=list)
    chunks: list[Chunks] = field(default_factory=list)
    what: str = ""
    first: int = 0
    attempt: int = 0
    target: int = 0
    instance: int = -1
    prefilled_us: list[int] = field(default_factory=list)
    preemptions: list[RequestEvent] = field(default_factory=list)
    restarts: list[RequestEvent] = field(default_factory=list)
    fresh: int = 0
    """Number of preemptions before the latest restart."""
    stalls: list[tuple[int, int]] = field(default_factory=list)
    stalled_us: int = -1
    handed: bool = False
    """Whether the prompt was computed elsewhere, so that the request continues with decoding."""

    def read(self, entry: RequestEvent) -> None:
        what = entry.what
        if what in RECORD_KINDS and not described(what).state:
            return  # the entry does not change the request's state
        if what == "stalled":
            self.stalled_us = entry.time_us
            return
        if self.stalled_us >= 0:  # any later entry ends the stall
            self.stalls.append((self.stalled_us, entry.time_us))
            self.stalled_us = -1
        if what == "resumed":
            return
        if what in _BEGUN:
            self._turn(_BEGUN[what], entry.time_us, entry.event)
            self.target = self.input_tokens
            if what in ("routed", "queued"):
                self.instance = entry.first
            elif what == "retried":
                self._start_again(entry)
        elif what in _HANDOVER:
            if not self.what:  # otherwise the transfer has already begun
                self.handed = True
                self._turn("transfer", entry.time_us, entry.event)
        elif what == "scheduled" and self.tape.plans_ahead:
            self._turn("planned", entry.time_us, entry.event)
        elif what in ("scheduled", "started"):
            self._turn("decode" if self.handed else "prefill", entry.time_us, entry.event)
        elif what == "chunk":
            self.chunks.append(Chunks(event=entry.event, start_us=entry.time_us, tokens=entry.second))
            if entry.first + entry.second == self.target:
                row = self.tape.step(self.tape.row(entry.event).step)
                self._turn("decode", entry.time_us + row.duration_us, entry.event)
        elif what == "first-token":
            if self.what == "prefill":  # the whole prompt was cached, so there was no chunk
                self._turn("decode", entry.first, entry.event)
        elif what == "preempted" and self.what:
            if self.keeps_output and entry.first >= self.target:
                self.target = entry.first + 1
            self._turn("wait", self._end_of_part(entry), entry.event)
            self.attempt += 1
            self.preemptions.append(entry)
            self.handed = False
        elif what == "last-token":
            self._turn("", entry.first, entry.event)
        elif described(what).ends:
            self._turn("", entry.time_us, entry.event)

    def _start_again(self, retried: RequestEvent) -> None:
        self.spans = [span if span.what in _OUTSIDE else replace(span, gone=True) for span in self.spans]
        self.restarts.append(retried)
        self.fresh = self.attempt
        self.handed = False

    def _end_of_part(self, preempted: RequestEvent) -> int:
        """Return when a victim stops computing; if steps are planned ahead, that is the end of the current step."""
        row = self.tape.row(preempted.event)
        if not self.tape.plans_ahead or row.step < 0:
            return preempted.time_us
        return preempted.time_us + self.tape.step(row.step).duration_us

    def _turn(self, what: str, time_us: int, event: int) -> None:
        if self.handed:  # time that overlaps with the previous interval counts for that one
            time_us = max(time_us, self.start_us)
        if self.what and time_us > self.start_us:
            self.spans.append(self._span(time_us))
        if what == "decode" and not self.handed:
            self.prefilled_us.append(time_us)
        self.what = what
        self.start_us = time_us
        self.first = event

    def _span(self, end_us: int) -> Span:
        return Span(
            what=self.what,
            start_us=self.start_us,
            end_us=end_us,
            first=self.first,
            attempt=self.attempt,
            instance=self.instance,
            handed=self.handed,
            again=self.attempt > self.fresh,
        )

    def finish(self, now_us: int) -> list[Span]:
        if self.what and now_us >= self.start_us:
            self.spans.append(replace(self._span(now_us), open=True))
        return [
            replace(span, lost=True) if span.what in _WORK and span.attempt < self.attempt else span
            for span in self.spans
        ]


def steps_within(
    tape: EventStore, instance: int, start_us: int, end_us: int, until: int, *figures: str
) -> Iterator[tuple[int, ...]]:
    """Yield the steps of an instance that began in a time interval: event, start, and figures of ``StepRow``."""
    first = tape.at_time(start_us - 1) + 1
    return tape.steps_of(instance, first, min(tape.at_time(end_us - 1), until), *figures)


def prompts_in(tape: EventStore, steps: Sequence[int]) -> tuple[tuple[str, int], ...]:
    """Return the requests whose prompts were computed in some steps (their events, in order), and how many tokens.

    The one with the most tokens comes first.
    """
    if not steps:
        return ()
    there = frozenset(steps)
    tokens: dict[int, int] = {}
    for event, number, _, count in tape.entries_of("chunk", steps[0], steps[-1]):
        if event in there:
            tokens[number] = tokens.get(number, 0) + count
    ranked = sorted(tokens, key=lambda number: (-tokens[number], number))
    return tuple((tape.name(number), tokens[number]) for number in ranked)


def last_step(tape: EventStore, instance: int, until: int) -> int:
    """Return the latest step of an instance up to an event; 0 if there is none."""
    event = until + 1
    while True:
        event = tape.next_step(event, back=True)
        if not event or tape.row(event).instance == instance:
            return event


def next_step(tape: EventStore, instance: int, event: int, until: int) -> int:
    """Return the next step of an instance after an event, up to ``until``; 0 if it has not started by then."""
    while 0 < (event := tape.next_step(event)) <= until:
        if tape.row(event).instance == instance:
            return event
    return 0
