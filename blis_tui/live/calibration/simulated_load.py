"""Simulates a measured load, and says how well simulated requests agree with measured ones."""

from __future__ import annotations

import csv
from bisect import bisect_left, bisect_right
from dataclasses import replace
from itertools import accumulate, pairwise
from math import fsum, sqrt
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final, TypeAlias

from blis_tui.base.classes import dataclass
from blis_tui.base.errors import InputError, PolicyError
from blis_tui.base.input_files import input_digest
from blis_tui.engine.latency.creation import create_latency
from blis_tui.engine.latency.model import Chunk, StepLoad
from blis_tui.engine.latency.wrappers import launched
from blis_tui.engine.request import Request
from blis_tui.live.calibration.measured import StepLog
from blis_tui.model import Trace, Workload
from blis_tui.output.result_files import atomic_text
from blis_tui.results.expected_error import ObservedLoad, expectation
from blis_tui.results.measured import WAIT_METRICS
from blis_tui.runs.simulation import Simulation
from blis_tui.spec.shipped import builtin

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from blis_tui.live.calibration.measured import Data, Measured, Recording, Step
    from blis_tui.model import Experiment, PluginConfig
    from blis_tui.results.expected_error import Expectation
    from blis_tui.results.report import Report
    from blis_tui.results.request_log import RequestRow


_MAX_TRACE_BYTES = 1 << 30


def require_one_instance(experiment: Experiment) -> None:
    """Raise PolicyError unless an experiment has exactly one instance, as measurements do."""
    pools = experiment.pools
    if len(pools) != 1 or pools[0].instances != 1:
        raise PolicyError("measurements can only be compared with one instance", help="set cluster.instances=1")


def with_load(experiment: Experiment, recording: Recording, folder: Path, *, repeated: bool) -> Experiment:
    """Return the experiment with a measured load; ``repeated``: prompts of equal length are equal and hit the cache.

    Raises:
        PolicyError: it has more than one instance.
    """
    require_one_instance(experiment)
    path = folder / "load.csv"
    with atomic_text(path, asked_for=False) as file:
        writer = csv.writer(file)
        writer.writerow(("arrival_us", "input_tokens", "output_tokens", "prefix_group", "prefix_tokens"))
        for request in recording.requests:
            own = (request.prefix_group, request.prefix_tokens) if request.prefix_tokens else ("", "")
            shared = (f"p{request.input_tokens}", request.input_tokens) if repeated else own
            writer.writerow((int(request.arrival_us), request.input_tokens, request.output_tokens, *shared))
    trace = Trace(path=str(path), format="requests", sha256=input_digest(path, limit=_MAX_TRACE_BYTES))
    return replace(experiment, workload=Workload(name="measured", trace=trace), horizon_us=None, expect=())


def with_latency(experiment: Experiment, latency: PluginConfig) -> Experiment:
    """Return the experiment with another step-time model."""
    (pool,) = experiment.pools
    return replace(experiment, pools=(replace(pool, latency=latency),))


def simulate(experiment: Experiment, recording: Recording, *, repeated: bool = False) -> Report:
    """Simulate a measured load with the experiment's own step-time model."""
    with TemporaryDirectory() as folder:
        simulation = Simulation(with_load(experiment, recording, Path(folder), repeated=repeated), check="off")
        simulation.run()
        return simulation.report(verify=False)


def batches(rows: Sequence[RequestRow]) -> list[float]:
    """Return, for each request, the mean number of requests (including itself) that decoded while it did."""
    spans = [(row.first_token_us, row.completed_us) for row in rows]
    changes = sorted(
        change for begin, end in spans if begin is not None and end is not None for change in ((begin, 1), (end, -1))
    )
    times, area = [0], [0]
    count = 0
    for time, change in changes:
        area.append(area[-1] + count * (time - times[-1]))
        times.append(time)
        count += change

    def until(time: int) -> int:
        return area[bisect_left(times, time)]

    return [
        (until(end) - until(begin)) / (end - begin) if begin is not None and end is not None and end > begin else 1.0
        for begin, end in spans
    ]


def stepped(experiment: Experiment, log: StepLog) -> list[StepPair]:
    """Predict measured steps with the experiment's own step-time model."""
    (pool,) = experiment.pools
    latency = launched(create_latency(builtin(), pool), pool, experiment.policy.batching.kind)
    load = StepLoad()
    pairs = []
    for step in log.steps:
        load.decode_requests = step.decode_requests
        load.decode_context_tokens = round(step.context_tokens)
        load.chunks = [
            Chunk(Request(at, str(at), 0, computed + new, 1), computed, new, computed + new)
            for at, (computed, new) in enumerate(step.chunks)
        ]
        pairs.append(StepPair(step, latency.step_time_us(load)))
    return pairs


