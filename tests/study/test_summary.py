"""What the runs of a study say about its points."""

from hypothesis import given
from hypothesis import strategies as st

from blis_tui.spec.study.study_records import Objective, Point
from blis_tui.study.point_summary import PointSummary, pareto_front, summaries
from blis_tui.study.study_rows import Row, StudyResult

GOALS = st.lists(st.sampled_from(["min", "max"]), min_size=1, max_size=3)
FIGURES = st.one_of(st.none(), st.integers(0, 4), st.sampled_from([0.5, 1.5]))
RUNS = st.tuples(
    st.sampled_from(["done", "done", "done", "stopped", "failed"]),
    st.sampled_from([True, None, False]),
    st.tuples(FIGURES, FIGURES, FIGURES),
)


def point(number: int, *runs: tuple[str, bool | None, tuple[float | None, ...]]) -> PointSummary:
    rows = [
        Row(
            point=Point(number, ()),
            seed=seed,
            status=status,  # type: ignore[arg-type]
            ok=ok,
            figures={f"figure_{at}": value for at, value in enumerate(values)},
        )
        for seed, (status, ok, values) in enumerate(runs)
    ]
    oks = [row.ok for row in rows]
    return PointSummary(
        point=Point(number, ()), rows=tuple(rows), ok=False if False in oks else None if None in oks else True
    )


@given(st.lists(st.lists(RUNS, min_size=1, max_size=2), max_size=12), GOALS)
def test_the_front_is_what_no_finished_point_that_holds_beats(
    runs: list[list[tuple[str, bool | None, tuple[float | None, ...]]]], goals: list[str]
) -> None:
    points = [point(number, *own) for number, own in enumerate(runs)]
    objectives = [Objective(metric=f"figure_{at}", goal=goal) for at, goal in enumerate(goals)]  # type: ignore[arg-type]

    def place(one: PointSummary) -> list[float] | None:
        if one.ok is False or any(row.status != "done" for row in one.rows):
            return None
        found = []
        for objective in objectives:
            values = [row.figures[objective.metric] for row in one.rows]
            if None in values:
                return None
            mean = sum(float(value or 0) for value in values) / len(values)
            found.append(mean if objective.goal == "min" else -mean)
        return found

    places = {one.point.number: found for one in points if (found := place(one)) is not None}
    unbeaten = {
        number
        for number, mine in places.items()
        if not any(other != mine and all(a <= b for a, b in zip(other, mine, strict=True)) for other in places.values())
    }
    front = pareto_front(points, objectives)
    assert {one.point.number for one in front} == unbeaten
    firsts = [places[one.point.number][0] for one in front]
    assert firsts == sorted(firsts)


def test_without_objectives_there_is_no_front() -> None:
    assert pareto_front([point(0, ("done", True, (1, 1, 1)))], []) == ()


def test_a_point_is_judged_over_its_seeds(result: StudyResult) -> None:
    one, unfit, two, _ = summaries(result)
    assert [row.seed for row in one.rows] == [3, 4]
    assert (one.ok, one.status, two.ok) == (False, "done", True)
    assert (unfit.ok, unfit.status, unfit.why) == (None, "invalid", result[2].why)
    figures = [row.figures["latency.e2e_ms.mean"] for row in two.rows]
    assert two.mean("latency.e2e_ms.mean") == (float(figures[0] or 0) + float(figures[1] or 0)) / 2
    assert two.mean("cost.nothing") is None


def test_the_worst_status_and_a_missing_figure_count() -> None:
    mixed = point(0, ("done", True, (1, 2, None)), ("stopped", False, (3, None, None)))
    assert (mixed.status, mixed.ok) == ("stopped", False)
    assert (mixed.mean("figure_0"), mixed.mean("figure_1")) == (2, None)
