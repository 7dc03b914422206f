"""What makes up a request's latency: shares that add up to it exactly, in microseconds; and why requests wait.

If a plan leaves requests in the queue, its rule states a cause (``engine.stopped``), which holds until the next step is
planned. There are three further causes (``CAUSES``):

- ``step``: nothing was planned since the request joined the queue. The engine decides between steps only.
- ``planned``: the request is scheduled for the step after the current one.
- ``unsaid``: a step was planned and left the request in the queue, and the rule does not say why.

Where steps are planned ahead (asynchronous scheduling), the plan that counts from the start of a step is that of the
following step.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import dataclass
from blis_tui.base.units import count_text, filled, plural, span_text
from blis_tui.debugger.why.lifespans import AGAIN, STAGES, next_step, prompts_in, steps_within
from blis_tui.engine import stopped
from blis_tui.engine.stopped import TOKENS, Cause

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from blis_tui.debugger.event_store import EventStore, RequestEvent, StepRow, StopRow
    from blis_tui.debugger.why.lifespans import RequestLife, Span
    from blis_tui.engine.profile import Profile

_NOTEWORTHY: Final = 10
"""Prefill of other requests is mentioned only if it takes at least one part in this many of a decode."""
DECODES: Final = ("decode-only", "beside-prefill", "stalled")
"""The kinds that decode divides into: what else the steps computed, and steps in which the request got no token."""


@dataclass(frozen=True, slots=True)
class Share:
    """A share of a latency: its kind, microseconds, and a remark; ``inner`` shares divide it further.

    ``tokens``: for steps that also computed other requests' prompts, the number of those prompt tokens.
    ``decodes``, ``prompts``: what the steps that a spent token budget kept a request out of computed: decodes, and
    the prompts of these requests with so many tokens.
    """

    kind: str
    label: str
    us: int
    note: str = ""
    inner: tuple[Share, ...] = ()
    tokens: int = 0
    decodes: int = 0
    prompts: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Breakdown:
    """A latency and its shares, which add up to it."""

    total_us: int
    shares: tuple[Share, ...]

    def us(self, *kinds: str) -> int:
        """Return the time spent in shares of these kinds. Causes of waits do not count, even if named like a kind."""
        parts = [inner for share in self.shares if share.kind == "decode" for inner in share.inner]
        return sum(share.us for share in (*self.shares, *parts) if share.kind in kinds)

    def tokens(self, kind: str) -> int:
        """Return how many prompt tokens of other requests the steps of a kind computed."""
        return sum(share.tokens for share in self.all if share.kind == kind)

    @property
    def all(self) -> Iterator[Share]:
        """Every share, each before its inner shares."""
        for share in self.shares:
            yield share
            yield from share.inner

    @property
    def main(self) -> Share | None:
        """The largest share."""
        return max(self.shares, key=lambda share: share.us, default=None)


def ttft_breakdown(life: RequestLife, tape: EventStore) -> Breakdown | None:
    """Return the breakdown of the TTFT as the client measures it; None without a (still valid) first token."""
    return _up_to(life.first_token, life, tape)


def ttfat_breakdown(life: RequestLife, tape: EventStore) -> Breakdown | None:
    """Return the breakdown of the time to the first answer token, for a request that reasons first."""
    return _up_to(life.answer, life, tape)


def _up_to(token: RequestEvent | None, life: RequestLife, tape: EventStore) -> Breakdown | None:
    """Return the breakdown up to a token that came at ``first`` and took ``second`` as the client measures it."""
    if token is None:
        return None
    spans = [_clipped(span, token.first) for span in life.spans if span.start_us < token.first]
    return _broken_down(life, spans, token.second, token.first, tape)


def e2e_breakdown(life: RequestLife, tape: EventStore) -> Breakdown | None:
    """Return the breakdown of the end-to-end time as the client measures it; None unless the request completed."""
    end = life.end
    if end is None or end.what != "completed":
        return None
    return _broken_down(life, list(life.spans), end.second, end.time_us, tape)


def so_far_breakdown(life: RequestLife, tape: EventStore) -> Breakdown:
    """Return the breakdown of the time since the request's arrival, up to its end if it has ended."""
    end_us = max((span.end_us for span in life.spans), default=life.arrival_us)
    return _broken_down(life, list(life.spans), end_us - life.arrival_us, end_us, tape)


