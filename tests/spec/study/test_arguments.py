"""Axes as command lines give them."""

from __future__ import annotations

import pytest

from blis_tui.spec.study.arguments import parse_axis


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("a=5..20..5", {"from": 5, "to": 20, "step": 5}),
        ("a=.5..2.5..0.25", {"from": 0.5, "to": 2.5, "step": 0.25}),
        ("a=-2..2", {"from": -2, "to": 2, "step": 1}),
        ("a=1.5..3", {"from": 1.5, "to": 3, "step": 1}),
    ],
)
def test_ranges(text: str, values: dict[str, float]) -> None:
    assert parse_axis(text)[1].data == values
