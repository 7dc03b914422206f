"""What a request's client measures: the engine's times plus those outside it, and the server process in front.

Each output token is detokenized and streamed once (``output_token_overhead_us``): once in the time to first token and
once in each gap after it. ``post_decode_overhead_us`` is added once, after the last token. If the client's network is
modelled, its round trip is added once, too.

The API server process in front of an engine: it accepts requests and streams tokens.

vLLM's API server and ``trtllm-serve`` are one process each, which tokenizes in one thread. While it detokenizes
output, it cannot accept new requests. If it cannot keep up, it sends several tokens at a time (vLLM's
``RequestOutputCollector``), so streaming never takes all of its time. Several such processes (``--api-server-count``)
take requests in turn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import NamedTuple, mypyc_attr
from blis_tui.base.pickling import Picklable

if TYPE_CHECKING:
    from blis_tui.base.streams import Stream
    from blis_tui.engine.latency.model import StepLoad, StepTimeModel
    from blis_tui.engine.request import Request
    from blis_tui.model import ApiServer


def client_ttft_us(request: Request, latency: StepTimeModel) -> int:
    """Time to first token, in microseconds; the first token must have been produced.

    ``latency`` is the model of the request's current instance. For a request on two instances, the first token came
    from the instance that computed its prompt last.
    """
    way, network = request.handover, request.network
    overhead_us = latency.output_token_overhead_us if way is None else way.first_token_overhead_us
    wire_us = 0 if network is None else network.ttft_us(request.input_tokens)
    return request.first_token_us - request.arrival_us + overhead_us + wire_us


def client_ttfat_us(request: Request, latency: StepTimeModel) -> int:
    """Time to the first token of the answer itself, which must have been produced; ``latency`` as above.

    Without reasoning this is the time to first token. Otherwise it counts like the time to a last token, without the
    overheads that are added once at the end.
    """
    reasoning, network = request.reasoning, request.network
    assert reasoning is not None  # noqa: S101  (only requests with reasoning have this figure)
    if not reasoning.tokens:
        return client_ttft_us(request, latency)
    tokens = reasoning.tokens + 1
    gaps = tokens - (request.handover is not None)
    wire_us = 0 if network is None else network.e2e_us(request.input_tokens, tokens)
    return reasoning.first_answer_us - request.arrival_us + gaps * latency.output_token_overhead_us + wire_us


def client_times_us(request: Request, latency: StepTimeModel) -> tuple[int, int]:
    """``client_ttft_us`` and ``client_e2e_us`` of a request that has completed."""
    if request.handover is not None or request.network is not None or not request.generated_tokens:
        return client_ttft_us(request, latency), client_e2e_us(request, latency)
    overhead_us = latency.output_token_overhead_us
    rest_us = request.completed_us - request.arrival_us + latency.post_decode_overhead_us
    return (
        request.first_token_us - request.arrival_us + overhead_us,
        rest_us + request.generated_tokens * overhead_us,
    )


def client_e2e_us(request: Request, latency: StepTimeModel) -> int:
    """Time from arrival to last token, in microseconds; the request must have completed."""
    # With two instances, the first token comes from the prefill instance, so it adds no gap here.
    tokens = max(request.generated_tokens - (request.handover is not None), 1)
    post = latency.post_decode_overhead_us if request.generated_tokens else 0
    network = request.network
    post += 0 if network is None else network.e2e_us(request.input_tokens, request.generated_tokens)
    return request.completed_us - request.arrival_us + tokens * latency.output_token_overhead_us + post


_MOST_STREAMING: Final = 0.8
"""The largest share of its time that a process spends on streaming."""


class ServiceTimes(NamedTuple):
    """What a front end takes for a request and a token, in microseconds of one process."""

    request_us: float = 3900.0
    prompt_token_us: float = 0.5
    stream_us: float = 20.0
    varying: float = 0.5
    processes: int = 1
    first_pass: float = 0.5
    """Share of a request's work that is done before any request of its turn is accepted."""

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
            first_pass=self.first_pass,
        )


@mypyc_attr(allow_interpreted_subclasses=True)
class _Turn(Picklable):
    """Requests that wait for a process together: it takes in all of them before it looks for others."""

    __slots__ = ("start_us", "work_us")

    def __init__(self, start_us: int) -> None:
        self.start_us = start_us
        self.work_us = 0


@mypyc_attr(allow_interpreted_subclasses=True)
class FrontEnd(Picklable):
    """Accepts requests; those that arrive while their process is busy wait, and are accepted together.

    A server's process is an event loop. It parses all requests that have come and fills in their chat templates before
    it tokenizes the first of them and hands it to the engine. So a request of a burst waits for a share of the work of
    those behind it, too (``first_pass``), and the engine begins late: the first of 1,000 requests sent at once to
    Qwen3 235B reached it after some 8 s, the others soon after.

    Args:
        times: its service times.
        stream: random numbers for the varying part of a request's time.
        latency: the engine's step-time model.
    """

    __slots__ = ("_latency", "_next", "_stream", "_times", "_turns", "_waiting")

    def __init__(self, times: ServiceTimes, stream: Stream, latency: StepTimeModel) -> None:
        self._times = times
        self._latency = latency
        self._stream = stream
        self._next = 0
        self._turns = [_Turn(-1) for _ in range(times.processes)]
        """The latest turn of each process."""
        self._waiting: dict[int, tuple[_Turn, int]] = {}
        """By index, the turn of each request that waits for one, and the work up to it."""

    def delay_us(self, request: Request, load: StepLoad, now: int) -> int:
        """Time from the arrival of a request at ``now`` until it has been accepted, if no other follows it.

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
        turn = self._turns[number]
        if now >= turn.start_us:
            turn = self._turns[number] = _Turn(max(now, turn.start_us + turn.work_us))
        turn.work_us += int(work)
        if turn.start_us == now or not times.first_pass:
            return turn.start_us + turn.work_us - now
        self._waiting[request.index] = turn, turn.work_us
        return turn.start_us + turn.work_us - now

    def accepted_us(self, request: Request) -> int:
        """When a request that has come is accepted, if no other follows it; 0 = others no longer matter."""
        waiting = self._waiting.get(request.index)
        if waiting is None:
            return 0
        turn, position_us = waiting
        shared = self._times.first_pass
        return turn.start_us + int(shared * turn.work_us + (1.0 - shared) * position_us)

    def forget(self, request: Request) -> None:
        """A request has been accepted."""
        self._waiting.pop(request.index, None)

    def state(self) -> tuple[object, ...]:
        """Return everything that determines its future, as plain values (for digests)."""
        turns = tuple([(turn.start_us, turn.work_us) for turn in self._turns])
        waiting = tuple([(index, turn.start_us, work_us) for index, (turn, work_us) in self._waiting.items()])
        return (turns, self._next, waiting, self._stream.state())
