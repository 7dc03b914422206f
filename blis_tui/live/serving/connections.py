"""Connections to the endpoint: how many there may be, and how long one may be open without a request.

A client that sends nothing, or sends its request byte by byte, has ``IDLE_S`` seconds, and less if others need its
place. So clients that do nothing keep nobody out, and descriptors do not run out.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

IDLE_S: Final = 60.0
"""How long a connection may be without a whole request, and how long a client may take to read what it is sent."""
MOST_CONNECTIONS: Final = 1000
_OTHER_FILES: Final = 24
"""Descriptors left for files, sockets that listen, and the publishers of KV cache events."""
_NO_DESCRIPTOR: Final = "socket.accept() out of system resource"
"""How asyncio names that; it tries again after a second, and says so for every connection of the queue."""
_LOG: Final = logging.getLogger(__name__)


def possible_connections(wanted: int) -> int:
    """Return how many connections there may be; raises the process's limit of open files as far as it may."""
    if sys.platform == "win32":
        return wanted
    import resource  # noqa: PLC0415  (not on all systems)

    needed = wanted + _OTHER_FILES
    files, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files != resource.RLIM_INFINITY and files < needed:
        files = needed if most == resource.RLIM_INFINITY else min(needed, most)
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, most))
    return wanted if files == resource.RLIM_INFINITY else max(min(wanted, files - _OTHER_FILES), 1)


class Connections:
    """The open connections.

    Args:
        make: makes the protocol that speaks HTTP on a new one.
        most: how many there may be.
    """

    def __init__(self, make: Callable[[], asyncio.Protocol], most: int) -> None:
        self._make = make
        self._most = most
        self._open: dict[asyncio.BaseProtocol, _Connection] = {}
        self._idle: dict[_Connection, None] = {}
        """Those without a request, the one that has been so for the longest time first."""
        self._out_of_files = False

    def accept(self) -> asyncio.Protocol:
        """Return the protocol of a new connection; it takes the place of an idle one if there is no other."""
        if len(self._open) >= self._most and self._idle:
            next(iter(self._idle)).close()
        if len(self._open) >= self._most:
            return _Refusal(self._most)
        connection = _Connection(self._make(), self)
        self._open[connection.http] = connection
        self.became_idle(connection)
        return connection

    @contextmanager
    def answering(self, http: asyncio.BaseProtocol | None) -> Iterator[None]:
        """Within the block, a connection is not idle, because a request on it is answered."""
        connection = None if http is None else self._open.get(http)
        if connection is not None:
            self._idle.pop(connection, None)
        try:
            yield
        finally:
            if connection is not None and connection.http in self._open:
                self.became_idle(connection)

    async def close_idle(self) -> None:
        """Close connections that have been idle for too long, until cancelled."""
        while True:
            since_s = asyncio.get_running_loop().time() - IDLE_S
            for connection in [connection for connection in self._idle if connection.idle_since_s <= since_s]:
                connection.close()
            await asyncio.sleep(min(IDLE_S / 4, 1.0))

    def became_idle(self, connection: _Connection) -> None:
        """Note that a connection waits for a request."""
        connection.idle_since_s = asyncio.get_running_loop().time()
        self._idle[connection] = None

    def forget(self, connection: _Connection) -> None:
        """Note that a connection is closed."""
        self._open.pop(connection.http, None)
        self._idle.pop(connection, None)

    def handle_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
        """Log an error of the event loop; that no descriptor is left, only once."""
        message = str(context.get("message"))
        if self._out_of_files and "_start_serving" in message and isinstance(context.get("exception"), ValueError):
            return  # asyncio tries again for each connection it could not accept, even when it no longer listens
        if message != _NO_DESCRIPTOR:
            loop.default_exception_handler(context)
        elif not self._out_of_files:
            self._out_of_files = True
            error = context.get("exception")
            _LOG.error("no connection can be accepted for now: %s", getattr(error, "strerror", None) or error)


class _Connection(asyncio.Protocol):
    """One connection; everything that happens on it is passed on to the protocol that speaks HTTP."""

    def __init__(self, http: asyncio.Protocol, all_of_them: Connections) -> None:
        self.http = http
        self.idle_since_s = 0.0
        self._all = all_of_them
        self._transport: asyncio.Transport | None = None
        self._closed = False

    def close(self) -> None:
        """Close it at once."""
        self._closed = True
        self._all.forget(self)
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Pass on the open connection."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101  (true for stream connections)
        self._transport = transport
        self.http.connection_made(transport)
        if self._closed:  # its place was needed before it began
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Pass on the end."""
        self._all.forget(self)
        self.http.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Pass on received bytes."""
        self.http.data_received(data)

    def eof_received(self) -> bool | None:
        """Pass on that the client sends no more."""
        return self.http.eof_received()

    def pause_writing(self) -> None:
        """Pass on that the client reads too slowly."""
        self.http.pause_writing()

    def resume_writing(self) -> None:
        """Pass on that it has caught up."""
        self.http.resume_writing()


class _Refusal(asyncio.Protocol):
    """Tells a client that there are too many connections."""

    def __init__(self, most: int) -> None:
        message = f"all {most} connections are in use"
        error = {"message": message, "type": "ServiceUnavailableError", "param": None, "code": 503}
        body = json.dumps({"error": error}).encode()
        lines = ("HTTP/1.1 503 Service Unavailable", "Content-Type: application/json", f"Content-Length: {len(body)}")
        self._answer = "\r\n".join([*lines, "Retry-After: 1", "Connection: close", "", ""]).encode() + body

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Say so, and close the connection."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101  (as above)
        transport.write(self._answer)
        transport.close()
