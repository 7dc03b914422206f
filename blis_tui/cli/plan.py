"""``blis-tui plan``: the number of GPUs for a rate, or the rate of a cluster."""

from __future__ import annotations

import re
import sys
from contextlib import ExitStack
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Final, TextIO, cast

import click

from blis_tui.base.classes import dataclass
from blis_tui.base.text import printable, printable_lines
from blis_tui.base.units import plural
from blis_tui.cli import completion
from blis_tui.cli.help import Command
from blis_tui.cli.options import EXPORTS, MOST_JOBS, FiniteRange, format_option, grouped, plugins_option, set_option
from blis_tui.cli.signals import ProgressLine, interrupting_on_signals
from blis_tui.cli.standard_streams import (
    ExitCode,
    columns,
    print_text,
    reported,
    require_different_files,
    require_no_overwrite,
    results,
    tell,
)
from blis_tui.cli.sweep import (
    Asked,
    Runs,
    case_option,
    open_page,
    open_study,
    price_option,
    price_table_option,
    progress_option,
    runs_options,
    slo_option,
    warn,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from blis_tui.base.source import Json
    from blis_tui.model import Experiment
    from blis_tui.spec.foreign.export import Exported
    from blis_tui.spec.study.arguments import AxisOption
    from blis_tui.study.planning.answer import Plan, Question
    from blis_tui.study.study_rows import Row

_SIZES: Final = re.compile(r"([A-Za-z0-9_.]+)=([1-9][0-9]{0,4})\.\.([1-9][0-9]{0,4})\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Choices:
    """The configurations to choose from."""

    hardware: str | None
    tensor_parallel: str | None
    axes: tuple[str, ...]

    def all(self) -> tuple[str | AxisOption, ...]:
        """Return the axes of the study."""
        from blis_tui.spec.study.arguments import AxisOption  # noqa: PLC0415  (heavy imports only when it runs)

        known = (
            ("--hardware", "hardware", self.hardware),
            ("--tensor-parallel", "cluster.tensor_parallel", self.tensor_parallel),
        )
        own = [AxisOption(option, path, values) for option, path, values in known if values is not None]
        return (*own, *self.axes)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Search:
    """Range and precision of the search."""

    sizes: str
    seeds: str
    duration: float
    headroom: float
    spare: int
    precision: float
    confidence: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Start:
    """The basis of the plan."""

    prices: tuple[str, ...]
    price_table: str | None
    overrides: tuple[str, ...]
    case: str | None
    plugins: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Written:
    """The output of the answer."""

    output_format: str
    output: str | None
    html_file: str | None
    deployment: tuple[str, str] | None
    strict: bool
    progress: bool | None


@click.command(cls=Command)
@click.argument("source", metavar="SPEC", shell_complete=completion.experiments)
@slo_option
@click.option("--rate", type=FiniteRange(min=0, min_open=True), metavar="R", help="Requests per second to plan for.")
@click.option(
    "--max-rate", is_flag=True, help="Find the highest rate at which the cluster, as it is, meets all bounds."
)
@grouped(
    "choices",
    _Choices,
    click.option("--hardware", metavar="NAMES", help="GPUs to choose from, such as h100,l40s."),
    click.option("--tensor-parallel", metavar="NUMBERS", help="Tensor parallelism to choose from, such as 1,2,4."),
    click.option(
        "--axis", "axes", multiple=True, metavar="PATH=VALUES", help="Any other key to choose values of; repeatable."
    ),
)
@grouped(
    "search",
    _Search,
    click.option(
        "--sizes",
        metavar="PATH=FROM..TO",
        default="cluster.instances=1..64",
        show_default=True,
        help="The key that may grow, and its range.",
    ),
    click.option(
        "--seeds",
        metavar="N|LIST",
        default="1",
        show_default=True,
        help="Number of seeds that have to agree, or the seeds themselves.",
    ),
    click.option(
        "--duration",
        type=FiniteRange(min=0, min_open=True),
        metavar="SECONDS",
        default=90.0,
        show_default=True,
        help="Minimum simulated time before bounds are said to hold.",
    ),
    click.option(
        "--headroom",
        type=FiniteRange(min=0, max=10.0),
        metavar="SHARE",
        default=0.0,
        help="The bounds also hold at a load higher by this share, such as 0.2.",
    ),
    click.option(
        "--spare",
        type=click.IntRange(min=0, max=1000),
        metavar="N",
        default=0,
        help="The bounds also hold while N of the instances are down.",
    ),
    click.option(
        "--precision",
        type=FiniteRange(min=0.01, max=1.0),
        metavar="SHARE",
        default=0.075,
        show_default=True,
        help="With --max-rate: how far the lowest failing rate may be above the highest passing one.",
    ),
    click.option(
        "--confidence",
        type=FiniteRange(min=0.5, max=1.0, max_open=True),
        metavar="SHARE",
        help="Require the answer to hold with step times so slow that this share of measured servers were no slower.",
    ),
)
@grouped("start", _Start, price_option, price_table_option, set_option, case_option, plugins_option)
@runs_options
@grouped(
    "written",
    _Written,
    format_option("table", "json", about="table: the answer and the runs next to it; json: everything."),
    click.option("-o", "--output", metavar="FILE", help="Write the result to FILE instead of standard output."),
    click.option(
        "--html",
        "html_file",
        metavar="FILE.html",
        help="Also write an HTML page with charts: the answer, and what was tried.",
    ),
    click.option(
        "--export",
        "deployment",
        type=(click.Choice(EXPORTS), str),
        metavar="KIND FILE",
        help="Also write what starts the servers of the answer: vllm, sglang, compose, kubernetes or llm-d.",
    ),
    click.option("--strict", is_flag=True, help="Exit with 1 if what --export writes cannot say all of the answer."),
    progress_option,
)
@reported
def plan(
    source: str,
    slos: tuple[str, ...],
    rate: float | None,
    max_rate: bool,
    choices: _Choices,
    search: _Search,
    start: _Start,
    runs: Runs,
    written: _Written,
) -> None:
    """Find the cheapest cluster that meets all bounds, or the highest rate at which a cluster meets them.

    SPEC is the name or path of an experiment; its workload defines what requests look like. A run goes on until it is
    certain whether the bounds hold in the long run, or until that cannot be known; then its size is not the answer.
    """
    from blis_tui.spec.study.document import experiment_of  # noqa: PLC0415  (heavy imports only when it runs)
    from blis_tui.study.planning.answer import Question  # noqa: PLC0415

    if max_rate and rate is not None:
        raise click.UsageError("--rate and --max-rate cannot be combined: --max-rate finds the rate")
    _require_used(max_rate=max_rate)
    if not slos:
        raise click.UsageError("no bound given: add one, such as --slo 'latency.ttft_ms.p99<=300'")
    if written.strict and written.deployment is None:
        raise click.UsageError("--strict is about what --export writes")
    if written.output == "-":
        written = replace(written, output=None)
    deployed = None if written.deployment is None else written.deployment[1]
    if deployed == "-":
        raise click.UsageError("--export needs a file: standard output has the answer")
    require_different_files({"-o": written.output, "--html": written.html_file, "--export": deployed})
    size_path, least, most = _sizes(search.sizes)
    _require_effect(start.overrides, {} if max_rate else {size_path: "may grow (--sizes)"}, rated=rate is not None)
    with interrupting_on_signals():
        asked = Asked(slos=slos, axes=choices.all(), seeds=search.seeds, **asdict(start))
        study = open_study(source, asked)
        require_no_overwrite({"-o": written.output, "--html": written.html_file, "--export": deployed})
        if written.deployment is not None:  # what cannot be exported is told before the search
            _deployed(written.deployment[0], experiment_of(study, study.points[0], study.seeds[0]))
        if size_path in study.paths:
            raise click.UsageError(f"`{size_path}` is the key that may grow, so it cannot also be an axis: see --sizes")
        question = Question(
            study=study,
            rate_per_s=rate,
            max_rate=max_rate,
            size_path=size_path,
            least=least,
            most=most,
            duration_s=search.duration,
            headroom=search.headroom,
            spare=search.spare,
            precision=search.precision,
            confidence=search.confidence,
        )
        answer, lost = _answer(question, runs, written)
    if written.strict and lost:
        sys.exit(ExitCode.CHECK_FAILED)
    if answer.best is None:
        unknown = any(candidate.not_known for candidate in answer.candidates)
        why = f"?     no answer with a confidence of {answer.question.confidence} is known"
        tell(why if unknown else "FAIL  nothing that was tried meets all bounds")
        sys.exit(ExitCode.CHECK_FAILED)


def _require_used(*, max_rate: bool) -> None:
    """Raise UsageError if an option was given that the question does not use."""
    context = click.get_current_context()
    unused = "sizes" if max_rate else "precision"
    if context.get_parameter_source(unused) is click.core.ParameterSource.DEFAULT:
        return
    if max_rate:
        raise click.UsageError("--sizes and --max-rate cannot be combined: the cluster stays as it is")
    raise click.UsageError("--precision is for --max-rate: the smallest size is found exactly")


def _require_effect(overrides: Sequence[str], sought: Mapping[str, str], *, rated: bool) -> None:
    """Raise UsageError if an assignment is replaced by what the plan varies."""
    replaced = {**sought, **({"workload.rate_per_s": "is planned for (--rate)"} if rated else {})}
    for path in (override.partition("=")[0] for override in overrides):
        if path in replaced:
            raise click.UsageError(f"--set {path} has no effect: it is what {replaced[path]}")


def _answer(question: Question, runs: Runs, written: _Written) -> tuple[Plan, Sequence[str]]:
    """Answer the question and write the answer; return it, and what its deployment cannot say."""
    from blis_tui.base.canonical import to_json  # noqa: PLC0415  (as above)
    from blis_tui.output.result_files import atomic_files  # noqa: PLC0415
    from blis_tui.study.planning.plan import answer_experiment  # noqa: PLC0415
    from blis_tui.study.planning.plan import plan as ask  # noqa: PLC0415
    from blis_tui.study.planning.plan_text import plan_data  # noqa: PLC0415

    lost: Sequence[str] = ()
    line, so_far = ProgressLine(written.progress), _SoFar(question)

    def show(row: Row) -> None:
        so_far.add(row)
        line.show_next(lambda number: _progress_text(number, row))

    with atomic_files() as opened, ExitStack() as running:
        file = None if written.output is None else opened.text(written.output)
        page = None if written.html_file is None else open_page(opened, written.html_file)
        deployment = None if written.deployment is None else opened.text(written.deployment[1])
        try:
            runner = running.enter_context(runs.runner(MOST_JOBS))
            answer = ask(question, runner, runs.kept(), show, warn)
        except KeyboardInterrupt as error:
            if so_far.runs:
                error.add_note(so_far.text)
            raise
        finally:
            line.clear()
        as_table = written.output_format == "table"
        text = _table(answer, None if file is not None else results()) if as_table else to_json(plan_data(answer))
        if file is not None:
            file.write(text)
        if page is not None:
            page.write(_page(answer))
        if deployment is not None and written.deployment is not None:
            made = _deployed(written.deployment[0], answer_experiment(answer))
            deployment.write(made.text)
            lost = made.lost
            tell("".join(f"not said: {loss}\n" for loss in lost), nl=False)
    if written.output is None:
        print_text(text, nl=False)
    return answer, lost


class _SoFar:
    """What a search has found, for whoever interrupts it: only that something fails is certain before it ends."""

    def __init__(self, question: Question) -> None:
        self._study = question.study
        self._max_rate = question.max_rate
        self._path = "workload.rate_per_s" if question.max_rate else question.size_path
        self.runs = 0
        self._failed: dict[str, float] = {}

    def add(self, row: Row) -> None:
        """Note a run; those with slower steps say nothing about the expected ones."""
        from blis_tui.study.study_rows import point_text  # noqa: PLC0415  (heavy imports only when it runs)

        self.runs += 1
        coordinates, paths = row.coordinates, self._study.paths
        tried = coordinates.get(self._path)
        asked = all(path in (self._path, *paths) or path.startswith("workload.") for path in coordinates)
        if row.in_long_run != "fails" or not asked or not isinstance(tried, int | float):
            return
        of = point_text(paths, coordinates)
        nearest = min if self._max_rate else max
        self._failed[of] = nearest(tried, self._failed.get(of, tried))

    @property
    def text(self) -> str:
        """The number of runs, and what is not enough, or too much, by configuration."""
        verdict = "is too much" if self._max_rate else "is not enough"
        known = [f"{of}{of and ': '}{self._path} {number:g} {verdict}" for of, number in sorted(self._failed.items())]
        return f"{plural(self.runs, 'run')} so far{', ' if known else ''}{'; '.join(known)}"


def _deployed(kind: str, experiment: Experiment | None) -> Exported:
    """Return what starts the servers of an experiment; without one, a comment."""
    from blis_tui.base.source import as_map  # noqa: PLC0415  (heavy imports only when it runs)
    from blis_tui.spec.foreign.export import Exported, export_document  # noqa: PLC0415
    from blis_tui.spec.load import load, resolve_source  # noqa: PLC0415
    from blis_tui.spec.yaml_text import yaml_text  # noqa: PLC0415

    if experiment is None:
        return Exported("# Nothing that was tried meets all bounds, so there is nothing to deploy.\n", ())
    data = as_map(cast("Json", experiment.document))
    for key in ("kv_blocks", "max_model_len"):  # figures that the server works out itself are no arguments
        engine = {name: value for name, value in as_map(data.get("engine")).items() if name != key}
        text = yaml_text({**data, "engine": engine})
        if load("-", stdin_text=text).sha256 == experiment.sha256:
            data = as_map(resolve_source("-", stdin_text=text).document.data)
    return export_document(kind, data)


def _page(answer: Plan) -> str:
    """Return the HTML page about a plan; the run at the answer is repeated to show it over time."""
    from blis_tui.pictures.plan_page import answer_runs, plan_page  # noqa: PLC0415
    from blis_tui.pictures.points import rerun  # noqa: PLC0415

    return plan_page(answer, [rerun(name, experiment) for name, experiment in answer_runs(answer)])


def _sizes(text: str) -> tuple[str, int, int]:
    match = _SIZES.match(text.strip())
    if match is None:
        raise click.UsageError(f"--sizes {text}: write it as cluster.instances=1..64")
    least, most = int(match[2]), int(match[3])
    if least > most:
        raise click.UsageError(f"--sizes {text}: {least} is more than {most}")
    return match[1], least, most


def _table(answer: Plan, stream: TextIO | None) -> str:
    from blis_tui.study.planning.plan_text import plan_text  # noqa: PLC0415  (heavy imports only when it runs)
    from blis_tui.study.study_text import WIDTH  # noqa: PLC0415

    return printable_lines(plan_text(answer, columns(WIDTH, stream)))


def _progress_text(runs: int, row: Row) -> str:
    """Return the number of runs, and what the latest one tried."""
    from blis_tui.study.study_rows import value_text  # noqa: PLC0415  (heavy imports only when it runs)

    tried = ", ".join(f"{path.rsplit('.', 1)[-1]} {value_text(value)}" for path, value in row.coordinates.items())
    return printable(f"{plural(runs, 'run')}; {tried}: {'holds' if row.ok else 'does not hold'}")
