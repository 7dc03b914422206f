"""``blis-tui run``: simulates an experiment without a user interface.

Its output files, one per option, subscribe during the run or are written at its end. Their imports are local, so that a
run that only prints its report does not pay for them.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final, TextIO

import click

from blis_tui.base.classes import dataclass
from blis_tui.base.text import printable, printable_lines
from blis_tui.base.units import plural
from blis_tui.cli import completion
from blis_tui.cli.bundle import is_bundle, opened, require_as_packed
from blis_tui.cli.help import Command
from blis_tui.cli.options import (
    MOST_JOBS,
    Chosen,
    FiniteRange,
    case_overrides,
    chosen_options,
    format_option,
    grouped,
    mention_cases,
)
from blis_tui.cli.signals import OverdueError, ProgressLine, interrupting_on_signals
from blis_tui.cli.standard_streams import (
    ExitCode,
    columns,
    print_text,
    read_standard_input_text,
    reported,
    require_different_files,
    require_no_overwrite,
    results,
    tell,
    tell_left_out,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import BinaryIO

    from blis_tui.cli.signals import Signals
    from blis_tui.engine.records import Record
    from blis_tui.model import Experiment
    from blis_tui.output.openmetrics import Scrapes
    from blis_tui.output.perfetto import Timeline
    from blis_tui.output.result_files import AtomicFiles
    from blis_tui.pictures.load_pictures import LoadObserver
    from blis_tui.results.report import Report
    from blis_tui.runs.simulation import Simulation

REPORT: Final = "-o"
REQUESTS: Final = "--requests"
RECORDS: Final = "--records"
DECISIONS: Final = "--decisions"
TRACE: Final = "--trace-output"
PERFETTO: Final = "--perfetto"
OPENMETRICS: Final = "--openmetrics"
HTML: Final = "--html"
_HEADER: Final = "--trace-output (header)"
_SAMPLES_S: Final = 1.0
"""Simulated time between two samples by default, in seconds."""
_AT_ONCE: Final = 1024
"""Number of lines that are encoded and written together; one at a time, a table takes a seventh longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """The requested files (None = not requested, ``-`` = standard output), and their settings."""

    output: str | None
    requests_file: str | None
    records_file: str | None
    decisions_file: str | None
    counterfactual: int | None
    trace_prefix: str | None
    html_file: str | None
    perfetto_file: str | None
    openmetrics_file: str | None
    interval_s: float | None

    def names(self) -> dict[str, str | None]:
        """The files, by option."""
        return {
            REPORT: self.output,
            REQUESTS: self.requests_file,
            RECORDS: self.records_file,
            DECISIONS: self.decisions_file,
            TRACE: self.trace_prefix,
            HTML: self.html_file,
            PERFETTO: self.perfetto_file,
            OPENMETRICS: self.openmetrics_file,
        }


written_options: Final = grouped(
    "written",
    Written,
    click.option("-o", "--output", metavar="FILE", help="Write the report to FILE instead of standard output."),
    click.option(
        REQUESTS,
        "requests_file",
        metavar="FILE.csv|FILE.parquet",
        help="Also write one row per request. The CSV file can be replayed as a trace (workload.trace.file).",
    ),
    click.option(RECORDS, "records_file", metavar="FILE.jsonl", help="Also write every event record."),
    click.option(
        DECISIONS,
        "decisions_file",
        metavar="FILE.jsonl",
        help="Also write every routing decision: the candidates, their signals and scores, the choice and its regret.",
    ),
    click.option(
        "--counterfactual",
        type=click.IntRange(min=1, max=10_000),
        metavar="K",
        help="Compare each routing decision with its K best alternatives: adds `routing.regret` to the report, and the "
        "alternatives to --decisions. Sets `counterfactual`.",
    ),
    click.option(
        TRACE,
        "trace_prefix",
        metavar="PREFIX",
        help="Also write the requests and their outcomes in BLIS's TraceV2 format: PREFIX.yaml and PREFIX.csv.",
    ),
    click.option(
        HTML,
        "html_file",
        metavar="FILE.html",
        help="Also write an HTML page with charts of the run: latency percentiles, load over time and more.",
    ),
    click.option(
        PERFETTO,
        "perfetto_file",
        metavar="FILE",
        help="Also write a Perfetto trace of steps, requests and load over time; open it in https://ui.perfetto.dev.",
    ),
    click.option(
        OPENMETRICS,
        "openmetrics_file",
        metavar="FILE",
        help="Also write the metrics that vLLM servers would have exported over simulated time, for Prometheus.",
    ),
    click.option(
        "--openmetrics-interval",
        "interval_s",
        metavar="SECONDS",
        type=FiniteRange(min=0.001),
        help=f"Simulated time between two samples of --openmetrics, by default {_SAMPLES_S:g}.",
    ),
)
"""Options of commands that run one experiment, passed to them as one value ``written``."""


