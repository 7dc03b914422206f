"""The page about a run: each figure that is drawn, worked out another way."""

from __future__ import annotations

import csv
from html import unescape
from io import StringIO
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pytest
from plotly.graph_objects import Figure  # type: ignore[import-untyped]

import blis_tui
from blis_tui.engine.records import StepFinished
from blis_tui.output.tables import requests_csv
from blis_tui.pictures.arrivals import shown_rows, windows
from blis_tui.pictures.load_pictures import LoadObserver
from blis_tui.pictures.run_page import run_page
from blis_tui.runs.simulation import Simulation
from blis_tui.spec.load import load as load_experiment
from tests.pictures.pages import Page

if TYPE_CHECKING:
    from blis_tui.pictures.load_pictures import LoadTable
    from blis_tui.results.report import Report
    from blis_tui.results.request_log import RequestNumbers

TENANT = "<b>acme</b></script><!--"
"""A name that would break a page."""

PRESSED: Final[dict[str, object]] = {
    "workload.requests": 120,
    "expect": [{"metric": "latency.ttft_ms.p95", "max": 300}],
}


class Run(NamedTuple):
    simulation: Simulation
    report: Report
    load: LoadTable
    page: Page
    html: str
    steps: list[StepFinished]
    requests: list[dict[str, str]]

    def numbers(self, column: str) -> list[int]:
        """A column of the request file, without its empty cells."""
        return [int(row[column]) for row in self.requests if row[column]]


def simulate(name: str, changes: dict[str, object]) -> Run:
    simulation = Simulation(blis_tui.load(name, set=changes))
    observer = LoadObserver(simulation)
    steps: list[StepFinished] = []
    simulation.subscribe(StepFinished, steps.append)
    simulation.run()
    report = simulation.report()
    html = run_page(simulation, report, observer)
    rows = list(csv.DictReader(StringIO("".join(requests_csv(report.rows, report.rows.columns)))))
    load = observer.table(simulation, report.duration_us)
    return Run(simulation, report, load, Page(html), html, steps, rows)


@pytest.fixture(scope="module")
def pressed() -> Run:
    """One instance that preempts."""
    return simulate(
        "kv-pressure", {"workload.requests": 120, "expect": [{"metric": "latency.ttft_ms.p95", "max": 300}]}
    )


@pytest.fixture(scope="module")
def classes() -> Run:
    """Three classes and two tenants, after a warm-up, on nine instances."""
    changes: dict[str, object] = {
        "hardware.cost_per_hour_usd": 3,
        "workload.requests": 150,
        "workload.clients.0.tenant": TENANT,
        "workload.clients.1.tenant": "other",
        "warm_up_us": 1_000_000,
        "cluster.instances": 9,
        "expect": [{"metric": "requests.completed", "equals": 1}],
    }
    return simulate("service-classes", changes)


def test_what_a_run_costs_is_told_as_far_as_the_hardware_says(pressed: Run, classes: Run) -> None:
    text = " ".join(classes.page.text.split())
    hours = classes.report.duration_us / 3.6e9
    per_million = 9 * 3 * hours / sum(classes.numbers("output_tokens")) * 1e6
    assert "Accelerators that instances hold, on average over the run 9.00" in text
    assert "What these cost in an hour, in US dollars 27.00" in text
    assert f"US dollars for a million generated tokens {per_million:,.2f}" in text
    watts = classes.simulation.experiment.pools[0].hardware.peak_watts
    assert watts is not None
    assert f"What these take at most, in watts {9 * watts:,.2f}" in text
    assert "Watt-hours" not in text  # nobody says what an idle one takes
    assert "US dollars" not in pressed.page.text


def test_plotly_knows_every_setting_of_every_figure(pressed: Run, classes: Run) -> None:
    for page in (pressed.page, classes.page):
        for views in page.figures.values():
            for view in views:
                Figure(data=view["data"], layout=view["layout"])  # raises ValueError where it does not


def test_the_curves_are_the_percentiles_of_the_request_file(pressed: Run, classes: Run) -> None:
    for run in (pressed, classes):
        since = run.simulation.experiment.warm_up_us
        counted = [row for row in run.requests if int(row["arrival_us"]) >= since]
        for trace in run.page.figures["percentiles"][0]["data"]:
            group, axis = trace["name"], trace["yaxis"]
            if trace["mode"] != "lines" or axis == "y2":
                continue
            kind, _, name = group.partition(" ")
            column = {"class": "slo_class", "tenant": "tenant_id"}.get(kind, "state")
            wanted = unescape(name) if kind in ("class", "tenant") else "completed"
            members = [row for row in counted if row[column] == wanted]
            samples = samples_ms(members, {"y": "ttft", "y3": "tpot", "y4": "e2e"}[axis])
            percents = [float(one[1:]) for one in trace["customdata"]]
            assert trace["y"] == pytest.approx(np.percentile(samples, percents), abs=1e-4)
            assert 0.999 <= len(samples) * (100 - percents[-1]) / 100 < 2
            assert trace["x"] == pytest.approx([-np.log10(1 - percent / 100) for percent in percents], abs=1e-4)


