"""The page about a plan: each figure that is drawn, worked out another way from the plan's own data."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import pytest
from plotly.graph_objects import Figure  # type: ignore[import-untyped]

from blis_tui.base.source import Source
from blis_tui.pictures.plan_page import answer_runs, plan_page
from blis_tui.pictures.points import rerun
from blis_tui.spec.read import parse
from blis_tui.spec.study.document import read_study
from blis_tui.study.planning.answer import Plan, Question
from blis_tui.study.planning.plan import plan
from blis_tui.study.planning.plan_text import answer_text, plan_data, plan_text, row_error, step_times_text
from blis_tui.study.runners import InProcessRunner
from tests.pictures.pages import Page
from tests.pictures.test_study_page import study_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

BOUND = "latency.ttft_ms.p50<=120"
METRIC = "latency.ttft_ms.p50"


class Planned(NamedTuple):
    plan: Plan
    data: Mapping[str, Any]
    page: Page
    html: str


ENDS = ("workload.requests=60", "horizon_us=1000000000000")
"""With a horizon, runs end by themselves: they are short."""
SLOW = ("engine.max_num_seqs=2", "workload.clients.0.output_tokens=100", "latency=roofline", "policy=blis")


def planned(given: Sequence[str] = ENDS, **question: Any) -> Planned:
    study = study_of(axes=("hardware=h100,l40s",), slos=(BOUND,), given=given)
    found = plan(Question(study=study, duration_s=2, **question), InProcessRunner())
    html = plan_page(found, [rerun(name, experiment) for name, experiment in answer_runs(found)])
    return Planned(found, plan_data(found), Page(html), html)


pytestmark = pytest.mark.xdist_group("plan-page")  # its runs are made once


@pytest.fixture(scope="module")
def sized() -> Planned:
    return planned(rate_per_s=120.0, most=12)


@pytest.fixture(scope="module")
def rated() -> Planned:
    return planned(max_rate=True, precision=0.5)


def test_runs_without_an_end_are_shown_as_far_as_they_were_judged() -> None:
    found = planned(SLOW, rate_per_s=1.0, most=4)
    assert found.plan.best is not None
    assert found.plan.best.found is not None
    (name, experiment), *_ = answer_runs(found.plan)
    assert name.startswith("the answer: ")
    row = found.plan.best.found.rows[0]
    assert row.in_long_run == "holds"
    assert (experiment.warm_up_us, experiment.horizon_us) == (
        row.figures["stationary.start_us"],
        row.figures["stationary.end_us"],
    )
    assert "holds" in found.html


def test_plotly_knows_every_setting_of_every_figure(sized: Planned, rated: Planned) -> None:
    for page in (sized.page, rated.page):
        for views in page.figures.values():
            for view in views:
                Figure(data=view["data"], layout=view["layout"])


def test_everything_that_was_tried_is_drawn(sized: Planned, rated: Planned) -> None:
    for one, what in ((sized, "size"), (rated, "rate_per_s")):
        (view,) = one.page.figures["tries"]
        lines = {trace["name"]: trace for trace in view["data"]}
        assert view["layout"]["shapes"][0]["y0"] == 120
        for configuration in one.data["configurations"]:
            name = f"hardware {configuration['coordinates']['hardware']}"
            wanted = []
            for tried in configuration["tried"]:
                values = [run["figures"][METRIC] for run in tried["runs"] if run["status"] == "done"]
                if values:
                    symbol = "circle" if tried["holding"] == len(tried["runs"]) else "x"
                    wanted.append((tried[what], max(values), 0, max(values) - min(values), symbol))
            if not wanted:  # all runs were stopped early: there are no figures to draw
                assert name not in lines
                continue
            line = lines[name]
            wanted.sort()
            assert line["x"] == [each[0] for each in wanted]
            assert line["y"] == pytest.approx([each[1] for each in wanted])
            assert line["error_y"]["array"] == pytest.approx([each[2] for each in wanted])
            assert line["error_y"]["arrayminus"] == pytest.approx([each[3] for each in wanted])
            assert line["marker"]["symbol"] == [each[4] for each in wanted]
        best = one.data["configurations"][one.data["best"]]
        answer = best["size"] if what == "size" else best["rate_that_holds_per_s"]
        assert lines["the answer"]["x"] == [answer]


def test_the_answer_and_how_sure_it_is_stand_there(sized: Planned, rated: Planned) -> None:
    for one in (sized, rated):
        assert answer_text(one.plan) in one.page.text
        for line in step_times_text(one.plan.expected):
            assert line in one.page.text
        assert "expected error" in one.page.text
        for each in one.plan.candidates:
            assert row_error(one.plan, each) in one.page.text
        for configuration in one.data["configurations"]:
            assert configuration["why_not"] in one.page.text
        assert f"{one.data['runs']:,} runs in total" in one.page.text


def test_a_bounded_figure_is_the_same_wherever_it_stands(sized: Planned) -> None:
    """In table, sentences, cards and picture: that of the seed that decides."""
    data, plan, page = sized.data, sized.plan, sized.page
    best = data["configurations"][data["best"]]
    ran = {one["size"]: [run["figures"][METRIC] for run in one["runs"]] for one in best["tried"] if one["seeds"] == 2}
    assert len(set(ran[best["size"]])) == 2, "seeds differ here, or there would be nothing to tell apart"
    here, more = (f"{max(ran[size]):.1f}" for size in (best["size"], best["size"] + 1))
    assert plan.binding is not None
    assert plan.binding.value == max(ran[best["size"]])
    text, one_line = plan_text(plan), " ".join(plan_text(plan).split())
    assert f"The tightest bound is {METRIC}: {here} of 120" in one_line
    assert f"One more instance would change {METRIC} from {here} to {more}." in one_line
    line = next(line for line in text.splitlines() if line.startswith("→"))
    assert f" to {here}" in line
    (view,) = page.figures["tries"]
    (star,) = [trace for trace in view["data"] if trace["name"] == "the answer"]
    assert star["y"] == [max(ran[best["size"]])]
    for opinion in plan.opinions:
        assert opinion.own == max(ran[best["size"]])


def test_the_answer_is_run_once_more_beside_one_that_does_not_hold(sized: Planned, rated: Planned) -> None:
    for one in (sized, rated):
        names = [name for name, _ in answer_runs(one.plan)]
        assert len(names) == 2
        best = cast("Any", one.plan.best)
        fails = [tried for tried in best.tried if tried.holding < len(tried.rows)]
        if one is sized:
            beside = min(fails, key=lambda tried: abs(tried.size - best.size))
        else:
            beside = next(tried for tried in fails if names[1].endswith(f" {tried.rate_per_s:g} requests/s"))
        for name, row in ((names[0], best.found.rows[0]), (names[1], beside.rows[0])):
            assert row.status == "done"
            trace = one.page.traces("runs-percentiles")[name, "y"]
            assert trace["y"][trace["customdata"].index("p50")] == round(row.figures[METRIC], 4)


def test_bars_are_the_costs_and_rates_of_the_answers(rated: Planned) -> None:
    rates, costs = rated.page.figures["answers"]
    configurations = rated.data["configurations"]
    assert rates["data"][0]["x"] == [configuration["rate_that_holds_per_s"] for configuration in configurations]
    assert costs["layout"]["xaxis"]["title"]["text"] == rated.data["compared_by"]
    assert len(costs["data"][0]["x"]) == len(configurations)


def test_the_rate_of_a_load_of_its_own_is_that_of_the_requests_that_came() -> None:
    """Where the experiment's rate is one of sessions, each of several requests."""
    study = read_study(
        parse(
            Source(
                "x",
                json.dumps(
                    {
                        "apiVersion": "blis/v1",
                        "kind": "Study",
                        "metadata": {"name": "x"},
                        "experiment": "conversations",
                        "set": {
                            "workload.sessions": 6,
                            "workload.clients.0.session.turns": 2,
                            "workload.clients.0.session.think_time_ms": 100,
                            "latency": "roofline",
                        },
                        "seeds": 1,
                        "constraints": [{"metric": METRIC, "max": 1e6}],
                    }
                ),
            )
        )
    )
    found = plan(Question(study=study, duration_s=2, most=4), InProcessRunner())
    assert found.best is not None
    assert found.best.found is not None
    (came,) = found.best.found.values("offered.requests_per_s")
    text = Page(plan_page(found, [])).text
    assert f"Requests per second {came:.4g}" in " ".join(text.split())
    assert "Sessions per second" not in text


def test_names_of_users_are_no_markup() -> None:
    study = study_of(axes=("workload.clients.0.tenant=<b>x</b>,<i>y</i>",), slos=(BOUND,), given=ENDS)
    questions: tuple[dict[str, Any], ...] = ({"rate_per_s": 60.0, "most": 6}, {"max_rate": True, "precision": 0.5})
    for question in questions:
        found = plan(Question(study=study, duration_s=2, **question), InProcessRunner())
        assert len([candidate for candidate in found.candidates if candidate.found is not None]) == 2
        page = Page(plan_page(found, [rerun(name, experiment) for name, experiment in answer_runs(found)]))
        assert "answers" in page.figures
        assert page.markup("<b>x", "<i>y") == []
        assert "<b>x</b>" in page.text