def _clipped(span: Span, end_us: int) -> Span:
    return span if span.end_us <= end_us else replace(span, end_us=end_us)


def _broken_down(life: RequestLife, spans: list[Span], total_us: int, end_us: int, tape: EventStore) -> Breakdown:
    by_kind: dict[str, list[Span]] = {}
    for span in spans:
        by_kind.setdefault(_kind(life, span), []).append(span)
    shares = [_share(kind, by_kind[kind], life, tape) for kind in STAGES if kind in by_kind]
    shares = [share for share in shares if share.us]
    client = total_us - (end_us - life.arrival_us)
    if client:
        shares.append(Share("client", STAGES["client"].label, client, "detokenization and streaming, outside of steps"))
    return Breakdown(total_us, tuple(shares))


def _kind(life: RequestLife, span: Span) -> str:
    if span.gone:
        return "gone"
    if span.what in ("wait", "planned"):
        return "again" if span.again else span.what
    if life.keeps_output:
        return "recompute" if span.what == "prefill" and span.again else span.what
    return "lost" if span.lost else span.what


def _share(kind: str, spans: list[Span], life: RequestLife, tape: EventStore) -> Share:
    us = sum(span.duration_us for span in spans)
    label = STAGES[kind].label
    if kind in ("wait", "again"):
        return _waiting(kind, us, spans, life, tape)
    if kind in ("prefill", "recompute"):
        return _prefill(kind, us, spans, life, tape)
    if kind == "decode":
        return _decode(us, spans, life, tape)
    if kind == "lost":
        tokens = sum(preemption.first for preemption in life.preemptions if preemption.time_us >= life.began_us)
        return Share(kind, label, us, f"{plural(tokens, 'computed token')} discarded by preemption")
    if kind == "gone":
        return Share(kind, label, us, f"its instance went away, {plural(len(life.restarts), 'time')}")
    return Share(kind, label, us)


def _waiting(kind: str, us: int, spans: list[Span], life: RequestLife, tape: EventStore) -> Share:
    limits = tape.profiles[spans[0].instance]
    by_span: list[WaitCauses] = [wait_causes(tape, span, span.instance, life) for span in spans]
    inner = []
    for cause in dict.fromkeys((*CAUSES, *(own for causes in by_span for own in causes.us))):
        part = sum(causes.us.get(cause, 0) for causes in by_span)
        if part:
            steps = sum(causes.steps.get(cause, 0) for causes in by_span)
            note = plural(steps, "step") if steps else ""
            spent = [event for causes in by_span for event in causes.spent] if cause == TOKENS else []
            decodes = sum(tape.step(tape.row(event).step).decode_requests for event in spent)
            prompts = prompts_in(tape, spent)
            inner.append(Share(cause, cause_text(cause, limits), part, note, decodes=decodes, prompts=prompts))
    count = len([preemption for preemption in life.preemptions if preemption.time_us >= life.began_us])
    note = f"after {plural(count, 'preemption')}" if kind == AGAIN.name else ""
    return Share(kind, STAGES[kind].label, us, note, tuple(inner))


