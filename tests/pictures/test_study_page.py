"""The pages about a study and a plan: each figure that is drawn, worked out another way from the rows."""

from __future__ import annotations

import sys
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from click.testing import CliRunner
from plotly.graph_objects import Figure  # type: ignore[import-untyped]

from blis_tui.base.errors import install_command
from blis_tui.cli.main import cli
from blis_tui.cli.standard_streams import ExitCode
from blis_tui.pictures.points import Points, choose, rerun
from blis_tui.pictures.study_page import lines_of, study_page
from blis_tui.spec.study.arguments import study_of_arguments
from blis_tui.spec.study.document import open_study_or_experiment, read_study
from blis_tui.study.runners import InProcessRunner
from blis_tui.study.study_rows import StudyResult
from blis_tui.study.sweep import Sweep
from tests.pictures.pages import Page

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from blis_tui.spec.study.study_records import Study
    from blis_tui.study.study_rows import Row

RATES = [4, 64, 128]
AXES = ("cluster.instances=1,2", "workload.rate_per_s=4,64,128", "policy=default,blis")
SLO = "latency.ttft_ms.p99<=60"
OBJECTIVES = ("cost.gpus", "latency.e2e_ms.p99")


def study_of(
    *,
    axes: Sequence[str] = AXES,
    slos: Sequence[str] = (SLO,),
    objectives: Sequence[str] = (),
    given: Sequence[str] = ("workload.requests=60",),
) -> Study:
    document, base = open_study_or_experiment("quickstart", None)
    study_of_arguments(document, axes=axes, slos=slos, objectives=objectives, seeds="2")
    return read_study(document, base=base, given=(*given, "expect=[]"))


class Seen(NamedTuple):
    result: StudyResult
    page: Page
    html: str

    def rows(self, **wanted: object) -> list[Row]:
        """The rows with these last parts of paths at these values."""
        return [
            row
            for row in self.result.rows
            if all(
                {path.split(".")[-1]: value for path, value in row.coordinates.items()}[name] == value
                for name, value in wanted.items()
            )
        ]


def swept(study: Study) -> StudyResult:
    sweep = Sweep(study)
    for _ in sweep.run():
        pass
    return sweep.result()


@pytest.fixture(scope="module")
def seen() -> Seen:
    result = swept(study_of(objectives=OBJECTIVES))
    runs = [rerun(name, experiment) for name, experiment in choose(Points.of(result))]
    html = study_page(result, runs)
    return Seen(result, Page(html), html)


def mean(rows: list[Row], metric: str) -> float:
    values = [row.figures[metric] for row in rows]
    assert len(values) == 2
    return sum(float(str(value)) for value in values) / 2


def holds(rows: list[Row]) -> bool:
    return all(float(str(row.figures["latency.ttft_ms.p99"])) <= 60 for row in rows)


def lasts(rows: list[Row]) -> bool:
    return not any(name in row.warnings for row in rows for name in ("overload", "unsettled"))


def test_what_is_told_of_step_times_stays_text(seen: Seen, monkeypatch: pytest.MonkeyPatch) -> None:
    line = "Step times: <img src=x onerror=alert(1)> & co."
    monkeypatch.setattr("blis_tui.pictures.study_page.step_times_lines", lambda *_: [line])
    page = study_page(seen.result, [])
    assert "<img" not in page
    assert "Step times: &lt;img src=x onerror=alert(1)&gt; &amp; co." in page


def test_names_of_users_are_no_markup() -> None:
    axes = ("workload.clients.0.tenant=<b>x</b>,<i>y</i>", "workload.clients.0.id=<u>v</u>,<s>w</s>")
    study = study_of(axes=(*axes, "workload.rate_per_s=4,64"), objectives=OBJECTIVES, given=("workload.requests=20",))
    result = swept(study)
    page = Page(study_page(result, [rerun(name, experiment) for name, experiment in choose(Points.of(result))]))
    assert {"front", "rate", "percentiles", "heat-map"} <= page.figures.keys()
    assert page.markup("<b>x", "<i>y", "<u>v", "<s>w") == []
    assert "<b>x</b>" in page.text
    assert "<u>v</u>" in page.text


def test_plotly_knows_every_setting_of_every_figure(seen: Seen) -> None:
    names = ["front", "rate", "percentiles", "heat-map", "runs-percentiles", "runs-load"]
    assert list(seen.page.figures) == names
    for views in seen.page.figures.values():
        for view in views:
            Figure(data=view["data"], layout=view["layout"])


