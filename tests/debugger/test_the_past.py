"""What the debugger says of a position can be read from the records up to it, in the middle of steps, too."""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pytest

import blis_tui
from blis_tui.debugger.debugger import Debugger
from blis_tui.debugger.history import run_to_stop
from blis_tui.debugger.lockstep import Lockstep
from blis_tui.debugger.state import LAST_PHASE, live
from blis_tui.debugger.why.breakdown import so_far_breakdown, ttft_breakdown
from blis_tui.debugger.why.lifespans import read_life
from blis_tui.engine.records import FirstToken
from blis_tui.runs.comparison import rows
from tests.debugger.record_reader import Reader, past_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from blis_tui.engine.records import Record

EXPERIMENTS = (
    "admission-control",
    "chunked-prefill",
    "kv-pressure",
    "service-classes",
    "shared-prefixes",
    "sjf",
    "steady-chat",
    "trace-replay",
    "unfair-tenants",
    "wide-experts",
    "vllm-preemption",
)
NIGHTLY = ("burst", "fcfs", "mixture-of-experts", "quickstart")
"""Those of the usual policy with nothing of their own, as ``trace-replay``."""
POSITIONS = 6
TIMES = 8
MOST_EVENTS = 1000
LATER = {"admission-control": 3000}
"""Where what is special happens only behind these."""


