"""Grades of agreement."""

from __future__ import annotations

import pytest

from blis_tui.live.calibration.measured import Measured
from blis_tui.live.calibration.simulated_load import Pair, agreement, by_stage


def pairs(measured: list[float], simulated: list[float]) -> list[Pair]:
    """Requests with these times to their first tokens, in microseconds."""
    asked = [Measured(0.0, 10, 2, one, 2 * one) for one in measured]
    return [Pair(one, two, 2 * two) for one, two in zip(asked, simulated, strict=True)]


def test_grades_follow_the_correlation_however_small_the_errors_are() -> None:
    """Two of eight requests differ, by a tenth, and none of the simulated ones does: r is 0, and not unknown."""
    judged = agreement(pairs([100.0] * 6 + [90.0, 110.0], [100.0] * 8), "ttft")
    assert judged is not None
    assert judged.mape < 0.03
    assert (judged.bias, judged.pearson_r, judged.grade) == (0.0, 0.0, "poor")
    judged = agreement(pairs([100.0] * 6 + [90.0, 110.0], [100.0] * 6 + [91.0, 109.0]), "ttft")
    assert judged is not None
    assert judged.pearson_r == pytest.approx(1.0)
    assert judged.grade == "excellent"


def test_a_correlation_of_values_that_hardly_vary_is_not_asked_for() -> None:
    judged = agreement(pairs([98.0, 100.0, 102.0], [102.0, 100.0, 98.0]), "ttft")
    assert judged is not None
    assert (judged.pearson_r, judged.grade) == (None, "excellent")


def test_requests_belong_to_the_stage_in_which_they_arrive() -> None:
    """A stage ends where the next one begins; whoever comes after the last one belongs to that."""
    arrivals_us = [0.0, 1e6, 2e6 - 1, 2e6, 2e6 + 1, 4.9e6, 5e6, 6e6]
    asked = [Pair(Measured(at, 10, 2, 1.0, 2.0), 1.0, 2.0) for at in arrivals_us]
    stages = by_stage(asked, [2.0, 3.0])
    assert [[pair.measured.arrival_us for pair in stage] for stage in stages] == [arrivals_us[:3], arrivals_us[3:]]
    assert by_stage(asked, []) == [asked]
