"""Opens what a user names (a trace file, an experiment, a workload) as a sequence of requests."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from itertools import islice, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from blis_tui._version import __version__
from blis_tui.base.classes import dataclass
from blis_tui.base.diagnostics import suggestion
from blis_tui.base.errors import InputError, PolicyError, TraceError
from blis_tui.base.input_files import MAX_TRACE_BYTES, DamagedError, beginning, open_input
from blis_tui.base.source import Source, as_map
from blis_tui.cluster.records import SentByClient
from blis_tui.engine.request import Media, Reasoning, Request
from blis_tui.runs.simulation import Simulation
from blis_tui.spec.compose import is_path, shown
from blis_tui.spec.library import find, names
from blis_tui.spec.load import build, resolve_source
from blis_tui.spec.read import parse, read_document
from blis_tui.spec.shipped import builtin
from blis_tui.spec.validate import open_workload
from blis_tui.workload.arrivals import CLOSED_LOOP
from blis_tui.workload.source import TraceSource, create_source
from blis_tui.workload.traces.cells import read_items, read_segments
from blis_tui.workload.traces.read import TRACES, read_trace

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from blis_tui.base.diagnostics import TraceProblem
    from blis_tui.base.source import Document, Json
    from blis_tui.model import Client, Experiment, Workload
    from blis_tui.model.plug_ins import Registry
    from blis_tui.workload.traces.trace_table import LeftOut


MOST_REQUESTS: Final = 10_000
"""Maximum number of requests of an endless workload."""
_DOCUMENTS: Final = (".yaml", ".yml")


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestTiming:
    """One request, and the client that sent it."""

    request: Request
    client: str
    """Empty for a trace."""
    e2e_us: int = -1
    """Duration of the answer, if recorded or simulated; -1 = unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """Requests in order of arrival."""

    name: str
    """The document's name, or the file's."""
    source: str
    """``trace``, ``workload`` or ``experiment``."""
    requests: Iterable[RequestTiming]
    """Can be iterated once."""
    files: tuple[Path, ...]
    """The files they are read from."""
    workload: Workload
    given: dict[str, Json]
    """The Workload document; for an experiment, with its defaults."""
    seed: int | None
    """The seed they were generated with; None = they are recorded."""
    cut: int | None = None
    """Number of requests at which an endless workload was cut; None = it ends by itself."""
    left_out: tuple[LeftOut, ...] = ()
    """Parts of a trace that are not requests by its format."""
    simulated: bool = False
    """Whether clients waited for answers, so that arrivals are those of a simulation."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A command's options about the requests it needs."""

    overrides: tuple[str, ...] = ()
    """``path=value`` in the document's own terms."""
    seed: int | None = None
    """None = the experiment's, otherwise 0."""
    requests: int | None = None
    """Maximum number; None = all."""
    trace_format: str | None = None
    """Format of a file that is not a document; None = detected from its beginning."""
    plugins: Registry | None = None
    tokenizer: str | None = None
    """File that counts the tokens of a trace's texts; None = they are estimated."""
    generating: bool = True
    """Whether requests are needed at all, or only what is declared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The load for a real server."""

    name: str
    workload: Workload
    seed: int
    horizon_us: int | None
    """When the experiment would end."""
    vocabulary: int | None
    """Vocabulary size of the experiment's model."""
    plugins: Registry
    files: tuple[Path, ...]


def open_load(named: str, choice: Choice) -> Load:
    """Open the workload of what is named, even if clients wait for answers.

    Arguments and errors are those of `open_traffic`.
    """
    path, kind = _locate(named, choice)
    if kind == "Experiment":
        resolved = resolve_source(path, overrides=choice.overrides, seed=choice.seed, plugins=choice.plugins)
        experiment = build(resolved)
        return Load(
            name=experiment.name,
            workload=experiment.workload,
            seed=experiment.seed,
            horizon_us=experiment.horizon_us,
            vocabulary=experiment.pools[0].model.vocab_size or None,
            plugins=experiment.plugins,
            files=resolved.files,
        )
    document = read_document(path, shown(path)) if kind else _as_document(path, choice)
    opened = open_workload(document, overrides=choice.overrides, plugins=choice.plugins)
    return Load(
        name=opened.workload.name if kind else path.name,
        workload=opened.workload,
        seed=choice.seed or 0,
        horizon_us=None,
        vocabulary=None,
        plugins=choice.plugins or builtin(),
        files=(path, *opened.files),
    )


