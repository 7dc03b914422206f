"""A run that is stopped would have broken its constraint; a run that is not comes out as if nobody had watched."""

from __future__ import annotations

import re
from dataclasses import replace
from math import inf, nextafter
from typing import TYPE_CHECKING, Final
from unittest.mock import patch

import pytest

from blis_tui.base.errors import StalledError
from blis_tui.model import SLO_CLASSES, Client, Expectation, PluginConfig, SloTarget, Stage
from blis_tui.results.expectations import judge, look_up
from blis_tui.results.stats import percentile_ms
from blis_tui.runs.simulation import Simulation
from blis_tui.spec.load import load
from blis_tui.spec.shipped import builtin
from blis_tui.study.bounds import allowed_above, max_requests
from blis_tui.study.task import EarlyStop, Watch
from blis_tui.workload.source import create_source
from tests.oracle.fleets import draw_fleet, draw_mortal_fleet
from tests.oracle.runs import check_many
from tests.oracle.sessions import draw_sessions
from tests.oracle.strategies import draw_overload, draw_scenario

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from random import Random

    from blis_tui.model import Experiment
    from tests.oracle.draws import Draw
    from tests.oracle.strategies import Scenario

_STATISTICS: Final = ("mean", "min", "p50", "p90", "p95", "p99", "max")
_COUNTS: Final = (
    "total",
    "injected",
    "rejected",
    "completed",
    "dropped_unservable",
    "timed_out",
    "length_capped",
    "lost",
)
_METRICS: Final = (
    *(
        f"latency.{name}_ms.{statistic}"
        for name in ("ttft", "e2e", "itl", "tpot", "scheduling_delay")
        for statistic in _STATISTICS
    ),
    *(
        f"{group}.{name}_ms.{statistic}"
        for group in ("slo_classes.critical", "tenants.red")
        for name in ("ttft", "e2e")
        for statistic in _STATISTICS
    ),
    *(f"requests.{name}" for name in _COUNTS),
    *(f"slo_classes.standard.{name}" for name in ("total", "completed", "timed_out")),
    "tenants.green.rejected",
    "tokens.output",
    "throughput.requests_per_s",
    "duration_us",
    "kv.preemptions",
    "kv.preempted_requests",
    "slo.attainment",
    "slo.goodput_rps",
    "slo.classes.critical.attainment",
    "slo.classes.batch.goodput_rps",
)
_MOST_EVENTS: Final = 20_000


def _expectations(random: Random, report: dict[str, object]) -> Iterator[Expectation]:
    """Around what came out: where a bound is exact, and where it is not."""
    for metric in _METRICS:
        value = look_up(metric, report)
        if not isinstance(value, int | float):
            value = random.choice((0, 1, 1000))
        around = (value, nextafter(value, -inf), nextafter(value, inf), value * random.uniform(0.4, 1.6), value - 1)
        match random.randrange(5):
            case 0:
                yield Expectation(metric=metric, min=random.choice(around))
            case 1:
                yield Expectation(metric=metric, equals=random.choice((value, value + 1)))
            case _:
                yield Expectation(metric=metric, max=random.choice(around))


def _simulation(scenario: Scenario, experiment: Experiment) -> Simulation:
    with patch("blis_tui.runs.simulation.create_source", return_value=scenario.source()):
        return Simulation(experiment, check="off")


def _described(scenario: Scenario, random: Random) -> Experiment:
    """The scenario's experiment with what a document would say about its workload."""
    limits = (None, 0.02, 0.1, 0.5)
    targets = {
        name: SloTarget(ttft_ms=random.choice(limits), tpot_ms=random.choice(limits), e2e_ms=random.choice(limits))
        for name in SLO_CLASSES
        if random.randrange(3)
    }
    tokens = PluginConfig(kind="constant", settings={"value": max(asked.output_tokens for asked in scenario.asked)})
    client = Client(id="any", share=1, arrivals=tokens, input_tokens=tokens, output_tokens=tokens)
    workload = replace(scenario.experiment.workload, clients=(client,))
    warm_up_us = random.choice((0, 0, 30, 150))
    return replace(scenario.experiment, slo_targets=targets, warm_up_us=warm_up_us, workload=workload)


class _Score:
    """What was found over many scenarios."""

    def __init__(self) -> None:
        self.broken = self.stopped = 0

    def check(self, scenario: Scenario, random: Random) -> None:
        """Nothing is said to be impossible that comes true, and watching changes nothing."""
        experiment = _described(scenario, random)
        whole = _simulation(scenario, experiment)
        try:
            whole.run(max_events=_MOST_EVENTS)
        except StalledError:
            return
        if not whole.done:
            return
        # As a document would say it: some more than come, or as many as there is time for.
        most = random.choice((None, whole.arrived, whole.arrived, whole.arrived + 2))
        experiment = replace(experiment, workload=replace(experiment.workload, requests=most))
        report = whole.report(verify=False).to_dict()
        verdicts = {expectation: judge(expectation, report) for expectation in _expectations(random, report)}
        simulation = _simulation(scenario, experiment)
        watches = {verdict: Watch(simulation, experiment, [verdict]) for verdict in verdicts}
        watches = {expectation: watch for expectation, watch in watches.items() if watch.follows}
        while not simulation.done:
            simulation.run(max_events=random.choice((2, 5, 20)))
            found = {
                expectation: broken for expectation, watch in watches.items() if (broken := watch.look()) is not None
            }
            for expectation, broken in found.items():
                assert not verdicts[expectation].ok, f"{broken.sentence}, but it is {verdicts[expectation].value}"
                assert broken.expectation is expectation
                del watches[expectation]
            self.stopped += len(found)
        assert simulation.report(verify=False).to_json() == whole.report(verify=False).to_json()
        self.broken += len([verdict for verdict in verdicts.values() if not verdict.ok])


