"""``blis-tui sweep``: many runs of one experiment."""

from __future__ import annotations

import os
import sys
import time
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from blis_tui.cli import completion
from blis_tui.cli.failures import ExitCode, reported
from blis_tui.cli.files import read_standard_input_text, require_different_files, tell
from blis_tui.cli.options import format_option, known_plugins, plugins_option, set_option
from blis_tui.cli.signals import ending_on_signals

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from blis_tui.registry import Registry
    from blis_tui.spec.study.model import Study
    from blis_tui.study.rows import StudyResult
    from blis_tui.study.runners import Runner
    from blis_tui.study.store import Store
    from blis_tui.study.sweep import Progress, Sweep

_PROGRESS_EVERY_S: Final = 0.2

slo_option: Final = click.option(
    "--slo",
    "slos",
    multiple=True,
    metavar="BOUND",
    shell_complete=completion.metrics,
    help="What must hold, such as 'latency.ttft_ms.p99<=300'; repeatable.",
)
jobs_option: Final = click.option(
    "-j", "--jobs", type=click.IntRange(min=1), metavar="N", help="Runs at the same time [default: one for each core]."
)
store_option: Final = click.option(
    "--store",
    metavar="DIR|none",
    help="Where results are kept, so that no run is made twice [default: the user's folder for caches].",
)


@click.command()
@click.argument("source", metavar="STUDY|SPEC", shell_complete=completion.studies)
@click.option("--case", metavar="NAME", help="Start from a case of the experiment (`cases`, `matrix`).")
@click.option(
    "--axis",
    "axes",
    multiple=True,
    metavar="PATH=VALUES",
    shell_complete=completion.assignments,
    help="What varies: cluster.instances=1..8, workload.rate_per_s=5..40..5, policy=default,vllm-v1; repeatable.",
)
@click.option("--seeds", metavar="N|LIST", default="", help="How often each point runs, or with which seeds (1,2,3).")
@slo_option
@click.option(
    "--objective",
    "objectives",
    multiple=True,
    metavar="METRIC",
    shell_complete=completion.metrics,
    help="What should be small (cost.gpus) or large (max:throughput.output_tokens_per_s); repeatable.",
)
@set_option
@plugins_option
@jobs_option
@click.option("--early-stop", is_flag=True, help="End a run as soon as one of the bounds can no longer hold.")
@store_option
@format_option("table", "csv", "jsonl", about="What is printed; table: the points, with means over seeds.")
@click.option(
    "-o",
    "--output",
    "outputs",
    multiple=True,
    metavar="FILE.csv|FILE.jsonl|FILE.parquet",
    help="Also write a row per run; repeatable.",
)
@click.option("--progress/--no-progress", default=None, help="Progress on standard error [default: on a terminal].")
@reported
def sweep(
    source: str,
    case: str | None,
    axes: tuple[str, ...],
    seeds: str,
    slos: tuple[str, ...],
    objectives: tuple[str, ...],
    overrides: tuple[str, ...],
    plugins: tuple[str, ...],
    jobs: int | None,
    early_stop: bool,
    store: str | None,
    output_format: str,
    outputs: tuple[str, ...],
    progress: bool | None,
) -> None:
    """Run an experiment with many settings, and compare what comes of them.

    STUDY is the name or the path of a Study document; SPEC an experiment, whose axes are given with --axis. Every point
    runs once with each seed; equal runs are made once, and results are kept: a sweep that was interrupted goes on where
    it was. Points that are no valid experiments (a model that does not fit) are rows that say so.
    """
    from blis_tui.study.store import FolderStore, MemoryStore  # noqa: PLC0415  (heavy imports only when it runs)
    from blis_tui.study.sweep import Sweep  # noqa: PLC0415

    endings = [_ending(name) for name in outputs]
    require_different_files(dict(zip(outputs, outputs, strict=True)))
    with ending_on_signals():
        study = open_study(source, axes, slos, objectives, seeds, overrides, known_plugins(plugins), case)
        kept: Store = (
            MemoryStore() if store == "none" else FolderStore.of_user() if store is None else FolderStore(Path(store))
        )
        with ExitStack() as opened:
            writers = _open(opened, outputs, endings)
            runs = Sweep(study, store=kept, early_stop=early_stop)
            complete = run_all(runs, runner_of(jobs), progress)
            result = runs.result()
            for write in writers:
                write(result)
        _print(result, output_format)
    _judge(result, complete=complete)


def open_study(
    source: str,
    axes: Iterable[str],
    slos: Iterable[str],
    objectives: Iterable[str],
    seeds: str,
    overrides: tuple[str, ...],
    plugins: Registry | None,
    case: str | None = None,
) -> Study:
    """The study that a command line describes: a document of its own, or an experiment and what varies.

    Raises:
        SpecError: something in it is wrong.
        InputError: it cannot be read.
    """
    from blis_tui.spec.study.arguments import study_of_arguments  # noqa: PLC0415
    from blis_tui.spec.study.document import read_study  # noqa: PLC0415
    from blis_tui.spec.study.opening import open_study_or_experiment  # noqa: PLC0415
    from blis_tui.study.figures import require_figures  # noqa: PLC0415

    stdin_text = read_standard_input_text() if source == "-" else None
    document, base = open_study_or_experiment(source, stdin_text)
    study_of_arguments(document, axes=axes, slos=slos, objectives=objectives, seeds=seeds, case=case)
    study = read_study(document, base=base, given=overrides, plugins=plugins)
    require_figures(study)
    return study


