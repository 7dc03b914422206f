"""What the control plane may know: frozen values, and never an instance or a request's future (INV-9).

Admission and routing decide from a request as its client declared it and from what instances report about themselves.
How long an answer will be is in neither type, so no policy can read it by mistake.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, overload

if TYPE_CHECKING:
    from blis_tui.engine.instance import Instance
    from blis_tui.engine.kv.pool import BlockPool
    from blis_tui.engine.request import Request, Segments
    from blis_tui.engine.streams import Stream


class IncomingRequest(NamedTuple):
    """A request as its client declared it. Times in microseconds."""

    request_id: str
    arrival_us: int
    input_tokens: int
    max_output_tokens: int
    """The declared budget; 0 = undeclared. Generated workloads, as in BLIS, declare just what they will generate."""
    segments: Segments
    """The shareable head of the prompt: ``(segment id, tokens)`` pairs."""
    slo_class: str
    tenant_id: str
    session_id: str
    round_index: int


class CacheView:
    """An instance's prefix cache as a router may ask it: about prompts, never about requests."""

    __slots__ = ("_pool",)

    def __init__(self, pool: BlockPool) -> None:
        self._pool = pool

    def cached_tokens(self, segments: Segments) -> int:
        """How many tokens at the head of a prompt are in the cache, in whole blocks."""
        return self._pool.cached_head(segments) * self._pool.block_size_tokens


class InstanceSignals(NamedTuple):
    """What an instance reports about itself."""

    instance: int
    """Its index."""
    waiting: int
    """Requests in its queue."""
    running: int
    """Requests in its batch."""
    in_flight: int
    """Requests sent there that have not ended, those on the way to its queue included."""
    kv_used_blocks: int
    kv_total_blocks: int
    cache: CacheView
    age_us: int
    """How old these figures are."""


class Fleet(Sequence[InstanceSignals]):
    """The signals of all instances that a request may be sent to, by index; read when they are asked for."""

    def __init__(self, instances: Sequence[Instance]) -> None:
        self._instances = instances

    def __len__(self) -> int:
        return len(self._instances)

    @overload
    def __getitem__(self, place: int) -> InstanceSignals: ...

    @overload
    def __getitem__(self, place: slice) -> Sequence[InstanceSignals]: ...

    def __getitem__(self, place: int | slice) -> InstanceSignals | Sequence[InstanceSignals]:
        if isinstance(place, slice):
            return [_read(instance) for instance in self._instances[place]]
        return _read(self._instances[place])


class Context:
    """What a decision may depend on beside the request and the signals.

    Attributes:
        now_us: simulated time.
        stream: the policy's own random stream, ``policy/<plug point>``; its position is part of every digest.
    """

    def __init__(self, stream: Stream) -> None:
        self.now_us = 0
        self.stream = stream


def declared(request: Request) -> IncomingRequest:
    """A request as the control plane sees it."""
    values = (
        request.request_id,
        request.arrival_us,
        request.input_tokens,
        request.max_output_tokens,
        request.segments,
        request.slo_class,
        request.tenant,
        request.session_id,
        request.round_index,
    )
    return tuple.__new__(IncomingRequest, values)  # each request comes here twice: half the cost of the constructor


def _read(instance: Instance) -> InstanceSignals:
    pool = instance.pool
    return InstanceSignals(
        instance.index,
        len(instance.waiting.items),
        len(instance.batch.running),
        instance.in_flight,
        pool.used,
        pool.total,
        CacheView(pool),
        0,
    )
