"""What is expected of the course of a run, judged once more from the files that the run writes."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from itertools import product
from typing import TYPE_CHECKING, Final

import pytest

import blis_tui
from blis_tui.base.errors import SpecError
from blis_tui.model import CourseExpectation as Wish
from blis_tui.results.conditions.breakpoints import duration_us
from blis_tui.results.record_lines import record_line
from blis_tui.spec.load import load

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from blis_tui.results.expectations import Verdict

SHORT: Final[dict[str, object]] = {
    "workload.requests": 20,
    "workload.clients.0.output_tokens": {"kind": "gaussian", "mean": 100, "std_dev": 30, "min": 16, "max": 200},
    "engine.kv_blocks": 100,
}
PRESSURE: Final = blis_tui.load("kv-pressure", set=SHORT)
KINDS: Final = ("preempted", "completed", "scheduled", "first-token", "rejected")


class RecordedRun:
    """A run as its record file tells it: no condition's code is used to read it."""

    def __init__(self, experiment: blis_tui.Experiment) -> None:
        simulation = blis_tui.Simulation(experiment)
        lines: list[str] = []
        simulation.subscribe("all", lambda record: lines.append(record_line(record)))
        self.waiting: list[tuple[int, int, int]] = []
        """Event, time and how many wait behind it."""
        while not simulation.done:
            simulation.step()
            waiting = len(simulation.snapshot().instances[0].waiting)
            self.waiting.append((simulation.events, simulation.now_us, waiting))
        self.records = [json.loads(line) for line in lines]
        self.end = simulation.events, simulation.now_us

    def events_of(self, kind: str) -> list[tuple[int, int]]:
        """Event and time of each record of a kind."""
        return [(record["event"], record["time_us"]) for record in self.records if record["kind"] == kind]


@cache
def recorded() -> RecordedRun:
    return RecordedRun(PRESSURE)


def whole(experiment: blis_tui.Experiment) -> blis_tui.Simulation:
    simulation = blis_tui.Simulation(experiment)
    simulation.run()
    return simulation


def verdicts(wishes: Sequence[Wish], experiment: blis_tui.Experiment = PRESSURE) -> tuple[Verdict, ...]:
    """Of one run: each is judged for itself."""
    return tuple(whole(replace(experiment, expect=(), course=tuple(wishes))).report().expectations)


def verdict(wish: Wish) -> Verdict:
    (found,) = verdicts([wish])
    return found


