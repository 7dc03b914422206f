"""The API server process in front of an engine: it accepts requests one at a time and streams tokens.

vLLM's API server and ``trtllm-serve`` are one process each, which tokenizes in one thread. While it detokenizes
output, it cannot accept new requests. If it cannot keep up, it sends several tokens at a time (vLLM's
``RequestOutputCollector``), so streaming never takes all of its time. Several such processes (``--api-server-count``)
take requests in turn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.classes import NamedTuple, mypyc_attr
from blis_tui.pickling import Picklable

if TYPE_CHECKING:
    from blis_tui.engine.latency.model import StepLoad, StepTimeModel
    from blis_tui.engine.request import Request
    from blis_tui.engine.streams import Stream
    from blis_tui.spec.model import ApiServer

_MOST_STREAMING: Final = 0.8
"""The largest share of its time that a process spends on streaming."""


class ServiceTimes(NamedTuple):
    """What a front end takes for a request and a token, in microseconds of one process."""

    request_us: float = 3900.0
    prompt_token_us: float = 0.5
    stream_us: float = 20.0
    varying: float = 0.5
    processes: int = 1

    def given(self, server: ApiServer | None) -> ServiceTimes:
        """Return these times with what a document gives."""
        if server is None:
            return self
        return ServiceTimes(
            request_us=self.request_us if server.request_us is None else server.request_us,
            prompt_token_us=self.prompt_token_us if server.prompt_token_us is None else server.prompt_token_us,
            stream_us=self.stream_us if server.stream_us is None else server.stream_us,
            varying=server.varying,
            processes=server.processes,
        )


@mypyc_attr(allow_interpreted_subclasses=True)
class FrontEnd(Picklable):
    """Accepts one request at a time per process; a request that arrives while its process is busy waits.

    Args:
        times: its service times.
        stream: random numbers for the varying part of a request's time.
        latency: the engine's step-time model.
    """

    __slots__ = ("_free_us", "_latency", "_next", "_stream", "_times")

    def __init__(self, times: ServiceTimes, stream: Stream, latency: StepTimeModel) -> None:
        self._times = times
        self._latency = latency
        self._stream = stream
        self._next = 0
        self._free_us = [0] * times.processes

    def delay_us(self, request: Request, load: StepLoad, now: int) -> int:
        """Time from the arrival of a request at ``now`` until it has been accepted.

        The varying part of the service time is exponentially distributed; processes share the streaming load.
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
        """Return everything that determines its future, as plain values (for digests)."""
        return (*self._free_us, *((self._next,) if self._times.processes > 1 else ()), self._stream.state())