def samples_ms(rows: list[dict[str, str]], latency: str) -> list[float]:
    if latency == "tpot":
        several = [row for row in rows if int(row["output_tokens"]) > 1]
        return [(int(row["e2e_us"]) - int(row["ttft_us"])) / (int(row["output_tokens"]) - 1) / 1000 for row in several]
    return [int(row[f"{latency}_us"]) / 1000 for row in rows]


def test_the_curves_go_through_the_figures_of_the_report(pressed: Run, classes: Run) -> None:
    for run in (pressed, classes):
        latency = run.report.latency
        traces = run.page.traces("percentiles")
        for axis, distribution in (
            ("y", latency.ttft_ms),
            ("y2", latency.itl_ms),
            ("y3", latency.tpot_ms),
            ("y4", latency.e2e_ms),
        ):
            trace = traces["all requests", axis]
            values = dict(zip(trace["customdata"], trace["y"], strict=True))
            for percent in (50, 90, 95):
                assert values[f"p{percent}"] == round(getattr(distribution, f"p{percent}"), 4)


def test_what_is_expected_of_a_percentile_is_marked(pressed: Run, classes: Run) -> None:
    mark = pressed.page.traces("percentiles")["expected at most", "y"]
    assert (mark["x"], mark["y"]) == ([pytest.approx(-np.log10(0.05), abs=1e-4)], [300])
    assert ("expected at most", "y") not in classes.page.traces("percentiles")


def test_every_request_is_drawn_where_it_arrived(pressed: Run) -> None:
    for axis, column in (("y", "ttft_us"), ("y2", "e2e_us")):
        points = pressed.page.traces("arrivals")["requests", axis]
        assert points["x"] == [number / 1e6 for number in pressed.numbers("arrival_us")]
        assert points["y"] == [number / 1e3 for number in pressed.numbers(column)]
        assert [name for name, _ in points["customdata"]] == [row["request_id"] for row in pressed.requests]
        line = pressed.page.traces("arrivals")["requests, p90", axis]
        length_us = round((line["x"][1] - line["x"][0]) * 1e6)
        for middle, value in zip(line["x"], line["y"], strict=True):
            there = [
                int(row[column]) / 1e3
                for row in pressed.requests
                if int(row["arrival_us"]) // length_us == int(middle * 1e6) // length_us
            ]
            assert value == (pytest.approx(np.percentile(there, 90), abs=1e-4) if there else None)


def test_of_many_requests_the_slowest_are_drawn(classes: Run) -> None:
    rows: list[RequestNumbers] = sorted(classes.report.rows.plain(), key=lambda row: row.arrival_us)
    assert shown_rows(rows, len(rows)) == rows
    some = shown_rows(rows, 30)
    assert len(some) <= 30
    assert some == sorted(some, key=lambda row: row.arrival_us)
    for measure in ("ttft_us", "e2e_us"):
        assert max(getattr(row, measure) for row in some) == max(getattr(row, measure) for row in rows)


def test_rates_add_up_to_the_requests_and_tokens(pressed: Run) -> None:
    end_s = pressed.report.duration_us / 1e6
    for name, axis, total in (
        ("arrived", "y", pressed.report.requests.total),
        ("completed", "y", pressed.report.requests.completed),
        ("output tokens", "y2", pressed.report.tokens.output),
    ):
        trace = pressed.page.traces("throughput")[name, axis]
        assert trace["x"][0] == 0
        assert trace["x"][-1] == end_s
        widths = [after - before for before, after in pairwise(trace["x"])]
        assert sum(width * rate for width, rate in zip(widths, trace["y"][:-1], strict=True)) == pytest.approx(
            total, rel=1e-4
        )
    before_us = round(trace["x"][7] * 1e6)
    completed = pressed.page.traces("throughput")["completed", "y"]
    done = sum(width * rate for width, rate in zip(widths[:7], completed["y"], strict=False))
    assert done == pytest.approx(
        len([number for number in pressed.numbers("completed_us") if number < before_us]), rel=1e-3
    )


@pytest.mark.parametrize("end_us", [0, 1, 39, 40, 41, 999_999, 12_345_678])
def test_windows_are_few_and_round(end_us: int) -> None:
    found = windows(end_us)
    length = found[0].end_us
    assert len(found) <= 41
    assert str(length).rstrip("0") in ("1", "2", "5")
    assert found[-1].start_us <= max(end_us - 1, 0) <= found[-1].end_us


