"""``blis-tui sweep``: many runs of one experiment."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from blis_tui.base.classes import dataclass
from blis_tui.base.text import printable
from blis_tui.base.units import plural
from blis_tui.cli import completion
from blis_tui.cli.help import Command
from blis_tui.cli.options import MOST_JOBS, format_option, grouped, known_plugins, plugins_option, set_option
from blis_tui.cli.signals import ProgressLine, interrupting_on_signals
from blis_tui.cli.standard_streams import (
    ExitCode,
    columns,
    print_data,
    print_text,
    read_standard_input_text,
    reported,
    require_different_files,
    require_no_overwrite,
    results,
    tell,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import TextIO

    from blis_tui.output.result_files import AtomicFiles
    from blis_tui.spec.study.arguments import AxisOption
    from blis_tui.spec.study.study_records import Study
    from blis_tui.study.runners import Runner
    from blis_tui.study.store import Store
    from blis_tui.study.study_rows import StudyResult
    from blis_tui.study.sweep import Sweep

slo_option: Final = click.option(
    "--slo",
    "slos",
    multiple=True,
    metavar="BOUND",
    shell_complete=completion.metrics,
    help="A bound that must hold: a metric (`blis-tui explain` lists them), <=, >= or ==, and a value, such as "
    "'latency.ttft_ms.p99<=300'; repeatable.",
)
price_option: Final = click.option(
    "--price",
    "prices",
    multiple=True,
    metavar="GPU=USD",
    help="Price of one GPU in US dollars per hour, such as h100=2.5; repeatable.",
)
price_table_option: Final = click.option(
    "--prices",
    "price_table",
    metavar="FILE",
    help="Read prices from a YAML file with lines such as `h100: 2.5`; --price takes precedence.",
)
jobs_option: Final = click.option(
    "-j",
    "--jobs",
    type=click.IntRange(1, MOST_JOBS),
    metavar="N",
    help="Number of runs in parallel, each in its own process; 1 runs all in this process [default: one per core].",
)
dask_option: Final = click.option(
    "--dask", metavar="ADDRESS", help="Run on a Dask cluster instead: the address of its scheduler."
)
store_option: Final = click.option(
    "--store",
    metavar="DIR|none",
    help="Where results are cached, so that no run is repeated [default: $BLIS_TUI_STORE_DIR, or the user's cache "
    "folder].",
)

axis_option: Final = click.option(
    "--axis",
    "axes",
    multiple=True,
    metavar="PATH=VALUES",
    shell_complete=completion.assignments,
    help="A key to vary and its values: cluster.instances=1..8, workload.rate_per_s=5..40..5, policy=default,sjf; "
    "repeatable.",
)
seeds_option: Final = click.option(
    "--seeds", metavar="N|LIST", default="", help="Number of seeds per point, or the seeds themselves (1,2,3)."
)
objective_option: Final = click.option(
    "--objective",
    "objectives",
    multiple=True,
    metavar="METRIC",
    shell_complete=completion.metrics,
    help="Metric to minimise (cost.gpus) or maximise (max:throughput.output_tokens_per_s); repeatable.",
)
case_option: Final = click.option(
    "--case", metavar="NAME", help="Start from a case of the experiment (`cases`, `matrix`)."
)
early_stop_option: Final = click.option(
    "--early-stop", is_flag=True, help="Stop a run as soon as one of the bounds can no longer hold."
)
progress_option: Final = click.option(
    "--progress/--no-progress", default=None, help="Show progress on standard error [default: when it is a terminal]."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Options that define a study: see the options of the same names."""

    case: str | None = None
    axes: tuple[str | AxisOption, ...] = ()
    seeds: str = ""
    slos: tuple[str, ...] = ()
    objectives: tuple[str, ...] = ()
    prices: tuple[str, ...] = ()
    price_table: str | None = None
    overrides: tuple[str, ...] = ()
    plugins: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Runs:
    """Where simulations run, and where results are kept: see the options of the same names."""

    jobs: int | None
    dask: str | None
    store: str | None

    def kept(self) -> Store:
        """See :func:`store_of`."""
        return store_of(self.store)

    def runner(self, runs: int) -> Runner:
        """See :func:`runner_of`."""
        return runner_of(self.jobs, self.dask, runs)


