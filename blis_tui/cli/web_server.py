"""The web server behind ``blis-tui serve``: its page, its connections, and a program for each of them."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import logging
import re
import secrets
import sys
from contextlib import redirect_stdout, suppress
from copy import copy
from typing import TYPE_CHECKING, Final, cast
from urllib.parse import urlsplit

import aiohttp_jinja2
import jinja2
from aiohttp import WSCloseCode, WSMsgType, web
from textual_serve.app_service import AppService
from textual_serve.server import Server, to_int

from blis_tui.cli.signals import log_in_lines

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from collections.abc import Callable, Sequence

    from aiohttp.typedefs import Handler

MAX_COLUMNS: Final = 1_000
MAX_ROWS: Final = 400
"""Maximum terminal size, about that of an 8K display; a program's memory grows with each cell."""
DRIVER: Final = "blis_tui.tui.drivers:PipeDriver"
_log: Final = logging.getLogger(__name__)
_GRACE_S: Final = 3.0
"""Seconds that a program may take to end before it is killed."""
_PIECE_BYTES: Final = 65_536
_HEARTBEAT_S: Final = 15.0
"""Interval between checks that a window is still there, in seconds."""
_FOREIGN_FONT: Final = re.compile(r"<link[^>]*fonts\.googleapis[^>]*>")
_OWN_FONT: Final = (
    "<style>@font-face { font-family: 'Roboto Mono'; "
    "src: url('static/fonts/RobotoMono-VariableFont_wght.ttf'); font-weight: 100 700; }</style>"
)
_BUTTON: Final = ' onClick="refresh()"'
"""Click handler of a button on the base class's page, in a form that a content security policy forbids."""
_FOCUS: Final = """<script>
window.addEventListener("load", () => {
  for (const button of document.querySelectorAll("button")) button.addEventListener("click", () => refresh());
  const look = setInterval(() => {
    const keys = document.querySelector(".xterm-helper-textarea");
    if (keys) { clearInterval(look); keys.focus(); }
  }, 50);
});
</script>
</body>"""
"""Moves the focus to the terminal once it is there; otherwise no key works before a click."""
_HEADERS: Final = {
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
}
"""Headers of every answer: no page may embed this one in a frame, and only sources in :func:`policy` may be loaded."""
_ADDRESS: Final = re.compile(r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?")
"""A host with an optional port and nothing else, because it is copied into the page."""


class Program(AppService):
    """The program of one browser window, which ends with the window."""

    def __init__(self, words: Sequence[str], websocket: web.WebSocketResponse, server: WebServer) -> None:
        self._words = words
        self._websocket = websocket
        self._server = server
        super().__init__(
            words[0],
            write_bytes=websocket.send_bytes,
            write_str=self._tell,
            close=self._close,
            download_manager=server.download_manager,
        )

    async def start(self, width: int, height: int) -> None:
        """Start the program on a terminal of this size, within limits."""
        await super().start(*clamped_size(width, height))

    async def set_terminal_size(self, width: int, height: int) -> None:
        """Resize the program's terminal, within limits."""
        await super().set_terminal_size(*clamped_size(width, height))

    def _build_environment(self, width: int = 80, height: int = 24) -> dict[str, str]:
        """Return the environment: the terminal is the page, not the one from which the server was started."""
        terminal = {"TERM": "xterm-256color", "COLORTERM": "truecolor", "TEXTUAL_DRIVER": DRIVER}
        return {**super()._build_environment(width, height), **terminal}

    async def _open_app_process(self, width: int = 80, height: int = 24) -> Process:
        """Start the process without a shell in between, which would have to be ended as well."""
        pipe = asyncio.subprocess.PIPE
        self._process = process = await asyncio.create_subprocess_exec(
            *self._words, stdin=pipe, stdout=pipe, stderr=pipe, env=self._build_environment(width, height)
        )
        self._stdin = process.stdin
        return process

    async def _tell(self, text: str) -> None:
        """Send a message to the page; its downloads under ``/download/`` need the token, too."""
        kind, value = json.loads(text)
        if kind == "deliver_file_start":
            value = f"../{self._server.token}/download/{value}"
        await self._websocket.send_json([kind, value])

    async def run(self) -> None:
        """Show the program's output until it ends, or until its window does; then let it finish.

        Remaining output is read and discarded, because the program could not end while it waits for a reader, and
        asyncio considers a process finished only after its pipes are read to their ends.
        """
        await super().run()
        await self._close()
        if self._process is not None:
            await asyncio.gather(_drop(self._process.stdout), _drop(self._process.stderr))

    async def _close(self) -> None:
        await self._websocket.close()

    async def stop(self) -> None:
        """Ask the program to end and wait for it; kill it if it does not."""
        if self._process is None:
            return
        late = asyncio.get_running_loop().call_later(_GRACE_S, self._kill)
        try:
            await super().stop()
            await self._process.wait()
        finally:  # also if the server stops waiting because it ends
            late.cancel()
            self._kill()
        self.stdin.close()
        with suppress(ConnectionError):
            await self.stdin.wait_closed()

    def _kill(self) -> None:
        """Kill the process if needed, and close its pipes, which a child process may still hold."""
        if self._process is not None:
            self._process._transport.close()  # type: ignore[attr-defined]  # noqa: SLF001


class WebServer(Server):
    """Answers only requests with the token.

    Args:
        words: the command that each window runs.
        host: the address to listen on.
        port: the port to listen on.
        local: whether that address can be reached from this machine only.
        max_windows: maximum number of open windows.

    Attributes:
        token: secret prefix of every path, which no other page or user of the machine can guess.
    """

    def __init__(self, words: Sequence[str], *, host: str, port: int, local: bool, max_windows: int) -> None:
        super().__init__(words[0], host=host, port=port, title="blis-tui")
        self.token = secrets.token_urlsafe()
        self._words = words
        self._local = local
        self._max_windows = max_windows
        self._windows: set[web.WebSocketResponse] = set()

    def run(self, ready: Callable[[], None]) -> None:
        """Serve until Ctrl-C; call `ready` once it does."""
        log_in_lines()
        with redirect_stdout(sys.stderr):  # the base class prints a failed program's output
            web.run_app(
                self._make_app(), host=self.host, port=self.port, access_log=None, print=lambda *_, **__: ready()
            )

    async def _make_app(self) -> web.Application:
        """Create the base class's routes, below the token and without folder listings."""
        pages = web.Application()
        aiohttp_jinja2.setup(pages, loader=jinja2.FileSystemLoader(self.templates_path))
        pages.add_routes(
            [
                web.get("/", self.handle_index, name="index"),
                web.get("/ws", self.handle_websocket, name="websocket"),
                web.get("/download/{key}", self.handle_download, name="download"),
                web.static("/static", self.statics_path, name="static"),
            ]
        )
        app = web.Application(middlewares=[self._guard, web.normalize_path_middleware()])
        app.add_subapp(f"/{self.token}", pages)
        app.on_shutdown.append(self.on_shutdown)
        app.on_response_prepare.append(_add_security_headers)
        return app

    async def on_shutdown(self, app: web.Application) -> None:  # noqa: ARG002  (its base's signature)
        """Close the windows, which ends their programs."""
        await asyncio.gather(*(window.close(code=WSCloseCode.GOING_AWAY) for window in self._windows))

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Refuse requests that do not come from a page of this server."""
        if not is_own_page(request.host, request.headers.get("Origin"), local=self._local):
            raise web.HTTPForbidden(text="this address only answers its own pages")
        token = request.path.removeprefix("/").partition("/")[0]
        if not secrets.compare_digest(token.encode(errors="replace"), self.token.encode()):
            raise web.HTTPForbidden(
                text="open the complete address that `blis-tui serve` printed: it contains a secret token"
            )
        return await handler(request)

    def _require_room(self) -> None:
        """Refuse a window beyond the maximum."""
        if len(self._windows) >= self._max_windows:
            raise web.HTTPServiceUnavailable(
                text=f"{self._max_windows} windows are open, which is the limit: close one, or see --max-windows"
            )

    async def handle_index(self, request: web.Request) -> web.Response:
        """Return the page, with addresses that work for its client."""
        self._require_room()
        here = copy(self)
        here.public_url = f"{request.scheme}://{request.host}"
        page = cast("web.Response", await Server.handle_index(here, request))
        nonce = secrets.token_urlsafe(16)
        page.text = with_terminal_focus(with_own_font(page.text or "")).replace("<script", f'<script nonce="{nonce}"')
        page.headers["Content-Security-Policy"] = policy(request.host, nonce)
        return page

    async def handle_websocket(self, request: web.Request) -> web.WebSocketResponse:
        """Handle the connection to a program, from its start to its end."""
        self._require_room()
        window = web.WebSocketResponse(heartbeat=_HEARTBEAT_S)
        self._windows.add(window)
        try:
            await window.prepare(request)
            program = Program(self._words, window, self)
            width, height = (to_int(request.query.get(name, ""), 0) for name in ("width", "height"))
            await program.start(width or 80, height or 24)
            try:
                await relay_input(window, program)
            finally:
                await program.stop()
        finally:
            self._windows.discard(window)
        return window


async def _drop(stream: asyncio.StreamReader | None) -> None:
    """Read a stream to its end and discard it."""
    while stream is not None and await stream.read(_PIECE_BYTES):
        pass


async def _add_security_headers(_request: web.Request, answer: web.StreamResponse) -> None:
    """Add to every answer the headers that restrict what a browser may do with it."""
    for name, value in _HEADERS.items():
        answer.headers.setdefault(name, value)


async def relay_input(window: web.WebSocketResponse, program: AppService) -> None:
    """Pass a window's messages to its program, until the window closes or sends an invalid message."""
    async for message in window:
        if message.type is not WSMsgType.TEXT:
            continue
        match _decoded(message.data):
            case ["stdin", str(typed)]:
                await program.send_bytes(typed.encode(errors="replace"))
            case ["resize", {"width": int(width), "height": int(height)}]:
                await program.set_terminal_size(width, height)
            case ["ping", str(mark)]:
                await window.send_json(["pong", mark])
            case ["blur"]:
                await program.blur()
            case ["focus"]:
                await program.focus()
            case _:
                _log.warning("closed a connection that sent something no blis-tui page sends")
                await window.close(code=WSCloseCode.UNSUPPORTED_DATA)


def clamped_size(width: int, height: int) -> tuple[int, int]:
    """Limit a terminal size, in columns and rows."""
    return max(1, min(width, MAX_COLUMNS)), max(1, min(height, MAX_ROWS))


def _decoded(text: str) -> object:
    """Decode a message of the page; return None if it is invalid."""
    try:
        return cast("object", json.loads(text))
    except (ValueError, RecursionError):
        return None


def with_own_font(page: str) -> str:
    """Replace the page's font by the server's own, so that nothing is fetched from elsewhere."""
    return _FOREIGN_FONT.sub(_OWN_FONT, page)


def with_terminal_focus(page: str) -> str:
    """Make the terminal in the page receive keys from the start."""
    return page.replace(_BUTTON, "").replace("</body>", _FOCUS)


def policy(host: str, nonce: str) -> str:
    """Return the content security policy: sources of this server, and scripts with the nonce.

    Inline styles are allowed because the terminal creates them.
    """
    allowed = {
        "script-src": f"'nonce-{nonce}'",
        "style-src": "'self' 'unsafe-inline'",
        "img-src": "'self' data:",
        "font-src": "'self'",
        "connect-src": f"'self' ws://{host} wss://{host}",
    }
    return "; ".join([_HEADERS["Content-Security-Policy"], *(f"{what} {where}" for what, where in allowed.items())])


def is_own_page(host: str, origin: str | None, *, local: bool) -> bool:
    """Return whether a request came from a page of this server.

    Args:
        host: the request's `Host`.
        origin: the request's `Origin`, if the browser sent one.
        local: whether the server listens on this machine only; another name for it then indicates DNS rebinding.
    """
    if _ADDRESS.fullmatch(host) is None:
        return False
    try:
        name = urlsplit(f"//{host}").hostname or ""
        return (origin is None or urlsplit(origin).netloc == host) and (not local or is_loopback(name))
    except ValueError:  # one of them is no valid address
        return False


def is_loopback(host: str) -> bool:
    """Return whether a name or address is a loopback one."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
