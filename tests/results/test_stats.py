"""Distributions against a naive computation over the expanded samples."""

from fractions import Fraction
from statistics import quantiles

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blis_tui.results.stats import EMPTY, PERCENTILES, of_histogram, of_ratios, of_samples, percentile


def naive_ms(samples: list[int], percent: int) -> float:
    ordered = sorted(samples)
    rank = Fraction(percent * (len(ordered) - 1), 100)
    low = int(rank)
    high = min(low + 1, len(ordered) - 1)
    return float((ordered[low] + (rank - low) * (ordered[high] - ordered[low])) / 1000)


@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=60))
def test_samples_are_summarised_exactly(samples: list[int]) -> None:
    distribution = of_samples(samples)
    assert distribution.mean == float(Fraction(sum(samples), 1000 * len(samples)))
    assert (distribution.min, distribution.max) == (min(samples) / 1000, max(samples) / 1000)
    for percent in PERCENTILES:
        assert getattr(distribution, f"p{percent}") == naive_ms(samples, percent)


@given(st.dictionaries(st.integers(1, 50), st.integers(1, 40), min_size=1), st.integers(0, 100))
def test_a_histogram_is_summarised_as_its_samples_would_be(counts: dict[int, int], offset: int) -> None:
    expanded = [value + offset for value, count in counts.items() for _ in range(count)]
    assert of_histogram(counts, offset) == of_samples(expanded)


def test_nothing_observed_is_nothing_and_not_zero() -> None:
    assert of_samples([]) == of_ratios([]) == of_histogram({}) == EMPTY
    assert EMPTY.p99 is None


def test_ratios_keep_their_fractions() -> None:
    assert of_ratios([1.5, 2.5]).mean == pytest.approx(0.002)
    assert of_ratios([1.5]).p99 == 0.0015


@given(st.lists(st.integers(0, 10**6), min_size=2, max_size=60), st.integers(1, 99))
def test_an_interpolated_percentile_is_that_of_the_standard_library(values: list[int], percent: int) -> None:
    expected = quantiles(values, n=100, method="inclusive")[percent - 1]
    assert percentile(sorted(values), percent) == pytest.approx(expected)
