"""How a workload gets its rate, and how long its runs are."""

from typing import Any

import pytest

import blis_tui
from blis_tui.base.errors import InputError
from blis_tui.runs.simulation import Simulation
from blis_tui.spec.study.study_records import Point
from blis_tui.study.planning.configuration import capacity_of, load_of
from blis_tui.study.study_rows import Row, Value, figures_of

P99 = ("latency.ttft_ms.p99",)


def resolved(**workload: Any) -> dict[str, Any]:
    document = {
        "apiVersion": "blis/v1",
        "kind": "Experiment",
        "metadata": {"name": "x"},
        "model": "qwen3-14b",
        "hardware": "h100",
        "workload": workload,
    }
    return dict(blis_tui.load(document).document)


USERS = {"kind": "closed-loop", "users": 3}
CLIENT = {
    "id": "a",
    "arrivals": {"kind": "poisson"},
    "input_tokens": {"kind": "constant", "value": 10},
    "output_tokens": {"kind": "constant", "value": 10},
}


def test_runs_last_as_long_as_asked_and_have_what_the_percentile_needs() -> None:
    load = load_of(resolved(requests=100, rate_per_s=8, clients=[CLIENT]), metrics=P99, duration_s=60.0, offered=None)
    assert load.at(None) == {"workload.requests": 2000}  # 20 beyond the 99th percentile
    assert load.at(5.0) == {"workload.rate_per_s": 5.0, "workload.requests": 2000}
    assert load.at(100.0) == {"workload.rate_per_s": 100.0, "workload.requests": 6000}


def test_what_the_workload_has_is_the_least() -> None:
    load = load_of(resolved(requests=5000, rate_per_s=8, clients=[CLIENT]), metrics=P99, duration_s=60.0, offered=None)
    assert load.at(5.0)["workload.requests"] == 5000


@pytest.mark.parametrize(
    ("workload", "why"),
    [
        ({"clients": [{**CLIENT, "arrivals": USERS}], "requests": 10}, "closed loop"),
        ({"stages": [{"rate_per_s": 2.0, "duration_s": 5.0}], "clients": [CLIENT]}, "stages"),
    ],
)
def test_a_rate_that_is_no_one_number_is_told(workload: dict[str, Any], why: str) -> None:
    load = load_of(resolved(**workload), metrics=P99, duration_s=60.0, offered=None)
    with pytest.raises(InputError, match=why):
        load.at(5.0)


def test_a_trace_is_played_faster() -> None:
    document: dict[str, Any] = dict(blis_tui.load("trace-replay").document)
    load = load_of(document, metrics=P99, duration_s=60.0, offered=4.0)
    assert load.at(6.0) == {"workload.trace.scale_rate": 1.5}


def test_conversations_have_a_rate_of_their_own() -> None:
    document: dict[str, Any] = dict(blis_tui.load("conversations").document)
    load = load_of(document, metrics=P99, duration_s=60.0, offered=None)
    assert load.of == "sessions"
    assert load.at(2.0) == {"workload.rate_per_s": 2.0, "workload.sessions": 120}


def test_a_number_of_requests_does_not_end_runs_that_count_sessions() -> None:
    """It would leave open whether bounds hold, at every size: the answer is that of sessions alone."""
    few: dict[str, Any] = {"cluster.instances": 1, "workload.requests": 150}
    document: dict[str, Any] = dict(blis_tui.load("conversations", set=few).document)
    load = load_of(document, metrics=P99, duration_s=60.0, offered=None)
    assert load.at(2.0) == {"workload.rate_per_s": 2.0, "workload.sessions": 120, "workload.requests": None}
    assert load.for_ever(2.0)["workload.requests"] is None
    plans = [
        blis_tui.plan("conversations", slos=["latency.ttft_ms.p90<=1000"], rate_per_s=1.0, set=limits)
        for limits in ({}, few)
    ]
    (alone, both) = [plan.best for plan in plans]
    assert alone is not None
    assert both is not None
    assert alone.size == both.size == 1
    totals = [best.found.mean("requests.total") for best in (alone, both) if best.found is not None]
    assert totals[0] == totals[1]
    assert min(total or 0.0 for total in totals) > 150


def test_a_rate_counts_what_its_clients_send() -> None:
    """Sessions beside requests are arrivals of both; users of a closed loop are in no rate."""
    lengths: dict[str, Any] = {"input_tokens": 100, "output_tokens": 10}
    plain, chat = {"id": "plain", **lengths}, {"id": "talk", **lengths, "session": {"turns": 3}}
    users = {"arrivals": {"kind": "closed-loop", "users": 2}}
    for clients, counted in [
        ([plain], "requests"),
        ([chat], "sessions"),
        ([plain, chat], "arrivals"),
        ([plain, {**chat, **users}], "requests"),
        ([{**plain, **users}, chat], "sessions"),
    ]:
        workload = {"workload": {"requests": 50, "rate_per_s": 2.0, "clients": clients}}
        document: dict[str, Any] = dict(blis_tui.load("quickstart", set=workload).document)
        assert load_of(document, metrics=P99, duration_s=60.0, offered=None).of == counted


def test_the_capacity_is_the_most_that_had_ended_by_some_time() -> None:
    at_once = {"workload.rate_per_s": 1e6, "workload.requests": 300}
    simulation = Simulation(blis_tui.load("quickstart", set=at_once))
    simulation.run()
    report = simulation.report()
    ends = sorted(row.arrival_us + row.e2e_us for row in simulation.log.table(simulation._cluster).plain())
    expected = max(300 * share / 100 / (ends[300 * share // 100 - 1] / 1e6) for share in (50, 90, 95))
    figures = figures_of(report.to_dict(), ())
    found = capacity_of(row_with(figures), "requests")
    assert found == pytest.approx(expected, rel=0.02)
    assert found is not None
    assert found > report.throughput.requests_per_s  # those that end last find half empty batches
    of_sessions: dict[str, Value] = {"throughput.requests_per_s": 12.0, "sessions.started": 10, "sessions.calls": 40}
    assert capacity_of(row_with(of_sessions), "sessions") == 3.0
    assert capacity_of(row_with({**of_sessions, "requests.total": 60}), "arrivals") == 6.0
    assert capacity_of(row_with({}), "requests") is None


def row_with(figures: dict[str, Value]) -> Row:
    return Row(point=Point(0, ()), seed=1, status="done", ok=True, figures=figures)
