"""Rates that change over time: as many requests as the area below the curve, where the curve puts them."""

from __future__ import annotations

from itertools import accumulate, takewhile

import pytest

import blis_tui
from blis_tui.base.streams import Streams
from blis_tui.model import PluginConfig, RateCurve, RatePoint
from blis_tui.spec.shipped import builtin
from blis_tui.workload.arrivals import CurvedGaps, Gaps, create_gaps


def curved(*points: tuple[float, float], repeat: bool = False, kind: str = "poisson", rate_per_s: float = 1.0) -> Gaps:
    unit = create_gaps(builtin(), PluginConfig(kind=kind), 1.0)
    curve = RateCurve(points=tuple(RatePoint(at_s=at, factor=factor) for at, factor in points), repeat=repeat)
    return CurvedGaps(unit, curve, rate_per_s)


def times(gaps: Gaps, count: int, seed: int = 1) -> list[float]:
    stream = Streams(seed).stream("test")
    drawn = takewhile(lambda gap: gap >= 0, (gaps.sample(stream) for _ in range(count)))
    return [at / 1e6 for at in accumulate(drawn)]


def test_equal_steps_of_area() -> None:
    """By hand: a rate that rises from 0 to 2 within 2 s has t^2 / 2 behind it, then 2 a second."""
    found = times(curved((0, 0), (2, 2), (3, 2), kind="constant"), 6)
    assert found == pytest.approx([2**0.5, 2.0, 2.5, 3.0, 3.5, 4.0], abs=2e-6)


def test_one_point_is_a_constant_factor() -> None:
    assert times(curved((0, 4), kind="constant"), 3) == pytest.approx([0.25, 0.5, 0.75], abs=1e-6)


def test_a_falling_rate_ends() -> None:
    """4 t - t^2 / 2 has reached 8 when the rate is 0: seven come before, and the eighth at last, if at all."""
    found = times(curved((0, 4), (4, 0), kind="constant"), 100)
    expected = [4 - (16 - 2 * count) ** 0.5 for count in range(1, 8)]
    assert found[:7] == pytest.approx(expected, abs=2e-6)
    assert len(found) in (7, 8)


def test_a_course_begins_again() -> None:
    """By hand: 1.5 requests every two seconds; also where a period has far less than one."""
    found = times(curved((0, 0), (1, 0), (1.5, 2), (2, 2), repeat=True, kind="constant"), 4)
    assert found == pytest.approx([1.75, 3.5, 4.0, 5.75], abs=1e-5)
    sparse = times(curved((0, 0), (9, 0), (10, 0.2), repeat=True, kind="constant"), 3)
    assert sparse == pytest.approx([100.0, 200.0, 300.0], abs=1e-3)


@pytest.mark.parametrize("kind", ["poisson", "gamma", "weibull"])
def test_as_many_requests_as_the_area(kind: str) -> None:
    """A day in a minute: counts by ten seconds against the integral of the curve, five standard deviations wide."""
    points = ((0, 0.2), (20, 1.0), (30, 1.0), (60, 0.2))
    found = times(curved(*points, repeat=True, kind=kind, rate_per_s=100.0), 40_000)
    cycles = int(found[-1] // 60)
    counts = [0] * 6
    for at in found:
        if at < 60 * cycles:
            counts[int(at % 60 // 10)] += 1
    areas = [4.0, 8.0, 10.0, 10 - 4 / 3, 10 - 4.0, 10 - 20 / 3]
    for count, area in zip(counts, areas, strict=True):
        expected = 100.0 * area * cycles
        assert abs(count - expected) < 5 * expected**0.5 + cycles


def test_a_spike_of_a_client_beside_another() -> None:
    """In a run: the spike is where the document says, and the other client's requests are what they would be alone."""
    plain = {"id": "plain", "input_tokens": 50, "output_tokens": 2}
    course = ((0, 0), (10, 0), (10.5, 4), (12, 0))
    points = [{"at_s": at, "factor": factor} for at, factor in course]
    never = [{"at_s": 0, "factor": 0}, {"at_s": 1e6, "factor": 1e-9}]
    others = []
    for shape in (points, never):
        spike = {**plain, "id": "spike", "tenant": "late", "rate_curve": {"points": shape}}
        sets = {"workload": {"requests": 200, "rate_per_s": 20.0, "clients": [plain, spike]}, "expect": []}
        rows = blis_tui.run(blis_tui.load("quickstart", set=sets)).rows
        late = [row.arrival_us for row in rows if row.tenant_id]
        assert bool(late) == (shape is points)
        assert all(10_000_000 <= at <= 12_000_000 for at in late)
        others.append([row.arrival_us for row in rows if not row.tenant_id][:90])
    assert others[0] == others[1]
