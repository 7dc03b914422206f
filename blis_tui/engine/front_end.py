"""The process in front of an engine: it takes requests in one after the other, beside streaming tokens out.

vLLM's API server is one process, which tokenizes in one thread, and so is ``trtllm-serve``. While it turns tokens into
text for those who wait for them, it is not there for those who come. Where it cannot keep up, several tokens go out at
a time (vLLM's ``RequestOutputCollector``), so that streaming never takes all of its time. Several such processes
(``--api-server-count``) take requests in turn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.classes import mypyc_attr
from blis_tui.kept import Kept

if TYPE_CHECKING:
    from blis_tui.engine.latency.model import StepLoad, StepTimeModel
    from blis_tui.engine.request import Request
    from blis_tui.engine.streams import Stream
    from blis_tui.spec.model import ApiServer

_MOST_STREAMING: Final = 0.8
"""The largest share of its time that it spends on tokens."""


@mypyc_attr(allow_interpreted_subclasses=True)
class FrontEnd(Kept):
    """Each process takes one request in after the other: who comes while it is busy waits.

    Args:
        times: what it takes.
        stream: where the variation of a request's time comes from.
        latency: what the engine's steps take.
    """

    __slots__ = ("_free_us", "_latency", "_next", "_stream", "_times")

    def __init__(self, times: ApiServer, stream: Stream, latency: StepTimeModel) -> None:
        self._times = times
        self._latency = latency
        self._stream = stream
        self._next = 0
        self._free_us = [0] * times.processes

    def delay_us(self, request: Request, load: StepLoad, now: int) -> int:
        """From the arrival of a request, now, until it has been taken in.

        The varying share of its time is exponentially distributed; processes share the tokens that are streamed.
        """
        times, number = self._times, self._next
        work = times.request_us + times.prompt_token_us * request.input_tokens
        work *= 1.0 - times.varying + times.varying * self._stream.exponential()
        if load.decode_requests:
            streamed_us = load.decode_requests * times.stream_us / times.processes
            streaming = min(_MOST_STREAMING, streamed_us / self._latency.step_time_us(load))
            work /= 1.0 - streaming
        self._next = (number + 1) % times.processes
        free_us = self._free_us[number] = max(now, self._free_us[number]) + int(work)
        return free_us - now

    def state(self) -> tuple[object, ...]:
        """What decides all that follows, as plain values (for digests)."""
        return (*self._free_us, *((self._next,) if self._times.processes > 1 else ()), self._stream.state())
