"""One request and its answer over HTTP/1.1, with the arrival time of each piece of the body."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from dataclasses import field
from typing import TYPE_CHECKING, Final

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from blis_tui.base.classes import dataclass
from blis_tui.live.observe.wire import connect

if TYPE_CHECKING:
    from blis_tui.live.observe.wire import Target, Wire

_IDLE_NS: Final = 1_000_000_000
"""Idle connections are reused within a second; servers keep them for at least five."""
_FEWEST_BYTES, _BYTES_PER_TOKEN, _MOST_BYTES = 1 << 20, 1 << 12, 1 << 28
_BYTES_PER_PIECE: Final = 160
"""What a piece of an answer takes besides its bytes."""
_KEPT_HEADERS: Final = frozenset({"content-encoding", "content-type", "location", "retry-after"})


def longest_answer(tokens: int) -> int:
    """Return how many bytes an answer of so many tokens may have; servers send some 300 per token."""
    return min(_FEWEST_BYTES + _BYTES_PER_TOKEN * tokens, _MOST_BYTES)


class ConnectionBrokenError(OSError):
    """The connection ended before the answer did."""


class NotHttpError(OSError):
    """The answer is not HTTP."""


@dataclass(slots=True)
class Reply:
    """What has been received of an answer so far.

    Attributes:
        status: HTTP status; 0 = none yet.
        pieces: the body as it was received: times of ``monotonic_ns``, and bytes.
        sent_ns: when the request's first byte was passed to the kernel.
        done_ns: when the answer was complete, or known not to change any more; 0 = not yet.
        kernel_stamps: whether times are the kernel's.
        headers: headers about the body, redirects and retries.
    """

    status: int = 0
    pieces: list[tuple[int, bytes]] = field(default_factory=list)
    sent_ns: int = 0
    done_ns: int = 0
    kernel_stamps: bool = False
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def body(self) -> bytes:
        """The body received so far."""
        return b"".join(piece for _, piece in self.pieces)


class _Reading:
    """Assembles an answer from the bytes of a connection; both a ``Sink`` and the parser's callback object.

    Args:
        reply: receives the answer.
        most: how many bytes may be kept for it.
    """

    def __init__(self, reply: Reply, most: int) -> None:
        self.reply = reply
        self._most = most
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.begun = self.reusable = False
        self._parser = HttpResponseParser(self)
        self._stamp_ns = 0
        self._bytes = 0
        self._bodies: list[bytes] = []
        """The parts of the body in the bytes that are being processed."""
        self._delimited = False
        self._headed = False

    # ---- the connection ----

    def feed(self, data: bytes, stamp_ns: int) -> None:
        """Process received bytes."""
        self.begun = True
        self._stamp_ns = stamp_ns
        self._bytes += len(data) + _BYTES_PER_PIECE
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as error:
            self._fail(NotHttpError(f"the answer is not HTTP: {error or type(error).__name__}"))
        if self._bodies:  # HTTP's own chunks may be as small as a byte
            self.reply.pieces.append((stamp_ns, b"".join(self._bodies)))
            self._bodies.clear()
        if self._bytes > self._most:
            self._fail(NotHttpError(f"the answer is longer than {self._most >> 20} MiB"))

    def end(self, error: OSError | None, stamp_ns: int) -> None:
        """Handle the end of the connection."""
        self._stamp_ns = stamp_ns
        if error is None and self._headed and not self._delimited:
            self._finish()  # the end of the connection delimits the body
        else:
            self._fail(error or ConnectionBrokenError("the connection was closed before the end of the answer"))

    # ---- the parser ----

    def on_header(self, name: bytes, value: bytes) -> None:
        """Handle a header of the answer."""
        key = name.decode("latin-1").lower()
        if key in ("content-length", "transfer-encoding"):
            self._delimited = bool(value) or self._delimited
        elif key in _KEPT_HEADERS:
            self.reply.headers[key] = value.decode("latin-1").strip()

    def on_headers_complete(self) -> None:
        """Handle the end of the headers."""
        self.reply.status = self._parser.get_status_code()
        self._headed = True

    def on_body(self, body: bytes) -> None:
        """Handle a piece of the body."""
        self._bodies.append(body)

    def on_message_complete(self) -> None:
        """Handle the end of the answer."""
        if 100 <= self.reply.status < 200:  # an interim response
            self._headed = self._delimited = False
            self.reply.headers.clear()
            return
        self.reusable = self._parser.should_keep_alive()
        self._finish()

    # ---- the end ----

    def _finish(self) -> None:
        if not self.over.done():
            self.reply.done_ns = self._stamp_ns
            self.over.set_result(None)

    def _fail(self, error: OSError) -> None:
        if not self.over.done():
            self.reply.done_ns = self._stamp_ns
            self.over.set_exception(error)


class Exchanges:
    """Requests to one server, each with its own connection while it lasts.

    Like in HTTP clients, connections are reused right after an answer; they can also be opened in advance.
    """

    def __init__(self, target: Target) -> None:
        self._target = target
        self._idle: deque[tuple[int, Wire]] = deque()
        self._open: dict[int, Wire] = {}

    async def prepare(self) -> Wire:
        """Return an open and idle connection. Raises OSError if none can be opened."""
        while self._idle:
            since_ns, wire = self._idle.pop()
            if wire.usable and time.monotonic_ns() - since_ns < _IDLE_NS:
                return wire
            self._discard(wire)
        return await self._new()

    async def ask(
        self, method: str, path: str, body: bytes, reply: Reply, *, most: int, wire: Wire | None = None
    ) -> None:
        """Send a request and wait for the whole answer, which grows in ``reply`` meanwhile.

        Nothing is sent twice, because the server may have begun to compute.

        Args:
            method: HTTP method.
            path: path below the endpoint's root.
            body: JSON, or empty.
            reply: receives the answer.
            most: bytes after which the answer is given up.
            wire: a prepared connection; None = any.

        Raises:
            OSError: the connection cannot be opened, or breaks before the end.
        """
        data = self._target.head(method, path, len(body)) + body
        if wire is None or not wire.usable:
            wire = await self.prepare()
        reading = _Reading(reply, most)
        reply.kernel_stamps = wire.kernel_stamps
        try:
            reply.sent_ns = wire.send(data, reading)
            await reading.over
        except BaseException:
            if not reply.done_ns:
                reply.done_ns = time.monotonic_ns()
            if reading.over.done() and not reading.over.cancelled():
                reading.over.exception()  # retrieve the exception, or asyncio logs it
            self._discard(wire)
            raise
        if reading.reusable and wire.usable:
            self.release(wire)
        else:
            self._discard(wire)

    def release(self, wire: Wire) -> None:
        """Return a prepared connection that is not needed."""
        if wire.usable:
            self._idle.append((time.monotonic_ns(), wire))

    def close(self) -> None:
        """Close all connections."""
        for wire in list(self._open.values()):
            wire.close()
        self._open.clear()
        self._idle.clear()

    async def _new(self) -> Wire:
        wire = await connect(self._target)
        self._open[id(wire)] = wire
        return wire

    def _discard(self, wire: Wire) -> None:
        wire.close()
        self._open.pop(id(wire), None)