def _prefill(kind: str, us: int, spans: list[Span], life: RequestLife, tape: EventStore) -> Share:
    """Return a prefill's share: the request's own chunks, what else those steps computed, and steps without a chunk."""
    own_us = own = others = steps = idle = 0
    # A request whose whole prompt is cached is served by the step that schedules it, without a chunk.
    mine = {entry.event: 0 for entry in life.entries if entry.what == "scheduled" and not entry.second}
    mine |= {chunk.event: chunk.tokens for chunk in life.chunks}
    for span in spans:
        figures = "duration_us", "prefill_tokens", "decode_requests"
        for event, start_us, duration_us, tokens, decodes in steps_within(
            tape, span.instance, span.start_us, span.end_us, life.settled, *figures
        ):
            if event in mine:
                steps += 1
                own_us += min(start_us + duration_us, span.end_us) - start_us
                own += mine.get(event, 0)
                others += tokens + decodes - mine.get(event, 0)
            else:
                idle += 1
    note = f"{plural(own, 'token')} in {plural(steps, 'step')}"
    if others:
        note += f", alongside {count_text(others)} of others"
    inner: tuple[Share, ...] = ()
    if us > own_us and not _overlapping(tape, spans):
        inner = (
            Share("own", "its own chunks", own_us, plural(steps, "step")),
            Share("idle", "steps without a chunk of its own", us - own_us, plural(idle, "step")),
        )
    return Share(kind, STAGES[kind].label, us, note, inner)


@dataclass(slots=True)
class _Steps:
    """The steps of one kind in a decode."""

    count: int = 0
    us: int = 0
    tokens: int = 0
    """Prompt tokens of other requests."""


def _decode(us: int, spans: list[Span], life: RequestLife, tape: EventStore) -> Share:
    """Return a decode's share, divided into decode-only steps, steps with other prompts, and stalled steps."""
    if _overlapping(tape, spans):
        whole = Share("pipeline", STAGES["pipeline"].label, us)
        return Share("decode", STAGES["decode"].label, us, "beside other batches in the pipeline", (whole,))
    plain, mixed, stalled = _by_kind(spans, life, tape)
    inner = (
        Share("decode-only", STAGES["decode-only"].label, plain.us, _each(plain)),
        Share("beside-prefill", STAGES["beside-prefill"].label, mixed.us, _beside(mixed, plain), tokens=mixed.tokens),
        Share("stalled", STAGES["stalled"].label, stalled.us, plural(stalled.count, "step")),
    )
    count = plain.count + mixed.count
    drafts = any(tape.profiles[span.instance].limits.draft_tokens for span in spans)
    each = "at least one token each" if drafts else "one token each"
    note = f"{plural(count, 'step')}, {each}"
    return Share("decode", STAGES["decode"].label, us, note, tuple(share for share in inner if share.us))


def decode_lines(tape: EventStore, life: RequestLife) -> Mapping[int, str]:
    """Return a remark on what slowed down each decode, by the event at which it began, where there is one."""
    lines: dict[int, str] = {}
    for span in life.spans:
        if span.what != "decode" or _overlapping(tape, [span]):
            continue
        plain, mixed, stalled = _by_kind([span], life, tape)
        pieces = []
        if mixed.us * _NOTEWORTHY >= span.duration_us > 0:
            pieces.append(f"{span_text(mixed.us)} in steps with prefill of others: {_beside(mixed, plain)}")
        if stalled.us:
            pieces.append(f"{span_text(stalled.us)} stalled, without a token")
        if pieces:
            lines[span.first] = "; ".join(pieces)
    return lines


def prefill_of_others(life: RequestLife, tape: EventStore) -> tuple[tuple[str, int], ...]:
    """Return the requests whose prompts were computed in a request's decode steps, with token counts, largest first."""
    events = [
        event
        for span in life.spans
        if span.what == "decode" and not span.gone and not _overlapping(tape, [span])
        for event, _, _, tokens in _decode_steps(life, tape, span)
        if tokens
    ]
    return prompts_in(tape, events)


def _overlapping(tape: EventStore, spans: Iterable[Span]) -> bool:
    """Return whether steps overlap in a pipeline; they only count their decodes, so their requests are unknown."""
    return any(tape.profiles[span.instance].traits.pipelined for span in spans)


def _decode_steps(life: RequestLife, tape: EventStore, span: Span) -> Iterator[tuple[int, int, int, int]]:
    """Yield the steps of a decode: event, start, duration, prompt tokens of other requests.

    If the decode overlaps with the prefill on another instance, this includes the step that runs when the prefill ends.
    """
    since_us = min(tape.time_us(span.first), span.start_us) if span.handed else span.start_us
    figures = "duration_us", "prefill_tokens"
    over_us = -1
    for event, start_us, duration_us, tokens in steps_within(
        tape, span.instance, since_us, span.end_us, life.settled, *figures
    ):
        if start_us < over_us:
            continue  # under `blis`, it may begin before the previous step ends if those requests had their last token
        if start_us + duration_us > span.start_us:
            over_us = start_us + duration_us
            yield event, start_us, duration_us, tokens


