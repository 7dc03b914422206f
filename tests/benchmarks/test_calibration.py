"""Round trips of ``calibrate``, as the benchmark makes them: some of its own, so that its table stays true."""

from __future__ import annotations

from statistics import median

import pytest

from benchmarks.calibration import inside, table, trip
from tests.nightly import every

SEEDS = (0, 1, 5, 15, 21, 23, 24, 29, 31, 35)
"""Of the benchmark's first sixty: those that take a second."""
OTHERS = (4, 7, 9, 11, 25, 30, 32, 39, 51, 55)
"""Those that take about two."""
REQUESTS = 60
"""Half of the benchmark's."""


@pytest.mark.slow
@pytest.mark.xdist_group("calibrate")
@pytest.mark.parametrize("seeds", every(2, [SEEDS, OTHERS]), ids=["some", "others"])
def test_intervals_and_expected_errors_hold(seeds: tuple[int, ...]) -> None:
    trips = [trip(seed, REQUESTS) for seed in seeds]
    held = [inside(one, truth) for each in trips for one, truth in each.found]
    assert len(held) > 70
    assert 0.8 <= sum(held) / len(held) <= 0.98
    held_sums = [inside(one, truth) for each in trips for one, truth in each.sums]
    assert sum(held_sums) >= 0.8 * len(held_sums) > 0, "sums of confounded coefficients"
    for number in range(3):
        assert median(abs(one.elsewhere[number]) for one in trips) < 0.03
    kept = [abs(off) <= band for one in trips for off, band in zip(one.elsewhere, one.expected, strict=False)]
    assert len(kept) == 3 * len(trips)
    assert sum(kept) / len(kept) >= 0.8
    shown = table(trips)
    assert f"| all | {len(held)} | {100 * sum(held) / len(held):.0f} % |" in shown
    assert f"of {len(trips)} |" in shown
