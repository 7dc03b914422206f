"""A request on its way to a queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final, Protocol

from blis_tui.classes import mypyc_attr
from blis_tui.cluster.records import SentByClient
from blis_tui.cluster.signals import declared
from blis_tui.engine.content_records import PromptMedia
from blis_tui.engine.records import Arrived
from blis_tui.kept import Kept

if TYPE_CHECKING:
    from collections.abc import Callable

    from blis_tui.cluster.signals import IncomingRequest
    from blis_tui.engine.records import Observers
    from blis_tui.engine.request import Request

# Cluster events of one microsecond: in the order of a request's way.
ARRIVAL: Final = 0
ADMISSION: Final = 1
ROUTING: Final = 2
LIFECYCLE: Final = 3
PREFILL_ROUTING: Final = 4
TRANSFER_START: Final = 5
TRANSFER_END: Final = 6
DECODE_ROUTING: Final = 7
GATEWAY_EXPIRY: Final = 8
DISPATCH: Final = 9

QUEUED: Final = "queued"
"""The kind of a passage that reaches the queue of an instance next."""
STAYS: Final = -1
"""A stage's answer: the request does not go on by itself."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Passage(Kept):
    """A request on its way: one event that moves from stage to stage.

    Attributes:
        kind: the stage it comes to next.
        request: who.
        handler: what happens there; it answers when the passage comes to the stage after that, or ``STAYS``.
        order: its place there among simultaneous events.
        instance_index: where it was sent; None before that.
        incoming: the request as the control plane sees it.
    """

    __slots__ = ("handler", "incoming", "instance_index", "kind", "order", "request")

    stale: ClassVar[bool] = False

    def __init__(self, request: Request, handler: Callable[[Passage, int], int]) -> None:
        self.kind = "arrival"
        self.request = request
        self.handler = handler
        self.order = ARRIVAL
        self.instance_index: int | None = None
        self.incoming: IncomingRequest = declared(request)

    def happen(self, now: int) -> bool:
        """The event loop calls the handler itself: it has to see to what comes next."""
        raise NotImplementedError

    def drop(self) -> None:
        """Nothing depends on it."""


def tell_arrival(observers: Observers, request: Request, now: int) -> None:
    """Emit the record of a request that arrives."""
    if Arrived in observers.kinds:
        observers.emit(
            Arrived(
                observers.event,
                now,
                request.request_id,
                request.input_tokens,
                request.max_output_tokens,
                request.slo_class,
                request.tenant,
            )
        )
    if SentByClient in observers.kinds and request.client:
        observers.emit(SentByClient(observers.event, now, request.request_id, request.client))
    if PromptMedia in observers.kinds and any(request.media):
        observers.emit(PromptMedia(observers.event, now, request.request_id, *request.media))


@mypyc_attr(allow_interpreted_subclasses=True)
class Signal(Kept):
    """An event of the control plane itself, such as a tick: it is about no request."""

    __slots__ = ("handler", "kind")

    request: ClassVar[None] = None
    instance_index: ClassVar[None] = None
    stale: ClassVar[bool] = False

    def __init__(self, kind: str, handler: Callable[[Signal, int], bool]) -> None:
        self.kind = kind
        self.handler = handler

    def happen(self, now: int) -> bool:
        """Call the handler; it says whether it happened, or was out of date."""
        return self.handler(self, now)

    def drop(self) -> None:
        """Nothing depends on it."""


class Audience(Protocol):
    """The requests for which what happens in the background matters."""

    @property
    def finished(self) -> bool:
        """Whether all requests have ended and none will come."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Background(Kept):
    """An event of the control plane that matters only as long as there are requests, such as a failure.

    Attributes:
        kind: what it is called.
        audience: those requests.
        instance_index: the instance it is about, if it is about one.
        handler: what happens; it says whether it did.
    """

    __slots__ = ("audience", "handler", "instance_index", "kind")

    def __init__(
        self, kind: str, audience: Audience, instance_index: int | None, handler: Callable[[Background, int], bool]
    ) -> None:
        self.kind = kind
        self.audience = audience
        self.instance_index = instance_index
        self.handler = handler

    @property
    def request(self) -> Request | None:
        """The request it is about, if it is about one."""
        return None

    @property
    def stale(self) -> bool:
        """Whether all requests have ended and none will come."""
        return self.audience.finished

    def happen(self, now: int) -> bool:
        """Call the handler, unless it matters to no request."""
        return not self.stale and self.handler(self, now)

    def drop(self) -> None:
        """Nothing depends on it."""
