"""The server to load: its address, and the headers of every request."""

from __future__ import annotations

import asyncio
import socket
import ssl
from dataclasses import field
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from blis_tui.classes import dataclass
from blis_tui.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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
    _found: Sequence[_Address] = ()

    async def addresses(self) -> Sequence[_Address]:
        """Return its addresses, looked up once. Raises OSError if there is no such host."""
        if not self._found:
            loop = asyncio.get_running_loop()
            found = await loop.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
            self._found = [one for one in found if one[0] in (socket.AF_INET, socket.AF_INET6)]  # type: ignore[misc]
        return self._found

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
        if any(one.isspace() or not one.isprintable() for one in url):
            raise ValueError("it has a space or another character that is not allowed in URLs")  # noqa: TRY301
        parts.path.encode("ascii")
    except ValueError as error:
        raise InputError(f"{url!r} is not a URL: {error}", help=hint) from error
    if parts.scheme not in ("http", "https") or not host:
        raise InputError(f"{url!r} is not the URL of an HTTP server", help=hint)
    if parts.username or parts.query or parts.fragment:
        raise InputError(f"{url!r}: give only host, port and path", help=hint)
    for name, value in headers.items():
        if not (name + value).isascii() or any(one in name + value for one in "\r\n\0") or not name.strip():
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
