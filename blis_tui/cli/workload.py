"""``blis-tui workload``: describes workloads, and derives new ones."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from blis_tui.base.canonical import to_json
from blis_tui.base.classes import dataclass
from blis_tui.base.text import printable
from blis_tui.base.units import plural
from blis_tui.cli import completion
from blis_tui.cli.help import Group
from blis_tui.cli.options import Chosen, FiniteRange, format_option, grouped, known_plugins, plugins_option
from blis_tui.cli.standard_streams import print_data, print_text, reported, require_no_overwrite, tell

if TYPE_CHECKING:
    from collections.abc import Iterable

    from blis_tui.live.traffic.opening import Choice, Traffic


_BLOCK_SIZE = click.option(
    "--block-size",
    type=click.IntRange(min=1),
    default=16,
    show_default=True,
    help="Block size, in tokens, of the prefix cache that is assumed.",
)
_STAGE = "Follow the trace's rate in stages of this length [default: one rate]."


@dataclass(frozen=True, slots=True, kw_only=True)
class _Chosen(Chosen):
    """The selected requests."""

    requests: int | None
    trace_format: str | None
    tokenizer: str | None

    def choice(self) -> Choice:
        """Return the selection, with the plug-ins loaded."""
        from blis_tui.live.traffic.opening import Choice  # noqa: PLC0415  (heavy imports only when the command runs)

        return Choice(self.overrides, self.seed, self.requests, self.trace_format, self.known(), self.tokenizer)


_choosing: Final = grouped(
    "chosen",
    _Chosen,
    click.option(
        "--set",
        "overrides",
        multiple=True,
        metavar="PATH=VALUE",
        help="Override a value of the document; for a trace, a value such as trace.time_unit=ms.",
    ),
    click.option(
        "--seed", type=click.IntRange(min=0), help="Generate with this seed [default: the experiment's, or 0]."
    ),
    click.option("--requests", type=click.IntRange(min=1), help="Maximum number of requests to use."),
    click.option(
        "--trace-format",
        metavar="NAME",
        help="Format of a trace, as in `format` of Workload documents [default: detected from the file].",
    ),
    click.option(
        "--tokenizer",
        metavar="FILE",
        help="Count the tokens of a trace's texts with this tokenizer.json (needs the package `tokenizers`)"
        " [default: estimated from their bytes, `trace.bytes_per_token`].",
    ),
    plugins_option,
)


_SIMULATED: Final = (
    "clients wait for answers: the file has the times at which they sent in this simulation"
    " (with `pacing: answers`, requests of sessions wait again)"
)


@click.group("workload", cls=Group)
def workload() -> None:
    """Describe, convert, combine and fit workloads and traces.

    Each command takes a trace, a Workload document or an experiment: a path, or a name from `blis-tui spec list`.
    """


@workload.command("describe")
@click.argument("source", metavar="WORKLOAD", shell_complete=completion.files)
@_choosing
@_BLOCK_SIZE
@format_option("table", "json")
@click.option("--html", metavar="FILE", help="Also write charts, as one HTML page that needs no network.")
@reported
def describe(
    source: str,
    chosen: _Chosen,
    block_size: int,
    output_format: str,
    html: str | None,
) -> None:
    """Summarise the requests of WORKLOAD.

    Shows rate and peaks, burstiness, lengths, and the share of prompt tokens that an infinite prefix cache would hit,
    overall and by client, tenant, SLO class and model; and sessions. For a generated workload, these describe the
    requests that were drawn, not the declared distributions.
    """
    from blis_tui.live.traffic import traffic_figures  # noqa: PLC0415
    from blis_tui.live.traffic.describe import (  # noqa: PLC0415
        as_text,
        page,
    )
    from blis_tui.live.traffic.ledger import Ledger  # noqa: PLC0415
    from blis_tui.live.traffic.opening import open_traffic  # noqa: PLC0415
    from blis_tui.output.result_files import write_text  # noqa: PLC0415  (heavy: only when it runs)

    traffic = open_traffic(source, chosen.choice())
    require_no_overwrite({"--html": html}, traffic.files)
    recorded = traffic.workload.trace is not None
    description = traffic_figures.describe(traffic, Ledger(traffic.requests, block_size, recorded=recorded))
    if html:
        write_text(html, page(description))
    print_text(to_json(description.to_dict()) if output_format == "json" else as_text(description), nl=False)


@workload.command("convert")
@click.argument("source", metavar="WORKLOAD", shell_complete=completion.files)
@_choosing
@click.option("-o", "--output", metavar="OUT.csv", help="Write to this file instead of standard output.")
@reported
def convert(
    source: str,
    chosen: _Chosen,
    output: str | None,
) -> None:
    """Convert WORKLOAD to a CSV trace that can be replayed.

    Replaying it with `workload: {trace: {file: OUT.csv}}` gives the same requests, except that they no longer name
    their clients: arrival times, lengths, shared prefixes, media, SLO classes, tenants, deadlines, sessions and so on.
    """
    from blis_tui.live.traffic.describe import trace_csv  # noqa: PLC0415  (heavy imports only when the command runs)
    from blis_tui.live.traffic.opening import open_traffic  # noqa: PLC0415

    traffic = open_traffic(source, chosen.choice())
    if traffic.cut is not None:
        name = printable(traffic.name)
        tell(f"note: `{name}` is endless: these are its first {plural(traffic.cut, 'request')} (see --requests)")
    _tell_left_out(traffic)
    if traffic.simulated:
        tell(f"note: {_SIMULATED}")
    if any(client.network for client in traffic.workload.clients):
        tell("note: the file does not include the clients' network: latencies will be those at the cluster")
    _write(output, trace_csv(traffic.requests), traffic.files)


@workload.command("compose")
@click.argument("sources", metavar="WORKLOAD...", nargs=-1, required=True, shell_complete=completion.files)
@click.option(
    "--trace-format",
    metavar="NAME",
    help="Format of the traces, as in `format` of Workload documents [default: detected from the file].",
)
@click.option("--name", help="Name of the document [default: from the file's name].")
@click.option("-o", "--output", metavar="OUT", help="Write to this file instead of standard output.")
@plugins_option
@reported
def compose(
    sources: tuple[str, ...],
    trace_format: str | None,
    name: str | None,
    output: str | None,
    plugins: tuple[str, ...],
) -> None:
    """Combine several workloads into one.

    Workload documents (and the workloads of experiments) are combined into one document with the clients of all, each
    at its own rate. Traces are merged into one trace, ordered by time; dates and Unix times count from each trace's
    first request, so traces of different hours overlap. Anything that had to be changed is listed on standard error.
    """
    from blis_tui.live.traffic.compose import are_traces, composed, merged  # noqa: PLC0415  (as above)
    from blis_tui.live.traffic.describe import trace_csv  # noqa: PLC0415
    from blis_tui.live.traffic.opening import Choice, open_traffic  # noqa: PLC0415

    known = known_plugins(plugins)
    choice = Choice(trace_format=trace_format, plugins=known, generating=False)
    parts = [open_traffic(source, choice) for source in sources]
    files = [file for part in parts for file in part.files]
    for part in parts:
        _tell_left_out(part)
    if are_traces(parts):
        _write(output, trace_csv(merged(parts)), files)
        return
    result = composed(parts, name or _document_name(output, "composed"), known)
    _write(output, [result.text], files)
    for note in result.notes:
        tell(printable(f"note: {note}"))


@workload.command("fit")
@click.argument("source", metavar="TRACE", shell_complete=completion.files)
@_choosing
@_BLOCK_SIZE
@click.option("--stage", "stage_s", type=FiniteRange(min=0, min_open=True), metavar="SECONDS", help=_STAGE)
@click.option("--name", help="Name of the document [default: from the file's name].")
@format_option("table", "json", about="Format of the goodness of fit: for people or for programs.")
@click.option("-o", "--output", metavar="OUT.yaml", help="Write the document to this file instead of standard output.")
@reported
def fit_(
    source: str,
    chosen: _Chosen,
    block_size: int,
    stage_s: float | None,
    name: str | None,
    output_format: str,
    output: str | None,
) -> None:
    """Fit a Workload document to TRACE, so that it generates similar requests.

    The trace's tenants, SLO classes, models and prefixes become clients. Rate, arrival process, lengths and prefix
    reuse follow the trace as far as a document can express them; how closely, as Kolmogorov-Smirnov distances, is
    written to the document and to standard output (to standard error if the document goes to standard output).
    """
    from blis_tui.live.traffic.describe import fit_text  # noqa: PLC0415
    from blis_tui.live.traffic.fit import fit  # noqa: PLC0415
    from blis_tui.live.traffic.ledger import Ledger  # noqa: PLC0415
    from blis_tui.live.traffic.opening import open_traffic, provenance  # noqa: PLC0415

    choice = chosen.choice()
    traffic = open_traffic(source, choice)
    ledger = Ledger(traffic.requests, block_size, recorded=traffic.workload.trace is not None)
    origin = provenance(traffic, len(ledger))
    called = name or _document_name(output, "fitted")
    fitted = fit(ledger, called, traffic.name, origin, stage_s=stage_s, plugins=choice.plugins)
    _write(output, [fitted.text], traffic.files)
    text = to_json(fitted.to_dict()) if output_format == "json" else fit_text(fitted)
    if output in (None, "-"):
        tell(text, nl=False)
    else:
        print_text(text, nl=False)
    _tell_left_out(traffic)
    for warning in fitted.warnings:
        tell(printable(f"warning: {warning}"))


def _document_name(output: str | None, otherwise: str) -> str:
    """Return the name of the document in a file: the file's, in the characters of names."""
    from blis_tui.spec.foreign.reading import as_name  # noqa: PLC0415  (as above)

    return otherwise if output in (None, "-") else as_name(Path(str(output)).name.partition(".")[0])


def _tell_left_out(traffic: Traffic) -> None:
    """Print what a trace's format left out."""
    for omission in traffic.left_out:
        tell(printable(f"note: {traffic.name}: left out {omission}"))


def _write(output: str | None, lines: Iterable[str], read: Iterable[Path]) -> None:
    """Write a whole file, or nothing."""
    from blis_tui.output.result_files import atomic_text  # noqa: PLC0415

    if output is None or output == "-":
        print_data("".join(lines))
        return
    require_no_overwrite({"-o": output}, read)
    with atomic_text(output) as file:
        file.writelines(lines)
