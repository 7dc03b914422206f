"""Answers of plans against long runs with other seeds, on random problems of small servers."""

from __future__ import annotations

import pytest

from benchmarks.plans import judged_size, problem

pytestmark = [pytest.mark.slow, pytest.mark.nightly]  # on each change, ``test_plan`` compares with long runs


@pytest.mark.parametrize("number", range(2))
def test_the_size_that_is_planned_is_the_one_that_long_runs_need(number: int) -> None:
    verdict, details = judged_size(problem(number, small=True))
    assert verdict == "right", details
