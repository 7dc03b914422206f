"""Searches on made-up functions: what they find is where the boundary is."""

import math
import random
from collections.abc import Callable, Generator
from typing import TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blis_tui.spec.study.study_records import Point
from blis_tui.study.planning.search import Knee, Probe, Verdict, Wanted, rounded, search_rate, search_size, verdict_of
from blis_tui.study.study_rows import Row

T = TypeVar("T")


def drive(search: Generator[Wanted, list[Verdict], T], judge: Callable[[Probe], Verdict]) -> tuple[T, list[Probe]]:
    """What a search returns, and all that it asked for."""
    asked: list[Probe] = []
    try:
        probes = next(search).probes
        while True:
            asked += probes
            probes = search.send([judge(probe) for probe in probes]).probes
    except StopIteration as stop:
        return stop.value, asked


def up_to(knees: list[float]) -> Callable[[Probe], Verdict]:
    return lambda probe: Verdict(holds=probe.value <= knees[probe.seed])


@given(st.lists(st.floats(0.5, 500), min_size=1, max_size=5), st.floats(0.1, 1000), st.sampled_from([0.02, 0.1, 0.5]))
@settings(max_examples=300)
def test_every_seeds_knee_lies_in_the_interval(knees: list[float], guess: float, precision: float) -> None:
    knee, asked = drive(search_rate(guess, precision=precision, seeds=len(knees)), up_to(knees))
    assert knee.holds is not None
    assert knee.fails is not None
    assert knee.holds <= min(knees) <= max(knees) < knee.fails
    assert len(set(asked)) == len(asked)
    # Whoever says that it holds has asked every seed.
    assert {Probe(knee.holds, seed) for seed in range(len(knees))} <= set(asked)
    assert rounded(knee.holds) == knee.holds


@given(st.floats(1, 500), st.floats(0.7, 1.4))
def test_seeds_that_agree_leave_no_more_than_the_precision(knee: float, off: float) -> None:
    found, _ = drive(search_rate(knee * off, precision=0.1, seeds=3), up_to([knee] * 3))
    assert found.holds is not None
    assert found.fails is not None
    assert found.fails / found.holds <= 1.1 or found.fails - found.holds <= 0.011 * knee  # three digits


@given(st.floats(1, 500), st.floats(0.7, 1.4), st.sampled_from([0.03, 0.075, 0.2]))
def test_of_the_long_run_a_third_of_the_precision_is_a_margin(knee: float, off: float, precision: float) -> None:
    """An eleventh above the answer nothing holds, a fortieth above it everything does, by default."""
    found, asked = drive(search_rate(knee * off, precision=precision, seeds=1, quick=True), up_to([knee]))
    assert found.holds is not None
    assert found.fails is not None
    digits = 0.011 * knee  # three of them
    assert found.holds * (1 + precision / 3) <= knee + digits
    assert found.fails / found.holds <= (1 + precision / 3) * (1 + 2 * precision / 3) + digits / found.holds
    assert Probe(found.holds, 0) in asked


@pytest.mark.parametrize(("noise", "most"), [(0.0, 9.0), (0.02, 10.5), (0.04, 11.0)])
def test_a_search_takes_few_runs(noise: float, most: float) -> None:
    runs = 0
    for number in range(200):
        draw = random.Random(number)  # noqa: S311
        knee = draw.uniform(1, 200)
        knees = [knee * math.exp(draw.gauss(0, noise)) for _ in range(3)]
        runs += len(drive(search_rate(knee * draw.uniform(0.7, 1.4), precision=0.1, seeds=3), up_to(knees))[1])
    assert runs / 200 <= most


def test_a_rate_that_is_never_or_always_good_ends_the_search() -> None:
    never, asked = drive(search_rate(10.0, precision=0.1, seeds=3), lambda _: Verdict(holds=False))
    assert never == Knee(holds=None, fails=0.0)
    assert len(asked) == 4
    always, _ = drive(search_rate(10.0, precision=0.1, seeds=3), lambda _: Verdict(holds=True))
    assert isinstance(always, Knee)
    assert always.fails is None