class Outputs:
    """The requested files; none replaces an existing file before all have been written completely.

    Args:
        written: the options.

    Raises:
        UsageError: two of them are one file, something other than the report goes to standard output, or samples have
            an interval but no file.
    """

    def __init__(self, written: Written) -> None:
        options = written.names()
        for option, name in options.items():
            if name == "-" and option != REPORT:
                raise click.UsageError(f"only the report can go to standard output: {option} needs a file")
        names = {option: name for option, name in options.items() if name is not None and name != "-"}
        if (prefix := names.pop(TRACE, None)) is not None:
            names |= {_HEADER: f"{prefix}.yaml", TRACE: f"{prefix}.csv"}
        require_different_files(names)
        self._names = names
        self._files: dict[str, BinaryIO] = {}
        self._parquet = names.get(REQUESTS, "").casefold().endswith(".parquet")
        if written.interval_s is not None and OPENMETRICS not in names:
            raise click.UsageError(f"--openmetrics-interval has no effect without {OPENMETRICS}")
        self._interval_us = max(round((written.interval_s or _SAMPLES_S) * 1e6), 1)
        self._timeline: Timeline | None = None
        self._scrapes: Scrapes | None = None
        self._load: LoadObserver | None = None

    def __contains__(self, option: str) -> bool:
        return option in self._names

    def listed(self) -> str:
        """Return the names of the files; empty if there are none."""
        from blis_tui.base.text import printable  # noqa: PLC0415

        return printable(", ".join(self._names.values()))

    def open(self, opened: AtomicFiles, also: Iterable[Path]) -> None:
        """Open all files, so that write errors appear before a long run.

        Raises:
            UsageError: one of them is a file that the command has read, or one of ``also``.
            InputError: one of them cannot be written, or needs a package that is not installed.
        """
        require_no_overwrite(self._names, also)
        if self._parquet:
            from blis_tui.study.parquet import require_parquet  # noqa: PLC0415

            require_parquet()
        if HTML in self:
            from blis_tui.pictures.page import require_plotly  # noqa: PLC0415

            require_plotly()
        for option, name in self._names.items():
            self._files[option] = opened.bytes(name)

    def listen(self, simulation: Simulation) -> None:
        """Subscribe the outputs that are written during the run."""
        from blis_tui.results.record_lines import record_line  # noqa: PLC0415

        for option, kind in ((RECORDS, "all"), (DECISIONS, "routing-decision")):
            if (file := self._files.get(option)) is not None:

                def write_record(record: Record, file: BinaryIO = file) -> None:
                    file.write(record_line(record).encode())

                simulation.subscribe(kind, write_record)
        if (file := self._files.get(PERFETTO)) is not None:
            from blis_tui.output.perfetto import Timeline  # noqa: PLC0415

            self._timeline = Timeline(file, simulation.experiment)
            simulation.subscribe("all", self._timeline.observe)
        if HTML in self:
            from blis_tui.pictures.load_pictures import LoadObserver  # noqa: PLC0415

            self._load = LoadObserver(simulation)

    def why_in_order(self) -> str:
        """Return why the run must pass through all its moments in order; empty = none of the files needs that."""
        return "samples are taken during the run" if OPENMETRICS in self else ""

    def run(self, simulation: Simulation, go_on: Callable[[Simulation], bool]) -> bool:
        """Run the simulation to its end, like :meth:`Simulation.run`, with the requested scrapes."""
        if OPENMETRICS not in self:
            return simulation.run(go_on=go_on)
        from blis_tui.output.openmetrics import Scrapes  # noqa: PLC0415

        self._scrapes = Scrapes()
        interval_us, looked_us = self._interval_us, -self._interval_us
        if (first := simulation.peek()) is not None and first.time_us > 0:  # otherwise the loop scrapes at 0
            self._scrapes.take(simulation.cluster, 0)
            looked_us = 0
        while (upcoming := simulation.peek()) is not None:
            next_us = -(-upcoming.time_us // interval_us) * interval_us
            if next_us - interval_us > looked_us:  # nothing changes until then
                self._scrapes.take(simulation.cluster, next_us - interval_us)
            if not simulation.run(next_us, go_on=go_on) or not go_on(simulation):
                return False
            self._scrapes.take(simulation.cluster, next_us)
            looked_us = next_us
        return True

    def fill(self, simulation: Simulation, report: Report, text: str) -> None:
        """Write what is known at the end; ``text`` is the report as it is shown."""
        from blis_tui.output import tables as trace_v2  # noqa: PLC0415
        from blis_tui.output.tables import requests_csv  # noqa: PLC0415

        rows = report.rows
        if self._parquet:
            from blis_tui.study.parquet import write_requests  # noqa: PLC0415

            write_requests(self._files[REQUESTS], rows)
        tables: dict[str, Callable[[], Iterable[str]]] = {
            REQUESTS: lambda: () if self._parquet else requests_csv(rows, rows.columns),
            _HEADER: lambda: (trace_v2.header(simulation.experiment, rows),),
            TRACE: lambda: trace_v2.rows_csv(rows),
            OPENMETRICS: lambda: self._scrapes.text(simulation.cluster, rows) if self._scrapes is not None else (),
            HTML: lambda: self._page(simulation, report),
            REPORT: lambda: (text,),
        }
        for option, lines in tables.items():
            if (file := self._files.get(option)) is not None:
                pieces = iter(lines())
                while some := "".join(islice(pieces, _AT_ONCE)):
                    file.write(some.encode())
        if self._timeline is not None:
            self._timeline.finish()

    def _page(self, simulation: Simulation, report: Report) -> Iterable[str]:
        from blis_tui.pictures.run_page import run_page  # noqa: PLC0415

        return () if self._load is None else (run_page(simulation, report, self._load),)


_MANY_REQUESTS: Final = 50_000
"""Above this number, the report takes about a second."""


@click.command(cls=Command)
@click.argument("source", metavar="SPEC", shell_complete=completion.experiments)
@chosen_options
@format_option(
    "table",
    "json",
    about="table: the main metrics; json: the whole report, as canonical JSON.",
    default="table on a terminal, json into pipes and files",
)
@click.option(
    "--explain",
    "explained",
    type=click.Choice(["accuracy"]),
    help="Also print, on standard error, where a line of the table comes from; accuracy: the errors seen on measured "
    "servers, with their range.",
)
@written_options
@click.option(
    "--check",
    type=click.Choice(["all", "end", "off"]),
    default="end",
    show_default=True,
    help="Verify the invariants after every event, at the end of the run, or never.",
)
@click.option(
    "-j",
    "--jobs",
    type=click.IntRange(1, MOST_JOBS),
    default=1,
    metavar="N",
    help="Share the instances among up to N processes. The results are the same, byte for byte. It applies to clusters "
    "whose routing and admission do not look at the instances, such as `round-robin`; other runs use one process.",
)
@click.option(
    "--progress/--no-progress", default=None, help="Show progress on standard error [default: when it is a terminal]."
)
@reported
def run(
    source: str,
    chosen: Chosen,
    output_format: str | None,
    explained: str | None,
    written: Written,
    check: str,
    jobs: int,
    progress: bool | None,
) -> None:
    """Simulate an experiment and print its report.

    SPEC is the name of an experiment (see `blis-tui spec list`), the path of a .blis.yaml file or of a bundle
    (`blis-tui bundle`), or - for standard input. Anything that looks wrong with the run (overload, a KV cache that is
    too small, too few requests, ...) is listed in the report's `warnings` and printed to standard error. Ctrl-C stops
    the run and reports what has happened so far, marked as incomplete; a second Ctrl-C exits at once.
    """
    from blis_tui.output.result_files import atomic_files  # noqa: PLC0415
    from blis_tui.runs.simulation import Simulation  # noqa: PLC0415

    outputs = Outputs(written)
    shown = None if REPORT in outputs else results()
    if output_format is None:
        output_format = "json" if shown is None or not shown.isatty() else "table"
    weighed = () if written.counterfactual is None else (f"counterfactual={written.counterfactual}",)
    same, asked = True, source
    with ExitStack() as held, interrupting_on_signals() as signals:
        packed = [Path(source)] if is_bundle(source) else []
        if packed:
            require_as_packed(chosen.case, chosen.overrides, weighed, chosen.seed is not None)
            bundle, same = held.enter_context(opened(source, chosen.known()))
            source = str(bundle.spec)
        experiment = _load(source, chosen, weighed)
        with atomic_files() as files:
            outputs.open(files, packed)
            simulation = Simulation(experiment, check=check)
            outputs.listen(simulation)
            complete = _run_shared(simulation, outputs, signals, ProgressLine(progress), jobs) or _run(
                simulation, outputs, signals, ProgressLine(progress)
            )
            report = simulation.report(complete=complete, verify=complete)
            text = report.to_json() if output_format == "json" else _table(report, shown)
            outputs.fill(simulation, report, text)
        if REPORT not in outputs:
            print_text(text, nl=False)  # last: nothing is printed if another result cannot be written
    tell_left_out(report)
    if explained is not None:
        _explain_accuracy(report)
    if output_format == "json":
        _warn(report)
    if not complete:
        if listed := outputs.listed():
            tell(f"interrupted; what happened until then was written to {listed}")
        sys.exit(ExitCode.INTERRUPTED)
    if not same:
        sys.exit(ExitCode.CHECK_FAILED)
    _judge(report, lambda event: _opening(asked, chosen, event))


def _opening(source: str, chosen: Chosen, event: int) -> str:
    """Return the command that opens the debugger at an event of this run; empty if it could not be run again."""
    from importlib.util import find_spec  # noqa: PLC0415  (as below)
    from shlex import join  # noqa: PLC0415  (only needed if an expectation fails)

    if source == "-" or find_spec("blis_tui.tui") is None:
        return ""
    words = ["blis-tui", "tui", source]
    for option, values in (
        ("--case", () if chosen.case is None else (chosen.case,)),
        ("--set", chosen.overrides),
        ("--seed", () if chosen.seed is None else (str(chosen.seed),)),
        ("--plugins", chosen.plugins),
        ("--at", (str(event),)),
    ):
        words += [word for value in values for word in (option, value)]
    return join(words)


def _table(report: Report, stream: TextIO | None) -> str:
    from blis_tui.output.section_text import WIDTH, summary_text  # noqa: PLC0415  (heavy imports only when it runs)

    return printable_lines(summary_text(report, columns(WIDTH, stream)))


def _explain_accuracy(report: Report) -> None:
    from blis_tui.output.section_text import accuracy_table  # noqa: PLC0415  (as above)

    tell(f"\n{accuracy_table(report.expected_errors())}", nl=False)


def _load(source: str, chosen: Chosen, more: tuple[str, ...]) -> Experiment:
    """Load the experiment, with additional assignments ``more``."""
    from blis_tui.spec.load import build, resolve_source  # noqa: PLC0415  (heavy imports only when the command runs)

    stdin_text = read_standard_input_text() if source == "-" else None
    known = chosen.known()
    assignments = case_overrides(source, chosen.case, (*chosen.overrides, *more), stdin_text, known)
    resolved = resolve_source(source, overrides=assignments, seed=chosen.seed, stdin_text=stdin_text, plugins=known)
    experiment = build(resolved)
    if chosen.case is None:
        mention_cases(source, stdin_text, known)
    return experiment


def _run_shared(simulation: Simulation, outputs: Outputs, signals: Signals, line: ProgressLine, jobs: int) -> bool:
    """Run to the end in several processes, if that is asked for; return False, with a note, if it is not possible."""
    if jobs == 1:
        return False
    if why := outputs.why_in_order() or simulation.why_whole():
        tell(f"note: one process simulates this run: {why}")
        return False
    from blis_tui.runs.shares import SharedRun  # noqa: PLC0415  (few runs are shared)

    shared, requests = SharedRun(simulation, jobs), simulation.experiment.workload.requests
    total = "" if requests is None else f" of {requests:,}"
    try:
        with signals.stopping(shared.stop):
            complete = shared.run(lambda: line.show(lambda: f"{shared.ended:,}{total} requests done"))
    finally:
        line.clear()
    if not complete:
        tell("interrupted: no report, because several processes share the run")
        sys.exit(ExitCode.INTERRUPTED)
    return True


def _run(simulation: Simulation, outputs: Outputs, signals: Signals, line: ProgressLine) -> bool:
    """Run to the end; return False if a signal stopped it between two events."""
    requests = simulation.experiment.workload.requests
    total = "" if requests is None else f" of {requests:,}"

    def text() -> str:
        return f"{simulation.ended:,}{total} requests done, {simulation.now_us / 1e6:,.1f} s simulated"

    def go_on(_: Simulation) -> bool:
        line.show(text)
        return True

    try:
        with signals.stopping(simulation.stop):
            complete = outputs.run(simulation, go_on) or simulation.done
    except OverdueError as error:
        if not simulation.is_consistent:
            from blis_tui.model.plug_ins import place_in_plugin  # noqa: PLC0415  (few runs need it)

            left = f", and these files were not written: {written}" if (written := outputs.listed()) else ""
            place = f"; {where}" if (where := place_in_plugin(error)) else ""
            tell(f"interrupted in the middle of a long event: no report{left}{place}")
            sys.exit(ExitCode.INTERRUPTED)
        complete = False
    finally:
        line.clear()
    if not complete and simulation.arrived > _MANY_REQUESTS:
        tell(f"interrupted: reporting on {simulation.arrived:,} requests so far; interrupt again to end at once")
    return complete


def _warn(report: Report) -> None:
    """Print warnings about the run on standard error, because few users read them in the JSON."""
    from blis_tui.output.section_text import WIDTH, warnings_text  # noqa: PLC0415

    tell(warnings_text(report, columns(WIDTH, sys.stderr)), nl=False)


def _judge(report: Report, opening: Callable[[int], str]) -> None:
    """Print what does not hold on standard error, and exit with the corresponding code."""
    counts = report.requests
    if counts.completed < counts.total:
        missing = counts.total - counts.completed
        who = f"{missing:,} of {plural(counts.total, 'request')}"
        tell(f"note: {who} did not complete; end-to-end latencies do not include them")
    failures = [verdict.sentence() for verdict in report.expectations if not verdict.ok]
    failures += [f"{name} {text}" for name, text in report.invariants.items() if text not in ("ok", "not checked")]
    for failure in failures:
        tell(printable(f"FAIL  {failure}"))
    first = min(
        (expectation.event for expectation in report.expectations if expectation.event is not None), default=None
    )
    if first is not None and (command := opening(first)):
        tell(printable(f"open it in the debugger: {command}"))
    if failures:
        sys.exit(ExitCode.CHECK_FAILED)
