"""Points and the front among them, drawn for a terminal."""

from __future__ import annotations

import pytest

from blis_tui.base.text import scatter
from blis_tui.spec.study.study_records import Objective, Point
from blis_tui.study.point_summary import PointSummary
from blis_tui.study.study_rows import Row
from blis_tui.study.study_text import FRONT, SELECTED, FrontPlot, Scale, plain

COST, LATENCY = Objective(metric="cost.gpus"), Objective(metric="latency.ttft_ms.p99")
SIZE = (30, 9)


def point(number: int, cost: float | None, latency: float, *, ok: bool = True, status: str = "done") -> PointSummary:
    figures = {"cost.gpus": cost, "latency.ttft_ms.p99": latency}
    one = Point(number, ())
    row = Row(point=one, seed=1, status=status, ok=ok, figures=figures)  # type: ignore[arg-type]
    return PointSummary(point=one, rows=(row,), ok=ok)


def drawn(*points: PointSummary, front: set[int], selected: int | None = None) -> list[str]:
    return plain(FrontPlot(points, front, (COST, LATENCY), SIZE, "{:g}".format).lines(selected))


def test_places_are_dots() -> None:
    assert scatter([(0, 0)], 2, 2) == ["  ", "⡀ "]
    assert scatter([(1, 1)], 2, 2) == [" ⠈", "  "]
    assert scatter([(0, 0), (0, 0.34), (0, 0.67), (0, 1)], 1, 1) == ["⡇"]
    assert scatter([], 3, 1) == ["   "]
    assert scatter([(-5, 7)], 1, 1) == scatter([(0, 1)], 1, 1)


def test_the_front_stands_out_and_the_axes_say_what_they_are() -> None:
    lines = drawn(point(0, 1, 40), point(1, 2, 20), point(2, 4, 10), point(3, 4, 40), front={0, 1, 2})
    assert lines[0] == "↑ ttft_ms.p99  → cost.gpus"
    assert lines[1] == "40 ┤*                        ⠈"
    assert lines[6].startswith("10 ┤")
    assert lines[6].endswith(FRONT)
    assert "".join(lines).count(FRONT) == 3
    assert lines[-1].split() == ["1", "4"]
    assert all(len(line) <= SIZE[0] for line in lines)
    assert len(lines) == SIZE[1]


def test_a_chosen_point_lies_on_top() -> None:
    points = (point(0, 1, 40), point(1, 2, 20), point(2, 2, 20))
    assert "".join(drawn(*points, front={0, 1}, selected=2)).count(SELECTED) == 1
    pieces = [piece for line in FrontPlot(points, {0, 1}, (COST, LATENCY), SIZE, str).lines(2) for piece in line]
    assert [text for text, what in pieces if what == "selected"] == [SELECTED]
    assert [text for text, what in pieces if what == "front"] == [FRONT]


def test_points_that_break_a_bound_are_told_apart() -> None:
    points = (point(0, 1, 40, ok=False), point(1, 2, 20))
    pieces = [piece for line in FrontPlot(points, set(), (COST, LATENCY), SIZE, str).lines() for piece in line]
    assert [what for _, what in pieces if what not in {"", "axis"}] == ["broken", "holds"]


@pytest.mark.parametrize(
    "points",
    [
        (),
        (point(0, 1, 40),),
        (point(0, 1, 40), point(1, 1, 40)),
        (point(0, 1, 40), point(1, 2, 30, status="stopped")),
        (point(0, 1, 40), point(1, None, 30)),
    ],
)
def test_without_two_places_there_is_no_plot(points: tuple[PointSummary, ...]) -> None:
    assert drawn(*points, front=set()) == []
    assert FrontPlot(points, set(), (COST,), SIZE, str).lines(0) == []


def test_values_far_apart_are_on_a_logarithmic_scale() -> None:
    wide = Scale(LATENCY, 10, 100_000)
    assert wide.is_log
    assert wide.title == "ttft_ms.p99 (log)"
    assert wide.share(1000) == pytest.approx(0.5)
    assert not Scale(LATENCY, 0, 100_000).is_log
    best = Scale(Objective(metric="throughput.requests_per_s", goal="max"), 1, 5)
    assert (best.title, best.share(2)) == ("throughput.requests_per_s (max)", 0.25)
    assert Scale(COST, 3, 3).share(3) == 0.5


def test_the_ends_of_an_axis_never_read_alike() -> None:
    """One value has one label, in the middle; values that the usual digits make equal get more of them."""
    level = drawn(point(0, 1, 2), point(1, 3, 2), front={0})
    labels = [line.split("┤")[0].strip() for line in level if "┤" in line]
    assert labels == ["2"]
    assert FRONT in next(line for line in level if "┤" in line)
    coarse = FrontPlot((point(0, 1, 2001), point(1, 3, 2002)), {0}, (COST, LATENCY), SIZE, "{:.2g}".format)
    ends = [line.split("┤")[0].strip() for line in plain(coarse.lines()) if "┤" in line]
    assert ends == ["2002", "2001"]
