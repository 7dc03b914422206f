"""Output files of a run: one per option, subscribers during the run, and what is written at its end.

Imports are local, so that a run that only prints its report does not pay for them.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

import click

from blis_tui.base.classes import dataclass
from blis_tui.cli.options import FiniteRange, grouped
from blis_tui.cli.standard_streams import require_different_files, require_no_overwrite

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path
    from typing import BinaryIO

    from blis_tui.engine.records import Record
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
                told = iter(lines())
                while some := "".join(islice(told, _AT_ONCE)):
                    file.write(some.encode())
        if self._timeline is not None:
            self._timeline.finish()

    def _page(self, simulation: Simulation, report: Report) -> Iterable[str]:
        from blis_tui.pictures.run_page import run_page  # noqa: PLC0415

        return () if self._load is None else (run_page(simulation, report, self._load),)
