"""The Pareto front, against every pair of points."""

from __future__ import annotations

from random import Random

import pytest

from blis_tui.spec.study.study_records import Objective, Point
from blis_tui.study.point_summary import PointSummary, pareto_front
from blis_tui.study.study_rows import Row

NAMES = ("cost.gpus", "latency.ttft_ms.p99", "throughput.requests_per_s")


def point(number: int, values: tuple[int, ...]) -> PointSummary:
    row = Row(point=Point(number, ()), seed=1, status="done", ok=None, figures=dict(zip(NAMES, values, strict=False)))
    return PointSummary(point=row.point, rows=(row,), ok=None)


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("seed", range(5))
def test_no_point_of_it_is_beaten_and_every_other_one_is(count: int, seed: int) -> None:
    draw = Random(seed)  # noqa: S311  (no secret)
    objectives = [Objective(metric=name, goal="max" if at == 1 else "min") for at, name in enumerate(NAMES[:count])]
    places = [tuple(draw.randrange(6) for _ in range(count)) for _ in range(60)]
    signed = [tuple(-value if at == 1 else value for at, value in enumerate(place)) for place in places]

    def beaten(mine: tuple[int, ...]) -> bool:
        return any(other != mine and all(a <= b for a, b in zip(other, mine, strict=True)) for other in signed)

    front = pareto_front([point(at, place) for at, place in enumerate(places)], objectives)
    assert sorted(one.point.number for one in front) == [at for at, mine in enumerate(signed) if not beaten(mine)]


def test_many_equal_points_are_all_on_it() -> None:
    points = [point(at, (at % 7, 7 - at % 7)) for at in range(20_000)]  # quadratic work would take hours
    objectives = [Objective(metric=name) for name in NAMES[:2]]
    assert len(pareto_front(points, objectives)) == 20_000