def test_there_is_one_front_whatever_two_figures_are_shown() -> None:
    """That of all three objectives: on cards, in tables and in every view of the picture."""
    study = study_of(objectives=("cost.gpus", "latency.e2e_ms.p99", "max:throughput.requests_per_s"))
    result = swept(study)
    points = Points.of(result)
    page = Page(study_page(result, []))
    assert len(page.figures["front"]) > 1
    for view in page.figures["front"]:
        found = {trace["name"]: trace for trace in view["data"]}
        assert {one[0] for one in found["front"]["customdata"]} == set(points.front)


def test_the_front_has_the_points_that_no_other_one_beats(seen: Seen) -> None:
    places: dict[int, tuple[float, float]] = {}
    for number in range(12):
        rows = [row for row in seen.result.rows if row.point.number == number]
        if holds(rows) and lasts(rows):
            places[number] = (mean(rows, OBJECTIVES[0]), mean(rows, OBJECTIVES[1]))
    rates = {row.point.number: row.coordinates.get("workload.rate_per_s") for row in seen.result.rows}
    best = {
        one
        for one, (x, y) in places.items()
        if not any(
            (a, b) != (x, y) and a <= x and b <= y and rates[other] == rates[one] for other, (a, b) in places.items()
        )
    }
    view = seen.page.figures["front"][0]
    found = {trace["name"]: trace for trace in view["data"]}
    assert {one[0] for one in found["front"]["customdata"]} == best
    assert sorted(zip(found["front"]["x"], found["front"]["y"], strict=True)) == pytest.approx(
        sorted(places[one] for one in best)
    )
    drawn = {one[0] for trace in view["data"] for one in trace["customdata"]}
    assert drawn == set(range(12))
    shown = {name: {one[0] for one in trace["customdata"]} for name, trace in found.items()}
    assert shown["does not hold"] | shown.get("in doubt", set()) == set(range(12)) - places.keys()


def test_lines_over_the_rate_have_their_means_ends_and_knees(seen: Seen) -> None:
    view = seen.page.figures["rate"][0]
    assert view["layout"]["shapes"][0]["y0"] == 60
    lines = {trace["name"]: trace for trace in view["data"] if trace["mode"] == "lines+markers"}
    stars = {trace["name"]: trace for trace in view["data"] if trace["mode"] == "markers"}
    assert len(lines) == 4
    for instances, policy in product((1, 2), ("default", "blis")):
        line = lines[f"instances {instances}, policy {policy}"]
        groups = [seen.rows(instances=instances, policy=policy, rate_per_s=rate) for rate in RATES]
        assert line["x"] == RATES
        assert line["y"] == pytest.approx([mean(rows, "latency.ttft_ms.p99") for rows in groups])
        for at, rows in enumerate(groups):
            values = [float(str(row.figures["latency.ttft_ms.p99"])) for row in rows]
            assert line["y"][at] + line["error_y"]["array"][at] == pytest.approx(max(values))
            assert line["y"][at] - line["error_y"]["arrayminus"][at] == pytest.approx(min(values))
        good = [holds(rows) and lasts(rows) for rows in groups]
        knee = RATES[good.index(False) - 1] if False in good else RATES[-1]
        assert stars[line["name"]]["x"] == [knee]
        assert stars[line["name"]]["marker"]["symbol"] == ("star" if False in good else "star-open")


def test_a_knee_is_no_rate_of_which_most_is_turned_away() -> None:
    """A bucket of a thousand tokens a second is emptied by the middle rate, and latencies are as short as before."""
    bucket = "policy.admission={kind: token-bucket, capacity_tokens: 20000, refill_tokens_per_s: 1000}"
    axes = ("workload.rate_per_s=2,30,60",)
    lines = []
    for given in (("workload.requests=150",), ("workload.requests=150", bucket)):
        result = swept(study_of(axes=axes, slos=("latency.ttft_ms.p99<=400",), given=given))
        (line,) = lines_of(Points.of(result), "workload.rate_per_s")
        lines.append(line)
    assert [[point.ok for point in line.members] for line in lines] == [[True] * 3] * 2
    served = [[point.mean("requests.completed") for point in line.members] for line in lines]
    assert served[0] == [150] * 3
    assert served[1][0] == 150
    assert max(number or 0 for number in served[1][1:]) < 140
    assert lines[1].knee_text() == "2"


def test_bright_cells_of_heat_maps_are_the_better_ones(seen: Seen) -> None:
    traces = [view["data"][0] for view in seen.page.figures["heat-map"]]
    turned = {trace["colorbar"]["title"]["text"]: trace["reversescale"] for trace in traces}
    assert (turned["latency.e2e_ms.p99"], turned["throughput.output_tokens_per_s"]) == (True, False)


