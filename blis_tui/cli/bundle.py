"""``blis-tui bundle``, and how other commands open bundles."""

from __future__ import annotations

import json
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from blis_tui.base.text import printable, printable_lines
from blis_tui.base.units import plural, time_text
from blis_tui.cli import completion
from blis_tui.cli.help import Command
from blis_tui.cli.options import Chosen, case_overrides, chosen_options, mention_cases
from blis_tui.cli.signals import interrupting_on_signals
from blis_tui.cli.standard_streams import reported, tell

if TYPE_CHECKING:
    from collections.abc import Iterator

    from blis_tui.debugger.places import Place
    from blis_tui.golden.bundle import Bundle
    from blis_tui.golden.golden_store import Golden
    from blis_tui.model import Experiment
    from blis_tui.model.plug_ins import Registry

_SUFFIX: Final = ".blis"
"""Suffix of bundles; experiments end in `.blis.yaml`."""
_PAGE: Final = ".html"
_EVENTS: Final = 200


@click.command(cls=Command)
@click.argument("source", metavar="SPEC", shell_complete=completion.experiments)
@click.option(
    "-o",
    "--output",
    required=True,
    metavar="FILE.blis|FILE.html",
    help="File to write; a name that ends in .html makes a page instead of a bundle.",
)
@click.option(
    "--at",
    metavar="EVENT|TIME|REQUEST",
    help="Position at which it opens; a page shows as many events before it as after it.",
)
@click.option(
    "--break", "breaks", multiple=True, metavar="CONDITION", help="Breakpoint to set when it is opened; repeatable."
)
@click.option(
    "--events",
    type=click.IntRange(1, 10_000),
    metavar="N",
    help=f"Number of events that a page shows: the last ones, or those around --at. [default: {_EVENTS}]",
)
@chosen_options
@reported
def bundle(
    source: str,
    output: str,
    at: str | None,
    breaks: tuple[str, ...],
    events: int | None,
    chosen: Chosen,
) -> None:
    """Pack a run into one file that can be opened elsewhere.

    A bundle contains the experiment with everything it refers to, its trace, its results, a position and breakpoints.
    `blis-tui tui FILE.blis` opens it at that position; `blis-tui run FILE.blis` runs it; both report where results
    differ from those in the bundle. Plug-ins are not included: name them again with --plugins.

    FILE.html is instead a page that steps through a part of the run in any browser: what the debugger's panes show at
    each event, and why.
    """
    from blis_tui.base.errors import InputError  # noqa: PLC0415
    from blis_tui.debugger.places import parse_place  # noqa: PLC0415  (heavy imports only when it runs)
    from blis_tui.golden.bundle import pack  # noqa: PLC0415

    if source == "-":
        raise click.UsageError("a bundle is made from files: write the experiment to a file and give its name as SPEC")
    if not output.endswith((_SUFFIX, _PAGE)):
        raise click.UsageError(
            f"--output {printable(output)}: the name must end in {_SUFFIX} for a bundle, or in {_PAGE} for a page"
        )
    if output.endswith(_PAGE) and breaks:
        raise click.UsageError("--break is for bundles: a page has no breakpoints")
    if events is not None and not output.endswith(_PAGE):
        raise click.UsageError(f"--events is for pages (-o NAME{_PAGE}): a bundle holds the whole run")
    try:
        place = parse_place("0" if at is None else at)
    except InputError as error:
        raise click.UsageError(f"--at: {error}") from error
    known, seed = chosen.known(), chosen.seed
    assignments = case_overrides(source, chosen.case, chosen.overrides, None, known)
    if output.endswith(_PAGE):
        _write_page(output, source, assignments, seed, known, place if at is not None else None, events or _EVENTS)
        return
    with interrupting_on_signals():
        count = pack(
            output,
            source,
            overrides=assignments,
            seed=seed,
            at=at,
            breaks=breaks,
            plugins=known,
            accept=lambda golden, experiment: _require_place(place, golden, experiment),
        )
    if chosen.case is None:
        mention_cases(source, None, known)
    size = Path(output).stat().st_size
    tell(f"wrote {printable(output)}: a run of {plural(count, 'event')}, {size / 1000:,.0f} kB")


def _write_page(
    output: str,
    source: str,
    assignments: tuple[str, ...],
    seed: int | None,
    known: Registry | None,
    place: Place | None,
    events: int,
) -> None:
    from blis_tui.base.errors import InputError  # noqa: PLC0415  (heavy imports only when it runs)
    from blis_tui.output.result_files import atomic_text  # noqa: PLC0415
    from blis_tui.spec.load import load  # noqa: PLC0415
    from blis_tui.tui.step_page import step_page  # noqa: PLC0415

    experiment = load(source, overrides=list(assignments), seed=seed, plugins=known)
    with interrupting_on_signals():
        try:
            page = step_page(experiment, source, place=place, events=events)
        except InputError as error:
            raise click.UsageError(f"--at: {error}") from error
        with atomic_text(output) as out:
            out.write(page)
    size = Path(output).stat().st_size
    tell(f"wrote {printable(output)}: a page of {size / 1000:,.0f} kB")


def _require_place(place: Place, golden: Golden, experiment: Experiment) -> None:
    """Raise UsageError if the run has no such place."""
    from blis_tui.engine.records import Arrived  # noqa: PLC0415
    from blis_tui.runs.divergence import record_stream  # noqa: PLC0415

    end_us = json.loads(golden.report)["duration_us"]
    if place.event is not None and place.event > golden.chain.events:
        raise click.UsageError(f"--at: the run ends after {plural(golden.chain.events, 'event')}")
    if place.time_us is not None and place.time_us > end_us:
        raise click.UsageError(f"--at: the run ends at {time_text(end_us)}")
    if place.request is not None and not any(
        isinstance(one, Arrived) and one.request_id == place.request for one in record_stream(experiment)
    ):
        raise click.UsageError(f"--at: the run has no request `{printable(place.request)}`")


def is_bundle(source: str | None) -> bool:
    """Return whether a name is that of a bundle."""
    return source is not None and source.endswith(_SUFFIX)


def require_as_packed(*changes: object) -> None:
    """Raise UsageError if an option would change the bundled experiment."""
    if any(changes):
        raise click.UsageError("a bundle is opened as it is: --set, --seed and --case cannot be used with it")


@contextmanager
def opened(source: str, known: Registry | None) -> Iterator[tuple[Bundle, bool]]:
    """Open a bundle; yield it and whether its run here reproduces its results, after a warning if not."""
    from blis_tui.golden.bundle import unpacked, verified  # noqa: PLC0415  (heavy imports only when it runs)

    with unpacked(source, known) as found:
        with interrupting_on_signals():
            difference = verified(found)
        if difference:
            tell(printable_lines(f"warning: the results of this run differ from those in {source}\n{difference}"))
        yield found, not difference
