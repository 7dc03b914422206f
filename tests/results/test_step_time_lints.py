"""A warning where step times are extrapolated."""

from __future__ import annotations

from math import fsum

import pytest

import blis_tui
from blis_tui.engine.latency.operator_steps import OperatorModel

SMALL = {"latency": {"kind": "operators"}, "workload.requests": 30, "expect": []}


def warnings(**settings: object) -> list[str]:
    made = blis_tui.load(
        "steady-chat", set=SMALL | {key.replace("__", "."): setting for key, setting in settings.items()}
    )
    return [warning.id for warning in blis_tui.run(made).warnings]


def test_measured_operators_are_not_worth_a_word() -> None:
    assert "extrapolated" not in warnings()


@pytest.mark.parametrize(
    "settings",
    [
        {"hardware": "a100-80", "model__config__quantization_config": {"quant_method": "fp8"}},
        {"model": "deepseek-v2-lite"},
    ],
    ids=["type", "shape"],
)
def test_types_and_shapes_that_were_not_measured_are(settings: dict[str, object]) -> None:
    assert "extrapolated" in warnings(**settings)


def test_it_names_the_operators_that_are_mostly_guessed_and_their_share_of_a_step() -> None:
    model = {"model.config.quantization_config": {"quant_method": "fp8"}}
    made = blis_tui.load("steady-chat", set={**SMALL, "hardware": "a100-80", **model})
    simulation = blis_tui.Simulation(made)
    simulation.run()
    report = simulation.report()
    finding = next(warning for warning in report.warnings if warning.id == "extrapolated")
    rows, latency = report.rows, simulation._cluster.instances[0].latency
    assert isinstance(latency, OperatorModel)
    decodes = max(instance.peak_running for instance in report.instances)
    context = sum(row.input_tokens for row in rows) // len(rows)
    assert (finding.figures["decodes"], finding.figures["context_tokens"]) == (decodes, context)
    parts = latency.costs.parts_us(decodes, context)
    mostly = [name for name, (time_us, guessed_us) in parts.items() if guessed_us > time_us / 2]
    assert 0 < len(mostly) < len(parts)
    assert finding.message.endswith(f": {', '.join(mostly)}.")
    assert finding.figures["step_us"] == round(fsum(time_us for time_us, _ in parts.values()))
    assert finding.figures["extrapolated_us"] == round(fsum(guessed_us for _, guessed_us in parts.values()))
