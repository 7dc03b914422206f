"""Requests on their way to a queue, and events of the control plane."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final, Protocol

from blis_tui.base.classes import mypyc_attr
from blis_tui.base.pickling import Picklable
from blis_tui.cluster.records import SentByClient
from blis_tui.cluster.signals import declared
from blis_tui.engine.records import Arrived, PromptMedia

if TYPE_CHECKING:
    from collections.abc import Callable

    from blis_tui.cluster.signals import IncomingRequest
    from blis_tui.engine.records import Observers
    from blis_tui.engine.request import Request

# Order of simultaneous cluster events: that of a request's path.
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
"""Kind of a request whose next stage is an instance's queue."""
NO_NEXT_STAGE: Final = -1
"""Return value of a stage: the request does not go on by itself."""


def put_off(time_us: int) -> int:
    """Return value of a stage that comes only at this time, after 0: nothing has happened yet."""
    return ~time_us


@mypyc_attr(allow_interpreted_subclasses=True)
class RoutedRequest(Picklable):
    """A request on its way: one event that moves from stage to stage.

    Attributes:
        kind: the next stage.
        request: the request.
        handler: called at that stage; returns when the request reaches the following stage, ``NO_NEXT_STAGE``, or
            when this one comes if it is not yet time (``put_off``).
        order: tie-breaker of that stage among simultaneous events.
        instance_index: the chosen instance; None before that.
        incoming: the request as the control plane sees it.
    """

    __slots__ = ("handler", "incoming", "instance_index", "kind", "order", "request")

    stale: ClassVar[bool] = False

    def __init__(self, request: Request, handler: Callable[[RoutedRequest, int], int]) -> None:
        self.kind = "arrival"
        self.request = request
        self.handler = handler
        self.order = ARRIVAL
        self.instance_index: int | None = None
        self.incoming: IncomingRequest = declared(request)

    def fire(self, now: int) -> bool:
        """Not supported: the event loop calls the handler itself, because it must schedule the next stage."""
        raise NotImplementedError

    def drop(self) -> None:
        """Do nothing: no other state depends on it."""


def emit_arrival(observers: Observers, request: Request, now: int) -> None:
    """Emit the record of an arriving request."""
    observers.tell(
        Arrived,
        now,
        request.request_id,
        request.input_tokens,
        request.max_output_tokens,
        request.slo_class,
        request.tenant,
    )
    if SentByClient in observers.kinds and request.client:
        observers.emit(SentByClient(observers.event, now, request.request_id, request.client))
    if PromptMedia in observers.kinds and any(request.media):
        observers.emit(PromptMedia(observers.event, now, request.request_id, *request.media))


@mypyc_attr(allow_interpreted_subclasses=True)
class Signal(Picklable):
    """An event of the control plane itself, such as a tick, that concerns no request."""

    __slots__ = ("handler", "kind")

    request: ClassVar[None] = None
    instance_index: ClassVar[None] = None
    stale: ClassVar[bool] = False

    def __init__(self, kind: str, handler: Callable[[Signal, int], bool]) -> None:
        self.kind = kind
        self.handler = handler

    def fire(self, now: int) -> bool:
        """Call the handler, which returns whether the event happened or was outdated."""
        return self.handler(self, now)

    def drop(self) -> None:
        """Do nothing: no other state depends on it."""


class RequestPresence(Protocol):
    """Tells whether there are requests for which background events matter."""

    @property
    def finished(self) -> bool:
        """Whether all requests have ended and none will come."""


@mypyc_attr(allow_interpreted_subclasses=True)
class BackgroundEvent(Picklable):
    """An event of the control plane, such as a failure, that matters only as long as there are requests.

    Attributes:
        kind: its name.
        audience: tells whether there are such requests.
        instance_index: the instance it concerns, if any.
        handler: its action, which returns whether it happened.
    """

    __slots__ = ("audience", "handler", "instance_index", "kind")

    def __init__(
        self,
        kind: str,
        audience: RequestPresence,
        instance_index: int | None,
        handler: Callable[[BackgroundEvent, int], bool],
    ) -> None:
        self.kind = kind
        self.audience = audience
        self.instance_index = instance_index
        self.handler = handler

    @property
    def request(self) -> Request | None:
        """The request it concerns, if any."""
        return None

    @property
    def stale(self) -> bool:
        """Whether all requests have ended and none will come."""
        return self.audience.finished

    def fire(self, now: int) -> bool:
        """Call the handler, unless the event is stale."""
        return not self.stale and self.handler(self, now)

    def drop(self) -> None:
        """Do nothing: no other state depends on it."""