class Run:
    """A debugger that knows a whole run, and the records of a plain one."""

    def __init__(self, name: str) -> None:
        self.experiment = blis_tui.load(name)
        self.records: list[Record] = []
        simulation = blis_tui.Simulation(self.experiment)
        simulation.subscribe("all", self.records.append)
        simulation.run(max_events=LATER.get(name, MOST_EVENTS))
        self.debugger = Debugger(self.experiment)
        run_to_stop(self.debugger.seek(simulation.events))
        self.keeps_output = self.experiment.policy.batching.kind == "vllm-v1"

    @property
    def place(self) -> tuple[int, int | None]:
        """Where the debugger is."""
        return self.debugger.event, self.debugger.phase

    def positions(self) -> Iterator[None]:
        """Random places, each with all its phases."""
        places = random.Random(self.experiment.name)  # noqa: S311
        interesting = [
            record.event for record in self.records if record.kind in ("preempted", "first-token", "timed-out")
        ]
        events = places.sample(range(1, self.debugger.frontier), POSITIONS // 2)
        events += places.sample(interesting, min(len(interesting), POSITIONS // 2))
        for event in events:
            run_to_stop(self.debugger.seek(event - 1))
            while self.debugger.event < event or (self.debugger.phase or LAST_PHASE) < LAST_PHASE:
                self.debugger.step_phase()
                if self.debugger.event == event:
                    yield
            yield

    def read(self) -> Reader:
        """What the records say up to the debugger's position."""
        reader = Reader(self.keeps_output, plans_ahead=self.debugger.tape.plans_ahead)
        reader.read(past_of(self.records, self.debugger.event, self.debugger.settled))
        return reader


@pytest.mark.parametrize("name", [*EXPERIMENTS, *(pytest.param(name, marks=pytest.mark.nightly) for name in NIGHTLY)])
def test_every_figure_can_be_read_from_the_records_up_to_the_position(name: str) -> None:
    run = Run(name)
    middles = 0
    for _ in run.positions():
        middles += run.debugger.settled < run.debugger.event
        reader = run.read()
        _requests_stand_where_the_records_put_them(run, reader)
        _lives_end_where_the_records_end_and_add_up(run, reader)
        _first_tokens_and_the_slowest_are_those_of_the_records(run, reader)
    assert middles


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("kv-pressure", {"engine.kv_blocks": 900}),
        ("quickstart", {"workload.rate_per_s": 40.0}),
        ("vllm-preemption", {"policy": "sjf"}),
        ("admission-control", {"policy.admission": "always-admit"}),
    ],
)
def test_every_figure_of_a_comparison_can_be_read_from_the_records_up_to_it(
    name: str, change: dict[str, object]
) -> None:
    """On both sides, whatever the time: with nothing of what a step brings when it ends."""
    experiments = blis_tui.load(name), blis_tui.load(name, set=change)
    both = Lockstep(*experiments)
    told = [_records_of(experiment) for experiment in experiments]
    end_us = min(records[-1].time_us for records in told)
    places = random.Random(name)  # noqa: S311
    ahead = 0.0
    for time_us in sorted(places.sample(range(1, end_us), TIMES)):
        run_to_stop(both.seek_time(time_us))
        reports = [side.report().to_dict() for side in both.sides]
        shown = {row.metric: (row.a, row.b) for row in rows(reports[0], reports[1])}
        for at, (side, records) in enumerate(zip(both.sides, told, strict=True)):
            figures = _figures([record for record in records if record.event <= side.event], side)
            ahead += figures.pop("ahead", 0.0) or 0
            for metric, value in figures.items():
                assert shown[metric][at] == pytest.approx(value, abs=6e-4), (metric, side)
    assert ahead, "some first tokens are known before they come"


def _records_of(experiment: blis_tui.Experiment) -> list[Record]:
    records: list[Record] = []
    simulation = blis_tui.Simulation(experiment)
    simulation.subscribe("all", records.append)
    simulation.run(max_events=3000)
    return records


def _figures(records: list[Record], side: Debugger) -> dict[str, float | None]:
    """What the comparison shows of a side, by its records."""
    reader = Reader(side.experiment.policy.batching.kind == "vllm-v1", plans_ahead=side.tape.plans_ahead)
    reader.read(records)
    kinds = Counter(record.kind for record in records)
    # A preemption in the rules of BLIS takes the first token back, so what counts is what the reader has kept.
    came = {record.request_id: record.first_token_us for record in records if isinstance(record, FirstToken)}
    ttfts = [us / 1000 for name, us in reader.first_tokens if came[name] <= side.time_us]
    e2es = [us / 1000 for us in reader.completed.values()]
    seconds = side.time_us / 1e6
    times_us = [standing.token_times_us for standing in (*reader.live.values(), *reader.ended.values())]
    tokens = sum(map(len, times_us))
    # What a preemption takes back was waited for, too; what is kept goes on after a longer gap.
    gaps = [us / 1000 for us, decodes in reader.gaps_us for _ in range(decodes)]
    if reader.keeps_output:
        gaps = [(late - soon) / 1000 for one in times_us for soon, late in pairwise(one)]
    return {
        "ahead": float(len(reader.first_tokens) - len(ttfts)),
        "requests.completed": kinds["completed"],
        "requests.rejected": kinds["rejected"],
        "requests.timed_out": kinds["timed-out"],
        "requests.dropped_unservable": kinds["dropped"],
        "kv.preemptions": kinds["preempted"],
        "throughput.requests_per_s": kinds["completed"] / seconds,
        "throughput.output_tokens_per_s": tokens / seconds,
        **{
            f"latency.{latency}_ms.p{share}": float(np.percentile(values, share)) if values else None
            for latency, values in (("ttft", ttfts), ("e2e", e2es), ("itl", gaps))
            for share in (50, 99)
        },
    }


def _requests_stand_where_the_records_put_them(run: Run, reader: Reader) -> None:
    debugger = run.debugger
    seen = {request.request_id: request for request in live(debugger.moment().state)}
    assert seen.keys() == {name for name, standing in reader.live.items() if standing.phase != "leaving"}
    for name, request in seen.items():
        told = reader.live[name]
        expected = (told.phase, told.computed, told.generated)
        assert (request.phase, request.computed_tokens, request.generated_tokens) == expected, (name, run.place)
    name = next(iter(seen), "")
    assert debugger.request(name) == seen.get(name)


def _lives_end_where_the_records_end_and_add_up(run: Run, reader: Reader) -> None:
    debugger = run.debugger
    for name, told in reader.live.items():
        life = read_life(debugger.tape, name, debugger.event, debugger.settled)
        assert life is not None
        until_us = debugger.time_us
        if told.phase in ("prefill", "decode", "stalled"):
            until_us = max(until_us, told.known_until_us)
        elif told.phase == "leaving":
            until_us = told.known_until_us
        assert sum(span.duration_us for span in life.spans) == until_us - told.arrival_us, (name, run.place)
        assert so_far_breakdown(life, debugger.tape).total_us == until_us - told.arrival_us
        first = ttft_breakdown(life, debugger.tape)
        assert (None if first is None else first.total_us) == told.ttft_us, (name, run.place)


def _first_tokens_and_the_slowest_are_those_of_the_records(run: Run, reader: Reader) -> None:
    tape = run.debugger.tape
    assert tape.latencies.ttfts_us(run.debugger.event, 10**6, run.debugger.settled) == [
        us for _, us in reader.first_tokens
    ]
    found = tape.slowest(run.debugger.event, 10**6)
    assert [us for _, us in found] == sorted(reader.completed.values(), reverse=True)
    assert dict(found) == reader.completed