def test_waiting_requests_are_those_that_the_instances_have(pressed: Run) -> None:
    other = Simulation(pressed.simulation.experiment)
    slice_us = pressed.load.slice_us
    waiting = np.zeros(len(pressed.load.instances[0].waiting))
    while (upcoming := other.peek()) is not None:
        now_us = other.now_us
        held = len(other.cluster.instances[0].waiting.items)
        while now_us < upcoming.time_us:
            until_us = min(upcoming.time_us, (now_us // slice_us + 1) * slice_us)
            waiting[now_us // slice_us] += held * (until_us - now_us)
            now_us = until_us
        other.step()
    trace = pressed.page.traces("load")["instance 0", "y"]
    widths = np.diff([*np.arange(len(waiting)) * slice_us, pressed.report.duration_us])
    assert trace["y"][:-1] == pytest.approx(waiting / widths, abs=1e-3)


def test_running_requests_run_from_their_first_step_to_their_last_token(classes: Run) -> None:
    # Nobody is preempted here, so the request file tells it.
    assert classes.report.kv.preemptions == 0
    slice_us = classes.load.slice_us
    for instance in classes.load.instances:
        rows = [row for row in classes.requests if int(row["instance"]) == instance.instance]
        assert max(each.peak for each in instance.running) == classes.report.instances[instance.instance].peak_running
        for number in range(0, len(instance.running), 10):
            start_us, end_us = number * slice_us, min((number + 1) * slice_us, classes.report.duration_us)
            total_us = 0
            for row in rows:
                inside = min(end_us, int(row["completed_us"])) - max(start_us, int(row["scheduled_us"]))
                total_us += max(inside, 0)
            assert instance.running[number].mean == pytest.approx(total_us / (end_us - start_us))


def test_kv_use_and_batch_tokens_are_those_of_the_steps(pressed: Run) -> None:
    slice_us = pressed.load.slice_us
    blocks = pressed.load.instances[0].kv_blocks
    kv_trace = pressed.page.traces("load")["instance 0", "y3"]
    tokens_trace = pressed.page.traces("load")["instance 0", "y4"]
    ends = [(step.time_us + step.duration_us, step.kv_used_blocks) for step in pressed.steps]
    assert max(kv_trace["customdata"]) == pytest.approx(100 * max(used for _, used in ends) / blocks, abs=1e-3)
    for number in (0, 5, 40, 90):
        start_us, end_us = number * slice_us, (number + 1) * slice_us
        used_us = 0
        for (since_us, used), (until_us, _) in pairwise([(0, 0), *ends, (pressed.report.duration_us, 0)]):
            used_us += used * max(0, min(until_us, end_us) - max(since_us, start_us))
        assert kv_trace["y"][number] == pytest.approx(100 * used_us / blocks / slice_us, abs=1e-3)
        there = [step for step in pressed.steps if start_us <= step.time_us < end_us]
        tokens = [step.decode_requests + sum(chunk.new_tokens for chunk in step.chunks) for step in there]
        assert tokens_trace["y"][number] == pytest.approx(np.mean(tokens), abs=1e-3)
        assert tokens_trace["customdata"][number] == max(tokens)


def test_many_instances_are_a_mean_and_a_row_each_of_a_heat_map(classes: Run) -> None:
    load = classes.page.traces("load")
    pool = next(name for name, _ in load)
    assert pool.endswith("mean of 9 instances")
    views = classes.page.figures["instances"]
    assert len(views) == 4
    for axis, view in zip(("y", "y2", "y3", "y4"), views, strict=True):
        (heat,) = view["data"]
        assert np.array(heat["z"]).shape == (9, len(load[pool, axis]["x"]) - 1)
        assert load[pool, axis]["y"][:-1] == pytest.approx(np.mean(heat["z"], axis=0), abs=2e-3)


def test_everything_that_the_report_says_stands_there(pressed: Run, classes: Run) -> None:
    for run in (pressed, classes):
        text = run.page.text
        for finding in run.report.warnings:
            assert finding.message in text
            assert finding.advice in text
        for verdict in run.report.expectations:
            assert verdict.metric in text
            assert verdict.wish() in text
        assert run.report.meta.spec_sha256 in text
        assert f"{run.report.latency.e2e_ms.p95:,.2f}" in text
        assert "measured servers like this" in text or "not measured" in text
    assert pressed.report.warnings
    assert "1 of 1 expectation does not hold" in classes.page.text
    assert "By tenant, latencies in milliseconds" in classes.page.text
    assert TENANT in classes.page.text


def test_its_settings_are_an_experiment_that_runs_the_same(pressed: Run) -> None:
    settings = pressed.page.text[pressed.page.text.index("apiVersion:") :]
    document = settings[: settings.index(" Provenance")]
    loaded = load_experiment("-", stdin_text=document)
    assert loaded.sha256 == pressed.simulation.experiment.sha256


def test_equal_runs_give_equal_pages_and_another_seed_another(pressed: Run) -> None:
    assert simulate("kv-pressure", PRESSED).html == pressed.html
    assert simulate("kv-pressure", {**PRESSED, "seed": 7}).html != pressed.html


def test_a_run_of_nothing_has_a_page() -> None:
    simulation = Simulation(blis_tui.load("quickstart"))
    observer = LoadObserver(simulation)
    page = Page(run_page(simulation, simulation.report(complete=False), observer))
    assert "The run was interrupted" in page.text
    assert "throughput" not in page.figures