_SCENARIOS: Final[dict[str, tuple[Callable[[Draw], Scenario], int]]] = {
    "clusters": (draw_fleet, 20),
    "failures": (draw_mortal_fleet, 14),
    "sessions": (draw_sessions, 14),
    "one instance": (draw_scenario, 16),
    "preemptions": (draw_overload, 12),
}


@pytest.mark.parametrize("name", _SCENARIOS)
def test_nothing_is_stopped_that_would_have_held(name: str) -> None:
    make, count = _SCENARIOS[name]
    score = _Score()
    check_many(count, make, score.check)
    assert score.stopped > 40, score.broken


def test_a_bound_that_is_off_by_one_is_found() -> None:
    def one_less(percent: int, count: int) -> int:
        return allowed_above(percent, count) - 1

    with patch("blis_tui.study.bounds.allowed_above", one_less), pytest.raises(AssertionError, match="but it is"):
        check_many(60, draw_fleet, _Score().check)


@pytest.mark.parametrize("percent", [0, 50, 90, 95, 99, 100])
def test_as_many_may_lie_above_a_bound_as_leave_its_percentile_below(percent: int) -> None:
    for count in range(1, 320):
        may = allowed_above(percent, count)
        assert percentile_ms([1] * (count - may) + [2] * may, percent) <= 2
        assert percentile_ms([1] * (count - may - 1) + [2] * (may + 1), percent) == 2 / 1000
        assert percentile_ms([1] * (count - may) + [2] * may, percent) < 2 / 1000


def _ttft_p99(limit_ms: float) -> Expectation:
    return Expectation(metric="latency.ttft_ms.p99", max=limit_ms)


def _overloaded() -> Experiment:
    return load("quickstart", overrides={"workload.rate_per_s": 200, "cluster.instances": 1, "policy": "vllm-v1"})


def test_an_overloaded_run_is_stopped_early_and_says_why() -> None:
    experiment = _overloaded()
    simulation, stop = Simulation(experiment), EarlyStop(experiment, [_ttft_p99(300)])
    assert not stop.run(simulation)
    assert stop.broken is not None
    assert stop.broken.event == simulation.events
    assert re.fullmatch(
        r"latency\.ttft_ms\.p99 will be above 300: \d+ of at most 500 requests had more, at most 5 may",
        stop.broken.sentence,
    )
    events = simulation.events
    simulation.run()
    assert events < simulation.events / 4
    assert not judge(_ttft_p99(300), simulation.report().to_dict()).ok


def test_a_run_that_keeps_to_its_constraints_comes_out_as_if_nobody_had_watched() -> None:
    experiment = load("quickstart")
    simulation, whole = Simulation(experiment), Simulation(experiment)
    stop = EarlyStop(experiment, [*experiment.expect, _ttft_p99(1000)])
    assert stop.run(simulation)
    assert whole.run()
    assert stop.broken is None
    assert simulation.done
    assert simulation.report().to_json() == whole.report().to_json()


def test_nobody_looks_where_nothing_is_known_before_the_end() -> None:
    experiment = load("quickstart")
    known_at_the_end = [
        Expectation(metric="latency.ttft_ms.mean", min=3),
        Expectation(metric="saturation.score", max=1),
    ]
    with patch.object(Watch, "look", side_effect=AssertionError):
        assert EarlyStop(experiment, known_at_the_end).run(Simulation(experiment))


def test_it_can_be_interrupted() -> None:
    experiment = load("quickstart", overrides={"workload.requests": 2000})
    simulation = Simulation(experiment)
    stop = EarlyStop(experiment, [_ttft_p99(1000)])
    assert not stop.run(simulation, go_on=lambda one: one.done)
    assert (stop.broken, simulation.done) == (None, False)
    simulation.stop()
    assert not stop.run(simulation)
    assert not simulation.done


@pytest.mark.parametrize(
    ("experiment", "most"),
    [("quickstart", 500), ("trace-replay", 120), ("conversations", 60 * 8)],
)
def test_how_many_requests_there_can_be(experiment: str, most: int | None) -> None:
    loaded = load(experiment)
    assert max_requests(loaded.workload, Simulation(loaded).cluster.source) == most


def test_how_many_there_can_be_where_nobody_says() -> None:
    quickstart = load("quickstart").workload
    stages = (Stage(rate_per_s=7.5, duration_s=3), Stage(rate_per_s=2.5, duration_s=1))
    endless = replace(quickstart, requests=None)
    staged = replace(endless, stages=stages, exact_stage_counts=True)
    source = create_source(staged, 1, builtin())
    assert max_requests(endless, create_source(endless, 1, builtin())) is None
    most = max_requests(staged, source)
    assert most is not None
    assert len(list(iter(source.next_request, None))) <= most <= 26
