"""Differences of documents, figures and requests."""

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from blis_tui.api import load, run
from blis_tui.model import Experiment
from blis_tui.results.report import Report
from blis_tui.results.request_log import RequestRow
from blis_tui.runs.comparison import (
    HIGHER,
    LOWER,
    Affected,
    ComparedFigure,
    Comparison,
    OutcomeCounts,
    Simulated,
    compare,
    direction_of,
    request_changes,
    rows,
    simulate,
)
from blis_tui.runs.comparison_text import WIDTH, comparison_text
from blis_tui.runs.documents import experiment_differences
from blis_tui.spec.library import names
from tests.recorded import REQUESTS

SMALL = """
apiVersion: blis/v1
kind: Experiment
metadata: {name: small}
model: qwen3-14b
hardware: h100
workload:
  requests: 40
  rate_per_s: 8
  clients:
    - {id: chat, input_tokens: {kind: constant, value: 64}, output_tokens: {kind: constant, value: 16}}
    - id: bulk
      share: 0.5
      slo_class: batch
      input_tokens: {kind: constant, value: 900}
      output_tokens: {kind: constant, value: 60}
"""


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "small.blis.yaml"
    path.write_text(SMALL)
    return path


def compared(path: Path, **changes: object) -> Comparison:
    a, b = load(path), load(path, set=changes)
    left, right = simulate(a, b)
    return compare(
        Simulated(experiment=a, source="small", report=left), Simulated(experiment=b, source="small", report=right)
    )


def client(name: str, share: float) -> dict[str, object]:
    return {"id": name, "share": share}


def workload(*clients: dict[str, object]) -> dict[str, object]:
    return {"workload": {"clients": list(clients)}}


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ({"seed": 1}, {"seed": 2}, [("seed", "changed", 1, 2)]),
        ({"a": {"b": 1}}, {"a": {}}, [("a.b", "removed", 1, None)]),
        ({}, {"a": 1}, [("a", "added", None, 1)]),
        (
            workload(client("x", 1), client("y", 1)),
            workload(client("y", 2)),
            [
                ("workload.clients[x]", "removed", client("x", 1), None),
                ("workload.clients[y].share", "changed", 1, 2),
            ],
        ),
        (
            workload(client("x", 1), client("y", 1)),
            workload(client("y", 1), client("x", 1)),
            [("workload.clients", "reordered", ["x", "y"], ["y", "x"])],
        ),
        (
            workload(client("x", 1), client("x", 2)),  # names that say nothing: by position
            workload(client("x", 1), client("x", 3)),
            [("workload.clients.1.share", "changed", 2, 3)],
        ),
        (
            {"policy": {"routing": {"scorers": [{"kind": "queue-depth", "weight": 1}]}}},
            {"policy": {"routing": {"scorers": [{"kind": "queue-depth", "weight": 2}]}}},
            [("policy.routing.scorers[queue-depth].weight", "changed", 1, 2)],
        ),
        (
            workload(client("x", 1)),
            {"workload": {"trace": {"file": "t.csv"}}},
            [
                ("workload.clients", "removed", [client("x", 1)], None),
                ("workload.trace", "added", None, {"file": "t.csv"}),
            ],
        ),
    ],
)
def test_documents(old: dict[str, Any], new: dict[str, Any], expected: list[tuple[str, str, object, object]]) -> None:
    differences = experiment_differences(old, new)
    assert [
        (difference.path, difference.kind, difference.old, difference.new) for difference in differences
    ] == expected


def test_comparing_leaves_the_documents_alone() -> None:
    old, new = workload(client("x", 1)), workload(client("x", 2))
    experiment_differences(old, new)
    assert (old, new) == (workload(client("x", 1)), workload(client("x", 2)))


@pytest.mark.parametrize(
    ("metric", "direction"),
    [
        ("latency.ttft_ms.p99", LOWER),
        ("slo_classes.batch.e2e_ms.mean", LOWER),
        ("instances.0.itl_ms.p50", LOWER),
        ("requests.completed", HIGHER),
        ("requests.rejected", LOWER),
        ("requests.timed_out", LOWER),
        ("tenants.acme.dropped_unservable", LOWER),
        ("throughput.output_tokens_per_s", HIGHER),
        ("kv.preemptions", LOWER),
        ("instances.3.kv.preempted_requests", LOWER),
        ("steady.requests_per_s", None),
        ("steady.output_tokens_per_s", None),
        ("kv.peak_used", None),
        ("requests.total", None),
        ("duration_us", None),
        ("tokens.output", None),
        ("instances.0.routed", None),
    ],
)
def test_directions(metric: str, direction: str | None) -> None:
    assert direction_of(metric) == direction


