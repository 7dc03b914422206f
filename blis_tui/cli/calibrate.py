"""``blis-tui calibrate``: step times from measured requests, or how well a model agrees with them."""

from __future__ import annotations

from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING

import click

from blis_tui.base.classes import dataclass
from blis_tui.base.text import printable
from blis_tui.base.units import plural
from blis_tui.cli import completion
from blis_tui.cli.help import Command
from blis_tui.cli.options import format_option, grouped, set_option
from blis_tui.cli.signals import ProgressLine
from blis_tui.cli.standard_streams import print_text, reported, require_different_files, require_no_overwrite, tell

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.live.calibration.simulated_load import Pairs


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """What to do with the measured files."""

    base: str | None
    compare: bool
    stages: str | None
    repeated_prompts: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Collected:
    """The loads to collect."""

    collect: str | None
    loads: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Written:
    """The output options."""

    output: str | None
    html: str | None
    output_format: str

    def files(self) -> dict[str, str | None]:
        """The output files, by option."""
        return {"-o": self.output, "--html": self.html}


@click.command(cls=Command)
@click.argument("measured", nargs=-1, type=click.Path(path_type=Path))
@click.option(
    "--spec",
    "specs",
    multiple=True,
    required=True,
    metavar="SPEC",
    shell_complete=completion.experiments,
    help="Experiment that describes what was measured (model, hardware, engine); one for all files, or one per file.",
)
@set_option
@grouped(
    "asked",
    _Asked,
    click.option(
        "--base",
        type=click.Choice(["fitted", "blackbox"]),
        help="Step-time model to fit; `blackbox` is for hardware of which nothing is known [default: the experiment's, "
        "if it is one of these, otherwise `fitted`].",
    ),
    click.option(
        "--compare", is_flag=True, help="Fit nothing: compare the experiment's own step-time model with MEASURED."
    ),
    click.option(
        "--stages",
        metavar="SECONDS,…",
        help="Durations of the load's stages, such as 600,600: also report the error of each stage.",
    ),
    click.option(
        "--repeated-prompts",
        is_flag=True,
        help="Treat prompts of equal length as the same prompt, which hits the prefix cache.",
    ),
)
@grouped(
    "collected",
    _Collected,
    click.option(
        "--collect",
        metavar="FILE",
        help="Fit nothing yet: write the loads to measure to FILE, the most informative first.",
    ),
    click.option(
        "--loads", type=click.IntRange(1, 30), default=6, show_default=True, help="With --collect: number of loads."
    ),
)
@grouped(
    "written",
    _Written,
    click.option(
        "-o", "--output", metavar="FILE", help="Write the coefficients to FILE, a document to name under `extends`."
    ),
    click.option("--html", metavar="FILE", help="Write an HTML page with charts of measured against predicted."),
    format_option("table", "json"),
)
@reported
def calibrate(
    measured: tuple[Path, ...],
    specs: tuple[str, ...],
    overrides: tuple[str, ...],
    asked: _Asked,
    collected: _Collected,
    written: _Written,
) -> None:
    """Fit the coefficients of a step-time model to MEASURED requests and steps, or report the error of a model.

    MEASURED are files of `vllm bench serve --save-detailed`, GuideLLM, AIPerf, inference-perf (per-request metrics),
    BLIS (TraceV2), or CSV with arrival_us, input_tokens, output_tokens, ttft_us and e2e_us, as `run --requests` writes
    it.
    Steps are read from a log of `vllm serve --enable-logging-iteration-details`, or from CSV with duration_us,
    decode_requests, context_tokens, prefill_requests and prefill_tokens.

    With --collect FILE and no MEASURED, it writes FILE, an experiment whose cases are the loads to measure.
    """
    if collected.collect is not None:
        if measured or len(specs) != 1 or asked.base == "blackbox" or asked.compare or written.output or written.html:
            raise click.UsageError("--collect FILE takes one --spec, no measured files, and only the `fitted` model")
        _collect(collected.collect, specs[0], overrides, collected.loads)
        return
    if not measured:
        raise click.UsageError("name files of measured requests or steps, or use --collect FILE")
    if len(specs) not in (1, len(measured)):
        raise click.UsageError(
            f"{plural(len(measured), 'file')} and {len(specs)} --spec: give one, or one for each file"
        )
    if asked.compare and written.output:
        raise click.UsageError("--compare fits nothing, so there is nothing to write with -o")
    require_different_files(written.files())
    paths = [*specs] * (len(measured) if len(specs) == 1 else 1)
    _tell(list(zip(measured, paths, strict=True)), overrides, asked, written)


