"""The event that set a figure of the summary, found another way: in the records of a run of its own."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

import blis_tui
from blis_tui.debugger.debugger import Debugger
from blis_tui.debugger.history import Progress, run_to_stop
from blis_tui.debugger.summary import Setting, Summary, kind_of, setting, summarize, worst_of
from blis_tui.engine.records import RECORD_KINDS, Arrived, Completed, FirstToken, Preempted, Record, StepFinished
from blis_tui.model import Expectation
from blis_tui.runs.simulation import Simulation

SYNC = {"kind": "vllm-v1", "async_scheduling": False}


class Known:
    """A run: its summary, a debugger at its end, and its records."""

    def __init__(self, name: str, **settings: object) -> None:
        self.experiment = blis_tui.load(name, set={key.replace("__", "."): one for key, one in settings.items()})
        summary = summarize(self.experiment, None, lambda _: True)
        assert summary is not None
        self.summary: Summary = summary
        self.debugger = Debugger(self.experiment)
        run_to_stop(self.debugger.run())
        self.records: list[Record] = []
        simulation = Simulation(self.experiment)
        simulation.subscribe("all", self.records.append)
        simulation.run()

    def event_of(self, path: str) -> Setting:
        """The product's answer."""
        search = setting(self.debugger, self.summary, path)
        while True:
            try:
                assert isinstance(next(search), Progress)
            except StopIteration as end:
                found: Setting = end.value
                return found


@cache
def known(name: str) -> Known:
    settings: dict[str, dict[str, object]] = {
        "planned in its own event": {"workload__requests": 60, "policy__batching": SYNC},
        "planned ahead": {"workload__requests": 60},
    }
    return Known("kv-pressure", **settings[name])


@pytest.fixture(params=["planned in its own event", "planned ahead"])
def run(request: pytest.FixtureRequest) -> Known:
    return known(request.param)


