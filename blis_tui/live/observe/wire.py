"""A connection to the server: its address and headers, bytes with their arrival times, and the clock of a run."""

from __future__ import annotations

import asyncio
import platform
import socket
import ssl
import sys
import time
from dataclasses import field
from struct import Struct
from typing import TYPE_CHECKING, Final, Protocol
from urllib.parse import urlsplit

from blis_tui.base.classes import dataclass
from blis_tui.base.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


_READ_BYTES: Final = 1 << 18


class Sink(Protocol):
    """Receives the bytes of one answer."""

    def feed(self, data: bytes, stamp_ns: int) -> None:
        """Process received bytes; must not raise."""

    def end(self, error: OSError | None, stamp_ns: int) -> None:
        """Handle the end of the connection."""


class Wire(Protocol):
    """An open connection."""

    kernel_stamps: bool
    """Whether times are the kernel's."""

    def send(self, data: bytes, sink: Sink) -> int:
        """Send a request whose answer goes to ``sink``; return when the first byte was passed to the kernel.

        The rest is sent in the background, so an answer may arrive before everything is sent.

        Raises:
            OSError: the connection is broken.
        """

    def close(self) -> None:
        """Close the connection immediately."""

    @property
    def usable(self) -> bool:
        """Whether another request may be sent."""


