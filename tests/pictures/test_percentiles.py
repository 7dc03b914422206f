"""Curves of percentiles end where one sample would decide."""

from __future__ import annotations

import pytest

from blis_tui.pictures.arrivals import curve


@pytest.mark.parametrize(
    ("samples", "last"), [(99, 9_800), (100, 9_900), (999, 9_980), (1_000, 9_990), (10_000, 9_999)]
)
def test_a_percentile_is_drawn_if_a_sample_lies_beyond_it(samples: int, last: int) -> None:
    drawn = curve([float(us) for us in range(samples)])
    assert (drawn[0][0], drawn[-1][0]) == (0, last)
    assert drawn[50] == (5_000, (samples - 1) / 2 / 1000)
