"""``blis-tui tui``: the terminal interface."""

from __future__ import annotations

import os
import sys
from dataclasses import astuple
from pathlib import Path
from typing import TYPE_CHECKING

import click

from blis_tui.base.classes import NamedTuple, dataclass
from blis_tui.base.standard_output import late_bound_stderr
from blis_tui.cli import completion
from blis_tui.cli.bundle import is_bundle, opened, require_as_packed
from blis_tui.cli.help import Command
from blis_tui.cli.options import Chosen, case_overrides, chosen_options, grouped, mention_cases
from blis_tui.cli.standard_streams import ExitCode, reported, results
from blis_tui.cli.sweep import (
    Asked,
    axis_option,
    early_stop_option,
    jobs_option,
    objective_option,
    open_study,
    seeds_option,
    slo_option,
    store_of,
    store_option,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.debugger.moments import Moment
    from blis_tui.model.plug_ins import Registry
    from blis_tui.tui.app import BlisApp


@dataclass(frozen=True, slots=True, kw_only=True)
class _Studied:
    """Options that turn an experiment into a study: see ``blis-tui sweep``."""

    axes: tuple[str, ...]
    seeds: str
    slos: tuple[str, ...]
    objectives: tuple[str, ...]
    jobs: int | None
    early_stop: bool
    store: str | None


class _Packed(NamedTuple):
    """What a bundle adds to an experiment."""

    called: str
    """The bundle's file."""
    moments: tuple[Moment, ...]


@click.command(cls=Command)
@click.argument("source", metavar="[SPEC|STUDY]", required=False, shell_complete=completion.experiments)
@click.option(
    "--at",
    metavar="PLACE",
    help="Open at an event (1234), a time (1.5s, 20ms, 300us), a request (its name), `start` or `end`. [default: the "
    "end, with the summary of the run]",
)
@click.option(
    "--break", "breaks", metavar="CONDITION", multiple=True, help="Set a breakpoint, such as `preempted`; repeatable."
)
@click.option(
    "--twin",
    "recording",
    metavar="RECORDING",
    help="Show SPEC side by side with a recording made by `blis-tui observe`, or a load generator's results.",
)
@click.option(
    "--follow",
    "followed",
    metavar="PATH",
    multiple=True,
    help="Watch a recording that `blis-tui observe` is writing, here or elsewhere, or a file of records (`run "
    "--records`); repeatable: several have one timeline.",
)
@chosen_options
@grouped(
    "studied",
    _Studied,
    axis_option,
    seeds_option,
    slo_option,
    objective_option,
    jobs_option,
    early_stop_option,
    store_option,
)
@reported
@late_bound_stderr()
def tui(
    source: str | None,
    at: str | None,
    breaks: tuple[str, ...],
    recording: str | None,
    followed: tuple[str, ...],
    chosen: Chosen,
    studied: _Studied,
) -> None:
    """Step through an experiment in the terminal, or browse the points of a study.

    SPEC is the name of an experiment (see `blis-tui spec list`), or the path of a .blis.yaml file or a bundle
    (`blis-tui bundle`); STUDY is the name or path of a Study document. Without either, a list of both is shown. With
    --axis, an experiment becomes a study: see `blis-tui sweep --help`. Inside, h shows the keys and q goes back.
    """
    case, overrides, seed = chosen.case, chosen.overrides, chosen.seed
    of_run = at or breaks or case or seed is not None or recording
    of_study = any(astuple(studied))
    if source is None and (of_run or of_study or overrides or chosen.plugins):
        raise click.UsageError("these options need an experiment or a study: give its name as SPEC")
    if followed and source is not None:
        raise click.UsageError("--follow shows recordings alone: leave SPEC out, or use --twin once it has ended")
    if source == "-":
        raise click.UsageError(
            "standard input is the keyboard here: write the experiment to a file and give its name as SPEC"
        )
    if not has_terminal():
        raise click.UsageError(
            "not a terminal: use `blis-tui run` to simulate without one, or `blis-tui serve` to use a browser"
        )
    if followed:
        _follow([Path(path) for path in followed])
    elif source is None:
        show_home()
    elif is_bundle(source):
        require_as_packed(case, overrides, seed is not None)
        if of_study or recording:
            raise click.UsageError("a bundle is a single run: options of studies and --twin cannot be used with it")
        with opened(source, known := chosen.known()) as (bundle, _):
            from blis_tui.debugger.moments import from_data  # noqa: PLC0415

            packed = _Packed(source, from_data(bundle.moments))
            _show_experiment(str(bundle.spec), at or bundle.at, breaks or bundle.breaks, None, (), None, known, packed)
    elif of_study or _is_study(source):
        if of_run:
            raise click.UsageError("--at, --break, --case, --seed and --twin apply to an experiment, not to a study")
        _show_study(source, chosen, studied)
    elif recording is not None:
        if at or breaks:
            raise click.UsageError("--at and --break cannot be used with --twin")
        known = chosen.known()
        _show_twin(source, recording, case_overrides(source, case, overrides, None, known), seed, known)
    else:
        _show_experiment(source, at, breaks, case, overrides, seed, chosen.known())


def _show_study(source: str, chosen: Chosen, studied: _Studied) -> None:
    from blis_tui.tui.app import BlisApp, StudyStart  # noqa: PLC0415  (heavy imports only when it runs)

    asked = Asked(
        axes=studied.axes,
        seeds=studied.seeds,
        slos=studied.slos,
        objectives=studied.objectives,
        overrides=chosen.overrides,
        plugins=chosen.plugins,
    )
    study = open_study(source, asked)
    _run(
        BlisApp(
            StudyStart(study=study, store=store_of(studied.store), jobs=studied.jobs, early_stop=studied.early_stop),
            survive=True,
        )
    )


def _is_study(source: str) -> bool:
    """Return whether it is a Study document. Raises SpecError and InputError if it cannot be read."""
    from blis_tui.spec.study.document import open_study_or_experiment  # noqa: PLC0415

    return open_study_or_experiment(source)[1] is None


def _show_experiment(
    source: str,
    at: str | None,
    breaks: tuple[str, ...],
    case: str | None,
    overrides: tuple[str, ...],
    seed: int | None,
    known: Registry | None,
    packed: _Packed | None = None,
) -> None:
    from blis_tui.base.errors import InputError  # noqa: PLC0415
    from blis_tui.debugger.places import parse_place  # noqa: PLC0415
    from blis_tui.results.conditions.breakpoints import parse_breakpoint  # noqa: PLC0415  (heavy imports only when it runs)
    from blis_tui.runs.simulation import Simulation  # noqa: PLC0415
    from blis_tui.spec.load import load  # noqa: PLC0415

    overrides = case_overrides(source, case, overrides, None, known)
    experiment = load(source, overrides=overrides, seed=seed, plugins=known)
    if case is None:
        mention_cases(source, None, known)
    for text in breaks:
        parse_breakpoint(text, experiment)
    try:
        parse_place("0" if at is None else at)
    except InputError as error:
        raise click.UsageError(f"--at: {error}") from error
    Simulation(experiment)  # report errors in its trace or policies here, before the terminal interface starts
    from blis_tui.tui.app import BlisApp, Start  # noqa: PLC0415

    called, moments = ("", ()) if packed is None else packed
    start = Start(
        experiment=experiment,
        source=source,
        at=at,
        breaks=breaks,
        overrides=overrides,
        seed=seed,
        called=called,
        moments=moments,
    )
    _run(BlisApp(start, survive=True))


def _show_twin(
    source: str, recording: str, overrides: tuple[str, ...], seed: int | None, known: Registry | None
) -> None:
    """Show an experiment beside a recording, or beside the requests that a load generator measured."""
    from blis_tui.live.observe.recording import read_recording  # noqa: PLC0415  (heavy imports only when it runs)
    from blis_tui.live.twin.twin import compare_results, compare_with_simulation, read_results  # noqa: PLC0415
    from blis_tui.spec.load import load  # noqa: PLC0415

    experiment = load(source, overrides=overrides, seed=seed, plugins=known)
    if Path(recording).is_file():
        results = read_results(Path(recording), experiment)
        left, twin = results.recording, compare_results(results, experiment, source)
    else:
        left = read_recording(Path(recording))
        twin = compare_with_simulation(left, experiment, source)
    from blis_tui.tui.app import BlisApp, TwinStart  # noqa: PLC0415

    _run(BlisApp(TwinStart(twin=twin, recording=left, source=source), survive=True))


def _follow(paths: Sequence[Path]) -> None:
    """Show runs as they grow."""
    from blis_tui.live.observe.following import follow, names_of  # noqa: PLC0415
    from blis_tui.tui.app import BlisApp  # noqa: PLC0415
    from blis_tui.tui.observing_start import ObservingStart  # noqa: PLC0415

    runs = tuple(follow(path, name) for path, name in zip(paths, names_of(paths), strict=True))
    url = runs[0].url if len(runs) == 1 else ", ".join(run.name for run in runs)
    _run(BlisApp(ObservingStart(url=url, runs=runs), survive=True))


def has_terminal() -> bool:
    """Return whether there is a display: a terminal, or the browser of ``serve``."""
    shown = results()
    return bool(os.environ.get("TEXTUAL_DRIVER")) or (sys.stdin.isatty() and shown is not None and shown.isatty())


def show_home() -> None:
    """Show the list of experiments."""
    from blis_tui.tui.app import BlisApp  # noqa: PLC0415

    _run(BlisApp(survive=True))


def _run(app: BlisApp) -> None:
    """Run until the user leaves; exit with a non-zero code after a crash."""
    app.show()
    if app.return_code:
        sys.exit(ExitCode.DEFECT)
