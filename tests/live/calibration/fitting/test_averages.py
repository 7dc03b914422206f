"""Servers that something holds up now and then, which no simulation can follow: then means agree."""

from __future__ import annotations

from math import fsum
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from blis_tui.base.streams import Streams
from blis_tui.engine.records import StepFinished
from blis_tui.live.calibration.fitting.calibrate import fit
from blis_tui.live.calibration.measured import Data, Measured, Recording, Step, StepLog
from blis_tui.live.calibration.simulated_load import Pair, compared
from blis_tui.runs.simulation import Simulation
from tests.live.calibration.servers import served

if TYPE_CHECKING:
    from blis_tui.engine.latency.model import StepLoad, StepTimeModel
    from blis_tui.engine.request import Request
    from blis_tui.model import Experiment


class HeldUp:
    """One step in twelve takes nine times as long."""

    def __init__(self, model: StepTimeModel) -> None:
        self._model = model
        self._stream = Streams(3).stream("hiccups")
        self.output_token_overhead_us = model.output_token_overhead_us
        self.post_decode_overhead_us = model.post_decode_overhead_us

    def step_time_us(self, load: StepLoad) -> int:
        times = 9.0 if self._stream.uniform() < 0.08 else 0.7 + 0.3 * self._stream.uniform()
        return int(times * self._model.step_time_us(load))

    def queueing_time_us(self, request: Request) -> int:
        return self._model.queueing_time_us(request)


def recorded(experiment: Experiment, *, held_up: bool = True) -> tuple[Recording, StepLog]:
    """What its clients measure, and what it logs."""
    simulation = Simulation(experiment, check="off")
    (instance,) = simulation.cluster.instances
    if held_up:
        instance.latency = HeldUp(instance.latency)
    steps: list[Step] = []
    simulation.subscribe(
        StepFinished,
        lambda step: steps.append(
            Step(
                step.duration_us,
                step.decode_requests,
                step.decode_context_tokens,
                tuple((it.computed_tokens, it.new_tokens) for it in step.chunks),
            )
        ),
    )
    simulation.run()
    found = [
        Measured(
            float(row.arrival_us), row.input_tokens, row.output_tokens, float(row.ttft_us or 0), float(row.e2e_us or 0)
        )
        for row in simulation.report(verify=False).rows
    ]
    return Recording(Path("measured.csv"), "requests", "0" * 64, tuple(found), 0), StepLog(
        Path("serve.log"), "steps", "1" * 64, tuple(steps)
    )


def times(data: list[Data], latency: object) -> tuple[float, float]:
    """Whole answers, measured and simulated."""
    pairs = [pair for run in compared(data, latency).values() for pair in run if isinstance(pair, Pair)]  # type: ignore[arg-type]
    return fsum(pair.measured.e2e_us for pair in pairs), fsum(pair.e2e_us for pair in pairs)


@pytest.mark.slow
@pytest.mark.xdist_group("calibrate")
def test_means_agree_where_single_steps_cannot_be_followed() -> None:
    one = served("llama-3.1-8b-instruct", 6.0, 800, requests=25)
    recording, _ = recorded(one)
    data = [Data(recording, one)]
    found = fit(data, "fitted", advise=False)
    assert found.followed < 0.75
    assert any("cannot be followed step by step" in it for it in found.statements)
    assert {it.told for it in found.found} == {"averaged"}
    assert all(it.low <= it.value <= it.high for it in found.found)
    measured, simulated = times(data, found.latency)
    assert simulated == pytest.approx(measured, rel=0.1)
    assert simulated > 1.3 * times(data, one.pools[0].latency)[1]


def test_a_log_of_steps_that_are_held_up_keeps_its_mean() -> None:
    one = served("llama-3.1-8b-instruct", 6.0, 800, requests=25)
    _, log = recorded(one)
    found = fit([Data(log, one)], "fitted", advise=False)
    assert any("times as long in the mean as most of them" in it for it in found.statements)
    ((_, pairs),) = compared([Data(log, one)], found.latency).items()
    whole = fsum(it.duration_us for it in log.steps)
    assert fsum(it.step_us for it in pairs if not isinstance(it, Pair)) == pytest.approx(whole, rel=0.02)
    found = fit([Data(recorded(one, held_up=False)[1], one)], "fitted", advise=False)
    assert not any("in the mean as most of them" in it for it in found.statements)
