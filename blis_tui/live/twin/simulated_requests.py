"""Simulates the requests of a recording."""

from __future__ import annotations

import atexit
from dataclasses import field, replace
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import dataclass
from blis_tui.base.errors import InputError, PolicyError, TraceError
from blis_tui.base.input_files import MAX_TRACE_BYTES, input_digest
from blis_tui.engine.records import Completed, FirstToken, Preempted, StepFinished
from blis_tui.live.calibration.simulated_load import with_latency
from blis_tui.live.observe.recording import REQUESTS, SERVED, TABLE, table_csv
from blis_tui.model import PluginConfig, Trace, Workload
from blis_tui.output.result_files import atomic_text
from blis_tui.runs.simulation import Simulation
from blis_tui.workload.traces.read import read_trace

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from blis_tui.engine.records import Record
    from blis_tui.live.observe.recording import Recording
    from blis_tui.model import Experiment, Setting
    from blis_tui.results.request_log import RequestRow

RECORDED: Final = "recorded"


@dataclass(frozen=True, slots=True)
class Batch:
    """Work of a step, counted like vLLM's log: a prefill is a request without output yet."""

    prefill_requests: int
    prefill_tokens: int
    decode_requests: int
    decode_tokens: int

    @property
    def requests(self) -> int:
        """Number of requests in the batch."""
        return self.prefill_requests + self.decode_requests


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulated:
    """Result of simulating the requests."""

    rows: Mapping[str, RequestRow]
    steps: tuple[StepFinished, ...]
    batches: tuple[Batch, ...]
    """Batches of the steps."""
    preemptions: int
    kv_blocks: int
    answers: Mapping[str, Sequence[tuple[int, int]]] = field(default_factory=dict)
    """End times of the steps that gave a request tokens, with its cumulative number; empty unless the run was followed.
    """


def replaying(experiment: Experiment, recording: Recording) -> Experiment:
    """Return the experiment with the requests of a recording, each at its sending time.

    Raises:
        PolicyError: it has more than one instance.
        InputError: the recording has no request that was served, or one that cannot be simulated.
    """
    pools = experiment.pools
    if len(pools) != 1 or pools[0].instances != 1:
        raise PolicyError("a recording can only be compared with one instance", help="set cluster.instances=1")
    path = _table_of(recording)
    trace = Trace(path=str(path), format="requests", sha256=input_digest(path, limit=MAX_TRACE_BYTES))
    if not any(row.chunks for row in recording.requests):
        raise InputError(f"{recording.folder} contains no answers: there is nothing to compare")
    try:
        read_trace(trace, experiment.plugins)
    except TraceError as error:
        raise _unusable(recording, path, error) from error
    return replace(experiment, workload=Workload(name=recording.folder.name, trace=trace), horizon_us=None, expect=())


def _unusable(recording: Recording, table: Path, error: TraceError) -> InputError:
    """Return the error for a row of the table that is no request."""
    first = error.problems[0]
    place = f"{table}, line {first.line}"
    if table.parent != recording.folder:
        served = [row.request_id for row in recording.requests if row.outcome in SERVED]
        place = f"{recording.folder / REQUESTS}, request {served[first.line - 2]!r}"
    what = f"`{first.column}`: {first.message}" if first.column else first.message
    return InputError(f"{place}: {what}", help="`blis-tui observe` writes this file: copy it again")


def _table_of(recording: Recording) -> Path:
    """Return the table of its requests; for an aborted recording, which has none, a temporary one.

    The temporary table lives as long as this process, because a simulation that is opened later reads it again.
    """
    path = recording.folder / TABLE
    if path.is_file():
        return path
    folder = mkdtemp(prefix="blis-tui-recording-")
    atexit.register(rmtree, folder, ignore_errors=True)
    with atomic_text(Path(folder, TABLE)) as file:
        file.writelines(table_csv(recording.requests))
    return Path(folder, TABLE)


def with_steps(experiment: Experiment, durations_us: tuple[int, ...], queue_us: int = 0) -> Experiment:
    """Return the experiment with measured steps instead of its step-time model."""
    durations = tuple(float(duration) for duration in durations_us)
    settings: dict[str, Setting] = {"durations_us": durations, "queue_us": float(queue_us)}
    return with_latency(experiment, PluginConfig(kind=RECORDED, settings=settings))


def simulate(experiment: Experiment, *, follow: bool = False) -> Simulated:
    """Run an experiment and keep its requests and steps; ``follow``: also every token."""
    simulation = Simulation(experiment, check="off")
    steps: list[StepFinished] = []
    count = _Batches()
    simulation.subscribe(StepFinished, steps.append)
    for kind in (FirstToken, Preempted, StepFinished):
        simulation.subscribe(kind, count.observe)
    tokens = _Tokens(simulation)
    if follow:
        simulation.subscribe(StepFinished, tokens.observe)
        simulation.subscribe(Completed, tokens.observe)
    simulation.run()
    report = simulation.report(verify=False)
    return Simulated(
        rows={row.request_id: row for row in report.rows},
        steps=tuple(steps),
        batches=tuple(count.batches),
        preemptions=count.preemptions,
        kv_blocks=experiment.pools[0].engine.kv_blocks,
        answers=tokens.answers,
    )


class _Tokens:
    """Follows the tokens of every request, step by step."""

    def __init__(self, simulation: Simulation) -> None:
        self.answers: dict[str, list[tuple[int, int]]] = {}
        self._simulation = simulation

    def observe(self, record: Record) -> None:
        """Note a simulated step, whose tokens come at its end."""
        if isinstance(record, StepFinished):
            batch = self._simulation.cluster.instances[record.instance].batch
            end_us = record.time_us + record.duration_us
            for request in batch.of_clients(batch.running.values()):
                self._note(request.request_id, end_us, batch.cohort.generated_tokens(request))
        elif isinstance(record, Completed):
            self._note(record.request_id, record.time_us, record.output_tokens)

    def _note(self, name: str, end_us: int, tokens: int) -> None:
        known = self.answers.setdefault(name, [])
        if tokens > (known[-1][1] if known else 0):
            known.append((end_us, tokens))


class _Batches:
    """Counts the content of each step."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.preemptions = 0
        self._answered: dict[str, None] = {}

    def observe(self, record: Record) -> None:
        """Process a record of the run."""
        if isinstance(record, FirstToken):
            self._answered[record.request_id] = None
        elif isinstance(record, Preempted):
            self.preemptions += 1
        elif isinstance(record, StepFinished):
            self._step(record)

    def _step(self, step: StepFinished) -> None:
        # A request that gets its first token in this step had no output before.
        news = frozenset(step.first_tokens)
        prefills = prefill_tokens = 0
        decodes = decode_tokens = step.decode_requests
        for chunk in step.chunks:
            if chunk.request_id in self._answered and chunk.request_id not in news:
                decodes += 1
                decode_tokens += chunk.new_tokens
            else:
                prefills += 1
                prefill_tokens += chunk.new_tokens
        self.batches.append(Batch(prefills, prefill_tokens, decodes, decode_tokens))