def _by_kind(spans: list[Span], life: RequestLife, tape: EventStore) -> tuple[_Steps, _Steps, _Steps]:
    """Return the steps of some decodes by kind, in the order of ``DECODES``."""
    plain, mixed, stalled = _Steps(), _Steps(), _Steps()
    stalls = life.stalls
    for span in spans:
        for _, start_us, duration_us, tokens in _decode_steps(life, tape, span):
            steps = mixed if tokens else plain
            if stalls and any(since <= start_us < until for since, until in stalls):
                steps = stalled
            steps.count += 1
            steps.us += min(start_us + duration_us, span.end_us) - max(start_us, span.start_us)
            steps.tokens += tokens
    return plain, mixed, stalled


def _each(steps: _Steps) -> str:
    """Return the number of steps and the mean duration of one, as text."""
    if not steps.count:
        return ""
    length = f", {span_text(steps.us // steps.count)} each" if steps.count > 1 else ""
    return plural(steps.count, "step") + length


def _beside(mixed: _Steps, plain: _Steps) -> str:
    """Return what other prompts cost: how much longer the steps took than as many decode-only steps would have."""
    note = f"{_each(mixed)}; {plural(mixed.tokens, 'prompt token')} of others"
    if plain.count and mixed.count:
        longer = mixed.us - mixed.count * plain.us // plain.count
        if longer > 0:
            note += f" made them {span_text(longer)} longer"
    return note


_STEP: Final = Cause("step", short="step in progress", sentence="")
_PLANNED: Final = Cause("planned", short="planned for the next step", sentence="")
_UNSAID: Final = Cause(
    "unsaid",
    short="the rule does not say",
    sentence="Requests stayed in the queue; the batching rule does not say why.",
)
CAUSES: Final = {
    _STEP.name: _STEP,
    _PLANNED.name: _PLANNED,
    **stopped.CAUSES,
    _UNSAID.name: _UNSAID,
}
"""The causes described here, in the order in which they are shown; a plug-in may have causes of its own."""


def stop_of(tape: EventStore, event: int, row: StepRow) -> StopRow | None:
    """Return the cause stated by the plan made when a step started; planned ahead, that is the following step's plan.

    Args:
        tape: the recorded run.
        event: the step that started.
        row: its figures.
    """
    return tape.stop(event, row.number + tape.plans_ahead)


@dataclass(frozen=True, slots=True)
class WaitCauses:
    """How the time of a wait divides among causes, and in how many steps each of them held.

    ``spent``: events of the steps that the token budget kept it out of, as far as they are known: where steps are
    planned ahead, those that were planned while it waited.
    """

    us: Mapping[str, int]
    steps: Mapping[str, int]
    spent: tuple[int, ...] = ()


def wait_causes(tape: EventStore, span: Span, instance: int, life: RequestLife) -> WaitCauses:
    """Divide a wait among causes: a step that did not schedule the request accounts for the time to the next."""
    held = [entry.event for entry in life.entries if entry.what == "adapter-held" and span.start_us <= entry.time_us]
    number = tape.number(life.name)
    us: dict[str, int] = {}
    steps: dict[str, int] = {}
    spent: list[int] = []
    if span.what == "planned":
        return WaitCauses({"planned": span.duration_us}, steps)
    cause, since = "step", span.start_us
    looked = [*steps_within(tape, instance, span.start_us, span.end_us, life.until, "number")]
    stops = tape.stops_of(looked[0][0], looked[-1][0]) if looked else {}
    for event, start_us, step in looked:
        us[cause] = us.get(cause, 0) + start_us - since
        since = start_us
        if event < span.first or (tape.plans_ahead and event > life.settled):
            cause = "step"  # the step was planned earlier, or its plan is not made yet
            continue
        cause, kept_out = stops.get((event, step + tape.plans_ahead), ("unsaid", -1))  # step number as in stop_of
        if held and event >= held[0] and kept_out not in (-1, number):
            cause = stopped.ADAPTER  # the request was passed over before another one was kept out
        steps[cause] = steps.get(cause, 0) + 1
        if cause == stopped.TOKENS:
            spent.append(event)
    us[cause] = us.get(cause, 0) + span.end_us - since
    known = _steps_planned(tape, instance, spent, life.settled)
    return WaitCauses({name: value for name, value in us.items() if value}, steps, known)


