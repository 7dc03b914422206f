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

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from collections.abc import Callable, Sequence

    from aiohttp.typedefs import Handler

MAX_COLUMNS: Final = 1_000
MAX_ROWS: Final = 400
"""The largest terminal, about what an 8K display shows. A program's memory grows with every cell that it is told of."""
DRIVER: Final = "blis_tui.tui.web_driver:PipeDriver"
_log: Final = logging.getLogger(__name__)
_GRACE_S: Final = 3.0
"""How long a program may take to end, in seconds, before it is killed."""
_PIECE_BYTES: Final = 65_536
_HEARTBEAT_S: Final = 15.0
"""How often a window is asked whether it is still there, in seconds."""
_FOREIGN_FONT: Final = re.compile(r"<link[^>]*fonts\.googleapis[^>]*>")
_OWN_FONT: Final = (
    "<style>@font-face { font-family: 'Roboto Mono'; "
    "src: url('static/fonts/RobotoMono-VariableFont_wght.ttf'); font-weight: 100 700; }</style>"
)
_BUTTON: Final = ' onClick="refresh()"'
"""What a button of its base's page does, in a way that a page with a policy may not use."""
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
"""Gives the keys to the terminal once it is there: without, nothing happens until it is clicked."""
_HEADERS: Final = {
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
}
"""On every answer: no page may show this one in a frame, and nothing is loaded that :func:`policy` does not name."""
_ADDRESS: Final = re.compile(r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?")
"""A host with its port, and nothing beside them: it is copied into the page."""


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
        """Start it on a terminal of this size, within reason."""
        await super().start(*bounded(width, height))

    async def set_terminal_size(self, width: int, height: int) -> None:
        """Tell it that its terminal has another size, within reason."""
        await super().set_terminal_size(*bounded(width, height))

    def _build_environment(self, width: int = 80, height: int = 24) -> dict[str, str]:
        """Its terminal is the page's, not the one that the server was started from."""
        terminal = {"TERM": "xterm-256color", "COLORTERM": "truecolor", "TEXTUAL_DRIVER": DRIVER}
        return {**super()._build_environment(width, height), **terminal}

    async def _open_app_process(self, width: int = 80, height: int = 24) -> Process:
        """Start it, with no shell in between that would have to be ended, too."""
        pipe = asyncio.subprocess.PIPE
        self._process = process = await asyncio.create_subprocess_exec(
            *self._words, stdin=pipe, stdout=pipe, stderr=pipe, env=self._build_environment(width, height)
        )
        self._stdin = process.stdin
        return process

    async def _tell(self, text: str) -> None:
        """Tell the page something; it looks for downloads at ``/download/``, where they need the token, too."""
        kind, value = json.loads(text)
        if kind == "deliver_file_start":
            value = f"../{self._server.token}/download/{value}"
        await self._websocket.send_json([kind, value])

    async def run(self) -> None:
        """Show what it says, until it ends, and its window with it; or until its window does, and then let it finish.

        What it still says is read and dropped: it could not end while it waits for a reader, and asyncio takes no
        process to be over before its pipes have been read to their ends.
        """
        await super().run()
        await self._close()
        if self._process is not None:
            await asyncio.gather(_drop(self._process.stdout), _drop(self._process.stderr))

    async def _close(self) -> None:
        await self._websocket.close()

    async def stop(self) -> None:
        """Ask it to end, and wait until it has; kill it when it does not."""
        if self._process is None:
            return
        late = asyncio.get_running_loop().call_later(_GRACE_S, self._kill)
        try:
            await super().stop()
            await self._process.wait()
        finally:  # also when the server ends meanwhile and waits no longer
            late.cancel()
            self._kill()
        self.stdin.close()
        with suppress(ConnectionError):
            await self.stdin.wait_closed()

    def _kill(self) -> None:
        """End it if it has not ended, and close its pipes, which a process that it started may still hold."""
        if self._process is not None:
            self._process._transport.close()  # type: ignore[attr-defined]  # noqa: SLF001


class WebServer(Server):
    """Answers who knows the token, and says nothing by itself.

    Args:
        words: the command that each window runs.
        host: the address to listen on.
        port: the port to listen on.
        local: whether that address can be reached from this machine only.
        max_windows: how many windows may be open at once.

    Attributes:
        token: what every path begins with. No other page and no other user of the machine can guess it.
    """

    def __init__(self, words: Sequence[str], *, host: str, port: int, local: bool, max_windows: int) -> None:
        super().__init__(words[0], host=host, port=port, title="blis-tui")
        self.token = secrets.token_urlsafe()
        self._words = words
        self._local = local
        self._max_windows = max_windows
        self._windows: set[web.WebSocketResponse] = set()

    def run(self, ready: Callable[[], None]) -> None:
        """Answer until Ctrl-C; `ready` is called when it does."""
        handler = logging.StreamHandler()
        handler.setFormatter(OneLine())
        logging.basicConfig(level=logging.WARNING, handlers=[handler])
        with redirect_stdout(sys.stderr):  # where its base writes what a program said before it failed
            web.run_app(
                self._make_app(), host=self.host, port=self.port, access_log=None, print=lambda *_, **__: ready()
            )

    async def _make_app(self) -> web.Application:
        """The routes of its base, below the token and without listings of folders."""
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
        app.on_response_prepare.append(_protect)
        return app

    async def on_shutdown(self, app: web.Application) -> None:  # noqa: ARG002  (its base's signature)
        """Close the windows, which ends their programs."""
        await asyncio.gather(*(window.close(code=WSCloseCode.GOING_AWAY) for window in self._windows))

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Refuse what does not come from a page of this server."""
        if not is_own_page(request.host, request.headers.get("Origin"), local=self._local):
            raise web.HTTPForbidden(text="this address only answers its own pages")
        token = request.path.removeprefix("/").partition("/")[0]
        if not secrets.compare_digest(token.encode(errors="replace"), self.token.encode()):
            raise web.HTTPForbidden(
                text="open the complete address that `blis-tui serve` printed: it contains a secret token"
            )
        return await handler(request)

    def _require_room(self) -> None:
        """Refuse one window more than there may be."""
        if len(self._windows) >= self._max_windows:
            raise web.HTTPServiceUnavailable(
                text=f"{self._max_windows} windows are open, which is the limit: close one, or see --max-windows"
            )

    async def handle_index(self, request: web.Request) -> web.Response:
        """The page, with addresses that work where it is looked at."""
        self._require_room()
        here = copy(self)
        here.public_url = f"{request.scheme}://{request.host}"
        page = cast("web.Response", await Server.handle_index(here, request))
        nonce = secrets.token_urlsafe(16)
        page.text = focusing(own_font(page.text or "")).replace("<script", f'<script nonce="{nonce}"')
        page.headers["Content-Security-Policy"] = policy(request.host, nonce)
        return page

    async def handle_websocket(self, request: web.Request) -> web.WebSocketResponse:
        """The connection to a program, from its start to its end."""
        self._require_room()
        window = web.WebSocketResponse(heartbeat=_HEARTBEAT_S)
        self._windows.add(window)
        try:
            await window.prepare(request)
            program = Program(self._words, window, self)
            width, height = (to_int(request.query.get(name, ""), 0) for name in ("width", "height"))
            await program.start(width or 80, height or 24)
            try:
                await converse(window, program)
            finally:
                await program.stop()
        finally:
            self._windows.discard(window)
        return window


async def _drop(said: asyncio.StreamReader | None) -> None:
    """Read all that is said until it ends, and keep none of it."""
    while said is not None and await said.read(_PIECE_BYTES):
        pass


async def _protect(_request: web.Request, answer: web.StreamResponse) -> None:
    """Say in every answer what a browser may do with it."""
    for name, value in _HEADERS.items():
        answer.headers.setdefault(name, value)


async def converse(window: web.WebSocketResponse, program: AppService) -> None:
    """Hand a program what its window says, until it closes or says what no window says."""
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


def bounded(width: int, height: int) -> tuple[int, int]:
    """A size of a terminal in columns and rows, or what is next to it among those that programs get."""
    return max(1, min(width, MAX_COLUMNS)), max(1, min(height, MAX_ROWS))


def _decoded(text: str) -> object:
    """A message of the page; None when it is none."""
    try:
        return cast("object", json.loads(text))
    except (ValueError, RecursionError):
        return None


class OneLine(logging.Formatter):
    """What went wrong, in a line that no client can break or colour."""

    def format(self, record: logging.LogRecord) -> str:
        """The level, the message, and what the exception says."""
        text = record.getMessage()
        if record.exc_info and (error := record.exc_info[1]) is not None:
            text += f": {error or type(error).__name__}"
        line = " ".join(text.split())
        return f"{record.levelname.lower()}: " + "".join(char if char.isprintable() else "\ufffd" for char in line)


def own_font(page: str) -> str:
    """The page with the font that the server has itself: nothing is fetched from elsewhere."""
    return _FOREIGN_FONT.sub(_OWN_FONT, page)


def focusing(page: str) -> str:
    """The page with the keys going to the terminal from the beginning."""
    return page.replace(_BUTTON, "").replace("</body>", _FOCUS)


def policy(host: str, nonce: str) -> str:
    """What the page may load and connect to: what this server has, and the scripts that have the nonce.

    The terminal in it makes styles of its own.
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
    """Whether a request came from a page that this server made.

    Args:
        host: the request's `Host`.
        origin: the request's `Origin`, if the browser named one.
        local: whether the server listens on this machine only; then other names for it are a trick.
    """
    if _ADDRESS.fullmatch(host) is None:
        return False
    try:
        name = urlsplit(f"//{host}").hostname or ""
        return (origin is None or urlsplit(origin).netloc == host) and (not local or is_loopback(name))
    except ValueError:  # one of them is no address
        return False


def is_loopback(host: str) -> bool:
    """Whether a name or an address is this machine's for itself."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
