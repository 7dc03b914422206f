"""Request sources of the engine: one request at a time, in order of arrival.

A source pickles into a few numbers per client (or a cursor into a trace), however long the workload is.
"""

from __future__ import annotations

from heapq import heapify, heappop, heapreplace
from typing import TYPE_CHECKING, Final, Protocol, TypeGuard

from blis_tui.base.classes import mypyc_attr
from blis_tui.base.pickling import Picklable
from blis_tui.engine.request import Request
from blis_tui.workload.arrivals import CLOSED_LOOP

if TYPE_CHECKING:
    from blis_tui.model import Workload
    from blis_tui.model.plug_ins import Registry
    from blis_tui.workload.interactive import InteractiveSource
    from blis_tui.workload.traces.trace_table import TraceTable


BATCH_SIZE: Final = 16
"""Number of requests created in one go, which is faster than one by one between other work."""


class RequestSource(Protocol):
    """A sequence of requests in order of arrival.

    A source that does not depend on the simulation has an attribute ``at_once``: how many requests may be fetched
    before the first of them arrives.
    """

    def next_request(self) -> Request | None:
        """Return the next request, not earlier than the last; ``None`` = there are no more."""
        ...

    def state(self) -> tuple[object, ...]:
        """Return everything that determines further requests, as plain values (for digests)."""
        ...


def awaits_answers(source: object) -> TypeGuard[InteractiveSource]:
    """Whether its clients wait for answers, so that some requests come when others have ended."""
    return hasattr(source, "on_ended")


def table_of(source: RequestSource) -> TraceTable | None:
    """Return the trace that a source replays; None = it replays none."""
    table: TraceTable | None = getattr(source, "table", None)
    return table


@mypyc_attr(allow_interpreted_subclasses=True)
class GeneratedSource(Picklable):
    """Requests drawn from the distributions of a workload's clients, merged by arrival.

    Requests that arrive in the same microsecond come in the order of their clients. Each client starts with a gap:
    nothing arrives at time 0.

    Args:
        workload: a workload with clients and a positive rate.
        seed: the experiment's seed.
        plugins: where processes and distributions are looked up.

    Attributes:
        at_once: as above; 1 with plug-ins, so that an error is raised at its request.

    Raises:
        PolicyError: the rate or all shares are zero, or a distribution cannot be built.
    """

    def __init__(self, workload: Workload, seed: int, plugins: Registry) -> None:
        from blis_tui.workload.clients import client_sources  # noqa: PLC0415  (traces need no clients)

        self._clients = client_sources(workload, seed, plugins)
        self._limit = workload.requests
        self.at_once = 1 if plugins.origins else BATCH_SIZE
        self._produced = 0
        first = [(client.next_gap_us(), number) for number, client in enumerate(self._clients)]
        self._next = [(gap, number) for gap, number in first if gap >= 0]
        heapify(self._next)

    def next_request(self) -> Request | None:
        """Return the next request; ``None`` after ``workload.requests`` of them, or after the last stage."""
        index = self._produced
        if index == self._limit or not self._next:
            return None
        arrival_us, number = self._next[0]
        client = self._clients[number]
        gap = client.next_gap_us()
        if gap < 0:
            heappop(self._next)
        else:
            heapreplace(self._next, (arrival_us + gap, number))
        self._produced = index + 1
        return client.request(index, arrival_us)

    def state(self) -> tuple[object, ...]:
        """Return requests so far, each client's next arrival, and stream positions."""
        return (self._produced, tuple(sorted(self._next)), tuple(client.state() for client in self._clients))


@mypyc_attr(allow_interpreted_subclasses=True)
class TraceSource(Picklable):
    """The requests of a recorded workload.

    Args:
        table: the trace; shared, never changed, so a checkpoint may keep only a reference to it.
        requests_limit: stop after this number of requests; ``None`` = all.

    Attributes:
        at_once: as above.
    """

    def __init__(self, table: TraceTable, requests_limit: int | None = None) -> None:
        self.at_once = BATCH_SIZE
        self._table = table
        self._cursor = 0
        self._end = len(table) if requests_limit is None else min(len(table), requests_limit)

    @property
    def table(self) -> TraceTable:
        """The trace it replays."""
        return self._table

    @property
    def fixed(self) -> TraceTable:
        """The part that never changes."""
        return self._table

    def __len__(self) -> int:
        return self._end

    def next_request(self) -> Request | None:
        """Return the next request; ``None`` at the end of the trace or of the limit."""
        cursor = self._cursor
        if cursor >= self._end:
            return None
        self._cursor = cursor + 1
        plain = self._table.plain
        if plain is None:
            return self._table.request(cursor)
        arrivals, inputs, outputs = plain
        return Request(cursor, "", arrivals[cursor], inputs[cursor], outputs[cursor])

    def state(self) -> tuple[object, ...]:
        """Return the number of requests so far."""
        return (self._cursor,)


def fixed_part(source: RequestSource) -> object:
    """Return the part of a source that never changes and need not be in checkpoints; ``None`` = there is none."""
    part: object = getattr(source, "fixed", None)
    return part


def create_source(workload: Workload, seed: int, plugins: Registry) -> RequestSource:
    """Create the source of ``workload``; a trace is read here, and does not depend on ``seed``.

    Raises:
        PolicyError: a generated workload cannot be generated as declared, or the trace's format is unknown.
        InputError: the trace file cannot be read.
        TraceError: rows of the trace are wrong.
    """
    if workload.trace is not None:
        from blis_tui.workload.traces.read import read_trace  # noqa: PLC0415  (generated workloads do not need it)

        table = read_trace(workload.trace, plugins, seed)
        if workload.trace.pacing == "answers":
            from blis_tui.workload.traces.trace_sessions import TracedSource  # noqa: PLC0415  (as above)

            return TracedSource(table, workload.requests)
        return TraceSource(table, workload.requests)
    if any(client.arrivals.kind == CLOSED_LOOP or client.session is not None for client in workload.clients):
        from blis_tui.workload.clients import client_sources  # noqa: PLC0415  (traces do not need it)
        from blis_tui.workload.interactive import InteractiveSource  # noqa: PLC0415

        return InteractiveSource(client_sources(workload, seed, plugins), workload.requests, workload.sessions)
    return GeneratedSource(workload, seed, plugins)