def same(expected: Mapping[Wish, int | None]) -> None:
    """The event that breaks each wish, or None: in one run all of them, and some in runs of their own."""
    times = {number: time for number, time, _ in recorded().waiting}
    wishes = [*expected]
    alone = wishes[:: max(1, len(wishes) // 8)]
    for wish, found in [*zip(wishes, verdicts(wishes), strict=True), *((wish, verdict(wish)) for wish in alone)]:
        event = expected[wish]
        assert (found.ok, found.event) == (event is None, event), wish
        if event is not None:
            assert found.time_us == times[event], wish
            assert found.why


def test_always() -> None:
    same(
        {
            Wish(always=f"waiting <= {most}"): min(
                (event for event, _, waiting in recorded().waiting if waiting > most), default=None
            )
            for most in range(21)
        }
    )


def test_never() -> None:
    """Behind an event of the one kind none of the other within the time; the same event does not count."""
    expected = {
        Wish(never=kind): min((event for event, _ in recorded().events_of(kind)), default=None) for kind in KINDS
    }
    for kind, after, within_ms in product(KINDS, KINDS, (None, 0, 1, 20, 400)):
        broken = [
            event
            for event, time in recorded().events_of(kind)
            if any(
                before < event and (within_ms is None or time - then <= within_ms * 1000)
                for before, then in recorded().events_of(after)
            )
        ]
        wish = Wish(never=kind, after=after, within="" if within_ms is None else f"{within_ms}ms")
        expected[wish] = min(broken, default=None)
    same(expected)


def test_eventually() -> None:
    expected: dict[Wish, int | None] = {}
    for most, by_ms in product(range(13), (None, 1, 50, 500, 3000)):
        met = [time for _, time, waiting in recorded().waiting if waiting > most]
        wish = Wish(eventually=f"waiting > {most}", by="" if by_ms is None else f"{by_ms}ms")
        if met and (by_ms is None or min(met) <= by_ms * 1000):
            expected[wish] = None
        else:
            late = [event for event, time, _ in recorded().waiting if by_ms is not None and time > by_ms * 1000]
            expected[wish] = min(late, default=recorded().end[0])
    same(expected)


def test_eventually_behind_something() -> None:
    """Each event of the one kind is followed, or accompanied, by one of the other within the time."""
    expected: dict[Wish, int | None] = {}
    for kind, after, within_ms in product(KINDS, KINDS, (0, 2, 30, 300, 2000)):
        broken = []
        for before, then in recorded().events_of(after):
            following = [time for event, time in recorded().events_of(kind) if event >= before]
            if following and min(following) - then <= within_ms * 1000:
                continue
            late = [event for event, time, _ in recorded().waiting if event > before and time - then > within_ms * 1000]
            broken.append(min(late, default=recorded().end[0]))
        expected[Wish(eventually=kind, after=after, within=f"{within_ms}ms")] = min(broken, default=None)
    same(expected)


def test_count() -> None:
    bounds = {len(recorded().events_of(kind)) + more for kind in KINDS for more in (-1, 0, 1)} - {-1} | {0, 7, 70}
    wishes = [
        Wish(count=kind, max=float(most), min=None if least is None else float(least))
        for kind, most, least in product(KINDS, sorted(bounds), (None, *sorted(bounds)))
    ]
    for wish, found in zip(wishes, verdicts(wishes), strict=True):
        events = recorded().events_of(wish.count)
        assert wish.max is not None
        most = int(wish.max)
        assert found.value == len(events)
        assert found.ok == (len(events) <= most and len(events) >= (wish.min or 0)), wish
        assert found.event == (events[most][0] if len(events) > most else None), wish


def test_a_condition_is_counted_where_it_becomes_true() -> None:
    above = [waiting > 3 for _, _, waiting in recorded().waiting]
    rises = sum(now and not before for before, now in zip([False, *above], above, strict=False))
    assert verdict(Wish(count="waiting > 3", max=1000.0)).value == rises


def test_what_holds_before_the_first_event_is_not_overlooked() -> None:
    assert verdict(Wish(never="waiting == 0")).event == 1


SPEC: Final = """\
apiVersion: blis/v1
kind: Experiment
metadata: {name: mine}
extends: kv-pressure
expect:
  - {metric: requests.completed, equals: 20}
  - {never: preempted}
  - {eventually: waiting == 0, after: preempted, within: 30s}
  - {count: preempted, max: 1000}
"""


def test_they_are_part_of_the_report_behind_bounds_on_its_figures() -> None:
    report = whole(load("-", stdin_text=SPEC, overrides=SHORT)).report()
    first = min(event for event, _ in recorded().events_of("preempted"))
    assert [(expectation.metric, expectation.ok, expectation.event) for expectation in report.expectations] == [
        ("requests.completed", True, None),
        ("never preempted", False, first),
        ("eventually waiting == 0 within 30s after preempted", True, None),
        ("count(preempted)", True, None),
    ]
    assert not report.ok
    written = json.loads(report.to_json())["expectations"]
    assert "event" not in written[0]
    assert (written[1]["event"], written[1]["value"]) == (first, False)


def test_a_run_under_way_or_with_requests_of_its_own_is_not_judged() -> None:
    """It is judged as a whole, by repeating it."""
    experiment = load("-", stdin_text=SPEC, overrides=SHORT)
    simulation = blis_tui.Simulation(experiment)
    simulation.run(max_events=100)
    assert [expectation.metric for expectation in simulation.report().expectations] == ["requests.completed"]
    at_once = whole(experiment).report().to_json()
    simulation.run()
    assert simulation.report().to_json() == at_once
    resumed = blis_tui.Simulation(experiment)
    resumed.run(max_events=200)
    other = blis_tui.Simulation(experiment)
    other.restore(resumed.checkpoint())
    other.run()
    assert other.report().to_json() == at_once


@pytest.mark.parametrize("bound", ["min: 1", "max: 3", "by: 1s", "within: 1s", "after: completed"])
@pytest.mark.parametrize("subject", ["always: queue < 10", "never: preempted", "eventually: completed", "count: step"])
def test_keys_that_do_not_go_together_are_errors(subject: str, bound: str) -> None:
    allowed: dict[str, Sequence[str]] = {"never": ["after"], "eventually": ["after", "by"], "count": ["min", "max"]}
    text = SPEC + f"  - {{{subject}, {bound}}}\n"
    if bound.partition(":")[0] in allowed.get(subject.partition(":")[0], ()):
        load("-", stdin_text=text)
        return
    with pytest.raises(SpecError) as caught:
        load("-", stdin_text=text)
    assert {diagnostic.code for diagnostic in caught.value.diagnostics} == {"BLIS2070"}


@pytest.mark.parametrize(("text", "us"), [("1s", 1e6), (".5ms", 500.0), ("250us", 250.0), ("1.5s", 1.5e6)])
def test_a_duration(text: str, us: float) -> None:
    assert duration_us(text) == us


def test_no_duration() -> None:
    with pytest.raises(ValueError, match="`3` is not a time with a unit"):
        duration_us("3")
