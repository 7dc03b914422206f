"""A study's points as a table for a terminal."""

from __future__ import annotations

import re

import pytest

from blis_tui.base.units import fine_bar
from blis_tui.study.study_rows import Row, StudyResult
from blis_tui.study.study_text import MOST_POINTS, study_text
from tests.study.studies import study_of

FIRST, SECOND = "latency.ttft_ms.p99", "cost.gpus"


@pytest.mark.parametrize("goal", ["min", "max"])
def test_of_many_points_those_are_shown_that_hold_then_the_front_then_the_best(goal: str) -> None:
    """Point 0 alone is the cheapest, and the worst in what comes first; all others cost the same."""
    count = MOST_POINTS + 10
    objectives = [{"metric": FIRST, "goal": goal}, {"metric": SECOND}]
    study = study_of({"cluster.instances": list(range(1, count + 1))}, objectives=objectives, seeds=1)
    worth = [at if goal == "max" else -at for at in range(count)]  # the later, the better
    rows = tuple(
        Row(
            point=point,
            seed=1,
            status="done",
            ok=at not in (count - 1, count - 2),  # the best two do not hold
            figures={FIRST: worth[at], SECOND: 2 - (at == 0)},
        )
        for at, point in enumerate(study.points)
    )
    lines = study_text(StudyResult(study=study, rows=rows)).splitlines()
    shown = [int(match[2]) - 1 for line in lines[3 : 3 + MOST_POINTS] if (match := re.match(r"([*✗ ]) +(\d+) ", line))]
    assert shown == [count - 3, 0, *range(count - 4, count - MOST_POINTS - 2, -1)]


def test_why_a_point_has_no_figures_stays_in_its_line() -> None:
    study = study_of({"cluster.instances": [1]}, objectives=[{"metric": FIRST}], seeds=1)
    why = "nothing came of it, " + "and on and on " * 20
    row = Row(point=study.points[0], seed=1, status="failed", ok=None, why=why)
    line = study_text(StudyResult(study=study, rows=(row,))).splitlines()[3]
    reason = line[line.index("failed: ") :]
    assert reason.endswith("…")
    assert f"failed: {why}".startswith(reason[:-1])
    assert len(reason) == 60


@pytest.mark.parametrize(
    ("prices", "sentence"),
    [
        ((), "cost.usd_per_hour is not known for 2 points: their GPUs have no price (--price"),
        ((2.0,), "cost.usd_per_hour is not known for 1 point: their GPUs have no price (--price"),
        ((2.0, 4.0), ""),
    ],
)
def test_what_no_price_is_known_of_is_said(prices: tuple[float, ...], sentence: str) -> None:
    study = study_of({"cluster.instances": [1, 2]}, objectives=[{"metric": "cost.usd_per_hour"}], seeds=1)
    figures = [{"cost.usd_per_hour": price} for price in prices] + [{}] * (2 - len(prices))
    rows = tuple(
        Row(point=point, seed=1, status="done", ok=None, figures=own)
        for point, own in zip(study.points, figures, strict=True)
    )
    text = study_text(StudyResult(study=study, rows=rows))
    assert sentence in text
    assert ("not known" in text) == bool(sentence)


@pytest.mark.parametrize(
    ("value", "top", "drawn"),
    [
        (None, 1.0, ""),
        (0.0, 1.0, ""),
        (-0.5, 1.0, ""),
        (0.5, 0.0, ""),
        (0.5, -1.0, ""),
        (1e-9, 1.0, "▏"),  # there is something
        (0.025, 1.0, "▎"),
        (0.1, 1.0, "█"),
        (0.5, 1.0, "█████"),
        (0.5625, 1.0, "█████▋"),
        (0.25, 0.5, "█████"),
        (300.0, 400.0, "███████▌"),
        (1.0, 1.0, "██████████"),
        (7.0, 1.0, "██████████"),
    ],
)
def test_a_bar_is_as_long_as_its_value_to_an_eighth_of_a_character(value: float | None, top: float, drawn: str) -> None:
    assert fine_bar(value, top, 10) == drawn


def test_the_front_is_of_the_points_that_meet_all_bounds() -> None:
    """Others may be better in every objective, and break a bound on something else."""
    bound = [{"metric": "latency.itl_ms.p99", "max": 50}]
    objectives = [{"metric": FIRST}, {"metric": SECOND}]
    study = study_of({"cluster.instances": [1, 2]}, objectives=objectives, constraints=bound, seeds=1)
    rows = tuple(
        Row(point=point, seed=1, status="done", ok=at == 1, figures={FIRST: 100 + at, SECOND: 1 + at})
        for at, point in enumerate(study.points)
    )
    text = " ".join(study_text(StudyResult(study=study, rows=rows)).split())
    assert f"* no other point that meets all bounds is better in one of {FIRST}, {SECOND} and worse in none" in text
    assert "1 of 2 points meets all bounds" in text
