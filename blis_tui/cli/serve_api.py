"""``blis-tui serve-api``: an OpenAI-compatible endpoint that answers at simulated times."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

import click

from blis_tui.base.classes import dataclass
from blis_tui.base.errors import InputError, install_command
from blis_tui.cli import completion
from blis_tui.cli.help import Command
from blis_tui.cli.options import (
    Chosen,
    FiniteRange,
    grouped,
    host_option,
    plugins_option,
    seed_option,
    set_option,
)
from blis_tui.cli.signals import graceful_stop, log_in_lines
from blis_tui.cli.standard_streams import reported, require_different_files, require_no_overwrite, tell

if TYPE_CHECKING:
    from collections.abc import Iterable

    from blis_tui.cli.signals import GracefulStop
    from blis_tui.live.serving.server import Endpoint

_LATE_US: Final = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Address:
    """Where it listens, to how many, and where it publishes KV cache events."""

    host: str
    port: int
    most_connections: int
    kv_events: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Written:
    """What is written at the end."""

    output: str | None
    requests_file: str | None

    def files(self) -> dict[str, str | None]:
        """The output files, by option."""
        return {"-o": self.output, "--requests": self.requests_file}


@click.command("serve-api", cls=Command)
@click.argument("source", metavar="SPEC", shell_complete=completion.experiments)
@grouped(
    "address",
    _Address,
    host_option,
    click.option(
        "--port",
        type=click.IntRange(0, 65535),
        default=8000,
        show_default=True,
        help="Port to listen on; 0 picks a free one.",
    ),
    click.option(
        "--max-connections",
        "most_connections",
        type=click.IntRange(min=1),
        default=1000,
        show_default=True,
        help="Maximum number of open connections; idle ones make way for new ones.",
    ),
    click.option(
        "--kv-events", metavar="ADDRESS", help="Publish KV cache events at this address, such as tcp://*:5557."
    ),
)
@click.option(
    "--speed",
    type=FiniteRange(min=0.001, max=1000),
    default=1.0,
    show_default=True,
    help="Simulated seconds per real second.",
)
@grouped(
    "written",
    _Written,
    click.option("-o", "--output", metavar="FILE", help="When the server stops, write the report of what was served."),
    click.option(
        "--requests",
        "requests_file",
        metavar="FILE.csv",
        help="When the server stops, write one row per request; the file can be replayed as a trace.",
    ),
)
@grouped("changed", Chosen, set_option, seed_option, plugins_option)
@reported
def serve_api(source: str, address: _Address, speed: float, written: _Written, changed: Chosen) -> None:
    """Run an OpenAI-compatible server that answers at simulated times, without a GPU.

    It simulates the cluster of SPEC, and has OpenAI's completions, chat and responses, Anthropic's messages, tools,
    LoRA adapters, and /metrics with vLLM's names. Answers are meaningless words: `max_tokens` long with `ignore_eos`,
    otherwise as long as in SPEC's workload. Ctrl-C stops the server.
    """
    try:
        from blis_tui.live.serving.server import Endpoint  # noqa: PLC0415  (an extra that may be missing)
    except ImportError:
        raise click.UsageError(f"this needs extra packages: {install_command('serve-api')}") from None
    from blis_tui.spec.load import build, resolve_source  # noqa: PLC0415  (heavy imports only when the command runs)

    require_different_files(written.files())
    known = changed.known()
    resolved = resolve_source(source, overrides=changed.overrides, seed=changed.seed, plugins=known)
    experiment = build(resolved)
    require_no_overwrite(written.files(), resolved.files)
    with graceful_stop() as stop_signal, ExitStack() as opened:
        files = _Outputs(written, opened)
        publisher = None
        if address.kv_events is not None:
            from blis_tui.live.serving.kv_events import KvPublisher  # noqa: PLC0415

            if len({pool.engine.block_size_tokens for pool in experiment.pools}) > 1:
                raise click.UsageError("--kv-events needs the same engine.block_size_tokens in all pools")
            publisher = KvPublisher(address.kv_events)
            opened.callback(publisher.close)

        log_in_lines()
        endpoint = Endpoint(experiment, speed=speed, kv_events=publisher)
        try:
            asyncio.run(_served(endpoint, address, stop_signal))
        except InputError:  # nothing could be served
            raise
        except Exception as error:  # noqa: BLE001  (raised again, after what was served is written)
            endpoint.failure = endpoint.failure or error
        _finish(endpoint, files)


class _Outputs:
    """The files to write at the end, opened before serving, so that errors appear then."""

    def __init__(self, written: _Written, opened: ExitStack) -> None:
        from blis_tui.output.result_files import atomic_files  # noqa: PLC0415

        self._opened = opened.enter_context(ExitStack())
        files = self._opened.enter_context(atomic_files())
        names = (written.output, written.requests_file)
        self._files = tuple(None if name is None else files.text(name) for name in names)

    def write(self, *contents: Iterable[str]) -> None:
        """Write and publish the report and the requests, both or neither."""
        with self._opened:
            for file, lines in zip(self._files, contents, strict=True):
                if file is not None:
                    file.writelines(lines)


async def _served(endpoint: Endpoint, address: _Address, stop_signal: GracefulStop) -> None:
    """Serve until a signal arrives."""
    from blis_tui.live.serving.connections import possible_connections  # noqa: PLC0415
    from blis_tui.live.serving.server import Address, run  # noqa: PLC0415

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    stop_signal.tell = lambda: loop.is_closed() or loop.call_soon_threadsafe(stop.set)
    most = possible_connections(address.most_connections)

    def announce(opened: int) -> None:
        where = f"[{address.host}]" if ":" in address.host else address.host
        if most < address.most_connections:
            tell(f"note: no more than {most:,} connections at a time: the limit of open files is low (ulimit -Hn)")
        tell(f"serving at http://{where}:{opened}  (Ctrl-C ends it)")

    await run(endpoint, Address(host=address.host, port=address.port, most_connections=most), announce, stop)


def _finish(endpoint: Endpoint, files: _Outputs) -> None:
    """Write what was served, and print a summary.

    Raises:
        Exception: what ended the simulation, after the files are written, or a file that cannot be.
    """
    from blis_tui.base.units import plural, span_text  # noqa: PLC0415
    from blis_tui.live.serving.shared_prefixes import served_csv  # noqa: PLC0415

    report = endpoint.core.simulation.report(complete=False, verify=False)
    files.write([report.to_json()], served_csv(endpoint.core.requests, report.rows))
    tell(f"served {plural(report.requests.completed, 'request')} of {report.requests.total:,}")
    if endpoint.late_us > _LATE_US:
        tell(f"note: the simulation was up to {span_text(endpoint.late_us)} behind real time: this machine was busy")
    if endpoint.failure is not None:
        raise endpoint.failure
