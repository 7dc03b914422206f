"""``blis-tui workload``: what the requests of a workload are like, and workloads made from others."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import click

from blis_tui.canonical import to_json
from blis_tui.cli import completion
from blis_tui.cli.failures import reported
from blis_tui.cli.files import require_spared
from blis_tui.cli.options import format_option, known_plugins, plugins_option

if TYPE_CHECKING:
    from collections.abc import Callable

_Command = TypeVar("_Command", bound="Callable[..., object]")

_OPTIONS = (
    click.option(
        "--set",
        "overrides",
        multiple=True,
        metavar="PATH=VALUE",
        help="Replace a value of the document; of a trace, such as trace.time_unit=ms.",
    ),
    click.option(
        "--seed", type=click.IntRange(min=0), help="Generate with this seed [default: the experiment's, or 0]."
    ),
    click.option("--requests", type=click.IntRange(min=1), help="Take so many requests at most."),
    click.option(
        "--trace-format", metavar="NAME", help="How to read a trace: a `format` that Workload documents take."
    ),
    plugins_option,
)


def _choosing(command: _Command) -> _Command:
    """Add the options that say which requests are meant."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@click.group("workload")
def workload() -> None:
    """Look at workloads and traces, and make them from others.

    Whatever takes requests takes a trace file, a Workload document or an experiment: a path, or the name of a workload
    or an experiment (see `blis-tui spec list`).
    """


@workload.command("describe")
@click.argument("source", metavar="WORKLOAD", shell_complete=completion.files)
@_choosing
@click.option(
    "--block-size",
    type=click.IntRange(min=1),
    default=16,
    show_default=True,
    help="Tokens of a block of the cache that prefixes are looked up in.",
)
@format_option("table", "json")
@click.option("--html", metavar="FILE", help="Also draw it, as one page that needs no network.")
@reported
def describe(
    source: str,
    overrides: tuple[str, ...],
    seed: int | None,
    requests: int | None,
    trace_format: str | None,
    plugins: tuple[str, ...],
    block_size: int,
    output_format: str,
    html: str | None,
) -> None:
    """Show what the requests of WORKLOAD are like.

    Rate and peaks, burstiness, lengths, how much of the prompts an infinite prefix cache would find, all this by
    client, tenant, SLO class and model, and sessions. Generated workloads show what is drawn, not what is declared.
    """
    from blis_tui.records.files import write_standard_output, write_text  # noqa: PLC0415  (heavy: only when it runs)
    from blis_tui.traffic import figures  # noqa: PLC0415
    from blis_tui.traffic.ledger import Ledger  # noqa: PLC0415
    from blis_tui.traffic.opening import Choice, open_traffic  # noqa: PLC0415
    from blis_tui.traffic.page import page  # noqa: PLC0415
    from blis_tui.traffic.text import as_text  # noqa: PLC0415

    choice = Choice(overrides, seed, requests, trace_format, known_plugins(plugins))
    traffic = open_traffic(source, choice)
    require_spared({"--html": html}, traffic.files)
    found = figures.describe(traffic, Ledger(traffic.requests, block_size))
    if html:
        write_text(html, page(found))
    write_standard_output(to_json(found.to_dict()) if output_format == "json" else as_text(found))
