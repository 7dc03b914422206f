"""Simulates a measured load."""

from __future__ import annotations

import csv
from bisect import bisect_left
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from blis_tui.calibration.judge import StepPair
from blis_tui.engine.latency.creation import create_latency
from blis_tui.engine.latency.launches import launched
from blis_tui.engine.latency.model import Chunk, StepLoad
from blis_tui.engine.request import Request
from blis_tui.errors import PolicyError
from blis_tui.inputs import input_digest
from blis_tui.records.files import atomic_text
from blis_tui.shipped import builtin
from blis_tui.simulation import Simulation
from blis_tui.spec.model import Trace, Workload

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.calibration.measured import Recording
    from blis_tui.calibration.steps import StepLog
    from blis_tui.metrics.report import Report
    from blis_tui.metrics.request_log import RequestRow
    from blis_tui.spec.model import Experiment, PluginConfig

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
        for one in recording.requests:
            own = (one.prefix_group, one.prefix_tokens) if one.prefix_tokens else ("", "")
            shared = (f"p{one.input_tokens}", one.input_tokens) if repeated else own
            writer.writerow((int(one.arrival_us), one.input_tokens, one.output_tokens, *shared))
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
    latency = launched(create_latency(builtin(), pool), pool)
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
