"""Finds the first difference between a recording and a simulation, and its cause.

Steps are paired by number, so a step that is missing on one side appears as a difference; requests are paired by name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import dataclass
from blis_tui.base.portable_math import whole_sum
from blis_tui.base.units import count_text, plural, share_text, span_text, time_text
from blis_tui.live.twin.simulated_requests import Batch

if TYPE_CHECKING:
    from collections.abc import Iterable

    from blis_tui.engine.records import StepFinished
    from blis_tui.live.observe.recording import Observed, Recording, Step
    from blis_tui.live.twin.fitting import Pace
    from blis_tui.live.twin.simulated_requests import Simulated

_LATER: Final = 0.2
"""Minimum relative difference of a latency to count. The next constant is the minimum absolute difference."""
_LATER_US: Final = 50_000
_IN_TIME: Final = 0.5
"""Steps count as equally fast while their total times differ by less than this share of one step."""
_AHEAD: Final = 64
"""Number of following steps searched for a request."""
_LIMITED: Final = 3
"""Minimum number of steps with the maximum of requests or tokens for the maximum to be taken for a limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchDivergence:
    """The first difference."""

    step: int | None
    """Index of the step; None = there is no log, so the difference is in a request."""
    time_us: int
    """Time on the recording's side."""
    request: str
    """The request concerned; empty = no single one."""
    cause: str
    """``front end`` (a request reached the scheduler earlier or later), ``front end or async scheduling`` (the server
    took it one step later, as a scheduler does that plans a step while the previous one runs), ``cache``,
    ``preemption``, ``batch`` (another rule or limit), ``step time`` (a step began before a request was sent on one
    side, and after it on the other), or ``not known``, if there is no log."""
    text: str
    """What both sides did."""
    why: str
    """A possible explanation."""


def batch_of(step: Step) -> Batch:
    """Return a step of the log as a batch, for comparison with simulated ones."""
    return Batch(step.prefill_requests, step.prefill_tokens, step.decode_requests, step.decode_tokens)


def first_divergence(recording: Recording, pace: Pace | None, run: Simulated) -> BatchDivergence | None:
    """Return the first step whose batches differ, or without a log the first request whose latency does, or None."""
    if pace is None:
        return _by_requests(recording, run)
    for number, (step, batch) in enumerate(zip(pace.steps, run.batches, strict=False)):
        if batch_of(step) != batch:
            return _Difference(recording, pace, run, number).divergence()
    return None