def test_cells_of_heat_maps_are_the_best_points_there(seen: Seen) -> None:
    found: dict[str, Any] = {
        trace["colorbar"]["title"]["text"]: trace
        for view in seen.page.figures["heat-map"]
        for trace in view["data"]
        if view["layout"]["xaxis"]["title"]["text"] == "cluster.instances"
        and view["layout"]["yaxis"]["title"]["text"] == "workload.rate_per_s"
    }
    for metric, worst_to_best in (("latency.e2e_ms.p99", min), ("throughput.output_tokens_per_s", max)):
        trace = found[metric]
        assert (trace["x"], trace["y"]) == (["1", "2"], [str(rate) for rate in RATES])
        for (row, rate), (column, instances) in product(enumerate(RATES), enumerate((1, 2))):
            there = [seen.rows(instances=instances, rate_per_s=rate, policy=one) for one in ("default", "blis")]
            good = [rows for rows in there if holds(rows)] or there
            assert trace["z"][row][column] == pytest.approx(worst_to_best(mean(rows, metric) for rows in good))
            assert trace["text"][row][column].endswith("✗") == (not any(map(holds, there)))


def test_percentiles_are_means_over_seeds(seen: Seen) -> None:
    trace = seen.page.figures["percentiles"][0]["data"][0]
    parts = dict(part.split() for part in trace["name"].split(", "))
    rows = seen.rows(instances=int(parts["instances"]), rate_per_s=float(parts["rate_per_s"]), policy=parts["policy"])
    assert trace["y"] == pytest.approx([mean(rows, f"latency.ttft_ms.p{one}") for one in (50, 90, 95, 99)])


def test_chosen_runs_are_made_once_more_as_they_were(seen: Seen) -> None:
    traces = seen.page.traces("runs-percentiles")
    names = list(dict.fromkeys(name for name, _ in traces))
    assert 1 < len(names) <= 4
    for name in names:
        row = next(row for row in seen.result.rows if row.point.number == int(name.split()[1]))
        trace = traces[name, "y"]
        at = trace["customdata"].index("p95")
        assert trace["y"][at] == round(float(str(row.figures["latency.ttft_ms.p95"])), 4)


def test_every_point_and_run_stands_there(seen: Seen) -> None:
    text = seen.page.text
    for row in seen.result.rows:
        assert row.sha256 in text
    assert seen.page.html.count("<tr class='bad'>") == len(
        [number for number in range(12) if not holds([row for row in seen.result.rows if row.point.number == number])]
    )
    assert "latency.ttft_ms.p99 <= 60" in text


def test_equal_studies_give_equal_pages(seen: Seen) -> None:
    result = StudyResult(study=seen.result.study, rows=seen.result.rows)
    runs = [rerun(name, experiment) for name, experiment in choose(Points.of(result))]
    assert study_page(result, runs) == seen.html


def test_a_study_of_little_has_a_page_of_what_there_is(seen: Seen) -> None:
    plain = study_of(axes=("cluster.instances=1,2",), slos=())
    page = Page(study_page(StudyResult(study=plain, rows=())))
    assert page.figures == {}
    assert "0 of 4 runs are known" in page.text
    first = seen.result.rows[:2]
    some = Page(study_page(StudyResult(study=seen.result.study, rows=first)))
    assert "2 of 24 runs are known" in some.text
    assert list(some.figures) == ["front", "percentiles"]


def test_a_page_that_cannot_be_made_is_told_before_the_first_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = str(tmp_path / "page.html")
    commands = (
        ("sweep", "quickstart", "--axis", "cluster.instances=1,2"),
        ("plan", "quickstart", "--slo", "latency.ttft_ms.p50<=60"),
    )
    monkeypatch.setattr(InProcessRunner, "run", lambda *_: pytest.fail("a run was made"))
    rest = ("--store", "none", "--jobs", "1", "--html")
    for command in commands:
        run = CliRunner().invoke(cli, [*command, *rest, "-"])
        assert run.exit_code == ExitCode.USAGE
        assert run.stderr.endswith("Error: --html needs a file\n")
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    for command in commands:
        run = CliRunner().invoke(cli, [*command, *rest, page])
        assert run.exit_code == ExitCode.IO
        assert run.stderr.splitlines()[-1] == f"  = help: {install_command('html')}"
    assert list(tmp_path.iterdir()) == []