def _at_rank(samples: list[tuple[int, int, str]], percent: int) -> tuple[int, str]:
    """The value and the request of the sample at a rank; of the two around it, the larger one."""
    rank = percent * (len(samples) - 1)
    value, _, name = sorted(samples)[rank // 100 + (rank % 100 > 0)]
    return value, name


@pytest.mark.parametrize(("statistic", "percent"), [("p50", 50), ("p95", 95), ("p99", 99), ("max", 100)])
def test_percentiles(run: Known, statistic: str, percent: int) -> None:
    firsts = {record.request_id: record for record in run.records if isinstance(record, FirstToken)}
    order = [record.request_id for record in run.records if isinstance(record, Arrived)]
    ttfts = [(first_token.ttft_us, order.index(name), name) for name, first_token in firsts.items()]
    value, name = _at_rank(ttfts, percent)
    assert run.event_of(f"latency.ttft_ms.{statistic}") == (firsts[name].event, name)
    if statistic == "max":
        assert run.summary.report.latency.ttft_ms.max == value / 1000
    ends = {record.request_id: record for record in run.records if isinstance(record, Completed)}
    _, name = _at_rank([(end.e2e_us, order.index(name), name) for name, end in ends.items()], percent)
    assert run.event_of(f"latency.e2e_ms.{statistic}") == (ends[name].event, name)


def test_counts(run: Known) -> None:
    last = {record.kind: record.event for record in run.records}
    preempted = [record.event for record in run.records if isinstance(record, Preempted)]
    assert len(preempted) == run.summary.report.kv.preemptions > 0
    assert run.event_of("kv.preemptions") == (preempted[-1], None)
    assert run.event_of("requests.completed") == (last["completed"], None)
    assert run.event_of("tokens.output") == (last["step"], None)
    assert run.event_of("duration_us") == (run.records[-1].event, None)
    assert run.event_of("latency.ttft_ms.mean") == (last["first-token"], None)


def test_the_peak_of_a_cache(run: Known) -> None:
    peak = run.summary.report.instances[0].kv.peak_used
    simulation, event = Simulation(run.experiment), 0
    pool = simulation.cluster.instances[0].pool
    while pool.total - pool.min_free < peak:
        simulation.run(max_events=1)
        event += 1
    assert run.event_of("instances.0.kv.peak_used") == run.event_of("kv.peak_used") == (event, None)


@pytest.mark.parametrize("statistic", ["p50", "max"])
def test_gaps_between_tokens(run: Known, statistic: str) -> None:
    """The step found is one in which its request gets a token, that long after the one before."""
    event, name = run.event_of(f"latency.itl_ms.{statistic}")
    assert name is not None
    simulation, ends = Simulation(run.experiment), dict[int, int]()
    tokens = 0
    simulation.subscribe(StepFinished, lambda step: ends.__setitem__(step.event, step.time_us + step.duration_us))
    times: dict[int, int] = {}
    last = next(record.event for record in run.records if isinstance(record, StepFinished) and name in record.completed)
    while not simulation.done:
        simulation.run(max_events=1)
        live = simulation.request(name)
        if simulation.events in ends and (simulation.events == last or (live and live.generated_tokens > tokens)):
            times[simulation.events] = ends[simulation.events]
        tokens = tokens if live is None else live.generated_tokens
    before = max(time for time in times if time < event)
    gap_us = times[event] - times[before] + run.summary.overheads_us[0]
    wanted = getattr(run.summary.report.latency.itl_ms, statistic)
    assert gap_us == round(wanted * 1000)


def test_the_worst_request_is_the_worst_by_what_is_bounded(run: Known) -> None:
    ends = [record for record in run.records if isinstance(record, Completed)]
    worst = max(ends, key=lambda end: end.e2e_us)
    assert run.summary.worst is not None
    assert (run.summary.worst.request, run.summary.worst.us) == (worst.request_id, worst.e2e_us)
    assert run.event_of("worst") == (worst.event, worst.request_id)
    bound = Expectation(metric="latency.ttft_ms.p99", max=500)
    report = replace(run.summary.report, experiment=replace(run.experiment, expect=(bound,)))
    firsts = {record.request_id: record.ttft_us for record in run.records if isinstance(record, FirstToken)}
    found = worst_of(report)
    assert found is not None
    assert (found.latency.name, found.us) == ("ttft", max(firsts.values()))


def test_what_a_warning_is_about(run: Known) -> None:
    found = [warning.id for warning in run.summary.warnings]
    blocked = run.event_of(f"warnings.{found.index('kv-cache')}").event
    stops = [why for (event, _), (why, _) in run.debugger.tape.stops_of(1, blocked).items() if event <= blocked]
    assert stops[-1] == "blocks"
    assert "blocks" not in stops[:-1]


def test_groups_and_expectations() -> None:
    run = Known("service-classes", workload__requests=60)
    for name, group in run.summary.report.slo_classes.items():
        if group.e2e_ms.max is None:
            continue
        own = {row.request_id: row for row in run.summary.report.rows if row.slo_class == name}
        ends = [record for record in run.records if isinstance(record, Completed) and record.request_id in own]
        slowest = max(ends, key=lambda end: end.e2e_us)
        assert run.event_of(f"slo_classes.{name}.e2e_ms.max") == (slowest.event, slowest.request_id)


def test_kinds_are_kinds() -> None:
    paths = ("kv.preemptions", "latency.ttft_ms.p95", "slo_classes.a.b.e2e_ms.max", "offered.requests_per_s")
    assert [kind_of(path) for path in paths] == ["preempted", "first-token", "completed", "arrived"]
    assert all(kind_of(path) in RECORD_KINDS for path in paths)
    assert kind_of("duration_us") == ""


def test_a_run_that_is_given_up_has_no_summary() -> None:
    assert summarize(blis_tui.load("quickstart", set={"workload.requests": 3000}), None, lambda _: False) is None