class _Difference:
    """A step whose batches differ."""

    def __init__(self, recording: Recording, pace: Pace, run: Simulated, number: int) -> None:
        self._recording = recording
        self._pace = pace
        self._run = run
        self._number = number
        self._measured = batch_of(pace.steps[number])
        self._simulated = run.batches[number]
        self._step: StepFinished = run.steps[number]

    def divergence(self) -> BatchDivergence:
        request, cause, why = self._explained()
        begins = self._pace.begins_us
        return BatchDivergence(
            step=self._number,
            time_us=self._step.time_us if begins is None else begins[self._number],
            request=request,
            cause=cause,
            text=f"{words_of(self._measured)} on the server, {words_of(self._simulated)} in the simulation",
            why=why,
        )

    def _explained(self) -> tuple[str, str, str]:
        if (why := self._out_of_time()) is not None:
            return self._newcomer(), "step time", why
        measured, simulated = self._measured, self._simulated
        if simulated.prefill_requests > measured.prefill_requests:
            # Both sides had the same running requests until here.
            if (lost := simulated.decode_requests - measured.decode_requests) > 0:
                return "", "preemption", f"{plural(lost, 'request')} fewer decoded on the server: it preempted"
            return self._taken_earlier()
        if simulated.prefill_requests < measured.prefill_requests:
            return self._taken_later()
        if simulated.prefill_tokens != measured.prefill_tokens:
            return self._other_tokens()
        more = simulated.decode_requests - measured.decode_requests
        recomputed = (
            measured.decode_tokens > measured.decode_requests,
            simulated.decode_tokens > simulated.decode_requests,
        )
        if any(recomputed) or self._step.preempted:
            victim = self._step.preempted[0] if self._step.preempted else ""
            why = "another request was preempted, or came back in another step, or with more of it in the prefix cache"
            return victim, "preemption", why
        if measured.prefill_requests and not (measured.decode_requests and simulated.decode_requests):
            where = "simulation" if measured.decode_requests else "server"
            return "", "batch", f"beside the prompt the {where} decoded nothing: batches follow another rule"
        who = f"{plural(abs(more), 'request')} {'more' if more > 0 else 'fewer'} decoded in the simulation"
        return "", "batch", f"{who}: answers ended in other steps, or limits differ (max_num_seqs, KV blocks)"

    def _out_of_time(self) -> str | None:
        """Return the steps' total time on both sides if it differs enough to shift arrivals to other steps."""
        number = self._number
        took, should = (whole_sum(times[:number]) for times in (self._durations_us(), self._pace.periods_us))
        if abs(took - should) * number <= _IN_TIME * should:
            return None
        steps = plural(number, "step")
        return f"the {steps} before took {span_text(should)} on the server, {span_text(took)} in the simulation"

    def _durations_us(self) -> tuple[int, ...]:
        return tuple(step.duration_us for step in self._run.steps[: self._number])

    def _newcomer(self) -> str:
        """Return the request that only the simulation has scheduled."""
        return self._step.admitted[-1] if self._step.admitted else ""

    def _taken_earlier(self) -> tuple[str, str, str]:
        """Explain why the simulation scheduled a request that the server had not scheduled yet."""
        names = [name for name in self._step.admitted if name not in self._step.preempted]
        more = self._simulated.prefill_requests - self._measured.prefill_requests
        chunk = next(iter(self._step.chunks), None)
        name = names[max(0, len(names) - more)] if names else "" if chunk is None else chunk.request_id
        row, begins = self._row(name), self._begins_us()
        later = self._steps_until(self._pace, self._simulated.prefill_requests)
        took = "" if later is None else f"; the server took as many {plural(later, 'step')} later"
        if row is not None and begins is not None and row.sent_us > begins:
            return name, "step time", f"{self._around(row)}, the simulated step after that{took}"
        if (limit := self._limit(row)) is not None:
            return name, "batch", f"{limit}{took}"
        if row is None or begins is None:
            return name, "front end", f"{name or 'a request'} came to the server's scheduler later{took}"
        kept = f"{self._around(row)}, and no limit of the server is known that kept it"
        if later == 1 and self._is_new(name):
            why = f"{kept}: its front end, or a scheduler that plans a step ahead (async_scheduling)"
            return name, "front end or async scheduling", why
        return name, "front end", f"{kept}{took}"

    def _taken_later(self) -> tuple[str, str, str]:
        """Explain why the server scheduled a request that the simulation had not scheduled yet."""
        steps, number = self._run.steps, self._number
        came = {name for step in steps[: number + 1] for name in step.admitted}
        # However many steps later, if the simulation's are shorter.
        name = next((name for step in steps[number + 1 :] for name in step.admitted if name not in came), "")
        row = self._row(name)
        if row is None:
            return name, "front end", "the server computed a request that none of ours is"
        queued_us = self._run.rows[name].queued_us
        if self._step.waiting or (queued_us is not None and queued_us <= self._step.time_us):
            return name, "batch", self._held(name)
        if self._step.time_us < row.sent_us:
            return name, "step time", f"{self._around(row)}, the simulated step before that"
        return name, "front end", f"{self._around(row)}, and takes longer to the scheduler in the simulation"

    def _is_new(self, name: str) -> bool:
        """Whether a request joined the simulation's queue during the previous step.

        A scheduler that plans each step while the previous one runs takes such a request a step later than others.
        """
        queued_us = self._run.rows[name].queued_us
        return bool(self._number) and queued_us is not None and queued_us > self._run.steps[self._number - 1].time_us

    def _held(self, name: str) -> str:
        """Explain why a request waited in the simulation's queue when the server scheduled one."""
        if other := self._taken_instead(name):
            return _in_another_order(other, name)
        waited = f"{name} waited in the simulation"
        following = self._run.steps[self._number + 1 : self._number + 2]
        if self._is_new(name) and any(name in step.admitted for step in following):
            return f"{waited} for one step: it plans a step ahead (async_scheduling), or limits differ"
        free = plural(self._run.kv_blocks - self._step.kv_used_blocks, "KV block")
        return f"{waited}, with {free} free: limits differ"

    def _token_limit(self) -> str | None:
        """Return the token limit of a step that the server's log shows; None = none."""
        steps, step = self._pace.steps, self._pace.steps[self._number]
        most = max(_tokens(other) for other in steps)
        if _tokens(step) == most and _often(_tokens(other) == most for other in steps):
            return f"the server never had more than {plural(most, 'token')} in a step (max_num_batched_tokens)"
        return None

    def _limit(self, row: Observed | None) -> str | None:
        """Return the limit that kept the server from scheduling a request, if its log shows one; None = none."""
        steps, step = self._pace.steps, self._pace.steps[self._number]
        size = max(other.requests for other in steps)
        if step.requests == size and _often(other.requests == size for other in steps):
            return f"the server never had more than {plural(size, 'request')} in a step (max_num_seqs)"
        if (budget := self._token_limit()) is not None:
            return budget
        server = self._recording.server
        # Requests that ended in the step were still present when it was planned.
        shares = [
            near.kv_share for near in steps[max(0, self._number - 1) : self._number + 1] if near.kv_share is not None
        ]
        if row is None or not shares or server.kv_blocks is None or server.block_size_tokens is None:
            return None
        free = round(server.kv_blocks * (1.0 - max(shares)))
        needs = -(-row.input_tokens // server.block_size_tokens)
        if free >= needs:
            return None
        have = plural(free, "KV block")
        return f"{row.request_id} needs {count_text(needs)} KV blocks for its prompt, and the server had {have} free"

    def _other_tokens(self) -> tuple[str, str, str]:
        """Explain an equal number of prefills with different numbers of tokens."""
        chunk = next(iter(self._step.chunks), None)
        name = "" if chunk is None else chunk.request_id
        row = self._row(name)
        cached = None if row is None else row.cached_tokens
        seen = self._run.rows.get(name)
        simulated_cached = 0 if seen is None else seen.cached_tokens
        fewer = self._measured.prefill_tokens < self._simulated.prefill_tokens
        where = "the server" if fewer else "the simulation"
        if cached is not None and cached != simulated_cached:
            return (
                name,
                "cache",
                f"{count_text(cached)} tokens of {name} were cached on the server, {count_text(simulated_cached)} here",
            )
        whole = row is not None and chunk is not None and chunk.new_tokens == row.input_tokens - simulated_cached
        if whole and (other := self._taken_instead(next(iter(self._step.admitted), ""))):
            return name, "batch", _in_another_order(other, name)
        if whole and not fewer and self._simulated.prefill_requests == 1:
            return name, "front end", f"the server computed another request than {name}"
        limit = self._token_limit() if fewer else None
        if limit is None and cached is None and (simulated_cached or fewer):
            return name, "cache", f"{where} found more of {name} in its prefix cache"
        return name, "batch", limit or f"{where} computed fewer tokens of {name}: chunks are cut by other limits"

    def _taken_instead(self, taken: str) -> str:
        """Return the waiting request in the simulation with the length of the server's only prefill; empty if none.

        The request that the simulation takes first must have waited since the previous step; otherwise the front end
        may have changed their order. If several have that length, return the one sent first.
        """
        number, rows = self._number, self._recording.requests
        if self._measured.prefill_requests != 1 or self._simulated.prefill_requests > 1 or not number:
            return ""
        sent_us = {row.request_id: row.sent_us for row in rows}
        if sent_us.get(taken, self._step.time_us) > self._run.steps[number - 1].time_us:
            return ""
        computed = self._measured.prefill_tokens
        later = {name: None for step in self._run.steps[number + 1 :] for name in step.admitted}
        waiting = [row for row in rows if row.sent_us <= self._step.time_us and row.request_id in later]
        of_that_length = [row.request_id for row in waiting if row.prompt - (row.cached_tokens or 0) == computed]
        return "" if taken in of_that_length else next(iter(of_that_length), "")

    def _steps_until(self, pace: Pace, prefills: int) -> int | None:
        after = pace.steps[self._number + 1 : self._number + _AHEAD]
        return next((count for count, step in enumerate(after, 1) if step.prefill_requests >= prefills), None)

    def _row(self, name: str) -> Observed | None:
        return next((row for row in self._recording.requests if row.request_id == name), None)

    def _begins_us(self) -> int | None:
        """Return when the server's step began, if its log was watched."""
        begins = self._pace.begins_us
        return None if begins is None else begins[self._number]

    def _around(self, row: Observed) -> str:
        """Return when a request was sent, relative to the server's step."""
        begins = self._begins_us()
        if begins is None:
            return f"{row.request_id} was sent at {time_text(row.sent_us)}"
        before = "before" if begins >= row.sent_us else "after"
        return f"{row.request_id} was sent {span_text(abs(begins - row.sent_us))} {before} the server's step began"


def _in_another_order(taken: str, name: str) -> str:
    return f"the server took {taken} in the place of {name}: queues are in another order"


def _often(reached: Iterable[bool]) -> bool:
    """Return whether a maximum is reached too often to be chance."""
    return whole_sum(reached) >= _LIMITED


def _tokens(step: Step) -> int:
    return step.prefill_tokens + step.decode_tokens


def words_of(batch: Batch) -> str:
    """Return the content of a batch, in words."""
    parts = []
    if batch.prefill_requests:
        parts.append(f"{plural(batch.prefill_requests, 'prefill')} of {plural(batch.prefill_tokens, 'token')}")
    if batch.decode_requests:
        again = batch.decode_tokens - batch.decode_requests
        parts.append(plural(batch.decode_requests, "decode") + (f" ({plural(again, 'token')} again)" if again else ""))
    return " and ".join(parts) or "nothing"


def _by_requests(recording: Recording, run: Simulated) -> BatchDivergence | None:
    """Return the difference without a log: the request with the earliest first token at a clearly different time."""
    differing: list[tuple[int, Observed, int]] = []
    for row in recording.requests:
        other = run.rows.get(row.request_id)
        if row.ttft_us is None or other is None or other.ttft_us is None:
            continue
        by_us = other.ttft_us - row.ttft_us
        if abs(by_us) > max(_LATER * row.ttft_us, _LATER_US):
            differing.append((row.sent_us + min(row.ttft_us, other.ttft_us), row, by_us))
    if not differing:
        return None
    time_us, row, by_us = min(differing, key=lambda entry: entry[0])
    word = "later" if by_us > 0 else "earlier"
    return BatchDivergence(
        step=None,
        time_us=time_us,
        request=row.request_id,
        cause="not known",
        text=f"{row.request_id} got its first token {span_text(abs(by_us))} {word} in the simulation",
        why="step times, batches, preemption or the cache: an engine log (observe --log) tells which"
        f" (differences within {_within()} do not count)",
    )


def alike_text(*, logged: bool) -> str:
    """Return what is known if no difference was found; ``logged``: whether the recording has steps."""
    if logged:
        return "none, all batches are the same"
    return f"unknown without an engine log (observe --log); every TTFT within {_within()}"


def _within() -> str:
    return f"{share_text(_LATER, 0)} or {_LATER_US // 1000} ms"


def where(parting: BatchDivergence) -> str:
    """Return the place of the difference."""
    step = "" if parting.step is None else f"step {count_text(parting.step)} at "
    return f"{step}{time_text(parting.time_us)}"
