"""``blis-tui bundle``, and how other commands open bundles."""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import replace
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

    from textual.pilot import Pilot

    from blis_tui.debugger.places import Place
    from blis_tui.golden.bundle import Bundle
    from blis_tui.golden.golden_store import Golden
    from blis_tui.model import Experiment
    from blis_tui.model.plug_ins import Registry
    from blis_tui.tui.app import Start

_SUFFIX: Final = ".blis"
"""Suffix of bundles; experiments end in `.blis.yaml`."""
_PAGE: Final = ".html"
_REPORT: Final = ".md"
_PICTURE: Final = (140, 40)
"""Columns and rows of the pictures of a report."""
_EVENTS: Final = 200


@click.command(cls=Command)
@click.argument("source", metavar="SPEC", shell_complete=completion.experiments)
@click.option(
    "-o",
    "--output",
    required=True,
    metavar="FILE.blis|.html|.md",
    help="File to write; a name that ends in .html makes a page instead of a bundle, in .md a report of moments.",
)
@click.option(
    "--at",
    metavar="EVENT|TIME|REQUEST",
    help="Position at which it opens; a page shows as many events before it as after it, a report also shows it.",
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
@click.option("--moments", is_flag=True, help="Include the moments that you have kept in the debugger.")
@chosen_options
@reported
def bundle(
    source: str,
    output: str,
    at: str | None,
    breaks: tuple[str, ...],
    events: int | None,
    moments: bool,
    chosen: Chosen,
) -> None:
    """Pack a run into one file that can be opened elsewhere.

    A bundle contains the experiment with everything it refers to, its trace, its results, a position and breakpoints.
    `blis-tui tui FILE.blis` opens it at that position; `blis-tui run FILE.blis` runs it; both report where results
    differ from those in the bundle. Plug-ins are not included: name them again with --plugins.

    FILE.html is instead a page that steps through a part of the run in any browser: what the debugger's panes show at
    each event, and why.

    FILE.md is a report of the moments that you have kept in the debugger, or of those in a bundle given as SPEC: each
    with its note, a picture of the screen beside the file, and the command that opens the debugger there.
    """
    from blis_tui.base.errors import InputError  # noqa: PLC0415
    from blis_tui.debugger.moments import to_data  # noqa: PLC0415
    from blis_tui.debugger.places import parse_place  # noqa: PLC0415  (heavy imports only when it runs)
    from blis_tui.debugger.saved_sessions import load as load_session  # noqa: PLC0415
    from blis_tui.golden.bundle import pack  # noqa: PLC0415

    if source == "-":
        raise click.UsageError("a bundle is made from files: write the experiment to a file and give its name as SPEC")
    if not output.endswith((_SUFFIX, _PAGE, _REPORT)):
        raise click.UsageError(
            f"--output {printable(output)}: the name must end in {_SUFFIX} for a bundle, in {_PAGE} for a page, or in "
            f"{_REPORT} for a report"
        )
    if not output.endswith(_SUFFIX) and (breaks or moments):
        raise click.UsageError(
            "--break and --moments are for bundles: a page has no breakpoints, a report has all moments"
        )
    if events is not None and not output.endswith(_PAGE):
        raise click.UsageError(f"--events is for pages (-o NAME{_PAGE}): a bundle holds the whole run")
    try:
        place = parse_place("0" if at is None else at)
    except InputError as error:
        raise click.UsageError(f"--at: {error}") from error
    known, seed = chosen.known(), chosen.seed
    if output.endswith(_REPORT):
        _write_report(output, source, chosen, known, place if at is not None else None)
        return
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
            moments=to_data(load_session(source).moments) if moments else (),
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


def _write_report(output: str, source: str, chosen: Chosen, known: Registry | None, place: Place | None) -> None:
    """Write a report of moments, and its pictures beside it."""
    from blis_tui.debugger.moments import from_data, with_others  # noqa: PLC0415  (heavy imports only when it runs)
    from blis_tui.debugger.saved_sessions import load as load_session  # noqa: PLC0415
    from blis_tui.spec.load import load  # noqa: PLC0415
    from blis_tui.tui.app import Start  # noqa: PLC0415

    if is_bundle(source):
        require_as_packed(chosen.case, chosen.overrides, chosen.seed is not None)
        with opened(source, known) as (stored, _):
            experiment = stored.case.load()
            moments = with_others(load_session(source).moments, from_data(stored.moments))
            start = Start(experiment=experiment, source=str(stored.spec), called=source, moments=moments)
            _draw_report(output, start, place)
        return
    assignments = case_overrides(source, chosen.case, chosen.overrides, None, known)
    experiment = load(source, overrides=list(assignments), seed=chosen.seed, plugins=known)
    start = Start(
        experiment=experiment,
        source=source,
        moments=load_session(source).moments,
        overrides=assignments,
        seed=chosen.seed,
    )
    _draw_report(output, start, place)


def _draw_report(output: str, start: Start, place: Place | None) -> None:
    """Open the debugger without a terminal, and write what it shows at each moment, and at a place."""
    from blis_tui.base.errors import InputError  # noqa: PLC0415  (heavy imports only when it runs)
    from blis_tui.tui.app import BlisApp  # noqa: PLC0415
    from blis_tui.tui.screens.debugger import DebuggerScreen  # noqa: PLC0415
    from blis_tui.tui.screens.export import write_report  # noqa: PLC0415
    from blis_tui.tui.step_page import event_at  # noqa: PLC0415

    if not start.moments and place is None:
        raise click.UsageError(
            f"no moments are kept of {printable(start.called or start.source)}: k keeps one in the debugger, and --at "
            "names one here"
        )
    files: dict[str, str] = {}

    async def draw(pilot: Pilot[object]) -> None:
        screen = app.screen
        if isinstance(screen, DebuggerScreen):
            await screen.at_rest()
            if place is not None and screen.session.moment_at(screen.session.debugger.event) is None:
                screen.session.keep("", "")
            files.update(await screen.report_files(Path(output).name.removesuffix(_REPORT)))
        pilot.app.exit()

    with interrupting_on_signals():
        try:
            event = 0 if place is None else event_at(start.experiment, place)
        except InputError as error:
            raise click.UsageError(f"--at: {error}") from error
        app = BlisApp(replace(start, at=str(event), remembers=False))
        app.run(headless=True, size=_PICTURE, auto_pilot=draw)
        write_report(Path(output).parent, files)
    tell(f"wrote {printable(output)}: {plural(len(files) - 1, 'picture')} beside it")


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
        isinstance(record, Arrived) and record.request_id == place.request for record in record_stream(experiment)
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

    with unpacked(source, known) as stored:
        with interrupting_on_signals():
            difference = verified(stored)
        if difference:
            tell(printable_lines(f"warning: the results of this run differ from those in {source}\n{difference}"))
        yield stored, not difference
