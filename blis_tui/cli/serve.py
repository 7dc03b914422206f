"""``blis-tui serve``: the terminal interface in a browser."""

from __future__ import annotations

import errno
import ipaddress
import re
import shlex
import socket
import sys
from copy import copy
from typing import TYPE_CHECKING, Final, cast
from urllib.parse import urlsplit

import click

from blis_tui.cli import completing
from blis_tui.cli.exit_codes import ExitCode
from blis_tui.cli.failures import reported
from blis_tui.cli.options import seed_option, set_option

if TYPE_CHECKING:
    from aiohttp import web
    from textual_serve.server import Server

_FOREIGN_FONT: Final = re.compile(r"<link[^>]*fonts\.googleapis[^>]*>")
_OWN_FONT: Final = (
    "<style>@font-face { font-family: 'Roboto Mono'; "
    "src: url('/static/fonts/RobotoMono-VariableFont_wght.ttf'); font-weight: 100 700; }</style>"
)
_FOCUS: Final = """<script>
window.addEventListener("load", () => {
  const look = setInterval(() => {
    const keys = document.querySelector(".xterm-helper-textarea");
    if (keys) { clearInterval(look); keys.focus(); }
  }, 50);
});
</script>
</body>"""
"""Gives the keys to the terminal once it is there: without, nothing happens until somebody clicks it."""


@click.command()
@click.argument("source", metavar="[SPEC]", required=False, shell_complete=completing.experiments)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="Port to listen on; 0 = a free one."
)
@set_option
@seed_option
@reported
def serve(source: str | None, host: str, port: int, overrides: tuple[str, ...], seed: int | None) -> None:
    """Show the terminal interface in a browser.

    SPEC is as for `blis-tui tui`. Each browser window has its own program. There is no authentication: who reaches the
    address can run experiments and edit files, so the default is this machine only. Ctrl-C ends it.
    """
    if source is None and (overrides or seed is not None):
        raise click.UsageError("--set and --seed say something about an experiment: name it as SPEC")
    try:
        from textual_serve.server import Server  # noqa: PLC0415, F401  (an extra that may not be there)
    except ImportError:
        raise click.UsageError("this needs an extra package: pip install 'blis-tui[web]'") from None
    if source is not None:
        from blis_tui.spec.load import load  # noqa: PLC0415  (heavy imports only when the command runs)

        load(source, overrides=overrides, seed=seed)  # what is wrong with it is said here, not in each browser
    port = _free_port(host, port)
    if not _is_loopback(host):
        click.echo(
            f"warning: no authentication: everybody who reaches {host}:{port} can run experiments and edit files here",
            err=True,
        )
    _server(program(source, overrides, seed), host, port).serve()


def program(source: str | None, overrides: tuple[str, ...], seed: int | None) -> str:
    """The command that each browser window runs."""
    words = [sys.executable, "-m", "blis_tui", "tui"]
    for override in overrides:
        words += ["--set", override]
    if seed is not None:
        words += ["--seed", str(seed)]
    if source is not None:
        words += ["--", source]
    return shlex.join(words)


def _server(command: str, host: str, port: int) -> Server:
    """The server, which says nothing by itself and answers only pages of its own."""
    from aiohttp import web  # noqa: PLC0415
    from textual_serve.server import Server  # noqa: PLC0415

    local = _is_loopback(host)

    class Guarded(Server):
        """Standard output stays empty; another site's page in the same browser cannot reach the program."""

        async def on_startup(self, app: web.Application) -> None:
            """No banner."""

        def serve(self, debug: bool = False) -> None:  # noqa: ARG002  (its base's signature)
            """Until Ctrl-C; the address is said when it answers."""
            web.run_app(self._make_app(), host=host, port=port, access_log=None, print=self._say)

        def _say(self, _banner: str) -> None:
            others = f", for others at http://{socket.gethostname()}:{port}" if _is_any(host) else ""
            click.echo(f"blis-tui is at {self.public_url}{others}  (Ctrl-C ends it)", err=True)

        async def handle_index(self, request: web.Request) -> web.Response:
            """The page, with addresses that work where it is looked at."""
            _require_own_page(request.host, request.headers.get("Origin"), local=local)
            here = copy(self)
            here.public_url = f"{request.scheme}://{request.host}"
            page = cast("web.Response", await Server.handle_index(here, request))
            page.text = focusing(own_font(page.text or ""))
            return page

        async def handle_websocket(self, request: web.Request) -> web.WebSocketResponse:
            """The connection to the program."""
            _require_own_page(request.host, request.headers.get("Origin"), local=local)
            return await super().handle_websocket(request)

    return Guarded(command, host=host, port=port, title="blis-tui", public_url=f"http://{_authority(host)}:{port}")


def own_font(page: str) -> str:
    """The page with the font that the server has itself: nothing is fetched from elsewhere."""
    return _FOREIGN_FONT.sub(_OWN_FONT, page)


def focusing(page: str) -> str:
    """The page with the keys going to the terminal from the beginning."""
    return page.replace("</body>", _FOCUS)


def _require_own_page(host: str, origin: str | None, *, local: bool) -> None:
    """Refuse what a page of another site asks for, and, on this machine only, what came by another name."""
    from aiohttp import web  # noqa: PLC0415

    if not is_own_page(host, origin, local=local):
        raise web.HTTPForbidden(text="this address only answers pages of its own")


def is_own_page(host: str, origin: str | None, *, local: bool) -> bool:
    """Whether a request came from a page that this server made.

    Args:
        host: the request's `Host`.
        origin: the request's `Origin`, if the browser named one.
        local: whether the server listens on this machine only; then other names for it are a trick.
    """
    if origin is not None and urlsplit(origin).netloc != host:
        return False
    return not local or _is_loopback(urlsplit(f"//{host}").hostname or "")


def _authority(host: str) -> str:
    """The host as it stands in a URL that works on this machine."""
    if _is_any(host):
        return "127.0.0.1"
    return f"[{host}]" if ":" in host else host


def _is_any(host: str) -> bool:
    """Whether a host stands for every address of this machine."""
    return host in ("0.0.0.0", "::", "")  # noqa: S104  (the user's choice, with a warning)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _free_port(host: str, port: int) -> int:
    """The port, or a free one for 0.

    Exits when nobody can listen there.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
            return int(probe.getsockname()[1])
    except OSError as error:
        taken = error.errno == errno.EADDRINUSE
        why = "the port is taken; choose another with --port" if taken else error.strerror or str(error)
        click.echo(f"error: cannot listen on {host}:{port}: {why}", err=True)
        sys.exit(ExitCode.IO)
