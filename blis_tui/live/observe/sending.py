"""Sends requests on a workload's own schedule, and records a row for each, whatever its outcome."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import dataclass
from blis_tui.engine.request import RequestState
from blis_tui.live.observe.answers import Answer, error_text, read_answer
from blis_tui.live.observe.exchange import NotHttpError, Reply, longest_answer
from blis_tui.live.observe.recording import (
    BROKEN,
    COMPLETED,
    INTERRUPTED,
    REFUSED,
    REJECTED,
    TIMED_OUT,
    UNREADABLE,
    Observed,
)
from blis_tui.workload.interactive import InteractiveSource

if TYPE_CHECKING:
    from collections.abc import Callable

    from blis_tui.engine.request import Request
    from blis_tui.live.observe.exchange import Exchanges
    from blis_tui.live.observe.prompts import Prompts
    from blis_tui.live.observe.wire import Clock, Wire
    from blis_tui.workload.source import RequestSource

_LEAD_US: Final = 500_000
"""How long before a request is due its connection is opened and its body prepared."""
_STATES: Final = {
    COMPLETED: RequestState.COMPLETED,
    TIMED_OUT: RequestState.TIMED_OUT,
    REJECTED: RequestState.REJECTED,
}
"""The state reported to the workload for each outcome; all others are lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of requests and of the run.

    Attributes:
        timeout_us: a request is aborted this long after it was due, whatever it waits for.
        duration_us: last time to send a request; None = until the workload ends.
        requests: maximum number of requests; None = all.
    """

    timeout_us: int
    duration_us: int | None = None
    requests: int | None = None


class Load:
    """The requests of one run, in progress and ended.

    Attributes:
        started: requests in progress, ended, or about to be sent.
        sent: requests of these that were sent, or could not be.
        running: requests of these that have not ended.
    """

    def __init__(
        self,
        source: RequestSource | InteractiveSource,
        prompts: Prompts,
        exchanges: Exchanges,
        clock: Clock,
        limits: Limits,
        ended: Callable[[Observed], None],
    ) -> None:
        self.started = self.sent = self.running = 0
        self._source = source
        self._prompts = prompts
        self._exchanges = exchanges
        self._clock = clock
        self._limits = limits
        self._ended = ended
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._news = asyncio.Event()
        self._failure: BaseException | None = None

    async def run(self) -> None:
        """Send everything and wait for all answers; if cancelled, requests in progress end as interrupted.

        Raises:
            InputError: a row could not be written.
        """
        try:
            if isinstance(self._source, InteractiveSource):
                await self._converse(self._source)
            else:
                await self._by_the_clock(self._source)
            while self._tasks and self._failure is None:
                self._news.clear()
                await self._news.wait()
            if self._failure is not None:
                raise self._failure
        finally:
            left = list(self._tasks)
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)

    # ---- schedule ----

    async def _by_the_clock(self, source: RequestSource) -> None:
        while self._allowed() and (request := source.next_request()) is not None:
            if self._too_late(request.arrival_us):
                return
            await self._clock.until(request.arrival_us - _LEAD_US)
            self._start(request)

    async def _converse(self, source: InteractiveSource) -> None:
        """Send requests of which some depend on answers, so that the next one is only known when it is due."""
        while self._allowed() and not source.exhausted:
            due_us = None if source.silent else source.next_us
            if due_us is not None and due_us <= self._clock.now_us():
                if self._too_late(due_us):
                    return
                if (request := source.next_request()) is not None:
                    self._start(request)
                continue
            if not self._tasks and (due_us is None or self._too_late(due_us)):
                return
            self._news.clear()
            await self._wait_for_end(due_us)

    async def _wait_for_end(self, until_us: int | None) -> None:
        """Wait for the end of a request, or until a time."""
        wait_s = None if until_us is None else max(until_us - self._clock.now_us(), 0) / 1e6
        with suppress(TimeoutError):
            await asyncio.wait_for(self._news.wait(), wait_s)

    def _allowed(self) -> bool:
        if self._failure is not None:
            return False
        return self._limits.requests is None or self.started < self._limits.requests

    def _too_late(self, due_us: int) -> bool:
        return self._limits.duration_us is not None and due_us > self._limits.duration_us

    # ---- one request ----

    def _start(self, request: Request) -> None:
        self.started += 1
        task = asyncio.create_task(self._serve(request))
        self._tasks[task] = None
        task.add_done_callback(self._over)

    def _over(self, task: asyncio.Task[None]) -> None:
        del self._tasks[task]
        if not task.cancelled() and task.exception() is not None:
            self._failure = task.exception()
        self._news.set()

    async def _serve(self, request: Request) -> None:
        body = self._prompts.body(request)
        wire: Wire | None = None
        if (early_us := request.arrival_us - self._clock.now_us()) > 0:
            with suppress(OSError):  # a server that refuses now, or says nothing, may accept when the request is due
                async with asyncio.timeout(early_us / 1e6):
                    wire = await self._exchanges.prepare()
        try:
            await self._clock.until(request.arrival_us)
        except asyncio.CancelledError:
            if wire is not None:
                self._exchanges.release(wire)
            raise
        self.sent += 1
        self.running += 1
        reply = Reply()
        outcome, error = await self._ask(request, body, reply, wire)
        self.running -= 1
        self._note(request, reply, outcome, error)

    async def _ask(self, request: Request, body: bytes, reply: Reply, wire: Wire | None) -> tuple[str, str]:
        """Send a request; return the outcome of the connection, and the error."""
        deadline_us = request.arrival_us + self._limits.timeout_us
        if request.deadline_us:
            deadline_us = min(deadline_us, request.deadline_us)
        limit = asyncio.timeout(max(deadline_us - self._clock.now_us(), 0) / 1e6)
        most = longest_answer(max(request.output_tokens, request.max_output_tokens))
        try:
            async with limit:
                await self._exchanges.ask("POST", self._prompts.asking.path, body, reply, most=most, wire=wire)
        except asyncio.CancelledError:
            return INTERRUPTED, ""
        except NotHttpError as error:
            return UNREADABLE, str(error)
        except OSError as error:
            if limit.expired():
                return TIMED_OUT, f"no end after {(deadline_us - request.arrival_us) / 1e6:g} s"
            outcome = BROKEN if reply.sent_ns else REFUSED
            return outcome, error.strerror or str(error) or type(error).__name__
        return COMPLETED, ""

    def _note(self, request: Request, reply: Reply, outcome: str, error: str) -> None:
        """Record the outcome of a request, and report it to the workload."""
        answer = Answer()
        if reply.status and not 200 <= reply.status < 300:
            outcome, error = REJECTED, error_text(reply.body, reply.status, reply.headers)
        elif reply.status:
            answer = self._read(reply)
            outcome, error = _judged(answer, outcome, error)
        row = self._row(request, reply, answer, outcome, error)
        request.generated_tokens = row.tokens
        request.state = _STATES.get(outcome, RequestState.LOST)
        if outcome == COMPLETED:
            self._prompts.record_answer(request, answer)
        if isinstance(self._source, InteractiveSource):
            e2e_us = row.done_us - request.arrival_us if outcome == COMPLETED else -1
            self._source.on_ended(request, e2e_us, self._clock.now_us())
        self._ended(row)

    def _read(self, reply: Reply) -> Answer:
        return read_answer(reply.pieces, reply.done_ns, reply.headers, stream=self._prompts.asking.stream)

    def _row(self, request: Request, reply: Reply, answer: Answer, outcome: str, error: str) -> Observed:
        us, usage = self._clock.us, answer.usage
        done_us = us(reply.done_ns) if reply.done_ns else self._clock.now_us()
        return Observed(
            request_id=request.request_id,
            index=request.index,
            due_us=request.arrival_us,
            sent_us=us(reply.sent_ns) if reply.sent_ns else done_us,
            done_us=done_us,
            outcome=outcome,
            input_tokens=request.input_tokens,
            output_tokens=request.output_tokens,
            chunks=tuple((us(stamp_ns), tokens) for stamp_ns, tokens in answer.chunks),
            prompt_tokens=usage.prompt_tokens,
            completion_tokens=usage.completion_tokens,
            cached_tokens=usage.cached_tokens,
            has_token_ids=answer.has_token_ids,
            whole=not self._prompts.asking.stream,
            merged=answer.merged,
            status=reply.status,
            finish_reason=answer.finish_reason,
            error=error,
            segments=request.segments,
            answer_segment=request.content[-1][0] if len(request.content) > len(request.segments) else "",
            slo_class=request.slo_class,
            tenant=request.tenant,
            model=request.model,
            adapter=request.adapter,
            session_id=request.session_id,
            round_index=request.round_index,
            deadline_us=request.deadline_us,
        )


def _judged(answer: Answer, outcome: str, error: str) -> tuple[str, str]:
    """Return the outcome of an answer whose connection stayed intact."""
    if outcome != COMPLETED:
        return outcome, error or answer.error
    if answer.error:
        return (BROKEN if answer.chunks else UNREADABLE), answer.error
    if not answer.chunks:
        return UNREADABLE, "there are no tokens in the answer"
    if not (answer.ended or answer.finish_reason):
        return BROKEN, "the stream ended without saying that it is complete"
    return COMPLETED, ""
