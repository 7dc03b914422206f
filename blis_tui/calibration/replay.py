"""A measured load, simulated: what every request waited for, coefficient by coefficient."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import asdict, replace
from itertools import accumulate
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from blis_tui.calibration.judge import StepPair
from blis_tui.calibration.measured import Measured
from blis_tui.calibration.parts import STEP_TERMS, Parts
from blis_tui.classes import dataclass
from blis_tui.engine.latency.model import Chunk, StepLoad, create_latency
from blis_tui.engine.records import StepFinished
from blis_tui.engine.request import Request
from blis_tui.errors import InputError, PolicyError
from blis_tui.inputs import input_digest
from blis_tui.shipped import builtin
from blis_tui.simulation import Simulation
from blis_tui.spec.model import PluginConfig, Trace, Workload

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.calibration.measured import Recording
    from blis_tui.calibration.steps import StepLog
    from blis_tui.engine.latency.fitted import Settings
    from blis_tui.metrics.request_log import RequestRow
    from blis_tui.spec.model import Experiment

_MAX_TRACE_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class Answered:
    """A measured request beside the same one simulated."""

    measured: Measured
    ttft_us: float
    e2e_us: float
    decode_parts: tuple[float, ...]
    """Microseconds from the first token to the last that each coefficient of a step stands for."""
    first_parts: tuple[float, ...]
    """The same from arrival to the first token, then those of what it waits for outside of steps."""
    batch: float
    """Mean number of requests that decoded beside it, itself included."""
    steps_to_first: int


def with_load(experiment: Experiment, recording: Recording, folder: Path, *, repeated: bool) -> Experiment:
    """The experiment with a measured load; ``repeated``: prompts of one length are one prompt, found in the cache."""
    pools = experiment.pools
    if len(pools) != 1 or pools[0].instances != 1:
        raise PolicyError("measurements are compared with one instance", help="set cluster.instances=1")
    path = folder / "load.csv"
    lines = ["arrival_us,input_tokens,output_tokens,prefix_group,prefix_tokens"]
    for one in recording.requests:
        shared = f"p{one.input_tokens},{one.input_tokens}" if repeated else ","
        lines.append(f"{int(one.arrival_us)},{one.input_tokens},{one.output_tokens},{shared}")
    path.write_text("\n".join(lines) + "\n")
    trace = Trace(path=str(path), format="requests", sha256=input_digest(path, limit=_MAX_TRACE_BYTES))
    return replace(experiment, workload=Workload(name="measured", trace=trace), horizon_us=None, expect=())


def with_coefficients(experiment: Experiment, settings: Settings) -> Experiment:
    """The experiment with these coefficients of ``fitted``."""
    (pool,) = experiment.pools
    latency = PluginConfig(kind="fitted", settings=asdict(settings))
    return replace(experiment, pools=(replace(pool, latency=latency),))


def simulate(experiment: Experiment, recording: Recording, *, repeated: bool = False) -> list[RequestRow]:
    """What the experiment's own step-time model makes of a measured load, in order of arrival."""
    with TemporaryDirectory() as folder:
        simulation = Simulation(with_load(experiment, recording, Path(folder), repeated=repeated), check="off")
        simulation.run()
        return list(simulation.report(verify=False).rows)


def stepped(experiment: Experiment, log: StepLog) -> list[StepPair]:
    """What the experiment's own step-time model makes of measured steps."""
    (pool,) = experiment.pools
    latency = create_latency(builtin(), pool)
    load = StepLoad()
    found = []
    for step in log.steps:
        load.decode_requests = step.decode_requests
        load.decode_context_tokens = round(step.context_tokens)
        load.chunks = [
            Chunk(Request(at, str(at), 0, computed + new, 1), computed, new, computed + new)
            for at, (computed, new) in enumerate(step.chunks)
        ]
        found.append(StepPair(step, latency.step_time_us(load)))
    return found


def parts_of(experiment: Experiment, log: StepLog, settings: Settings) -> list[tuple[float, ...]]:
    """What each coefficient of a step stands for in measured steps."""
    split = Parts(settings, experiment.pools[0])
    return [split.of(one.decode_requests, round(one.context_tokens), one.chunks) for one in log.steps]


def replay(experiment: Experiment, recording: Recording, settings: Settings, *, repeated: bool) -> list[Answered]:
    """A measured load with these coefficients; requests that the simulated server does not complete are left out.

    Raises:
        InputError: it completes none.
    """
    with TemporaryDirectory() as folder:
        loaded = with_load(with_coefficients(experiment, settings), recording, Path(folder), repeated=repeated)
        found = taken_apart(loaded, settings, recording.requests)
    if not found:
        raise InputError(
            f"no request of {recording.path} completes in the simulation", help="look at the engine's limits"
        )
    return found


def taken_apart(
    experiment: Experiment, settings: Settings, requests: Sequence[Measured] | None = None
) -> list[Answered]:
    """Simulate an experiment with ``fitted``, and take apart what its requests waited for, coefficient by coefficient.

    Args:
        experiment: what is simulated.
        settings: its coefficients.
        requests: the measured requests beside the simulated ones; by default these stand for themselves.
    """
    steps: list[StepFinished] = []
    simulation = Simulation(experiment, check="off")
    simulation.subscribe(StepFinished, steps.append)
    simulation.run()
    rows = simulation.report(verify=False).rows
    split = Parts(settings, experiment.pools[0])
    each = [
        split.of(
            one.decode_requests, one.decode_context_tokens, [(c.computed_tokens, c.new_tokens) for c in one.chunks]
        )
        for one in steps
    ]
    zero = (0.0,) * len(STEP_TERMS)
    sums = list(accumulate(each, lambda so_far, more: tuple(map(float.__add__, so_far, more)), initial=zero))
    decoding = list(accumulate((one.decode_requests for one in steps), initial=0))
    starts = [one.time_us for one in steps]
    first = {name: at for at, one in enumerate(steps) for name in one.first_tokens}
    last = {name: at for at, one in enumerate(steps) for name in one.completed}
    found: list[Answered] = []
    for number, row in enumerate(rows):
        begin, end = first.get(row.request_id), last.get(row.request_id)
        if begin is None or end is None or row.ttft_us is None or row.e2e_us is None or row.queued_us is None:
            continue
        if requests is None:
            measured = Measured(row.arrival_us, row.input_tokens, row.output_tokens, row.ttft_us, row.e2e_us)
        else:
            measured = requests[number]
        queued = max(0, bisect_right(starts, row.queued_us) - 1)
        running = steps[queued]
        left = max(0.0, running.time_us + running.duration_us - row.queued_us) / running.duration_us
        waited = [part * left for part in each[queued]] if queued < begin else zero
        waiting = [a - b + c for a, b, c in zip(sums[begin + 1], sums[min(queued, begin - 1) + 1], waited, strict=True)]
        count = max(1, end - begin)
        found.append(
            Answered(
                measured,
                row.ttft_us,
                row.e2e_us,
                tuple(a - b for a, b in zip(sums[end + 1], sums[begin + 1], strict=True)),
                (*waiting, settings.first_token_us, settings.prompt_token_us * measured.input_tokens),
                (decoding[end + 1] - decoding[begin + 1]) / count,
                begin - queued + 1,
            )
        )
    return found