class StampedWire:
    """A plain connection, with the kernel's time stamps if available."""

    def __init__(self, sock: socket.socket) -> None:
        self._loop = asyncio.get_running_loop()
        self._socket = sock
        self._sink: Sink | None = None
        self._left = memoryview(b"")
        """Bytes still to be sent."""
        self._closed = False
        self.kernel_stamps = stamp_receipts(sock)
        self._loop.add_reader(sock.fileno(), self._readable)

    @property
    def usable(self) -> bool:
        """Whether another request may be sent."""
        return not self._closed and not self._left

    def send(self, data: bytes, sink: Sink) -> int:
        """Send a request whose answer goes to ``sink``; return when the first byte was passed to the kernel."""
        self._sink = sink
        sent_ns = time.monotonic_ns()
        try:
            count = self._socket.send(data)
        except BlockingIOError:
            count = 0
        if count < len(data):
            self._left = memoryview(data)[count:]
            self._loop.add_writer(self._socket.fileno(), self._writable)
        return sent_ns

    def close(self) -> None:
        """Close the connection immediately."""
        if not self._closed:
            self._closed = True
            self._loop.remove_reader(self._socket.fileno())
            self._loop.remove_writer(self._socket.fileno())
            self._socket.close()

    def _writable(self) -> None:
        try:
            self._left = self._left[self._socket.send(self._left) :]
        except (BlockingIOError, InterruptedError):
            return
        except OSError:  # reading reports the error, after any earlier answer
            self._loop.remove_writer(self._socket.fileno())
            return
        if not self._left:
            self._loop.remove_writer(self._socket.fileno())

    def _readable(self) -> None:
        try:
            data, stamp_ns = receive(self._socket, _READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._end(error, time.monotonic_ns())
            return
        if not data:
            self._end(None, stamp_ns)
        elif self._sink is None:
            self.close()  # unsolicited data is no answer
        else:
            self._sink.feed(data, stamp_ns)

    def _end(self, error: OSError | None, stamp_ns: int) -> None:
        self.close()
        if self._sink is not None:
            self._sink.end(error, stamp_ns)


class TransportWire(asyncio.Protocol):
    """An encrypted connection, time-stamped when its bytes are decrypted."""

    kernel_stamps = False

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._sink: Sink | None = None

    @property
    def usable(self) -> bool:
        """Whether another request may be sent."""
        return self._transport is not None and not self._transport.is_closing()

    def send(self, data: bytes, sink: Sink) -> int:
        """Send a request whose answer goes to ``sink``; return when the first byte was passed on."""
        if self._transport is None or self._transport.is_closing():
            raise ConnectionResetError("the connection is closed")
        self._sink = sink
        sent_ns = time.monotonic_ns()
        self._transport.write(data)
        return sent_ns

    def close(self) -> None:
        """Close the connection immediately."""
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the open transport."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101  (true for stream connections)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Pass on received bytes."""
        if self._sink is not None:
            self._sink.feed(data, time.monotonic_ns())

    def connection_lost(self, exc: Exception | None) -> None:
        """Handle the end of the connection."""
        if self._sink is not None:
            broken = exc if isinstance(exc, OSError) else None if exc is None else OSError(str(exc))
            self._sink.end(broken, time.monotonic_ns())


async def connect(target: Target) -> Wire:
    """Open a connection to the server.

    Raises:
        OSError: it refuses, cannot be found, or its certificate is not trusted.
    """
    loop = asyncio.get_running_loop()
    if target.tls is not None:
        _, wire = await loop.create_connection(TransportWire, target.host, target.port, ssl=target.tls)
        return wire
    failure = OSError(f"no address for {target.host}")
    for family, kind, protocol, _, address in await target.addresses():
        sock = socket.socket(family, kind, protocol)
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await loop.sock_connect(sock, address)
        except OSError as error:
            sock.close()
            failure = error
        except BaseException:
            sock.close()
            raise
        else:
            return StampedWire(sock)
    raise failure


# Arrival times: when the kernel received the bytes if it reports that, otherwise when they were read.
#
# A client busy with two hundred streams reads late. Linux reports the time of receipt beside the bytes
# (``SO_TIMESTAMPNS``), so the client's load does not matter. Everything received since the last read has one time, that
# of its last byte; a client that reads too late sees several chunks together (``Answer.merged``).
#
# Source: Linux, ``Documentation/networking/timestamping.rst``; TCP sockets since 4.13.

_SO_TIMESTAMPNS: Final = 35
"""``SO_TIMESTAMPNS_OLD`` of the generic headers; Python's ``socket`` does not define it."""
_GENERIC: Final = frozenset({"x86_64", "aarch64", "riscv64", "s390x", "ppc64le"})
_TIMESPEC: Final = Struct("@qq")
_NS_PER_S: Final = 1_000_000_000
_ANCILLARY_BYTES: Final = 128
_APART_NS: Final = 20_000
_READINGS: Final = 5


def stamp_receipts(sock: socket.socket) -> bool:
    """Enable the kernel's receive time stamps; return False if it has none.

    They start slightly after the first socket of the machine enables them, so connections are opened in advance.
    """
    if sys.platform != "linux" or platform.machine() not in _GENERIC:
        return False
    try:
        sock.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
    except OSError:
        return False
    return True


def receive(sock: socket.socket, most: int) -> tuple[bytes, int]:
    """Return at most ``most`` received bytes, and when the last one arrived, in nanoseconds of ``time.monotonic_ns``.

    Raises:
        BlockingIOError: nothing has arrived.
        OSError: the connection is broken.
    """
    data, ancillary, _, _ = sock.recvmsg(most, _ANCILLARY_BYTES)
    for level, kind, content in ancillary:
        if level == socket.SOL_SOCKET and kind == _SO_TIMESTAMPNS and len(content) >= _TIMESPEC.size:
            seconds, rest = _TIMESPEC.unpack_from(content)
            # The kernel uses the wall clock, which may be set, so only the time elapsed since then is used.
            now_ns, wall_ns = _both_clocks()
            return data, now_ns - max(wall_ns - (seconds * _NS_PER_S + rest), 0)
    return data, time.monotonic_ns()


def _both_clocks() -> tuple[int, int]:
    """Return both clocks at one moment; read again if the process was interrupted in between."""
    for _ in range(_READINGS):
        before_ns, wall_ns, after_ns = time.monotonic_ns(), time.time_ns(), time.monotonic_ns()
        if after_ns - before_ns < _APART_NS:
            break
    return (before_ns + after_ns) // 2, wall_ns


_ENDPOINTS: Final = ("/v1/completions", "/v1/chat/completions", "/v1/models", "/metrics")
_OURS: Final = ("content-length", "transfer-encoding", "connection", "accept-encoding", "expect", "upgrade")
"""Headers that would contradict how requests are sent."""

_Address = tuple[socket.AddressFamily, socket.SocketKind, int, str, "tuple[str, int] | tuple[str, int, int, int]"]


@dataclass(slots=True)
class Target:
    """An OpenAI-compatible endpoint.

    Attributes:
        host: its name or address.
        port: its port.
        root: the URL's path before ``/v1``; usually empty.
        tls: encryption settings; None = not encrypted.
        headers: additional headers of every request, such as ``Authorization``.
    """

    host: str
    port: int
    root: str = ""
    tls: ssl.SSLContext | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    _addresses: Sequence[_Address] = ()

    async def addresses(self) -> Sequence[_Address]:
        """Return its addresses, looked up once. Raises OSError if there is no such host."""
        if not self._addresses:
            loop = asyncio.get_running_loop()
            resolved = await loop.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
            self._addresses = [address for address in resolved if address[0] in (socket.AF_INET, socket.AF_INET6)]  # type: ignore[misc]
        return self._addresses

    def head(self, method: str, path: str, length: int) -> bytes:
        """Return the head of a request, up to its body."""
        name = f"[{self.host}]" if ":" in self.host else self.host
        headers = {"Host": f"{name}:{self.port}", "Accept": "*/*", "User-Agent": "blis-tui"}
        if length:
            headers["Content-Type"] = "application/json"
        given = [name.lower() for name in self.headers]
        headers = {name: value for name, value in headers.items() if name.lower() not in given} | dict(self.headers)
        lines = [f"{method} {self.root}{path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
        if length:
            lines.append(f"Content-Length: {length}")
        return "\r\n".join([*lines, "", ""]).encode("latin-1")


def target_of(url: str, headers: Mapping[str, str]) -> Target:
    """Parse the URL of an endpoint, with or without ``/v1`` at its end.

    Raises:
        InputError: it is no HTTP URL, or a header cannot be sent.
    """
    hint = "such as http://127.0.0.1:8000"
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        port, host = parts.port, (parts.hostname or "").encode("idna").decode()
        if any(character.isspace() or not character.isprintable() for character in url):
            raise ValueError("it has a space or another character that is not allowed in URLs")  # noqa: TRY301
        parts.path.encode("ascii")
    except ValueError as error:
        raise InputError(f"{url!r} is not a URL: {error}", help=hint) from error
    if parts.scheme not in ("http", "https") or not host:
        raise InputError(f"{url!r} is not the URL of an HTTP server", help=hint)
    if parts.username or parts.query or parts.fragment:
        raise InputError(f"{url!r}: give only host, port and path", help=hint)
    for name, value in headers.items():
        if not (name + value).isascii() or any(character in name + value for character in "\r\n\0") or not name.strip():
            raise InputError(f"the header {name!r} cannot be sent")
        if name.strip().lower() in _OURS:
            raise InputError(f"the header {name!r} cannot be set", help="it is determined by what is sent")
    tls = ssl.create_default_context() if parts.scheme == "https" else None
    root = parts.path.rstrip("/")
    if root.endswith(_ENDPOINTS):
        raise InputError(
            f"{url!r} is one of the server's endpoints",
            help="give only the server's address; --api selects the endpoint",
        )
    root = root.removesuffix("/v1")
    return Target(host, (443 if tls else 80) if port is None else port, root, tls, headers)


class Clock:
    """Counts from a value of ``time.monotonic_ns``."""

    def __init__(self, start_ns: int) -> None:
        self.start_ns = start_ns

    def us(self, stamp_ns: int) -> int:
        """Return a ``monotonic_ns`` time in microseconds since the start."""
        return (stamp_ns - self.start_ns) // 1000

    def now_us(self) -> int:
        """Return the current time."""
        return self.us(time.monotonic_ns())

    async def until(self, time_us: int) -> None:
        """Wait until a time; asyncio is up to a millisecond late."""
        left_us = time_us - self.now_us()
        await asyncio.sleep(max(left_us, 0) / 1e6)