def runner_of(jobs: int | None) -> Runner:
    """Where runs are made: in this process, or in as many as are asked for."""
    from blis_tui.study.runners import HereRunner, ProcessRunner  # noqa: PLC0415

    count = jobs or os.cpu_count() or 1
    return HereRunner() if count == 1 else ProcessRunner(count)


def run_all(runs: Sweep, runner: Runner, progress: bool | None) -> bool:
    """Run until all is done, or somebody interrupts it; False then."""
    shown = sys.stderr is not None and sys.stderr.isatty() if progress is None else progress
    line = _Progress() if shown else None
    try:
        with closing(runs.run(runner)) as going:
            for now in going:
                if line is not None:
                    line.show(now)
    except KeyboardInterrupt:
        return False
    finally:
        if line is not None:
            line.clear()
    return True


class _Progress:
    """One line on standard error that is rewritten a few times a second and cleared at the end."""

    def __init__(self) -> None:
        self._start_s = time.monotonic()
        self._next_s = 0.0

    def show(self, now: Progress) -> None:
        """How far it is, and about how long the rest takes."""
        now_s = time.monotonic()
        if now_s < self._next_s:
            return
        self._next_s = now_s + _PROGRESS_EVERY_S
        made = now.done - now.known
        left = (now.total - now.done) * (now_s - self._start_s) / made if made else 0.0
        rest = f", about {_duration(left)} left" if made and now.done < now.total else ""
        known = f" ({now.known:,} known before)" if now.known else ""
        tell(f"\r\x1b[2K{now.done:,} of {now.total:,} runs{known}{rest}", nl=False)

    def clear(self) -> None:
        """Leave nothing behind."""
        if self._next_s:
            tell("\r\x1b[2K", nl=False)


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _ending(name: str) -> str:
    ending = Path(name).suffix.removeprefix(".").casefold()
    if ending not in {"csv", "jsonl", "parquet"}:
        raise click.UsageError(f"-o {name}: the ending says what to write: .csv, .jsonl or .parquet")
    return ending


def _open(opened: ExitStack, names: Iterable[str], endings: Iterable[str]) -> list[Callable[[StudyResult], None]]:
    """Open all files: what cannot be written should be known before a long sweep, not after it."""
    from blis_tui.cli.parquet import require_parquet, write_rows  # noqa: PLC0415
    from blis_tui.records.files import atomic_bytes  # noqa: PLC0415
    from blis_tui.study.tables import rows_csv, rows_jsonl  # noqa: PLC0415

    writers: list[Callable[[StudyResult], None]] = []
    for name, ending in zip(names, endings, strict=True):
        if ending == "parquet":
            require_parquet()
        file = opened.enter_context(atomic_bytes(name))
        if ending == "parquet":
            writers.append(lambda result, file=file: write_rows(file, result))  # type: ignore[misc]
        else:
            lines = rows_csv if ending == "csv" else rows_jsonl
            writers.append(lambda result, file=file, lines=lines: file.writelines(map(str.encode, lines(result))))  # type: ignore[misc]
    return writers


def _print(result: StudyResult, output_format: str) -> None:
    from blis_tui.records.files import write_standard_output  # noqa: PLC0415
    from blis_tui.study.tables import rows_csv, rows_jsonl  # noqa: PLC0415
    from blis_tui.study.text import study_text  # noqa: PLC0415

    if output_format == "table":
        write_standard_output(study_text(result))
    else:
        write_standard_output("".join((rows_csv if output_format == "csv" else rows_jsonl)(result)))


def _judge(result: StudyResult, *, complete: bool) -> None:
    """Tell on standard error what went wrong, and exit accordingly."""
    if not complete:
        tell(f"interrupted: {len(result.rows):,} of {result.study.runs:,} runs; the same command goes on from there")
        sys.exit(ExitCode.INTERRUPTED)
    failed = [row for row in result.rows if row.status == "failed"]
    for row in failed[:3]:
        tell(f"FAIL  point {row.point.number}, seed {row.seed}: {row.why}")
    if failed:
        sys.exit(ExitCode.SIMULATION)
    if result.study.constraints and not any(row.ok for row in result.rows):
        for metric in dict.fromkeys(one.metric for one in result.study.constraints):
            if all(row.figures.get(metric) is None for row in result.rows):
                tell(f"FAIL  no run reports `{metric}`")
        tell("FAIL  no point keeps to all bounds")
        sys.exit(ExitCode.CHECK_FAILED)