def _tell(measured: Sequence[tuple[Path, str]], overrides: tuple[str, ...], asked: _Asked, written: _Written) -> None:
    """Fit or judge, with the experiment of each file."""
    from blis_tui.live.calibration.measured import (  # noqa: PLC0415  (heavy imports only when the command runs)
        Data,
        notes_of,
        read_recording,
    )
    from blis_tui.live.calibration.run import as_json, as_table, calibrated  # noqa: PLC0415
    from blis_tui.live.calibration.simulated_load import judged  # noqa: PLC0415
    from blis_tui.output.result_files import atomic_files  # noqa: PLC0415
    from blis_tui.spec.load import load  # noqa: PLC0415

    durations = _durations(asked.stages)
    data = []
    for path, spec in measured:
        experiment = load(spec, overrides=overrides)
        data.append(Data(read_recording(path, experiment.pools[0]), experiment, asked.repeated_prompts))
    require_no_overwrite(written.files(), [path for path, _ in measured])
    for note in notes_of([run.recording for run in data], durations):
        tell(printable(f"note: {note}"))
    runs: dict[str, Pairs]
    calibration = expected = None
    with atomic_files() as opened:  # a file that cannot be written is told before the fit, which takes long
        output, html = (opened.text(file) if file else None for file in written.files().values())
        if asked.compare:
            runs, expected = judged(data)
        else:
            line = ProgressLine(None)
            try:
                calibration = calibrated(
                    data, asked.base or "", lambda text: line.show(lambda: f"{line.elapsed_s:,.0f} s, {text}")
                )
            finally:
                line.clear()
            runs = calibration.runs
            if output:
                output.write(calibration.document)
        if html:
            from blis_tui.live.calibration.document import page  # noqa: PLC0415

            html.write(page("Measured against predicted", runs))
    write = as_json if written.output_format == "json" else as_table
    print_text(write(runs, durations, calibration, expected), nl=False)


def _collect(collect: str, spec: str, overrides: tuple[str, ...], loads: int) -> None:
    from blis_tui.live.calibration.run import (  # noqa: PLC0415
        accuracy_sentences,
        case_name,
        collection,
        collection_text,
        purpose_sentences,
    )
    from blis_tui.output.result_files import write_text  # noqa: PLC0415  (heavy imports only when the command runs)
    from blis_tui.spec.load import load  # noqa: PLC0415

    require_different_files({"--collect": collect})
    load(spec, overrides=overrides)  # notes the input files that it names
    require_no_overwrite({"--collect": collect})
    plan = collection(spec, overrides, loads)
    write_text(collect, collection_text(spec, overrides, plan, Path(collect)))
    lines = [
        f"{case_name(advised.load)}: {' '.join(purpose_sentences(advised.settles, advised.duration_us))}"
        for advised in plan.loads
    ]
    print_text(
        "\n".join(fill(line, 100) for line in [*lines, *accuracy_sentences(plan), printable(f"wrote {collect}")])
    )


def _durations(stages: str | None) -> list[float]:
    try:
        durations = [float(duration) for duration in stages.split(",")] if stages else []
    except ValueError:
        durations = [0.0]
    if any(not 0.0 < duration < float("inf") for duration in durations):
        raise click.UsageError(f"--stages {stages}: not a list of seconds, such as 600,600")
    return durations