runs_options: Final = grouped("runs", Runs, jobs_option, dask_option, store_option)
"""Options of commands that make many runs, passed to them as one value ``runs``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Written:
    """The output of results."""

    output_format: str
    outputs: tuple[str, ...]
    html_file: str | None
    progress: bool | None


@click.command(cls=Command)
@click.argument("source", metavar="STUDY|SPEC", shell_complete=completion.studies)
@grouped(
    "asked",
    Asked,
    case_option,
    axis_option,
    seeds_option,
    slo_option,
    objective_option,
    price_option,
    price_table_option,
    set_option,
    plugins_option,
)
@runs_options
@early_stop_option
@grouped(
    "written",
    _Written,
    format_option("table", "csv", "jsonl", about="What to print; table: one row per point, with means over seeds."),
    click.option(
        "-o",
        "--output",
        "outputs",
        multiple=True,
        metavar="FILE.csv|FILE.jsonl|FILE.parquet",
        help="Also write one row per run; repeatable.",
    ),
    click.option(
        "--html",
        "html_file",
        metavar="FILE.html",
        help="Also write an HTML page with charts: Pareto front, latency against rate, heat maps, the best points over "
        "time.",
    ),
    progress_option,
)
@reported
def sweep(source: str, asked: Asked, runs: Runs, early_stop: bool, written: _Written) -> None:
    """Run an experiment with many settings and compare the results.

    STUDY is the name or path of a Study document; SPEC is an experiment whose axes are given with --axis. Every point
    runs once per seed. Identical runs are made only once and results are cached, so an interrupted sweep continues
    where it stopped. A point that is not a valid experiment (a model that does not fit, say) gets a row that says why.
    """
    from blis_tui.output.result_files import atomic_files  # noqa: PLC0415  (heavy imports only when it runs)
    from blis_tui.study.store import MemoryStore  # noqa: PLC0415
    from blis_tui.study.sweep import Sweep  # noqa: PLC0415

    outputs = written.outputs
    endings = [_ending(name) for name in outputs]
    files = {f"-o number {at}": name for at, name in enumerate(outputs, 1)}
    require_different_files({**files, "--html": written.html_file})
    with interrupting_on_signals():
        study = open_study(source, asked)
        require_no_overwrite({**files, "--html": written.html_file})
        with atomic_files() as opened, ExitStack() as running:
            writers = _open(opened, outputs, endings)
            page = None if written.html_file is None else open_page(opened, written.html_file)
            store = runs.kept()
            points = Sweep(study, store=store, early_stop=early_stop, warn=warn)
            complete = run_all(points, running.enter_context(runs.runner(study.runs)), written.progress)
            result = points.result()
            for write in writers:
                write(result.whole())
            if page is not None:
                page.write(_page(result))
        _print(result, written.output_format)
    if not complete:
        _tell_interrupted(result, kept=not (isinstance(store, MemoryStore) or points.unsaved))
        sys.exit(ExitCode.INTERRUPTED)
    _judge(result)


def open_study(source: str, asked: Asked) -> Study:
    """Return the study that a command line describes: a study document, or an experiment with axes.

    Raises:
        SpecError: something in it is invalid.
        PolicyError: plug-ins cannot be used.
        InputError: it cannot be read.
    """
    from blis_tui.spec.read import read_document  # noqa: PLC0415
    from blis_tui.spec.study.arguments import study_of_arguments  # noqa: PLC0415
    from blis_tui.spec.study.document import (  # noqa: PLC0415
        open_study_or_experiment,
        read_study,
    )
    from blis_tui.study.figures import require_figures  # noqa: PLC0415

    plugins = known_plugins(asked.plugins)
    stdin_text = read_standard_input_text() if source == "-" else None
    document, base = open_study_or_experiment(source, stdin_text)
    study_of_arguments(
        document,
        axes=asked.axes,
        slos=asked.slos,
        objectives=asked.objectives,
        seeds=asked.seeds,
        case=asked.case,
        prices=asked.prices,
        price_table=None if asked.price_table is None else read_document(Path(asked.price_table)),
    )
    study = read_study(document, base=base, given=asked.overrides, plugins=plugins)
    require_figures(study)
    return study


def store_of(given: str | None) -> Store:
    """Return the store for results: as requested, or the user's cache folder if it is usable, else memory.

    Raises:
        InputError: results cannot be kept in the requested place.
    """
    from blis_tui.base.errors import InputError  # noqa: PLC0415
    from blis_tui.study.store import FolderStore, MemoryStore  # noqa: PLC0415

    if given == "none":
        return MemoryStore()
    if given == "":  # which would be this folder
        raise InputError("cannot keep results: the folder name is empty", help="--store DIR, or `--store none`")
    store = FolderStore.of_user() if given is None else FolderStore(Path(given))
    try:
        store.require_writable()
    except InputError as error:
        if given is not None:
            raise
        warn(f"{error.message}; they are kept only until this command ends")
        return MemoryStore()
    return store


def runner_of(jobs: int | None, dask: str | None, runs: int) -> Runner:
    """Return the runner: in this process, in several, or on a cluster.

    Raises:
        InputError: the cluster cannot be used.
        click.UsageError: both are requested.
    """
    from blis_tui.study.runners import InProcessRunner, ProcessRunner  # noqa: PLC0415

    if dask is not None:
        if jobs is not None:
            raise click.UsageError(
                "--dask and --jobs cannot be combined: the Dask cluster determines the number of workers"
            )
        from blis_tui.study.dask_runner import DaskRunner  # noqa: PLC0415

        return DaskRunner(dask)
    count = min(jobs or usable_cores(), MOST_JOBS, runs)
    return InProcessRunner() if count == 1 else ProcessRunner(count, warn)


def warn(message: str) -> None:
    """Print a warning, replacing a progress line."""
    tell(f"warning: {printable(message)}", afresh=sys.stderr is not None and sys.stderr.isatty())


def usable_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run_all(runs: Sweep, runner: Runner, progress: bool | None) -> bool:
    """Run until all is done or interrupted; return False if interrupted."""
    from blis_tui.study.sweep import progress_text  # noqa: PLC0415

    line = ProgressLine(progress)
    try:
        with closing(runs.run(runner)) as going:
            for now in going:
                line.show(lambda now=now: progress_text(now, line.elapsed_s))  # type: ignore[misc]
    except KeyboardInterrupt:
        return False
    finally:
        line.clear()
    return True


def _ending(name: str) -> str:
    ending = Path(name).suffix.removeprefix(".").casefold()
    if ending not in {"csv", "jsonl", "parquet"}:
        raise click.UsageError(f"-o {name}: the name must end in .csv, .jsonl or .parquet")
    return ending


def _open(opened: AtomicFiles, names: Iterable[str], endings: Iterable[str]) -> list[Callable[[StudyResult], None]]:
    """Open all files, so that write errors appear before a long sweep."""
    from blis_tui.study.parquet import require_parquet, write_rows  # noqa: PLC0415
    from blis_tui.study.study_rows import rows_csv, rows_jsonl  # noqa: PLC0415

    writers: list[Callable[[StudyResult], None]] = []
    for name, ending in zip(names, endings, strict=True):
        if ending == "parquet":
            require_parquet()
        file = opened.bytes(name)
        if ending == "parquet":
            writers.append(lambda result, file=file: write_rows(file, result))  # type: ignore[misc]
        else:
            lines = rows_csv if ending == "csv" else rows_jsonl
            writers.append(lambda result, file=file, lines=lines: file.writelines(map(str.encode, lines(result))))  # type: ignore[misc]
    return writers


def open_page(opened: AtomicFiles, name: str) -> TextIO:
    """Open the file of a page, so that write errors appear before a long search."""
    from blis_tui.pictures.page import require_plotly  # noqa: PLC0415

    if name == "-":
        raise click.UsageError("--html needs a file")
    require_plotly()
    return opened.text(name)


def _page(result: StudyResult) -> str:
    """Return the HTML page about a study; its best points are run again to show them over time."""
    from blis_tui.pictures.points import (  # noqa: PLC0415
        Points,
        choose,
        rerun,
    )
    from blis_tui.pictures.study_page import study_page  # noqa: PLC0415

    return study_page(result, [rerun(name, experiment) for name, experiment in choose(Points.of(result))])


def _print(result: StudyResult, output_format: str) -> None:
    from blis_tui.study.study_rows import rows_csv, rows_jsonl  # noqa: PLC0415
    from blis_tui.study.study_text import WIDTH, study_text  # noqa: PLC0415

    if output_format == "table":
        print_text(study_text(result, columns(WIDTH, results())), nl=False)
    else:
        print_data("".join((rows_csv if output_format == "csv" else rows_jsonl)(result.whole())))


def _tell_interrupted(result: StudyResult, *, kept: bool) -> None:
    next_time = "continues from there" if kept else "starts over, because results were not stored"
    others = "the others appear as `missing` in the rows written"
    known = f"{len(result.rows):,} of {plural(result.study.runs, 'run')}"
    tell(f"interrupted: {known}; {others}; the same command {next_time}")


def _judge(result: StudyResult) -> None:
    """Print what went wrong on standard error, and exit with the corresponding code."""
    failed = [row for row in result.rows if row.status == "failed"]
    for row in failed[:3]:
        tell(f"FAIL  point {row.point.number}, seed {row.seed}: {printable(row.why)}")
    if len(failed) > 3:
        tell(f"FAIL  {len(failed) - 3:,} more runs")
    if failed:
        sys.exit(ExitCode.SIMULATION)
    if result.study.constraints and not any(row.ok for row in result.rows):
        for metric in dict.fromkeys(constraint.metric for constraint in result.study.constraints):
            if all(row.figures.get(metric) is None for row in result.rows):
                tell(f"FAIL  no run reports `{metric}`")
        tell("FAIL  no point meets all bounds")
        sys.exit(ExitCode.CHECK_FAILED)
