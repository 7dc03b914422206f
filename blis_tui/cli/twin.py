"""``blis-tui twin``: compares a recording with a simulation of its requests, or with another recording."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from blis_tui.cli import completion
from blis_tui.cli.help import Command
from blis_tui.cli.options import FiniteRange, format_option, known_plugins, plugins_option, set_option
from blis_tui.cli.standard_streams import ExitCode, print_text, reported, require_no_overwrite, tell

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from blis_tui.live.twin.summaries import Summary
    from blis_tui.live.twin.twin import Twin
    from blis_tui.model import Experiment


@click.command(cls=Command)
@click.argument("recording", metavar="RECORDING", type=click.Path(path_type=Path))
@click.argument("other", metavar="SPEC|RECORDING", shell_complete=completion.experiments)
@click.option(
    "--steps",
    type=click.Choice(["model", "measured", "fitted"]),
    default="model",
    show_default=True,
    help="Step times to use: the experiment's model, those in the recording's log, step by step, or a simple model "
    "fitted to them.",
)
@set_option
@plugins_option
@click.option(
    "--within",
    type=FiniteRange(min=0),
    metavar="PERCENT",
    help="Exit with 1 if a mean latency differs by more than PERCENT.",
)
@click.option(
    "--requests", "requests_file", metavar="FILE.csv", help="Also write one row per request, with both latencies."
)
@click.option(
    "--run", "run", type=click.IntRange(min=1), metavar="N", help="Which of several results in RECORDING, from 1."
)
@click.option(
    "--load",
    "load_of",
    type=click.Choice(["file", "spec"]),
    default="file",
    show_default=True,
    help="Load to simulate beside results without single requests: what the file says of it, or SPEC's own workload.",
)
@format_option("table", "json")
@reported
def twin(
    recording: Path,
    other: str,
    steps: str,
    overrides: tuple[str, ...],
    plugins: tuple[str, ...],
    within: float | None,
    requests_file: str | None,
    run: int | None,
    load_of: str,
    output_format: str,
) -> None:
    """Compare RECORDING, made by `blis-tui observe`, with a simulation of the same requests.

    RECORDING may also be a file with results of a load generator: `vllm bench serve --save-result`, with or without
    `--save-detailed`, SGLang's bench_serving, GuideLLM, AIPerf, inference-perf, or a report of llm-d-benchmark. Results
    without single requests and their times are compared figure by figure with such a load.

    SPEC is an experiment that describes the server; its workload is replaced by the requests of the recording, each
    sent at its recorded time. The output shows latencies side by side, what the engines did, the first step at which
    they diverge, and how much of the error disappears with measured step times, gaps and front end.

    With a second recording of the same workload instead of SPEC, two servers are compared, or one server at two times.
    """
    from blis_tui.base.canonical import to_json  # noqa: PLC0415  (heavy imports only when the command runs)
    from blis_tui.live.observe.recording import is_recording, read_recording  # noqa: PLC0415
    from blis_tui.live.twin.twin import compare_recordings, compare_with_simulation  # noqa: PLC0415
    from blis_tui.live.twin.twin_text import pairs_csv, twin_document, twin_text  # noqa: PLC0415
    from blis_tui.output.result_files import atomic_text  # noqa: PLC0415

    _require_one_result(recording)
    results = recording.is_file()  # of a load generator
    if results and (is_recording(Path(other)) or steps != "model"):
        raise click.UsageError("results of a load generator are compared with an experiment, and have no steps")
    if not results and (run is not None or load_of != "file"):
        raise click.UsageError("--run and --load apply to results of a load generator, not to a recording")
    if results and (summed := _summary(recording, run)) is not None:
        if requests_file is not None:
            raise click.UsageError("--requests: the file has no single requests")
        _print_summary(
            summed, other, overrides, plugins, own=load_of == "spec", output_format=output_format, within=within
        )
        return
    if results:
        if load_of != "file":
            raise click.UsageError("--load applies to results without single requests, and these have them")
        comparison = _compared_results(recording, other, overrides, plugins, requests_file, run)
    elif is_recording(Path(other)):
        if overrides or plugins or steps != "model":
            raise click.UsageError("--set, --plugins and --steps apply to an experiment, not to a recording")
        left, right = read_recording(recording), read_recording(Path(other))
        require_no_overwrite({"--requests": requests_file}, [*recording.iterdir(), *Path(other).iterdir()])
        comparison = compare_recordings(left, right)
    else:
        from blis_tui.spec.load import load  # noqa: PLC0415

        left = read_recording(recording)
        experiment = load(other, overrides=overrides, plugins=known_plugins(plugins))
        require_no_overwrite({"--requests": requests_file}, recording.iterdir())
        comparison = compare_with_simulation(left, experiment, other, steps)
    if requests_file is not None:
        with atomic_text(requests_file) as file:
            file.writelines(pairs_csv(comparison))
    text = to_json(twin_document(comparison)) if output_format == "json" else twin_text(comparison)
    print_text(text, nl=False)
    _judge({name: error.bias for name, error in comparison.errors.items()}, within, paired=bool(comparison.pairs))


def _require_one_result(folder: Path) -> None:
    """Raise UsageError for a folder with reports of inference-perf, of which one is to be named."""
    results = sorted(path.name for path in folder.glob("*_lifecycle_metrics.json")) if folder.is_dir() else []
    if results:
        raise click.UsageError(f"{folder} holds several results of inference-perf: name one, such as {results[0]}")


def _summary(file: Path, run: int | None) -> Summary | None:
    from blis_tui.live.twin.summaries import read_summary  # noqa: PLC0415  (as above)

    return read_summary(file, run)


def _print_summary(
    summed: Summary,
    spec: str,
    overrides: tuple[str, ...],
    plugins: tuple[str, ...],
    *,
    own: bool,
    output_format: str,
    within: float | None,
) -> None:
    """Compare results without single requests, and exit with the corresponding code."""
    from blis_tui.base.canonical import to_json  # noqa: PLC0415  (as above)
    from blis_tui.live.twin.summary_twin import compare_summary, summary_document, summary_text  # noqa: PLC0415
    from blis_tui.spec.load import load  # noqa: PLC0415

    def opened(before: Sequence[str]) -> Experiment:
        return load(spec, overrides=(*before, *overrides), plugins=known_plugins(plugins))

    comparison = compare_summary(summed, opened, spec, own_load=own)
    print_text(to_json(summary_document(comparison)) if output_format == "json" else summary_text(comparison), nl=False)
    _judge(comparison.errors(), within)


def _compared_results(
    file: Path,
    spec: str,
    overrides: tuple[str, ...],
    plugins: tuple[str, ...],
    requests_file: str | None,
    run: int | None,
) -> Twin:
    from blis_tui.live.twin.twin import compare_results, read_results  # noqa: PLC0415  (as above)
    from blis_tui.spec.load import load  # noqa: PLC0415

    experiment = load(spec, overrides=overrides, plugins=known_plugins(plugins))
    require_no_overwrite({"--requests": requests_file}, [file])
    return compare_results(read_results(file, experiment, run), experiment, spec)


def _judge(biases: Mapping[str, float], within: float | None, *, paired: bool = True) -> None:
    """Print which mean latency is too far off, and exit with the corresponding code."""
    failures = [
        f"FAIL  mean {metric} differs by {100 * bias:+.1f} %, more than the limit of {within:g} %"
        for metric, bias in biases.items()
        if within is not None and abs(bias) > within / 100
    ]
    for failure in failures:
        tell(failure)
    if within is not None and not biases:
        failures.append("")
        tell("FAIL  the file has no mean latency to compare")
    if within is not None and not paired:
        failures.append("")
        tell("FAIL  no request was answered on both sides")
    if failures:
        sys.exit(ExitCode.CHECK_FAILED)