def open_traffic(named: str, choice: Choice) -> Traffic:
    """Open the requests of what is named.

    Args:
        named: the path of a trace, an experiment or a Workload document, or the name of a document, workloads first.
        choice: the options.

    Raises:
        InputError: there is nothing of that name, or a file cannot be read.
        SpecError: the document is wrong.
        TraceError: rows of the trace are wrong.
        PolicyError: the workload cannot be generated, or the trace's format is unknown.
        SimulationError: the experiment that answers a closed loop cannot go on.
    """
    path, kind = _locate(named, choice)
    if kind and choice.tokenizer:
        message = f"--tokenizer counts the texts of a trace, and {shown(path)} is a document"
        raise PolicyError(message, help="name the trace itself, and let the document name what is converted")
    if kind == "Experiment":
        return _of_experiment(path, choice)
    if kind:
        return _of_workload(path, read_document(path, shown(path)), choice, recorded=False)
    try:
        return _of_workload(path, _as_document(path, choice), choice, recorded=True)
    except TraceError as error:
        raise TraceError(
            [problem if problem.help is None else _with_options(problem, problem.help) for problem in error.problems]
        ) from error


def _with_options(problem: TraceProblem, advice: str) -> TraceProblem:
    """Return a problem of a trace with advice for the command line, as there is no document in which to follow it."""
    if not advice.startswith(_UNDER_TRACE):
        return problem
    options = _KEY.sub(_option, advice.removeprefix(_UNDER_TRACE))
    return replace(problem, help=f"add {options}")


def _option(key: re.Match[str]) -> str:
    name, value = key.groups()
    return f"`--trace-format {value}`" if name == "format" else f"`--set 'trace.{name}={value}'`"


_UNDER_TRACE: Final = "add under `trace:` "
_KEY: Final = re.compile(r"`([a-z_]+): ([^`]*)`")
"""A key with its value, as advice quotes it."""


def _locate(named: str, choice: Choice) -> tuple[Path, str]:
    """Return the file, and the kind of document in it; empty for a trace."""
    path = Path(named)
    if not is_path(named) and not path.is_file():
        for kind in ("Workload", "Experiment"):
            if (named_file := find(kind, named, Path.cwd())) is not None:
                return named_file, kind
        known = {*names("Workload", Path.cwd()), *names("Experiment", Path.cwd())}
        hint = None if path.suffix else suggestion(named, known, otherwise="known names are")
        raise InputError(f"there is no file, workload or experiment named `{named}`", help=hint)
    if choice.trace_format is not None or path.suffix.lower() not in _DOCUMENTS:
        return path, ""
    document = read_document(path, shown(path))
    return path, "Experiment" if document.get("kind") == "Experiment" else "Workload"


def _as_document(path: Path, choice: Choice) -> Document:
    """Create the Workload document that replays a trace."""
    plugins = choice.plugins or builtin()
    form = choice.trace_format or format_of(path, plugins)
    plugins.find(TRACES.path, form, TRACES.noun)
    data = {
        "apiVersion": "blis/v1",
        "kind": "Workload",
        "metadata": {"name": "trace"},
        "trace": {"file": path.name, "format": form},
    }
    return parse(Source(shown(path), json.dumps(data), path.parent))