@given(st.lists(st.integers(1, 40), min_size=1, max_size=4), st.integers(1, 60), st.integers(1, 3))
@settings(max_examples=300)
def test_the_least_size_is_the_least(needed: list[int], guess: int, least: int) -> None:
    search = search_size(guess, most=32, seeds=len(needed), least=least)
    smallest, asked = drive(search, lambda probe: Verdict(holds=probe.value >= needed[probe.seed]))
    true = max(*needed, least)
    assert smallest.holds == (true if true <= 32 else None)
    if smallest.holds is not None:
        assert smallest.fails == (true - 1 if true > least else None)
        assert {Probe(smallest.holds, seed) for seed in range(len(needed))} <= set(asked)
    assert all(least <= one.value <= 32 for one in asked)


def test_an_idle_cluster_is_only_looked_at_when_rates_fail() -> None:
    knee, asked = drive(search_rate(10.0, precision=0.1, seeds=3), up_to([9.0] * 3))
    assert knee.holds is not None
    assert Probe(0.0, 0) not in asked
    low, asked = drive(search_rate(10.0, precision=0.1, seeds=3), up_to([4.0] * 3))
    assert low.holds is not None
    assert Probe(0.0, 0) in asked


def test_steps_are_small_where_a_figure_is_near_its_bound() -> None:
    knees = [11.0] * 3

    def verdict_of(probe: Probe) -> Verdict:
        return Verdict(holds=probe.value <= 11.0, of_bound=0.9 if probe.value <= 11.0 else None)

    _, with_figures = drive(search_rate(10.5, precision=0.1, seeds=3), verdict_of)
    _, without = drive(search_rate(10.5, precision=0.1, seeds=3), up_to(knees))
    assert len(with_figures) < len(without)


def like_a_queue(needed: int) -> Callable[[Probe], Verdict]:
    """Where one or two are missing, few requests are late; where up to half are, nothing breaks at once."""

    def judge(probe: Probe) -> Verdict:
        holds = probe.value >= needed or (probe.quick and probe.value >= 0.5 * needed)
        return Verdict(holds=holds, nearly=not holds and probe.value >= needed - 2)

    return judge


@pytest.mark.parametrize("needed", range(1, 33))
def test_from_a_size_that_is_nearly_enough_the_next_one_is_tried(needed: int) -> None:
    """Runs of sizes that hold are the long ones."""
    smallest, asked = drive(search_size(needed, most=32, seeds=1, quick=True), like_a_queue(needed))
    assert (smallest.holds, smallest.fails) == (needed, needed - 1 or None)
    _, without = drive(
        search_size(needed, most=32, seeds=1, quick=True),
        lambda probe: Verdict(holds=like_a_queue(needed)(probe).holds),
    )

    def holding(probes: list[Probe]) -> int:
        return len([probe for probe in probes if not probe.quick and probe.value >= needed])

    assert holding(asked) <= holding(without)


@pytest.mark.parametrize(
    ("beyond", "nearly"), [(0.06, True), (0.24, True), (0.04, False), (0.26, False), (None, False), (27.0, False)]
)
def test_a_size_is_nearly_enough_if_few_requests_are_beyond_a_bound(beyond: float | None, *, nearly: bool) -> None:
    """A share below its limit is one of what fails for another reason."""
    figures = {"stationary.beyond": beyond, "stationary.beyond_limit": 0.05}
    row = Row(point=Point(0, ()), seed=1, status="done", ok=False, why="it fails", figures=figures)
    assert verdict_of(row, ()) == Verdict(holds=False, nearly=nearly)


def test_sizes_that_are_always_nearly_enough_are_soon_passed() -> None:
    search = search_size(1, most=64, seeds=1, quick=True)
    smallest, asked = drive(search, lambda probe: Verdict(holds=probe.quick, nearly=True))
    assert smallest.holds is None
    assert [int(probe.value) for probe in asked if not probe.quick] == [1, 2, 3, 4, 5, 7, 11, 19, 35, 64]


@given(st.integers(1, 40), st.integers(1, 40))
def test_a_search_from_a_size_that_nearly_holds_asks_nothing_quickly(needed: int, least: int) -> None:
    search = search_size(least, most=32, seeds=1, least=least, quick=True, near=True)
    smallest, asked = drive(search, lambda probe: Verdict(holds=probe.value >= needed))
    true = max(needed, least)
    assert smallest.holds == (true if true <= 32 else None)
    assert not any(probe.quick for probe in asked)
    assert all(least <= probe.value <= 32 for probe in asked)