METRICS: Final = ("ttft", "tpot", "e2e", "step")
GRADES: Final = ((0.05, 0.1, 0.9, "excellent"), (0.1, 0.2, 0.7, "good"), (0.2, 0.4, 0.4, "fair"))
"""Grades: maximum error of the mean, maximum error of single requests, minimum correlation, and the word."""
VARIATION: Final = 0.03
"""Correlation counts where the standard deviation of the measured values is more than this share of their mean."""
_BINS: Final = 8


@dataclass(frozen=True, slots=True)
class Pair:
    """A measured and a simulated request; times in microseconds."""

    measured: Measured
    ttft_us: float
    e2e_us: float
    batch: float = 0.0

    def values(self, metric: str) -> tuple[float, float] | None:
        """Return the measured and simulated value in milliseconds; None if the request has no such figure."""
        measured = self.measured
        if metric == "step":
            return None
        if metric == "ttft":
            return measured.ttft_us / 1e3, self.ttft_us / 1e3
        if metric == "e2e":
            return measured.e2e_us / 1e3, self.e2e_us / 1e3
        gaps = measured.output_tokens - 1
        if not gaps or measured.e2e_us <= measured.ttft_us:
            return None
        return (measured.e2e_us - measured.ttft_us) / gaps / 1e3, (self.e2e_us - self.ttft_us) / gaps / 1e3


@dataclass(frozen=True, slots=True)
class StepPair:
    """A measured and a predicted step."""

    measured: Step
    step_us: float

    @property
    def batch(self) -> float:
        """Its new tokens, of prompts and answers."""
        return self.measured.tokens

    def values(self, metric: str) -> tuple[float, float] | None:
        """Return the measured and predicted duration, in milliseconds."""
        return (self.measured.duration_us / 1e3, self.step_us / 1e3) if metric == "step" else None


Pairs: TypeAlias = "Sequence[Pair] | Sequence[StepPair]"
"""The requests of a recording, or the steps of a log."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """The agreement of one metric over some requests."""

    requests: int
    measured_ms: float
    """Measured mean. The next field has the simulated one."""
    simulated_ms: float
    bias: float
    """Error of the mean: simulated / measured - 1."""
    mape: float
    """Mean absolute error of single requests, relative to the measured value."""
    pearson_r: float | None
    """Correlation of single requests; None if measured values hardly vary, so that it says nothing."""

    @property
    def grade(self) -> str:
        """The grade for which all three figures are good enough."""
        r = 1.0 if self.pearson_r is None else self.pearson_r
        for most_bias, most_mape, least_r, word in GRADES:
            if abs(self.bias) <= most_bias and self.mape <= most_mape and r >= least_r:
                return word
        return "poor"


def agreement(pairs: Pairs, metric: str) -> Agreement | None:
    """Return the agreement of a metric; None if no request has it."""
    values = [both for pair in pairs if (both := pair.values(metric)) is not None]
    if not values:
        return None
    count = len(values)
    measured, simulated = (fsum(both[side] for both in values) / count for side in (0, 1))
    return Agreement(
        requests=count,
        measured_ms=measured,
        simulated_ms=simulated,
        bias=simulated / measured - 1.0,
        mape=mape(values),
        pearson_r=_pearson(*zip(*values, strict=True)),
    )


def correlation(left: Sequence[float], right: Sequence[float]) -> float | None:
    """Return Pearson's correlation of two sequences of equal length; None if one does not vary."""
    count = len(left)
    if count < 2:
        return None
    means = fsum(left) / count, fsum(right) / count
    product = fsum((x - means[0]) * (y - means[1]) for x, y in zip(left, right, strict=True))
    squares = [fsum((value - mean) ** 2 for value in row) for row, mean in zip((left, right), means, strict=True)]
    return product / sqrt(squares[0] * squares[1]) if all(squares) else None


def mape(pairs: Sequence[tuple[float, float]]) -> float:
    """Return the mean absolute error of the second of each pair, relative to the first."""
    return fsum(abs(second / first - 1.0) for first, second in pairs) / len(pairs)


def _pearson(measured: Sequence[float], simulated: Sequence[float]) -> float | None:
    mean = fsum(measured) / len(measured)
    if sqrt(fsum((value - mean) ** 2 for value in measured) / len(measured)) <= VARIATION * mean:
        return None
    r = correlation(measured, simulated)
    return 0.0 if r is None else r