def _of_workload(path: Path, document: Document, choice: Choice, *, recorded: bool) -> Traffic:
    opened = open_workload(document, overrides=choice.overrides, plugins=choice.plugins)
    workload = opened.workload
    name = path.name if recorded else workload.name
    timed = workload.trace is not None and workload.trace.rate_per_s is None
    if choice.generating and not timed and _waits(workload):
        message = f"the clients of `{name}` wait for their answers: when they send depends on the cluster"
        raise PolicyError(message, help="name an experiment with this workload: it is simulated to see when they send")
    if workload.trace is not None:  # its recorded requests are described even if a replay waits for answers
        tokenizer = choice.tokenizer or ""
        workload = replace(workload, trace=replace(workload.trace, pacing="clock", tokenizer=tokenizer))
    plugins = choice.plugins or builtin()
    limit = choice.requests
    unending = workload.trace is None and not ends(workload)
    if limit is None and unending:
        limit = MOST_REQUESTS
    seed = None if workload.trace is not None else choice.seed or 0
    requests, left_out = _requests(workload, seed or 0, plugins)
    return Traffic(
        name=name,
        source="trace" if recorded else "workload",
        requests=islice(requests, limit),
        files=(path, *opened.files),
        workload=workload,
        given=opened.given,
        seed=seed,
        cut=limit if unending and choice.requests is None else None,
        left_out=left_out,
    )


def _of_experiment(path: Path, choice: Choice) -> Traffic:
    resolved = resolve_source(path, overrides=choice.overrides, seed=choice.seed, plugins=choice.plugins)
    experiment = build(resolved)
    workload = experiment.workload
    horizon_us = experiment.horizon_us
    plugins = experiment.plugins
    waits = choice.generating and _waits(workload)
    requests, left_out = _simulated(experiment) if waits else _requests(workload, experiment.seed, plugins)
    if horizon_us is not None:
        requests = takewhile(lambda timing: timing.request.arrival_us <= horizon_us, requests)
    return Traffic(
        name=experiment.name,
        source="experiment",
        requests=islice(requests, choice.requests),
        files=resolved.files,
        workload=workload,
        given=as_map(resolved.document.get("workload")),
        seed=None if workload.trace is not None else experiment.seed,
        left_out=left_out,
        simulated=waits,
    )


def ends(workload: Workload) -> bool:
    """Whether a generated workload has a last request, whatever the horizon."""
    return workload.requests is not None or all(_ends(client, workload) for client in workload.clients)


def _ends(client: Client, workload: Workload) -> bool:
    if client.session is not None and workload.sessions is not None:
        return True
    if client.arrivals.kind == CLOSED_LOOP:
        return False
    curve = client.rate_curve
    return bool(workload.stages) or (curve is not None and not (curve.points[-1].factor or curve.repeat))


def _waits(workload: Workload) -> bool:
    """Whether arrivals depend on a cluster, because some clients wait for answers."""
    if workload.trace is not None:
        return workload.trace.pacing == "answers"
    return any(
        client.arrivals.kind == CLOSED_LOOP or (client.session is not None and client.session.pacing == "answers")
        for client in workload.clients
    )


def _requests(workload: Workload, seed: int, plugins: Registry) -> tuple[Iterator[RequestTiming], tuple[LeftOut, ...]]:
    """Return the requests of an open-loop workload; for a trace also what is left out of it."""
    if workload.trace is None:
        return generate(workload, seed, plugins), ()
    source = TraceSource(read_trace(workload.trace, plugins, seed), workload.requests)
    return _recorded(source), source.table.left_out


def _recorded(source: TraceSource) -> Iterator[RequestTiming]:
    """Iterate over the requests of a trace."""
    while (request := source.next_request()) is not None:
        yield RequestTiming(request=request, client="", e2e_us=source.table.took_us(request.index))


def generate(workload: Workload, seed: int, plugins: Registry) -> Iterator[RequestTiming]:
    """Generate the requests of a workload whose clients wait for no answers, each with its client."""
    source = create_source(workload, seed, plugins)
    while (request := source.next_request()) is not None:
        yield RequestTiming(request=request, client=request.client)


def _simulated(experiment: Experiment) -> tuple[Iterator[RequestTiming], tuple[LeftOut, ...]]:
    """Return the requests of a run, in order of arrival, and what is left out of its trace."""
    simulation = Simulation(experiment)
    clients: dict[str, str] = {}
    simulation.subscribe(SentByClient, lambda record: clients.update({record.request_id: record.client}))
    simulation.run()
    return _asked(simulation, clients), simulation.left_out


