"""A warning where step times are extrapolated."""

from __future__ import annotations

import pytest

import blis_tui

SMALL = {"latency": {"kind": "operators"}, "workload.requests": 30, "expect": []}


def warnings(**settings: object) -> list[str]:
    made = blis_tui.load("steady-chat", set=SMALL | {key.replace("__", "."): one for key, one in settings.items()})
    return [one.id for one in blis_tui.run(made).warnings]


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
