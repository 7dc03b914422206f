"""Rows: their figures are those of the reports of single runs."""

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

import blis_tui
from blis_tui.cli.main import cli
from blis_tui.results.expectations import look_up
from blis_tui.study.study_rows import StudyResult
from blis_tui.study.sweep import Sweep
from tests.study.studies import SMALL, statuses, study_of


def test_points_in_order_and_within_each_its_seeds(result: StudyResult) -> None:
    assert [(row.point.number, row.seed) for row in result] == [(at, seed) for at in range(4) for seed in (3, 4)]
    assert statuses(result) == ["done", "done", "invalid", "invalid"] * 2
    assert result.complete
    assert (len(result), result[-1]) == (8, result.rows[7])


def test_figures_are_those_of_a_run_with_the_same_values(result: StudyResult, tmp_path: Path) -> None:
    row = result[4]
    assert row.coordinates == {"cluster.instances": 2, "model": "qwen3-14b"}
    values = {**SMALL, **row.coordinates}
    given = [argument for path, value in values.items() for argument in ("--set", f"{path}={json.dumps(value)}")]
    ran = CliRunner().invoke(cli, ["run", "quickstart", *given, "--seed", str(row.seed)])
    report = json.loads(ran.stdout)
    assert row.sha256 == report["meta"]["spec_sha256"]
    own = {name: value for name, value in row.figures.items() if not name.startswith("cost.")}
    assert own == {name: look_up(name, report) for name in own}
    assert {"duration_us", "requests.completed", "latency.tpot_ms.p95", "kv.preemptions"} <= own.keys()
    assert "slo" not in own  # which the report has none of


def test_a_row_says_whether_the_bounds_hold_and_which_does_not(result: StudyResult) -> None:
    assert [row.ok for row in result] == [False, False, None, None, True, True, None, None]
    assert re.fullmatch(r"latency\.ttft_ms\.p99 is .*, expected at most 25\.0", result[0].why)
    assert result[4].why == ""


def test_a_point_that_is_no_experiment_says_why(result: StudyResult) -> None:
    row = result[2]
    assert (row.sha256, row.figures) == ("", {})
    assert "does not fit" in row.why


def test_figures_that_are_asked_for_are_there_whatever_their_section() -> None:
    study = study_of({"cluster.instances": [1]}, objectives=[{"metric": "instances.0.steps"}])
    runs = Sweep(study)
    list(runs.run())
    assert isinstance(runs.result()[0].figures["instances.0.steps"], int)


def test_records_are_flat_and_alike(result: StudyResult) -> None:
    records = result.records()
    assert all(tuple(record) == result.columns() for record in records)
    assert [record["cluster.instances"] for record in records] == [1] * 4 + [2] * 4
    assert {type(value) for record in records for value in record.values()} <= {int, float, str, bool, type(None)}


@pytest.mark.parametrize("name", ["pandas", "polars"])
def test_records_make_a_data_frame(name: str, result: StudyResult) -> None:
    frames = pytest.importorskip(name)
    assert frames.DataFrame(result.records()).shape == (8, len(result.columns()))


def test_a_notebook_shows_a_table_that_needs_nothing_else(result: StudyResult) -> None:
    shown = result._repr_html_()
    assert shown.count("<tr>") == 1 + len(result)
    assert not re.search(r"<script|<style|http", shown)
    assert ">cost.gpus<" in shown
    assert 'right">2</td>' in shown
    assert "expected at most 25.0<" in shown


def test_a_notebook_shows_reports_escaped() -> None:
    report = blis_tui.run(
        blis_tui.load(
            "quickstart", set={"workload.requests": 20, "expect": [{"metric": "requests.completed", "max": 1}]}
        )
    )
    shown = report._repr_html_()
    assert "<caption" in shown
    assert "20 of 20 requests completed" in shown
    assert "FAIL requests.completed" in shown
    assert f"{report.latency.ttft_ms.p99:.4g}" in shown
    assert "<script" not in shown
