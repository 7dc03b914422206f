"""By how much errors of steps grow: the formula beside runs whose steps take 5 % less and 5 % more."""

from __future__ import annotations

from math import log
from typing import TYPE_CHECKING

import pytest

from blis_tui import load
from blis_tui.results.expected_error import MOST, amplification, clients_wait, itl_amplification, pool_loads
from blis_tui.runs.simulation import Simulation

if TYPE_CHECKING:
    from blis_tui.engine.latency.model import StepLoad
    from blis_tui.results.report import Report

FASTER, SLOWER = 0.95, 1.05


def simulated(steps: float, workload: dict[str, object], **more: object) -> Report:
    """Step times alone are multiplied, so no time in front of the engine is simulated."""
    latency = {"kind": "operators", "steps": steps, "queue_us": 0}
    limits = {"engine.max_num_seqs": 256, "engine.max_num_batched_tokens": 2048}
    changes = {"workload": workload, "latency": latency, "cluster.instances": 1, **limits}
    simulation = Simulation(
        load("quickstart", set={**changes, "expect": [], "horizon_us": "none", **more}), check="off"
    )
    simulation.run()
    return simulation.report(verify=False)


def seen(workload: dict[str, object], **more: object) -> float:
    """d ln ITL / d ln steps."""
    ends = [simulated(steps, workload, **more).latency.tpot_ms.mean or 0.0 for steps in (FASTER, SLOWER)]
    return log(ends[1] / ends[0]) / log(SLOWER / FASTER)


def estimated(workload: dict[str, object], **more: object) -> float:
    report = simulated(1.0, workload, **more)
    ((name, model),) = report.step_models.items()
    return itl_amplification(pool_loads(report.experiment, report.to_dict())[name], model)


def chat(rate: float, requests: int = 500, prompt: int = 256, answer: int = 128) -> dict[str, object]:
    client = {"id": "c", "input_tokens": prompt, "output_tokens": answer}
    return {"requests": requests, "rate_per_s": rate, "clients": [client]}


@pytest.mark.parametrize(
    ("workload", "more"),
    [
        (chat(6.0, 300), {}),
        (chat(20.0), {}),
        (chat(35.0, 800), {}),
        (chat(3.0, 300, prompt=2000), {}),
        (chat(20.0), {"model": "llama-3.1-8b-instruct"}),
        (chat(12.0), {"model": "llama-3.1-70b-instruct", "cluster.tensor_parallel": 4}),
    ],
)
def test_errors_of_steps_grow_as_the_formula_says(workload: dict[str, object], more: dict[str, object]) -> None:
    expected = seen(workload, **more)
    assert expected > 1.05
    assert estimated(workload, **more) == pytest.approx(expected, rel=1 / 6)


def test_users_who_wait_keep_errors_as_they_are() -> None:
    users = {"kind": "closed-loop", "users": 40}
    workload: dict[str, object] = {
        "requests": 1200,
        "clients": [{"id": "c", "input_tokens": 256, "output_tokens": 64, "arrivals": users}],
    }
    assert clients_wait(load("quickstart", set={"workload": workload}).workload)
    assert seen(workload) == pytest.approx(1.0, abs=0.03)
    clients = [
        {"id": "c", "input_tokens": 256, "output_tokens": 64, "arrivals": users},
        {"id": "d", "input_tokens": 5, "output_tokens": 5},
    ]
    mixed = {**workload, "rate_per_s": 1.0, "clients": clients}
    assert not clients_wait(load("quickstart", set={"workload": mixed}).workload)


class Affine:
    """Steps of 1,000 us and 10 us for each decode."""

    output_token_overhead_us = 0
    post_decode_overhead_us = 0

    def step_time_us(self, load: StepLoad) -> int:
        return 1000 + 10 * load.decode_requests

    def queueing_time_us(self, request: object) -> int:
        del request
        return 0


def test_by_hand() -> None:
    """With 100 decodes a step takes 2,000 us, half of it for them: twice. A third of the time for prompts: thrice."""
    work = {"decoded_tokens": 100_000, "context_tokens": 10.0}
    found = amplification(Affine(), steps=1000, busy_us=2_000_000, **work)  # type: ignore[arg-type]
    assert found == pytest.approx(2.0, rel=0.01)
    found = amplification(Affine(), steps=1000, busy_us=3_000_000, **work)  # type: ignore[arg-type]
    assert found == pytest.approx(3.0, rel=0.01)
    assert amplification(Affine(), steps=0, busy_us=0, decoded_tokens=0, context_tokens=0.0) == 1.0
    endless = amplification(Affine(), steps=10, busy_us=10**12, decoded_tokens=1000, context_tokens=1.0)
    assert endless == MOST
