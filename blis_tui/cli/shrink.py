"""``blis-tui shrink``: finds the smallest workload that still breaks an expectation."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from blis_tui.base.text import printable
from blis_tui.base.units import plural
from blis_tui.cli import completion
from blis_tui.cli.help import Command
from blis_tui.cli.options import Chosen, case_overrides, chosen_options
from blis_tui.cli.signals import ProgressLine, interrupting_on_signals
from blis_tui.cli.standard_streams import print_text, reported, require_no_overwrite
from blis_tui.cli.sweep import progress_option

if TYPE_CHECKING:
    from collections.abc import Mapping

    from blis_tui.base.source import Json
    from blis_tui.model.plug_ins import Registry


@click.command(cls=Command)
@click.argument("source", metavar="SPEC", shell_complete=completion.experiments)
@click.option(
    "-o",
    "--output",
    required=True,
    metavar="NAME",
    help="Write the requests to NAME.csv, the experiment to NAME.blis.yaml, and its golden result.",
)
@click.option(
    "--expect",
    "bounds",
    multiple=True,
    metavar="BOUND",
    shell_complete=completion.metrics,
    help="An expectation to use instead of SPEC's own `expect`; repeatable.",
)
@click.option("--runs", type=click.IntRange(min=1), default=1000, show_default=True, help="Maximum number of runs.")
@click.option("--golden/--no-golden", default=True, help="Whether to also write the golden result.  [default: golden]")
@chosen_options
@progress_option
@reported
def shrink(
    source: str,
    output: str,
    bounds: tuple[str, ...],
    runs: int,
    golden: bool,
    chosen: Chosen,
    progress: bool | None,
) -> None:
    """Reduce a workload to the smallest one that still fails an expectation.

    Requests are removed, and the remaining ones shortened, for as long as an expectation still fails: what is left
    shows the cause. The result is a trace, an experiment that replays it, and its golden result: the golden test passes
    as long as the result stays the same, and fails once the expectation holds (`golden.xfail`).
    """
    from blis_tui.output.result_files import atomic_files  # noqa: PLC0415  (heavy imports only when it runs)
    from blis_tui.spec.load import load  # noqa: PLC0415
    from blis_tui.study.shrink import experiment_text  # noqa: PLC0415
    from blis_tui.study.shrink import shrink as find  # noqa: PLC0415

    if source == "-":
        raise click.UsageError(
            "standard input can be read only once: write the experiment to a file and give its name as SPEC"
        )
    expect = [_expectation(text) for text in bounds]
    known, seed = chosen.known(), chosen.seed
    assignments = case_overrides(source, chosen.case, chosen.overrides, None, known)
    line = ProgressLine(progress)
    trace, document = Path(f"{output}.csv"), Path(f"{output}.blis.yaml")
    made = {"-o": str(trace), "-o (document)": str(document)}
    load(source, overrides=assignments, seed=seed, plugins=known)  # notes the input files that it names
    require_no_overwrite(made)
    with interrupting_on_signals(), atomic_files() as opened:
        rows, spec = map(opened.text, (trace, document))
        try:
            shrunk = find(
                source,
                overrides=assignments,
                seed=seed,
                expect=expect,
                plugins=known,
                most_runs=runs,
                on_run=lambda number, requests: line.show(
                    lambda: f"{plural(number, 'run')}; {plural(requests, 'request')}"
                ),
            )
        finally:
            line.clear()
        rows.write(shrunk.csv())
        spec.write(
            experiment_text(
                source,
                shrunk,
                document.name.removesuffix(".blis.yaml"),
                trace.name,
                overrides=assignments,
                seed=seed,
                plugins=known,
            )
        )
    least = (
        f"without {'it' if len(shrunk.rows) == 1 else 'any one of them'}, the expectation holds"
        if shrunk.minimal
        else f"more might be removed: the limit of {plural(runs, 'run')} was reached"
    )
    left = (
        f"{len(shrunk.rows):,} of {plural(shrunk.requests, 'request')} {'is' if len(shrunk.rows) == 1 else 'are'} left"
    )
    lines = [f"{left} after {plural(shrunk.runs, 'run')}; {least}"]
    lines += [f"FAIL  {verdict.sentence()}" for verdict in shrunk.broken]
    written = [str(trace), str(document), *([_write_golden(document, known)] if golden else [])]
    listed = printable(f"{', '.join(written[:-1])} and {written[-1]}")
    print_text("\n".join([*map(printable, lines), f"wrote {listed}"]))


def _expectation(text: str) -> Mapping[str, Json]:
    """Parse an ``--expect``. Raises SpecError unless it is a bound on an existing metric."""
    from blis_tui.base.errors import SpecError  # noqa: PLC0415  (heavy imports only when it runs)
    from blis_tui.base.source import Document, as_map  # noqa: PLC0415
    from blis_tui.spec.checks import expectation_problems  # noqa: PLC0415
    from blis_tui.spec.study.arguments import parse_bound  # noqa: PLC0415

    bound = parse_bound(text, "--expect")
    listed = Document([None], bound.source)
    listed.graft((0,), bound)
    problems = [*expectation_problems(listed, ())]
    if problems:
        raise SpecError(problems)
    return as_map(bound.data)


def _write_golden(document: Path, plugins: Registry | None) -> str:
    """Store its result where pytest looks for it; return the file."""
    from blis_tui.base.errors import InputError  # noqa: PLC0415  (heavy imports only when it runs)
    from blis_tui.golden.case import cases_of  # noqa: PLC0415
    from blis_tui.golden.golden_store import HEADER  # noqa: PLC0415
    from blis_tui.golden.project import project_of_experiment, relative_to_cwd  # noqa: PLC0415
    from blis_tui.golden.session import GoldenSettings, run_case  # noqa: PLC0415

    spec = document.absolute()
    (case,) = cases_of(spec, plugins)
    project = project_of_experiment(spec)
    files = project.files(spec, case.name)
    spelt = spec.relative_to(project.root) if spec.is_relative_to(project.root) else spec
    with interrupting_on_signals():
        outcome = run_case(case, files, spelt.as_posix(), GoldenSettings(mode="always", checks=()))
    if not outcome.ok:
        raise InputError(f"no golden was written for {document}: {outcome.text}")
    return relative_to_cwd(files.file(HEADER))
