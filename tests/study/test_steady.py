"""Verdicts on the long run: those of systems whose capacity is known, and of longer runs."""

from __future__ import annotations

import json
from copy import copy
from dataclasses import replace
from functools import cache
from statistics import fmean, pvariance
from typing import Any, Final

import pytest

import blis_tui
from blis_tui.model import Expectation
from blis_tui.results.stationary import Trend
from blis_tui.study import steady
from blis_tui.study.planning.configuration import MOST
from blis_tui.study.steady import SECTION, Steady, SteadyRun, steady_report

SET: Final = {
    "cluster.instances": 1,
    "workload.requests": MOST,
    "workload.clients.0.input_tokens": 500,
    "workload.clients.0.output_tokens": 100,
    "engine.max_num_seqs": 2,
    "latency": "roofline",
    "policy": "blis",
}
TTFT: Final = "latency.ttft_ms.p90"


@pytest.fixture
def _fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that goes on does so for fewer requests."""
    monkeypatch.setattr(steady, "_CHEAP_REQUESTS", 5_000)


@cache
def capacity() -> float:
    """Requests per second of two places that are never empty."""
    values = {**SET, "workload.requests": 400, "workload.rate_per_s": 1000}
    return blis_tui.run(blis_tui.load("quickstart", set=values)).throughput.requests_per_s


def decided(load: float, *bounds: Expectation, kind: Any = "long", **more: Any) -> dict[str, Any]:
    """What is said of a load, as a share of the capacity."""
    rate = load * capacity()
    experiment = blis_tui.load("quickstart", set={**SET, "workload.rate_per_s": rate, **more})
    asked = Steady(bounds=bounds, kind=kind, rate_per_s=rate, duration_s=90.0)
    return json.loads(steady_report(blis_tui.Simulation(experiment), asked))  # type: ignore[no-any-return]


def bound(metric: str = TTFT, **ends: float) -> Expectation:
    return Expectation(metric=metric, **ends)


def test_what_is_well_within_its_bounds_holds_before_the_cap() -> None:
    report = decided(0.5, bound(max=2000.0))
    assert report[SECTION]["verdict"] == "holds"
    assert report["requests"]["total"] < 2000
    assert report["latency"]["ttft_ms"]["p90"] < 0.85 * 2000


def test_what_is_far_beyond_its_bounds_fails_soon() -> None:
    report = decided(1.5, bound(max=2000.0))
    assert report[SECTION]["verdict"] == "fails"
    assert report[SECTION]["end_us"] < 120_000_000
    assert "of the requests have a TTFT above 2000 ms, 10 % may" in report[SECTION]["why"]


@pytest.mark.parametrize(
    "metric", ["latency.tpot_ms.p90", "latency.itl_ms.p90", "latency.itl_ms.mean", "tokens.output"]
)
def test_a_queue_that_grows_fails_whatever_is_bounded(metric: str) -> None:
    """Those who are served are served as well as ever."""
    section = decided(1.3, bound(metric, max=1e9))[SECTION]
    assert section["verdict"] == "fails"
    assert section["why"].startswith("more arrives than leaves: from the second to the last quarter of")
    assert section["in_system_after"] > 1.6 * section["in_system_before"]
    assert decided(0.8, bound(metric, max=1e9))[SECTION]["verdict"] == "holds"


@pytest.mark.usefixtures("_fewer")
def test_what_lies_at_its_bound_is_not_known() -> None:
    """The bound is what a long run has: half of the runs as long are above."""
    rate = 0.7 * capacity()
    values = {**SET, "workload.rate_per_s": rate, "workload.requests": 20_000, "warm_up_us": 100_000_000}
    figure = blis_tui.run(blis_tui.load("quickstart", set=values)).latency.ttft_ms.p90
    assert figure is not None
    section = decided(0.7, bound(max=figure))[SECTION]
    assert section["verdict"] == "not known"
    assert section["end_us"] >= 1_200_000_000
    assert abs(section["beyond"] - section["beyond_limit"]) <= 2 * section["beyond_error"]
    for factor, verdict in ((1.5, "holds"), (0.6, "fails")):
        assert decided(0.7, bound(max=factor * figure))[SECTION]["verdict"] == verdict


@pytest.mark.usefixtures("_fewer")
def test_sessions_that_build_up_are_waited_for() -> None:
    """Their later turns have longer prompts and come late: what arrives at first is not what is due."""
    rate = 0.26 * capacity()  # of sessions: 1.3 times the capacity, in calls
    document = blis_tui.load("quickstart", set={**SET, "workload.rate_per_s": rate}).document
    workload: Any = document["workload"]
    client = {**workload["clients"][0], "session": {"turns": 5, "think_time_ms": 20_000}}
    counted = {key: value for key, value in workload.items() if key != "requests"}
    talking = {**document, "workload": {**counted, "sessions": MOST, "clients": [client]}}
    asked = Steady(bounds=(bound("latency.itl_ms.p90", max=1e9),), kind="long", rate_per_s=rate, duration_s=90.0)
    section = json.loads(steady_report(blis_tui.Simulation(blis_tui.load(talking)), asked))[SECTION]
    assert section["verdict"] == "fails"
    assert section["open_sessions_after"] > 1.3 * section["open_sessions_before"]


def test_nearly_all_must_be_served() -> None:
    given_up = {"workload.clients.0.timeout_us": 1_500_000}
    section = decided(1.2, bound("latency.itl_ms.p90", max=1e9), **given_up)[SECTION]
    assert section["verdict"] == "fails"
    assert "of the requests are not served, 1 % may" in section["why"]


def test_other_figures_are_compared_with_the_report_of_the_stretch() -> None:
    rate = 0.5 * capacity()
    assert decided(0.5, bound("steady.requests_per_s", min=0.8 * rate))[SECTION]["verdict"] == "holds"
    section = decided(0.5, bound("steady.requests_per_s", min=1.2 * rate))[SECTION]
    assert section["verdict"] == "fails"
    assert "steady.requests_per_s is" in section["why"]


def test_a_quick_look_only_tells_what_breaks_at_once() -> None:
    assert decided(2.0, bound(max=500.0), kind="quick")[SECTION]["verdict"] == "fails"
    slow = decided(1.05, bound(max=5000.0), kind="quick")[SECTION]
    assert slow["verdict"] != "fails"
    assert slow["end_us"] <= 60_000_000
    assert decided(1.05, bound(max=5000.0))[SECTION]["verdict"] == "fails"


@pytest.mark.parametrize(("load", "more", "verdict"), [(6.0, {}, "fails"), (0.95, {"cv": 4.0}, "holds")])
def test_a_quick_look_also_tells_a_flood_from_a_burst(load: float, more: dict[str, float], verdict: str) -> None:
    """The bound is one that a full batch never breaks, however many wait for it."""
    arrivals = {"workload.clients.0.arrivals": {"kind": "gamma", **more}} if more else {}
    found = decided(load, bound("latency.itl_ms.p90", max=1e9), kind="quick", **arrivals)[SECTION]
    assert found["verdict"] == verdict


def test_the_same_run_has_the_same_bytes() -> None:
    assert decided(0.6, bound(max=1000.0)) == decided(0.6, bound(max=1000.0))


def test_gaps_before_the_stretch_do_not_count() -> None:
    """The prompts of a beginning in which all come at once are long over."""
    report = decided(0.5, bound(max=2000.0))
    section = report[SECTION]
    values = {**SET, "workload.rate_per_s": 0.5 * capacity()}
    moments = {"warm_up_us": section["start_us"], "horizon_us": section["end_us"]}
    again: Any = blis_tui.run(blis_tui.load("quickstart", set={**values, **moments})).to_dict()["latency"]
    assert report["latency"]["itl_ms"] == again["itl_ms"]


@cache
def looked_at() -> tuple[SteadyRun, Any]:
    """A run that holds before the cap, and its last look."""
    rate = 0.5 * capacity()
    simulation = blis_tui.Simulation(blis_tui.load("quickstart", set={**SET, "workload.rate_per_s": rate}))
    run = SteadyRun(simulation, Steady(bounds=(bound(max=2000.0),), kind="long", rate_per_s=rate, duration_s=90.0))
    assert run.decide()[SECTION]["verdict"] == "holds"  # type: ignore[index]
    return run, run._look()


def test_numbers_that_swing_ever_more_widely_are_not_settled() -> None:
    run, look = looked_at()
    assert run._early(look)[0] == "holds"
    assert run._early(replace(look, waves=Trend(100.0, 119.0, 9.0)))[0] == "holds"
    assert run._early(replace(look, waves=Trend(100.0, 121.0, 1.9)))[0] == "holds"
    assert run._early(replace(look, waves=Trend(100.0, 121.0, 2.1)))[0] == ""


@pytest.mark.parametrize(
    ("extensions", "z", "growth", "on"),
    [
        (0, 0.5, 0.0, True),
        (0, 1.1, 0.0, False),
        (0, -0.6, 0.4, True),
        (1, 0.5, 0.0, False),
        (1, -0.5, 0.0, True),
        (1, -0.5, 0.4, False),
        (2, -0.5, 0.0, False),
    ],
)
def test_an_undecided_run_goes_on_once_and_within_its_bounds_twice(
    extensions: int, z: float, growth: float, *, on: bool
) -> None:
    run, look = looked_at()
    look = replace(look, z=z, in_system=Trend(100.0, 100.0 * (1 + growth), 3.0))
    assert run._worth_more(look, extensions) == on
    caps = [run._asked.cap_s(look.calls_per_s, look.stay_s, many) for many in range(3)]
    assert caps[0] < caps[1] == caps[2] / 2


@pytest.mark.parametrize(
    ("calls_per_s", "stay_s", "end_s"),
    [
        (1.0, 1.0, 2000.0),
        (10.0, 1.0, 600.0),
        (100.0, 2.0, 300.0),
        (100.0, 5.0, 500.0),
        (100.0, 7.0, 600.0),
        (500.0, 0.5, 90.0),
        (500.0, 7.0, 120.0),
    ],
)
def test_an_undecided_run_ends_after_enough_time_requests_and_stays(
    calls_per_s: float, stay_s: float, end_s: float
) -> None:
    asked = Steady(bounds=(bound(max=2000.0),), kind="long", rate_per_s=calls_per_s, duration_s=90.0)
    assert asked.cap_s(calls_per_s, stay_s, 0) == end_s


@pytest.mark.parametrize(("stays", "verdict"), [(4.1, ""), (5.9, ""), (6.1, "holds")])
def test_a_transient_is_that_of_a_short_run(stays: float, verdict: str) -> None:
    """What MSER-5 finds in a longer one is noise."""
    run, look = looked_at()
    assert run._early(replace(look, stay_s=look.end_s / stays, transient=True))[0] == verdict
    assert run._early(replace(look, stay_s=look.end_s / stays, transient=False))[0] == "holds"


@pytest.mark.parametrize(("metric", "near", "far"), [("p90", 500, 100), ("p95", 1000, 200), ("p99", 5000, 1000)])
def test_bounds_that_are_far_from_broken_need_fewer_requests(metric: str, near: int, far: int) -> None:
    ttft, tpot = bound(f"latency.ttft_ms.{metric}", max=2000.0), bound("latency.tpot_ms.p50", max=30.0)
    asked = Steady(bounds=(ttft, tpot), kind="long", rate_per_s=1.0, duration_s=90.0)
    assert (asked.fewest(), asked.fewest({ttft.metric}), asked.fewest({tpot.metric})) == (near, far, near)


def test_sessions_in_waves_are_followed_for_longer() -> None:
    run, look = looked_at()
    assert not look.in_waves
    for stays, calm, wavy in ((3.9, "", ""), (4.1, "holds", ""), (7.9, "holds", ""), (8.1, "holds", "holds")):
        of_stays = replace(look, stay_s=look.end_s / stays)
        assert [run._early(replace(of_stays, in_waves=waves))[0] for waves in (False, True)] == [calm, wavy]


@pytest.mark.parametrize(("turns", "cv", "waves"), [(3, 6.0, True), (3, 1.0, False), (1, 6.0, False)])
def test_waves_are_of_sessions_that_swing_more_than_chance(turns: int, cv: float, *, waves: bool) -> None:
    """The variance of how many independent requests are in the system is their mean."""
    document = blis_tui.load("quickstart", set={**SET, "engine.max_num_seqs": 256}).document
    workload: Any = document["workload"]
    client = {**workload["clients"][0], "arrivals": {"kind": "gamma", "cv": cv}}
    if turns > 1:
        client |= {"session": {"turns": turns, "think_time_ms": 500}}
    counted = {key: value for key, value in workload.items() if key != "requests"} | {"clients": [client]}
    counted |= {"sessions" if turns > 1 else "requests": 2000, "rate_per_s": 12.0 / turns}
    simulation = blis_tui.Simulation(blis_tui.load({**document, "workload": counted}))
    run = SteadyRun(simulation, Steady(bounds=(bound(max=1e9),), kind="long", rate_per_s=12.0, duration_s=90.0))
    for ticks in (16, 32, 64):
        run._advance(ticks)
        run._moments[run._ticks] = simulation.since()
    late = run._in_system[run._half + 1 :]
    assert run._look().in_waves == waves
    assert (pvariance(late) > 5.0 * fmean(late)) == (waves or turns == 1)


@pytest.mark.parametrize(("waits", "verdict"), [(0.0, ""), (0.099, ""), (0.101, "fails")])
def test_growth_is_an_overload_only_where_requests_wait(waits: float, verdict: str) -> None:
    """A batch that fills grows like one, and so do few sessions that come in a burst."""
    run, look = looked_at()
    look = replace(look, gains=2.1)
    assert run._early(replace(look, in_system=Trend(10.0, 17.0, 7.0), waits=waits))[0] == verdict
    assert run._early(replace(look, in_system=Trend(10.0, 17.0, 7.0), waits=waits, gains=1.9))[0] == ""
    assert run._early(replace(look, in_system=Trend(10.0, 15.0, 7.0), waits=waits))[0] == ""


@pytest.mark.parametrize(("course", "sure"), [("grows", True), ("jumps", False), ("swings", False)])
def test_what_jumps_once_and_stays_high_has_not_surely_grown(course: str, *, sure: bool) -> None:
    """A few requests that stay long do that; batch means of the number in the system take it for growth."""
    run = copy(looked_at()[0])
    ticks = range(129)
    run._ticks = 128
    run._arrived = [10 * tick for tick in ticks]
    there = {
        "grows": [2.0 * tick + tick % 3 for tick in ticks],
        "jumps": [20.0 + 20 * (tick > 90) + tick % 3 for tick in ticks],
        "swings": [20.0 + 10 * (tick % 8 > 3) for tick in ticks],
    }
    run._in_system, run._started, run._sessions = there[course], [0] * 129, [0.0] * 129
    assert (run._gains() > 2.0) == sure


def test_who_waits_is_in_the_system_and_in_no_batch() -> None:
    """Two places are always taken under an overload: all the others wait."""
    rate = 1.3 * capacity()
    simulation = blis_tui.Simulation(blis_tui.load("quickstart", set={**SET, "workload.rate_per_s": rate}))
    run = SteadyRun(simulation, Steady(bounds=(bound(max=1e9),), kind="long", rate_per_s=rate, duration_s=90.0))
    run.decide()
    present = run._in_system[-1]
    assert run._waiting[-1] == present - 2
    assert looked_at()[1].waits < 0.5 < run._look().waits


@pytest.mark.parametrize(("z_longer", "verdict"), [(-3.1, "holds"), (-2.9, "")])
def test_bounds_must_hold_in_the_three_last_quarters_too(z_longer: float, verdict: str) -> None:
    """Each new look has another second half, one of which may have luck."""
    run, look = looked_at()
    assert look.z <= look.z_longer < -3.0
    assert run._early(replace(look, z_longer=z_longer))[0] == verdict
    assert run._at_cap(replace(look, z_longer=z_longer + 1.0), 0)[0] == (verdict or "not known")


@pytest.mark.parametrize(
    ("z", "extensions", "verdict"),
    [
        (2.1, 0, "fails"),
        (1.9, 0, "not known"),
        (-1.9, 0, "not known"),
        (-2.1, 0, "holds"),
        (2.1, 1, "fails"),
        (1.9, 1, "not known"),
        (-0.9, 1, "not known"),
        (-1.1, 1, "holds"),
    ],
)
def test_at_its_end_a_run_is_sure_by_two_errors_and_an_extended_one_that_it_holds_by_one(
    z: float, extensions: int, verdict: str
) -> None:
    run, look = looked_at()
    assert run._at_cap(replace(look, z=z, z_longer=z), extensions)[0] == verdict


@pytest.mark.parametrize(("load", "dispersion", "fewest"), [(0.5, 2.0, 100), (0.9, 2.0, 648), (1.2, 6.0, 7776)])
def test_near_the_knee_more_requests_are_needed(load: float, dispersion: float, fewest: int) -> None:
    """At least those of a percentile; with a dispersion of 2, the load of 648 is known to 0.056."""
    run, look = looked_at()
    run._asked = replace(run._asked, load=load)
    look = replace(look, dispersion=dispersion)
    assert run._fewest(look) == pytest.approx(fewest, abs=1)
    enough = run._arrived[-1] - run._arrived[run._half] >= fewest
    assert run._early(look)[0] == ("holds" if enough else "")
    assert [run._at_cap(look, many)[0] for many in (0, 1, 2)] == ["holds" if enough else "not known"] * 2 + ["holds"]


@pytest.mark.parametrize(("cv", "lengths", "wanted"), [(1.0, 500, 1.0), (2.0, 500, 4.0), (1.0, None, 2.0)])
def test_the_dispersion_is_that_of_gaps_and_of_lengths(cv: float, lengths: int | None, wanted: float) -> None:
    """For independent gaps and lengths, the sum of the squares of their coefficients of variation."""
    varied = {"kind": "exponential", "mean": 200, "max": 20_000}
    client = {"arrivals": {"kind": "gamma", "cv": cv}, "input_tokens": lengths or varied, "output_tokens": 5}
    document = blis_tui.load("quickstart", set={**SET, "engine.max_num_seqs": 256, "policy": "vllm-v1"}).document
    workload: Any = document["workload"]
    load = {**workload, "rate_per_s": 20.0, "clients": [{**workload["clients"][0], **client}]}
    simulation = blis_tui.Simulation(blis_tui.load({**document, "workload": load}))
    run = SteadyRun(simulation, Steady(bounds=(bound(max=1e9),), kind="long", rate_per_s=20.0, duration_s=90.0))
    run._advance(256)
    assert run._dispersion() == pytest.approx(wanted, rel=0.5)
