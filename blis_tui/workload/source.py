"""Where the engine gets its requests: one at a time, in order of arrival.

A source pickles into a few numbers per client (or a cursor into a trace), however long the workload is.
"""

from __future__ import annotations

from heapq import heapify, heapreplace
from math import fsum
from typing import TYPE_CHECKING, Protocol

from blis_tui.engine.network import Connection
from blis_tui.engine.request import Request
from blis_tui.engine.streams import Streams
from blis_tui.errors import PolicyError
from blis_tui.workload.arrivals import create_gaps
from blis_tui.workload.lengths import LENGTHS

if TYPE_CHECKING:
    from blis_tui.engine.request import Segments
    from blis_tui.registry import Registry
    from blis_tui.spec.model import Client, PluginConfig, Workload
    from blis_tui.workload.lengths import TokenCounts
    from blis_tui.workload.trace_table import TraceTable


class RequestSource(Protocol):
    """A sequence of requests in order of arrival."""

    def next_request(self) -> Request | None:
        """The next request, not earlier than the last; ``None`` when there are no more."""
        ...

    def state(self) -> tuple[object, ...]:
        """What decides all further requests, as plain values (for digests)."""
        ...


class _ClientSource:
    """The endless requests of one client.

    Three streams (``workload/<client id>/arrivals``, ``input`` and ``output``) keep its numbers apart from
    those of other clients, and its lengths apart from its arrivals.
    """

    __slots__ = (
        "_arrival_stream",
        "_gaps",
        "_input_stream",
        "_inputs",
        "_model",
        "_network",
        "_output_stream",
        "_outputs",
        "_prefix_tokens",
        "_segments",
        "_slo_class",
        "_tenant",
        "_timeout_us",
    )

    def __init__(self, client: Client, rate_per_s: float, streams: Streams, plugins: Registry) -> None:
        path = f"workload/{client.id}"
        self._arrival_stream = streams.stream(f"{path}/arrivals")
        self._input_stream = streams.stream(f"{path}/input")
        self._output_stream = streams.stream(f"{path}/output")
        self._gaps = create_gaps(plugins, client.arrivals, rate_per_s)
        self._inputs = _lengths(plugins, client.input_tokens)
        self._outputs = _lengths(plugins, client.output_tokens)
        prefix = client.prefix
        self._prefix_tokens = 0 if prefix is None else prefix.tokens
        # One tuple for all requests of the client: comparing and pickling it costs nothing.
        self._segments: Segments = () if prefix is None else ((prefix.group, prefix.tokens),)
        self._slo_class = client.slo_class
        self._tenant = client.tenant
        self._model = client.model
        self._timeout_us = client.timeout_us or 0
        network = client.network
        self._network = None if network is None else Connection(network.rtt_ms, network.bandwidth_mbps)

    def next_gap_us(self) -> int:
        """Time from this client's last arrival to its next."""
        return self._gaps.sample(self._arrival_stream)

    def state(self) -> tuple[object, ...]:
        """Where its three streams stand."""
        return (self._arrival_stream.state(), self._input_stream.state(), self._output_stream.state())

    def request(self, index: int, arrival_us: int) -> Request:
        """The request that arrives at ``arrival_us``, the ``index``-th of all clients."""
        request = Request(
            index,
            f"request_{index}",
            arrival_us,
            self._prefix_tokens + self._inputs.sample(self._input_stream),
            self._outputs.sample(self._output_stream),
            self._segments,
            self._slo_class,
            self._tenant,
            arrival_us + self._timeout_us if self._timeout_us else 0,
            model=self._model,
        )
        request.network = self._network
        return request


def _lengths(plugins: Registry, config: PluginConfig) -> TokenCounts:
    return plugins.create(LENGTHS, config.kind, config.settings)


class GeneratedSource:
    """Requests drawn from the distributions of a workload's clients, merged by arrival.

    Requests that arrive in the same microsecond come in the order of their clients. Each client starts with a
    gap: nothing arrives at time 0.

    Args:
        workload: a workload with clients and a positive rate.
        seed: the experiment's seed.
        plugins: what the names of processes and distributions may refer to.

    Raises:
        PolicyError: the rate or all shares are zero, or a distribution cannot be built.
    """

    __slots__ = ("_clients", "_limit", "_next", "_produced")

    def __init__(self, workload: Workload, seed: int, plugins: Registry) -> None:
        streams = Streams(seed)
        shares = fsum(client.share for client in workload.clients)
        if not (shares > 0.0 and workload.rate_per_s > 0.0):
            raise PolicyError(
                f"workload {workload.name!r} generates no requests",
                help="it needs a positive rate_per_s and a client with a positive share",
            )
        self._clients = [
            _ClientSource(client, workload.rate_per_s * client.share / shares, streams, plugins)
            for client in workload.clients
            if client.share > 0.0
        ]
        self._limit = workload.requests
        self._produced = 0
        self._next = [(client.next_gap_us(), number) for number, client in enumerate(self._clients)]
        heapify(self._next)

    def next_request(self) -> Request | None:
        """The next request; ``None`` after ``workload.requests`` of them, never when that is ``None``."""
        index = self._produced
        if index == self._limit:
            return None
        arrival_us, number = self._next[0]
        client = self._clients[number]
        heapreplace(self._next, (arrival_us + client.next_gap_us(), number))
        self._produced = index + 1
        return client.request(index, arrival_us)

    def state(self) -> tuple[object, ...]:
        """Requests so far, each client's next arrival, and where their streams stand."""
        return (self._produced, tuple(sorted(self._next)), tuple(client.state() for client in self._clients))


class TraceSource:
    """The requests of a recorded workload.

    Args:
        table: the trace; shared, never changed, so a checkpoint may keep only a reference to it.
        requests_limit: stop after so many; ``None`` = all.
    """

    __slots__ = ("_cursor", "_end", "_table")

    def __init__(self, table: TraceTable, requests_limit: int | None = None) -> None:
        self._table = table
        self._cursor = 0
        self._end = len(table) if requests_limit is None else min(len(table), requests_limit)

    @property
    def table(self) -> TraceTable:
        """The trace it reads."""
        return self._table

    def next_request(self) -> Request | None:
        """The next request; ``None`` at the end of the trace or of the limit."""
        cursor = self._cursor
        if cursor >= self._end:
            return None
        self._cursor = cursor + 1
        return self._table.request(cursor)

    def state(self) -> tuple[object, ...]:
        """Requests so far."""
        return (self._cursor,)