@pytest.mark.parametrize(
    ("a", "b", "change", "relative", "verdict"),
    [
        (10.0, 12.0, 2.0, 0.2, "worse"),
        (10.0, 8.0, -2.0, -0.2, "better"),
        (1000.0, 1009.0, 9.0, 0.009, ""),
        (1000.0, 1010.0, 10.0, 0.01, ""),
        (1000.0, 1011.0, 11.0, 0.011, "worse"),
        (10.0, 10.0, 0.0, 0.0, ""),
        (0.0, 5.0, 5.0, None, "worse"),
        (None, 5.0, None, None, ""),
        (5.0, None, None, None, ""),
    ],
)
def test_a_row(a: float | None, b: float | None, change: float | None, relative: float | None, verdict: str) -> None:
    row = ComparedFigure(metric="latency.ttft_ms.p99", a=a, b=b)
    assert (row.change, row.relative, row.verdict) == (change, relative, verdict)
    assert row.differs == (a != b)


@pytest.mark.parametrize(
    ("name", "changes", "counts", "rates"),
    [
        ("quickstart", {}, True, True),
        ("quickstart", {"cluster.instances": 1}, True, True),
        ("quickstart", {"workload.rate_per_s": 4.0}, True, False),
        ("quickstart", {"seed": 7}, True, False),
        ("quickstart", {"workload.requests": 50}, False, False),
        ("conversations", {"cluster.instances": 1}, True, True),  # where later arrivals follow answers
    ],
)
def test_what_follows_the_arrivals_is_judged_only_if_they_are_alike(
    name: str, changes: dict[str, object], counts: bool, rates: bool
) -> None:
    few: dict[str, object] = {"workload.requests": 60, "expect": []}
    a, b = (run(load(name, set={**few, **more})).to_dict() for more in ({}, changes))
    judged = {row.metric: row.judged for row in rows(a, b)}
    assert {one: judged[one] for one in ("requests.completed", "kv.preemptions")} == dict.fromkeys(
        ("requests.completed", "kv.preemptions"), counts
    )
    assert judged["throughput.requests_per_s"] is rates
    assert judged["latency.ttft_ms.p99"]


def test_every_number_of_a_report_is_a_row_in_the_reports_order(small: Path) -> None:
    report = run(load(small)).to_dict()
    found = [row.metric for row in rows(report, report)]
    assert found[:3] == ["requests.total", "requests.injected", "requests.rejected"]
    assert found.index("tokens.input") < found.index("duration_us") < found.index("latency.ttft_ms.mean")
    assert "slo_classes.batch.ttft_ms.p99" in found
    assert not [name for name in found if name.startswith(("meta", "expectations"))]


def row(name: str, e2e_us: int | None, *, arrival_us: int = 0, state: str = "completed") -> RequestRow:
    times = (arrival_us, arrival_us, arrival_us, None, None)
    return RequestRow(name, state, 0, *times, None, e2e_us, 10, 5, 0, 0, "standard", "", "", None, 5, "", 0, None)


def test_requests() -> None:
    a = [row("same", 1000), row("near", 1000), row("slow", 1000), row("fast", 1000), row("lost", 10)]
    b = [
        row("same", 1000),
        row("near", 1010),
        row("slow", 1011),
        row("fast", 900),
        row("lost", None, state="timed-out"),
    ]
    changes = request_changes([*a, row("moved", 5), row("a", 1)], [*b, row("moved", 5, arrival_us=7)])
    assert (changes.common, changes.compared, changes.slower, changes.faster) == (5, 4, 1, 1)
    assert (changes.other, changes.only_a, changes.only_b) == (1, 1, 0)
    assert changes.different_ends == (OutcomeCounts(a="completed", b="timed-out", count=1),)
    assert [one.request_id for one in changes.most_affected] == ["fast", "slow", "near"]
    assert changes.most_affected[0] == Affected(request_id="fast", b_request_id="fast", a_us=1000, b_us=900)


