"""What makes up a request's latency: shares that add up to it exactly, in microseconds."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import dataclass
from blis_tui.base.units import count_text, plural, span_text
from blis_tui.debugger.why.lifespans import prompts_in, steps_within
from blis_tui.debugger.why.waits import CAUSES, cause_text, wait_causes
from blis_tui.engine.stopped import TOKENS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from blis_tui.debugger.event_store import EventStore, RequestEvent
    from blis_tui.debugger.why.lifespans import RequestLife, Span
    from blis_tui.debugger.why.waits import WaitCauses

KINDS: Final = {
    "admission": "admission control",
    "deferral": "deferred until the cluster was idle",
    "gateway": "waiting in the gateway",
    "routing": "routing",
    "stranded": "waiting for an instance to come up",
    "gone": "failed attempts",
    "intake": "tokenization and enqueue",
    "wait": "waiting in the queue",
    "planned": "planned for the next step",
    "lost": "lost work",
    "again": "waiting again",
    "prefill": "prefill",
    "transfer": "KV transfer",
    "recompute": "prefill again",
    "decode": "decode",
    "client": "client side",
}
"""Label of each kind of share, in display order."""
PREEMPTION: Final = ("again", "lost", "recompute")
"""The kinds of shares that only preemptions cause."""
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
        told = [inner for share in self.shares if share.kind == "decode" for inner in share.inner]
        return sum(share.us for share in (*self.shares, *told) if share.kind in kinds)

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
    shares = [_share(kind, by_kind[kind], life, tape) for kind in KINDS if kind in by_kind]
    shares = [share for share in shares if share.us]
    client = total_us - (end_us - life.arrival_us)
    if client:
        shares.append(Share("client", KINDS["client"], client, "detokenization and streaming, outside of steps"))
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
    label = KINDS[kind]
    if kind in ("wait", "again"):
        return _waiting(kind, us, spans, life, tape)
    if kind in ("prefill", "recompute"):
        return _prefill(kind, us, spans, life, tape)
    if kind == "decode":
        return _decode(us, spans, life, tape)
    if kind == "lost":
        tokens = sum(one.first for one in life.preemptions if one.time_us >= life.began_us)
        return Share(kind, label, us, f"{plural(tokens, 'computed token')} discarded by preemption")
    if kind == "gone":
        return Share(kind, label, us, f"its instance went away, {plural(len(life.restarts), 'time')}")
    return Share(kind, label, us)


def _waiting(kind: str, us: int, spans: list[Span], life: RequestLife, tape: EventStore) -> Share:
    limits = tape.profiles[spans[0].instance]
    found: list[WaitCauses] = [wait_causes(tape, span, span.instance, life) for span in spans]
    inner = []
    for cause in dict.fromkeys((*CAUSES, *(own for one in found for own in one.us))):
        part = sum(causes.us.get(cause, 0) for causes in found)
        if part:
            steps = sum(causes.steps.get(cause, 0) for causes in found)
            note = plural(steps, "step") if steps else ""
            spent = [event for one in found for event in one.spent] if cause == TOKENS else []
            decodes = sum(tape.step(tape.row(event).step).decode_requests for event in spent)
            prompts = prompts_in(tape, spent)
            inner.append(Share(cause, cause_text(cause, limits), part, note, decodes=decodes, prompts=prompts))
    count = len([one for one in life.preemptions if one.time_us >= life.began_us])
    return Share(kind, KINDS[kind], us, f"after {plural(count, 'preemption')}" if kind == "again" else "", tuple(inner))


def _prefill(kind: str, us: int, spans: list[Span], life: RequestLife, tape: EventStore) -> Share:
    """Return a prefill's share: the request's own chunks, what else those steps computed, and steps without a chunk."""
    own_us = own = others = steps = idle = 0
    # A request whose whole prompt is cached is served by the step that schedules it, without a chunk.
    mine = {one.event: 0 for one in life.entries if one.what == "scheduled" and not one.second}
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
    return Share(kind, KINDS[kind], us, note, inner)


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
        whole = Share("pipeline", "passes through the pipeline", us)
        return Share("decode", KINDS["decode"], us, "beside other batches in the pipeline", (whole,))
    plain, mixed, stalled = _by_kind(spans, life, tape)
    inner = (
        Share("decode-only", "decode-only steps", plain.us, _each(plain)),
        Share("beside-prefill", "steps with prefill of others", mixed.us, _beside(mixed, plain), tokens=mixed.tokens),
        Share("stalled", "stalled steps (no token)", stalled.us, plural(stalled.count, "step")),
    )
    count = plain.count + mixed.count
    drafts = any(tape.profiles[span.instance].limits.draft_tokens for span in spans)
    each = "at least one token each" if drafts else "one token each"
    note = f"{plural(count, 'step')}, {each}"
    return Share("decode", KINDS["decode"], us, note, tuple(share for share in inner if share.us))


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