def _asked(simulation: Simulation, clients: Mapping[str, str]) -> Iterator[RequestTiming]:
    """Iterate over the requests of a finished run; ``clients`` sent them."""
    rows = sorted(simulation.report().rows, key=lambda row: row.arrival_us)
    for number, row in enumerate(rows):
        head = ((row.prefix_group, row.prefix_tokens),) if row.prefix_tokens else ()
        request = Request(
            number,
            row.request_id,
            row.arrival_us,
            row.input_tokens,
            row.requested_output_tokens,
            read_segments(row.prefix_segments, row.input_tokens) or head,
            row.slo_class,
            row.tenant_id,
            row.deadline_us or 0,
            row.session_id,
            row.round_index or 0,
            row.model,
            row.adapter,
        )
        request.reasoning = Reasoning(row.reasoning_tokens) if row.reasoning_tokens else None
        request.media = Media(row.image_tokens, row.audio_tokens, row.video_tokens)
        request.media_items = read_items(row.media_items, row.input_tokens, request.media.tokens)
        request.declare(row.max_output_tokens or None)
        request.ignore_eos = bool(row.ignore_eos)
        e2e_us = -1 if row.e2e_us is None else row.e2e_us
        yield RequestTiming(request=request, client=clients.get(row.request_id, ""), e2e_us=e2e_us)


def provenance(traffic: Traffic, requests: int) -> tuple[str, ...]:
    """Describe the origin of requests, as lines of comment for documents made of them."""
    trace = traffic.workload.trace
    if trace is None:
        return (f"Made by blis-tui {__version__} from {requests:,} requests of `{traffic.name}`, seed {traffic.seed}.",)
    name = Path(trace.path).name
    made = (f"Made by blis-tui {__version__} from {requests:,} requests of {name}, sha256", f"{trace.sha256}.")
    return (*made, *(f"Left out: {loss}." for loss in traffic.left_out))


# Detection of trace formats by words that occur only in the files of one tool.

DEFAULT_FORMAT: Final = "requests"
_LOOKED_AT: Final = 64 * 1024
_WORDS: Final = (
    ("bailian", b"{", (b'"parent_chat_id"',)),
    ("weka", b"{[", (b'"hash_id_scope"',)),
    ("tracelab", b"{", (b'"timing_events"',)),
    ("mooncake", b"{", (b'"hash_ids"', b'"input_length"', b'"block_size"')),
    ("otel", b"{[", (b'"resourceSpans"', b'"gen_ai.')),
    ("sharegpt", b"{[", (b'"conversations"', b'"conversation"', b'"messages"')),
    ("vllm-bench", b"{", (b'"total_input_tokens"', b'"input_lens"')),
    ("burstgpt", b"", (b"Request tokens",)),
    ("azure", b"", (b"ContextTokens",)),
    ("tracev2", b"", (b"last_chunk_time_us",)),
)
"""Format, first characters of its files (empty = a letter), and words of which one is near their beginning."""


def format_of(path: Path, plugins: Registry) -> str:
    """Detect the format of a file; ``requests``, whose reader reports what it misses, if none is recognized.

    Raises:
        InputError: the file cannot be read.
    """
    known = [plugin.name for plugin in plugins.of(TRACES.path)]
    try:
        with open_input(path, limit=MAX_TRACE_BYTES) as file:
            head = beginning(file, f"the trace {path}", _LOOKED_AT)
    except DamagedError:
        return DEFAULT_FORMAT  # its reader will report what is wrong
    start = head.removeprefix(b"\xef\xbb\xbf").lstrip()[:1]
    line = head if start in (b"{", b"[") else head.partition(b"\n")[0]
    for name, begins, words in _WORDS:
        fits = start in [bytes([byte]) for byte in begins] if begins else start.isalpha()
        if fits and name in known and any(word in line for word in words):
            return name
    return DEFAULT_FORMAT