def test_a_known_change_gives_known_rows(small: Path) -> None:
    comparison = compared(small, **{"engine.kv_blocks": 61})
    assert [(difference.path, difference.old, difference.new) for difference in comparison.spec or ()] == [
        ("engine.max_model_len", 40960, 976),  # what auto stands for, with so few blocks
        ("engine.kv_blocks", 16220, 61),
    ]
    by_name = {metric.metric: metric for metric in comparison.metrics}
    assert (by_name["kv.blocks"].b, by_name["kv.preemptions"].verdict) == (61, "worse")
    assert by_name["latency.e2e_ms.p99"].verdict == "worse"
    assert "latency.e2e_ms.max" in {metric.metric for metric in comparison.shown_metrics(everything=False)}
    assert comparison.results_differ


def test_equal_experiments_are_equal(small: Path) -> None:
    comparison = compared(small)
    assert not comparison.results_differ
    assert isinstance(comparison.a, Simulated)
    assert isinstance(comparison.b, Simulated)
    assert comparison.a.report is comparison.b.report
    text = comparison_text(comparison)
    assert "specification: no differences" in text
    assert "report: no differences in" in text


def test_swapping_the_sides_swaps_everything(small: Path) -> None:
    there = compared(small, **{"cluster.instances": 2})
    back = compare(there.b, there.a)
    assert {(difference.path, difference.old, difference.new) for difference in there.spec or ()} == {
        (difference.path, difference.new, difference.old) for difference in back.spec or ()
    }
    assert {(metric.metric, metric.a, metric.b) for metric in there.metrics} == {
        (metric.metric, metric.b, metric.a) for metric in back.metrics
    }
    assert there.requests is not None
    assert back.requests is not None
    assert {one.request_id for one in there.requests.most_affected} == {
        one.request_id for one in back.requests.most_affected
    }
    assert there.requests.compared == back.requests.compared


def test_many_tenants_are_folded(small: Path) -> None:
    comparison = compared(small, **{"engine.kv_blocks": 61})
    tenants = tuple(ComparedFigure(metric=f"tenants.t{n}.completed", a=10, b=20 + n) for n in range(9))
    assert isinstance(comparison.a, Simulated)
    group = next(iter(comparison.a.report.slo_classes.values()))
    report = replace(comparison.a.report, tenants={"t0": group, "t1": group})
    with_tenants = replace(comparison, a=replace(comparison.a, report=report), metrics=(*comparison.metrics, *tenants))
    text = comparison_text(with_tenants)
    assert [f"tenants.t{n}." in text for n in range(9)] == [n > 5 for n in range(9)]
    assert "more metrics that differ" in text
    everything = comparison_text(with_tenants, everything=True)
    assert all(f"tenants.t{n}." in everything for n in range(9))


def test_another_name_alone_changes_no_result(small: Path) -> None:
    comparison = compared(small, **{"metadata.name": "other"})
    assert [difference.path for difference in comparison.spec or ()] == ["metadata.name"]
    assert not comparison.results_differ


@cache
def simulated(name: str) -> tuple[Experiment, Report]:
    experiment = load(name, set={"workload.requests": REQUESTS})
    return experiment, run(experiment)


@pytest.mark.slow
@pytest.mark.parametrize("name", names("Experiment"))
def test_no_line_is_wider_than_promised(name: str) -> None:
    left, right = (
        Simulated(experiment=one, source="some/long/path/" * 9, overrides=("x=1",) * 9, report=report)
        for one, report in (simulated("quickstart"), simulated(name))
    )
    for everything in (False, True):
        text = comparison_text(compare(left, right, notes=("a note " * 30,)), everything=everything)
        assert max(map(len, text.splitlines())) <= WIDTH


def test_a_later_call_of_a_session_is_the_same_one_although_it_comes_later_under_another_name() -> None:
    def call(name: str, session: str, number: int, arrival_us: int) -> RequestRow:
        return row(name, 1000, arrival_us=arrival_us)._replace(session_id=session, round_index=number)

    a = [call("request_0", "a", 0, 0), call("request_1", "b", 0, 50), call("request_2", "a", 1, 90)]
    b = [call("request_0", "a", 0, 0), call("request_1", "a", 1, 40), call("request_2", "b", 0, 51)]
    changes = request_changes(a, b)
    assert (changes.common, changes.other, changes.only_a, changes.only_b) == (2, 1, 0, 0), "b began at another time"
    assert [(one.request_id, one.b_request_id) for one in changes.most_affected] == []
    quicker = [b[0], b[1]._replace(e2e_us=b[1].e2e_us and b[1].e2e_us // 2), b[2]]
    assert [(one.request_id, one.b_request_id) for one in request_changes(a, quicker).most_affected] == [
        ("request_2", "request_1")
    ]