def by_stage(pairs: Pairs, durations_s: Sequence[float]) -> list[list[Pair]]:
    """Return the requests of each stage, by arrival; without durations, there is one stage. Steps have no stage."""
    pairs = [pair for pair in pairs if isinstance(pair, Pair)]
    if not durations_s:
        return [pairs]
    ends = list(accumulate(seconds * 1e6 for seconds in durations_s))
    stages: list[list[Pair]] = [[] for _ in durations_s]
    for pair in pairs:
        stages[min(bisect_right(ends, pair.measured.arrival_us), len(ends) - 1)].append(pair)
    return stages


def by_batch(pairs: Pairs) -> list[Pairs]:
    """Return the requests in bins of equal number, by the size of their batch; steps by their tokens."""
    ordered: list[Pair] | list[StepPair] = sorted(pairs, key=_batch)
    cuts = [len(ordered) * number // _BINS for number in range(_BINS + 1)]
    return [ordered[start:end] for start, end in pairwise(cuts) if end > start]


def size_of(pairs: Pairs) -> str:
    """Return what the bins are of: the size of a request's batch, or the tokens of a step."""
    return "tokens" if pairs and isinstance(pairs[0], StepPair) else "batch"


def _batch(pair: Pair | StepPair) -> float:
    return pair.batch


def disagreement(runs: Mapping[str, Pairs], *, of_means: bool = False) -> float:
    """Return the mean of all errors, of means and of single requests, over all metrics.

    Args:
        runs: pairs of recordings.
        of_means: whether to ignore single errors, for servers with delays that are not simulated.
    """
    errors = [
        abs(comparison.bias) + (0.0 if of_means else comparison.mape)
        for pairs in runs.values()
        for metric in METRICS
        if (comparison := agreement(pairs, metric)) is not None
    ]
    return fsum(errors) / len(errors) if errors else 0.0


Runs: TypeAlias = "dict[str, Pairs]"


def compared(data: Sequence[Data], latency: PluginConfig | None = None, gap_us: float = 0.0) -> Runs:
    """Return recordings with the predictions of a step-time model; by default, each experiment's own.

    Args:
        data: the recordings.
        latency: the step-time model.
        gap_us: part of each of its steps that logs do not contain.

    Raises:
        InputError: no request of a recording completes in the simulation.
        PolicyError: an experiment has more than one instance.
    """
    return {name_of(data, number): pairs_of(run, latency, gap_us) for number, run in enumerate(data)}


def pairs_of(run: Data, latency: PluginConfig | None, gap_us: float = 0.0) -> Pairs:
    """Return one recording with its predictions, as :func:`compared` does.

    Raises:
        InputError: no request of the recording completes in the simulation.
        PolicyError: the experiment has more than one instance.
    """
    experiment = run.experiment if latency is None else with_latency(run.experiment, latency)
    if isinstance(run.recording, StepLog):
        return [replace(pair, step_us=max(1.0, pair.step_us - gap_us)) for pair in stepped(experiment, run.recording)]
    return _beside(run.recording, simulate(experiment, run.recording, repeated=run.repeated))


def _beside(recording: Recording, report: Report) -> Pairs:
    rows = list(report.rows)
    pairs = [
        Pair(measured, row.ttft_us, row.e2e_us, batch)
        for row, measured, batch in zip(rows, recording.requests, batches(rows), strict=True)
        if row.ttft_us is not None and row.e2e_us is not None
    ]
    if not pairs:
        message = f"no request of {recording.path} completes in the simulation"
        raise InputError(message, help="look at the engine's limits")
    return pairs


def judged(data: Sequence[Data]) -> tuple[Runs, dict[str, tuple[str, Expectation]]]:
    """Return recordings with the predictions of each experiment's own step times, and the expected errors.

    Raises:
        InputError: no request of a recording completes in the simulation.
        PolicyError: an experiment has more than one instance.
    """
    runs: Runs = {}
    expected: dict[str, tuple[str, Expectation]] = {}
    for number, run in enumerate(data):
        name, pool = name_of(data, number), run.experiment.pools[0]  # the only pool; replay requires it
        if isinstance(run.recording, StepLog):
            known = expectation(run.experiment, pool, ObservedLoad(0.0)).without(WAIT_METRICS)
            runs[name] = pairs_of(run, None)
        else:
            report = simulate(run.experiment, run.recording, repeated=run.repeated)
            runs[name], (known,) = _beside(run.recording, report), report.expected_errors().values()
        expected[name] = (pool.latency.kind, known)
    return runs, expected


def name_of(data: Sequence[Data], number: int) -> str:
    """Return a recording's file name; its path if several have the same."""
    path = data[number].recording.path
    alike = len([run for run in data if run.recording.path.name == path.name])
    return path.name if alike == 1 else f"{path} ({number + 1})"