def _steps_planned(tape: EventStore, instance: int, plans: Sequence[int], until: int) -> tuple[int, ...]:
    """Return the steps (their events, up to ``until``) that were planned in some events."""
    if not plans:
        return ()
    last = next_step(tape, instance, plans[-1], until) if tape.plans_ahead else 0
    made = frozenset(plans)
    there = tape.steps_of(instance, plans[0], min(last or plans[-1], until), "planned")
    return tuple(event for event, _, planned in there if planned in made)


def preempted_by(tape: EventStore, event: int, names: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Return the victims of a step's plan (``StepFinished.preempted``), and for whom each was preempted."""
    until = event - 1 if tape.plans_ahead else event
    pairs: list[tuple[str, str]] = []
    for name in names:
        number = tape.number(name)
        entry = None if number is None else tape.latest(number, "preempted", until)
        if entry is not None:
            pairs.append((name, tape.name(entry.second)))
    return tuple(pairs)


def cause_text(cause: str, profile: Profile) -> str:
    """Return a cause in a few words; a plug-in's own causes are returned unchanged."""
    known = CAUSES.get(cause)
    return cause if known is None else filled(known.short, _limits(known, profile))


def _limits(cause: Cause, profile: Profile) -> dict[str, object]:
    """Return the name and the value of the key that a cause follows from; it has a value if it is a limit."""
    name = cause.key.rpartition(".")[2]
    return {"key": name, "limit": getattr(profile.limits, name, 0)}


def cause_sentence(stop: StopRow | None, profile: Profile, row: StepRow) -> str:
    """Return why a step scheduled no further request, as a sentence that needs no documentation.

    Args:
        stop: the cause that the rule stated.
        profile: profile of the instance.
        row: the step that was planned, or that was in progress during planning.
    """
    if stop is None:
        return _UNSAID.sentence
    amounts = f" ({stop.need:,} needed, {stop.had:,} left)" if stop.need else ""
    cause = stopped.CAUSES.get(stop.cause)
    if cause is None:
        return f"The batching rule says: {stop.cause}{amounts}."
    limit = profile.limits.max_num_seqs
    each = profile.traits.limits_each_step
    there = row.served if each else row.running + row.completed
    left = there < limit if cause.unit == stopped.PLACE else stop.had > 0
    values = {
        **_limits(cause, profile),
        **stop._asdict(),
        "next": stop.had + 1,
        "amounts": amounts,
        "counted": amounts.replace(" needed", f" {cause.unit}s needed"),
        "budget": profile.traits.budget_name,
        "were": f"{'was' if limit == 1 else 'were'} {'served' if each else 'running'}",
    }
    return filled(cause.partly if left and cause.partly else cause.sentence, values)


def wait_lines(tape: EventStore, life: RequestLife) -> Mapping[int, str]:
    """Return a remark on why a request waited, by the event at which each wait began."""
    lines: dict[int, str] = {}
    for span in life.spans:
        if span.what == "wait":
            profile = tape.profiles[span.instance]
            causes = wait_causes(tape, span, span.instance, life)
            longest = sorted(causes.us, key=lambda cause: -causes.us[cause])
            pieces = [f"{cause_text(cause, profile)} {span_text(causes.us[cause])}" for cause in longest[:2]]
            verb = "waits" if span.open else "waited"
            tail = f": {', '.join(pieces)}" if pieces else ""
            lines[span.first] = f"{verb} {span_text(span.duration_us)}{tail}"
    return lines
