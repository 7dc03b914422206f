"""Axes of the workload are scenarios: points compete under the same load, and each load has an answer of its own."""

from __future__ import annotations

from functools import cache
from itertools import product
from math import inf
from typing import TYPE_CHECKING

import pytest

import blis_tui
from blis_tui.pictures.study_page import study_page
from blis_tui.study.point_summary import PointSummary, load_paths, scenarios, study_front, summaries
from blis_tui.study.study_text import study_text

if TYPE_CHECKING:
    from blis_tui.study.study_rows import StudyResult

RATES, SIZES = (10, 60, 400), (1, 2, 3)
BOUND = 150
TTFT = "latency.ttft_ms.p99"


@cache
def swept() -> StudyResult:
    return blis_tui.sweep(
        "quickstart",
        axes={"workload.rate_per_s": list(RATES), "cluster.instances": list(SIZES)},
        slos=[f"{TTFT}<={BOUND}"],
        objectives=["cost.gpus", TTFT],
        set={"latency": "roofline", "workload.requests": 600},
    )


def ttft(rate: int, size: int) -> float:
    changes = {"latency": "roofline", "workload.requests": 600}
    changes |= {"workload.rate_per_s": rate, "cluster.instances": size}
    report = blis_tui.run(blis_tui.load("quickstart", set=changes))
    if any(warning.id in ("overload", "unsettled") for warning in report.warnings):
        return inf  # it is only as short as the run
    return report.latency.ttft_ms.p99 or 0.0


@cache
def by_hand() -> dict[tuple[int, int], float]:
    return {(rate, size): ttft(rate, size) for rate, size in product(RATES, SIZES)}


def place(point: PointSummary) -> tuple[object, ...]:
    return tuple(point.coordinates.values())


def test_the_best_of_each_rate_is_the_smallest_that_holds() -> None:
    found = scenarios(swept().study, summaries(swept()))
    assert [scenario.values for scenario in found] == [(rate,) for rate in RATES]
    for scenario, rate in zip(found, RATES, strict=True):
        holding = [size for size in SIZES if by_hand()[rate, size] <= BOUND]
        assert (None if scenario.best is None else place(scenario.best)) == ((rate, min(holding)) if holding else None)
        assert len(scenario.points) == len(SIZES)
    best = [scenario.best for scenario in found]
    assert None in best  # and there are loads that nothing here can take
    assert len({place(point) for point in best if point is not None}) > 1


def test_points_compete_with_those_under_the_same_load() -> None:
    points = summaries(swept())
    front = {place(point) for point in study_front(swept().study, points)}
    expected = set()
    for (rate, size), value in by_hand().items():
        rivals = [(other, by_hand()[rate, other]) for other in SIZES if by_hand()[rate, other] <= BOUND]
        beaten = any(other <= size and theirs <= value and (other, theirs) != (size, value) for other, theirs in rivals)
        if value <= BOUND and not beaten:
            expected.add((rate, size))
    assert front == expected
    assert (
        60,
        min(size for size in SIZES if by_hand()[60, size] <= BOUND),
    ) in front  # though a lower rate is served better


def test_table_and_page_say_the_same_for_each_rate() -> None:
    text, page = study_text(swept()), study_page(swept())
    assert "For each rate_per_s, the best point that meets all bounds: lowest cost.gpus, then lowest" in text
    assert "no other point that meets all bounds at the same rate_per_s" in text
    lines = text.split("For each rate_per_s")[1].splitlines()[2:]
    for scenario, line in zip(scenarios(swept().study, summaries(swept())), lines, strict=False):
        assert line.split()[0] == str(scenario.values[0])
        assert line.split()[1:] == ["-"] if scenario.best is None else f"point {scenario.best.point.number} " in line
    assert "For each rate_per_s: the best point that meets all bounds" in page
    assert "No point meets all bounds where rate_per_s is 400." in page
    front = {point.point.number for point in study_front(swept().study, summaries(swept()))}
    assert f"beats {len(front)} of 9" in page  # the picture's front is the same


def test_what_is_as_good_as_the_answer_is_told() -> None:
    """A bound on memory that no run comes near changes nothing: the second point is as good as the first."""
    axes = {"workload.rate_per_s": [4, 6], "engine.max_num_seqs": [200, 250]}
    result = blis_tui.sweep("quickstart", axes=axes, set={"latency": "roofline"}, objectives=[TTFT])
    first, second = scenarios(result.study, summaries(result))
    for scenario in (first, second):
        assert scenario.best is not None
        (tie,) = scenario.ties
        assert [scenario.best.point.number, tie.point.number] == [each.point.number for each in scenario.points]
        sentence = f"{tie.point.number} (250) is as good as point {scenario.best.point.number}."
        assert f"With rate_per_s {scenario.values[0]}, point {sentence}" in study_text(result)
        assert f"point {sentence}" in study_page(result)
    assert "as good as" not in study_text(swept())


def test_with_one_objective_there_is_no_front_but_what_is_best() -> None:
    axes = {"cluster.instances": [1, 2, 3]}
    page = study_page(blis_tui.sweep("quickstart", axes=axes, set={"latency": "roofline"}, objectives=[TTFT]))
    assert "Points on the front" not in page
    assert "Best points" in page
    assert "done, best" in page
    assert "done, front" not in page


@pytest.mark.parametrize(
    ("axes", "loads", "scenes"),
    [
        ({"cluster.instances": [1, 2]}, (), 0),
        ({"workload.rate_per_s": [5, 10]}, ("workload.rate_per_s",), 0),
        ({"workload": ["chatbot", "summarization"], "cluster.instances": [1, 2]}, ("workload",), 2),
    ],
)
def test_what_is_a_scenario(axes: dict[str, object], loads: tuple[str, ...], scenes: int) -> None:
    result = blis_tui.sweep("quickstart", axes=axes, set={"latency": "roofline"}, objectives=[TTFT])
    assert load_paths(result.study) == loads
    assert len(scenarios(result.study, summaries(result))) == scenes
