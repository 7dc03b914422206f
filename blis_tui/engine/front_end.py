"""The process in front of an engine: it takes requests in one after the other, beside streaming tokens out.

vLLM's API server is one process, which tokenizes in one thread, and so is ``trtllm-serve``. While it turns tokens into
text for those who wait for them, it is not there for those who come. Where it cannot keep up, several tokens go out at
a time (vLLM's ``RequestOutputCollector``), so that streaming never takes all of its time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

if TYPE_CHECKING:
    from blis_tui.engine.latency.model import StepLoad, StepTimeModel
    from blis_tui.engine.request import Request
    from blis_tui.engine.streams import Stream

_MOST_STREAMING: Final = 0.8
"""The largest share of its time that it spends on tokens."""


@dataclass(frozen=True, slots=True)
class FrontEndTimes:
    """What it takes, in microseconds of one processor core."""

    request_us: float
    """A request: HTTP, checking, handing over to the engine."""
    prompt_token_us: float
    """A token of a prompt: tokenizing."""
    stream_us: float
    """A token for a client: turning it into text, sending it."""


@runtime_checkable
class HasFrontEnd(Protocol):
    """A step-time model that knows what the process in front of its engine takes."""

    front_end: FrontEndTimes | None


class FrontEnd:
    """One process for all requests of an instance: who comes while it is busy waits.

    Args:
        times: what it takes.
        stream: where the variation of a request's time comes from.
        latency: what the engine's steps take.
    """

    __slots__ = ("_free_us", "_latency", "_stream", "_times")

    def __init__(self, times: FrontEndTimes, stream: Stream, latency: StepTimeModel) -> None:
        self._times = times
        self._latency = latency
        self._stream = stream
        self._free_us = 0

    def delay_us(self, request: Request, load: StepLoad, now: int) -> int:
        """From the arrival of a request, now, until it has been taken in.

        Half of its time is always the same, the other half exponentially distributed around that.
        """
        times = self._times
        work = times.request_us + times.prompt_token_us * request.input_tokens
        work *= 0.5 + 0.5 * self._stream.exponential()
        if load.decode_requests:
            streamed_us = load.decode_requests * times.stream_us
            streaming = min(_MOST_STREAMING, streamed_us / self._latency.step_time_us(load))
            work /= 1.0 - streaming
        self._free_us = max(now, self._free_us) + int(work)
        return self._free_us - now

    def state(self) -> tuple[object, ...]:
        """What decides all that follows, as plain values (for digests)."""
        return (self._free_us, self._stream.state())
