"""Servers that no fit has seen: what reports name is what is measured and simulated."""

from __future__ import annotations

import json
from statistics import median

import pytest

import blis_tui
from benchmarks.unseen import BEGIN, END, MEDIANS, PAGE, UnseenRun, medians, sizes, unseen_runs
from blis_tui.engine.records import FirstToken
from blis_tui.results.measured import unseen

SHIPPED: dict[str, dict[str, str | float]] = json.loads(MEDIANS.read_text())


def test_reports_name_the_medians_of_what_is_simulated() -> None:
    """DeepSeek R1 on SGLang: four runs, 600 requests in all."""
    runs = [run for run in unseen_runs() if run.server.model == "deepseek-v3"]
    found = [run.errors() for run in runs]
    assert medians(runs, found) == {"mla, sglang": SHIPPED["mla, sglang"]}
    name = f"sglang 0.5.9, 4 x b200, deepseek-r1 | 4 | {sizes([one['ttft'] for one in found])}"
    assert name in PAGE.read_text()


@pytest.mark.parametrize("name", SHIPPED)
def test_the_page_has_the_servers_that_reports_count(name: str) -> None:
    runs = [run for run in unseen_runs() if f"{run.server.family}, {run.server.rule}" == name]
    assert len(runs) == SHIPPED[name]["runs"]
    assert {run.short for run in runs} == {*str(SHIPPED[name]["servers"]).split(", ")}
    table = PAGE.read_text().split(BEGIN)[1].split(END)[0]
    for server in {run.name for run in runs}:
        assert f"| {server} | {len([run for run in runs if run.name == server])} |" in table


def test_each_load_counts_once_and_none_that_was_fitted() -> None:
    runs = list(unseen_runs())
    loads = [(run.name, run.row["isl"], run.row["osl"], run.row["concurrency"]) for run in runs]
    assert len(set(loads)) == len(loads)
    assert not [run for run in runs if run.row.get("trust") == "good"]


def test_errors_are_those_of_means() -> None:
    """Two users of Qwen3 235B: the run's own requests, without the report."""
    run = next(run for run in unseen_runs() if run.row["concurrency"] == "2" and run.row["osl"] == "500")
    simulation = blis_tui.Simulation(blis_tui.load(run.document()))
    waits: list[int] = []
    simulation.subscribe(FirstToken, lambda record: waits.append(record.ttft_us))
    simulation.run()
    assert len(waits) == 20
    expected = sum(waits) / len(waits) / 1000.0 / float(run.row["ttft_ms"]) - 1.0
    assert run.errors()["ttft"] == pytest.approx(expected)


def test_sizes() -> None:
    values = [-0.1, 0.2, 0.4]
    assert sizes(values) == f"23.3 / 20.0 ({100 * median(values):+.0f})"


def test_other_step_times_have_no_medians() -> None:
    run: UnseenRun = next(run for run in unseen_runs() if run.server.rule == "sglang")
    (pool,) = blis_tui.load(run.document()).pools
    assert unseen("operators", "sglang", pool.model) is not None
    assert unseen("roofline", "sglang", pool.model) is None
    assert unseen("operators", "blis", pool.model) is None
