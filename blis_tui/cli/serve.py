"""``blis-tui serve``: the terminal interface in a browser."""

from __future__ import annotations

import errno
import socket
import sys

import click

from blis_tui.base.errors import install_command
from blis_tui.cli import completion
from blis_tui.cli.help import Command
from blis_tui.cli.options import host_option, known_plugins, plugins_option, seed_option, set_option
from blis_tui.cli.standard_streams import ExitCode, reported, tell


@click.command(cls=Command)
@click.argument("source", metavar="[SPEC]", required=False, shell_complete=completion.experiments)
@host_option
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8000,
    show_default=True,
    help="Port to listen on; 0 picks a free one.",
)
@click.option(
    "--max-windows",
    type=click.IntRange(1),
    default=8,
    show_default=True,
    help="Maximum number of browser windows open at once.",
)
@set_option
@seed_option
@plugins_option
@reported
def serve(
    source: str | None,
    host: str,
    port: int,
    max_windows: int,
    overrides: tuple[str, ...],
    seed: int | None,
    plugins: tuple[str, ...],
) -> None:
    """Serve the terminal interface in a browser.

    SPEC is as for `blis-tui tui`. Each browser window runs a program of its own. The printed address contains a secret
    token, a new one each time: anyone who knows it can run experiments and edit files. By default only this machine
    can connect, because the traffic is not encrypted. Ctrl-C stops the server.
    """
    if source is None and (overrides or plugins or seed is not None):
        raise click.UsageError("--set, --seed and --plugins need an experiment: give its name as SPEC")
    try:
        from blis_tui.cli.web_server import WebServer, is_loopback  # noqa: PLC0415  (an extra that may be missing)
    except ImportError:
        raise click.UsageError(f"this needs an extra package: {install_command('web')}") from None
    if source is not None:
        from blis_tui.spec.load import load  # noqa: PLC0415  (heavy imports only when the command runs)

        load(
            source, overrides=overrides, seed=seed, plugins=known_plugins(plugins)
        )  # report errors here instead of in each browser
    port = _free_port(host, port)
    local = is_loopback(host)
    if not local:
        tell(
            "warning: not encrypted: anyone who can read the network traffic can run experiments and edit files here",
        )
    server = WebServer(
        program(source, overrides, seed, plugins), host=host, port=port, local=local, max_windows=max_windows
    )

    def say() -> None:
        address = f"{port}/{server.token}/"
        others = f", for others at http://{socket.gethostname()}:{address}" if _is_any(host) else ""
        tell(f"blis-tui is at http://{_authority(host)}:{address}{others}  (Ctrl-C ends it)")

    server.run(say)


def program(
    source: str | None, overrides: tuple[str, ...], seed: int | None, plugins: tuple[str, ...] = ()
) -> list[str]:
    """Return the command that each browser window runs."""
    words = [sys.executable, "-m", "blis_tui", "tui"]
    for override in overrides:
        words += ["--set", override]
    for plugin in plugins:
        words += ["--plugins", plugin]
    if seed is not None:
        words += ["--seed", str(seed)]
    if source is not None:
        words += ["--", source]
    return words


def _authority(host: str) -> str:
    """Return the host for a URL that works on this machine."""
    if _is_any(host):
        return "127.0.0.1"
    return f"[{host}]" if ":" in host else host


def _is_any(host: str) -> bool:
    """Return whether a host stands for every address of this machine."""
    return host in ("0.0.0.0", "::", "")  # noqa: S104  (the user's choice, with a warning)


def _free_port(host: str, port: int) -> int:
    """Return the port, or a free one for 0.

    Exits if the address cannot be used.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
            return int(probe.getsockname()[1])
    except OSError as error:
        taken = error.errno == errno.EADDRINUSE
        why = "the port is in use; choose another with --port" if taken else error.strerror or str(error)
        tell(f"error: cannot listen on {host}:{port}: {why}")
        sys.exit(ExitCode.IO)
