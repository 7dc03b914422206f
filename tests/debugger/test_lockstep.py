"""Two runs moved together: nothing they do may depend on how the reader moved."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from itertools import zip_longest
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import blis_tui
from blis_tui.debugger.history import run_to_stop
from blis_tui.debugger.lockstep import (
    NOT_ARRIVED,
    Lockstep,
    RequestStatus,
    RequestStatuses,
    differing_requests,
    figure_pairs,
)
from blis_tui.engine.records import Record, StepFinished
from blis_tui.results.record_lines import record_dict

if TYPE_CHECKING:
    from blis_tui.debugger.lockstep import Search
    from blis_tui.runs.divergence import Divergence

SHORT = {"workload.requests": 30}
SHORTER: dict[str, object] = {
    "workload.requests": 7,
    "workload.clients.0.output_tokens": {"kind": "constant", "value": 24},
    "engine.kv_blocks": 80,
}
"""Where every step is taken and taken back."""
PAIRS: dict[str, tuple[dict[str, object], dict[str, object]]] = {
    "same": ({}, {}),
    "more memory": ({}, {"engine.kv_blocks": 2000}),
    "shorter": ({}, {"workload.requests": 5}),
    "another seed": ({}, {"seed": 5}),
    "two instances": ({}, {"cluster.instances": 2}),
}


@cache
def loaded(changes: str) -> blis_tui.Experiment:
    return blis_tui.load("kv-pressure", set=json.loads(changes))


def experiment(**changes: object) -> blis_tui.Experiment:
    return loaded(json.dumps({**SHORT, **{name.replace("__", "."): value for name, value in changes.items()}}))


def lockstep(pair: str, also: dict[str, object] | None = None) -> Lockstep:
    left, right = (
        {name.replace(".", "__"): value for name, value in {**(also or {}), **side}.items()} for side in PAIRS[pair]
    )
    return Lockstep(experiment(**left), experiment(**right))


def position(both: Lockstep) -> tuple[int, int]:
    return both.left.event, both.right.event


def records(experiment: blis_tui.Experiment) -> list[Record]:
    simulation = blis_tui.Simulation(experiment)
    found: list[Record] = []
    simulation.subscribe("all", found.append)
    simulation.run()
    return found


def searched(search: Search) -> Divergence | None:
    while True:
        try:
            next(search)
        except StopIteration as stop:
            result: Divergence | None = stop.value
            return result


@pytest.mark.parametrize("pair", PAIRS)
def test_steps_follow_the_clock_and_back_undoes_each(pair: str) -> None:
    both = lockstep(pair, SHORTER)
    visited = [position(both)]
    while any(moved := both.step()):
        times = [side.time_us for side in both.sides]
        before = visited[-1]
        assert position(both) == (before[0] + moved[0], before[1] + moved[1])
        for side, went, other in zip(both.sides, moved, reversed(both.sides), strict=True):
            if went:  # nobody has anything left to do before what was done last
                upcoming = other.upcoming()
                assert upcoming is None or upcoming.time_us >= side.time_us
        assert both.time_us == max(times)
        visited.append(position(both))
    assert both.at_end
    for wanted in reversed(visited[:-1]):
        run_to_stop(both.back())
        assert position(both) == wanted
    assert both.at_start
    assert run_to_stop(both.back()).reason == "start"


@pytest.mark.parametrize("pair", PAIRS)
def test_a_run_looked_at_on_the_way_is_where_single_steps_would_be(pair: str) -> None:
    both, by_hand = lockstep(pair, SHORTER), lockstep(pair, SHORTER)
    visited = {position(by_hand)}
    while any(by_hand.step()):
        visited.add(position(by_hand))
    move = both.run()
    looks = 0
    for _ in move:
        looks += 1
        assert position(both) in visited
    assert looks > 1
    assert position(both) == position(by_hand)
    assert [side.digest() for side in both.sides] == [side.digest() for side in by_hand.sides]


@pytest.mark.parametrize("pair", PAIRS)
def test_the_way_to_a_time_that_is_not_known_is_that_of_single_steps(pair: str) -> None:
    both, by_hand = lockstep(pair, SHORTER), lockstep(pair, SHORTER)
    visited = {position(by_hand)}
    while any(by_hand.step()):
        visited.add(position(by_hand))
    positions = [position(both) for _ in both.to_end()]
    assert len(positions) > 1
    assert visited.issuperset(positions)
    assert position(both) == position(by_hand)
    run_to_stop(both.seek_time(both.time_us // 2))
    assert position(both) < position(by_hand)
    run_to_stop(both.to_end())
    assert position(both) == position(by_hand)


@given(st.lists(st.integers(0, 4_000_000), min_size=1, max_size=6))
@settings(max_examples=15)
def test_a_time_is_the_same_place_wherever_one_comes_from(times: list[int]) -> None:
    both = lockstep("more memory")
    for time_us in times:
        run_to_stop(both.seek_time(time_us))
        for side in both.sides:
            assert side.time_us <= time_us
            upcoming = side.upcoming()
            assert upcoming is None or upcoming.time_us > time_us
            fresh = blis_tui.Simulation(side.experiment)
            fresh.run(time_us)
            assert side.digest() == fresh.digest()


@pytest.mark.parametrize("pair", PAIRS)
def test_the_first_divergence_is_where_the_whole_streams_part(pair: str) -> None:
    both = lockstep(pair)
    streams = [records(side.experiment) for side in both.sides]
    parting = next(((old, new) for old, new in zip_longest(*streams) if old != new), None)
    divergence = searched(both.first_divergence())
    assert both.at_start
    if parting is None:
        assert pair == "same"
        assert divergence is None
        return
    assert divergence is not None
    left, right = parting
    assert (divergence.left, divergence.right) == (left and record_dict(left), right and record_dict(right))
    assert divergence.event == min(record.event for record in parting if record is not None)
    place = streams[0].index(left) if left is not None else len(streams[0])
    assert divergence.before == tuple(map(record_dict, streams[0][max(0, place - 3) : place]))
    run_to_stop(both.seek(divergence.event))
    assert left is None or left in both.left.records_of(divergence.event)
    assert right is None or right in both.right.records_of(divergence.event)


def test_fields_are_compared_only_between_records_of_one_kind() -> None:
    divergence = searched(lockstep("another seed").first_divergence())
    assert divergence is not None
    assert "time_us" in {field.path for field in divergence.fields}
    assert "request_id" not in {field.path for field in divergence.fields}
    assert replace(divergence, right=None).fields == []
    step = next(record for record in records(experiment()) if isinstance(record, StepFinished))
    assert replace(divergence, right=record_dict(step)).fields == []


def test_the_end_of_a_step_is_the_next_one_of_either_side() -> None:
    both = lockstep("two instances")
    run_to_stop(both.seek_time(1_500_000))
    start = position(both)
    run_to_stop(both.step_batch())
    here = position(both)
    assert any(side.tape.is_step(side.event) for side in both.sides)
    run_to_stop(both.back())
    while position(both) != start:
        moved = [side.event for side in both.sides]
        run_to_stop(both.back())
        changed = [side for side, event in zip(both.sides, moved, strict=True) if side.event != event]
        assert not any(side.tape.is_step(side.event + 1) for side in changed)
    run_to_stop(both.step_batch())
    assert position(both) == here


def test_beyond_the_ends_is_the_ends() -> None:
    both = lockstep("shorter")
    assert run_to_stop(both.to_end()).reason == "end"
    assert both.left.event > both.right.event
    assert run_to_stop(both.run()).reason == "end"
    assert both.step() == (False, False)
    assert run_to_stop(both.to_start()).reason == "start"
    assert position(both) == (0, 0)
    assert run_to_stop(both.to_end()).reason == "end"
    assert both.at_end


def test_figures_are_paired_by_instance() -> None:
    both = lockstep("two instances")
    run_to_stop(both.seek_time(2_000_000))
    left, right = (side.quick_moment().after for side in both.sides)
    pairs = {(pair.instance, pair.name): pair for pair in figure_pairs(left, right)}
    assert {index for index, _ in pairs} == {0, 1}
    running = pairs[0, "running"]
    assert (running.left, running.right) == (left.instances[0].running_count, right.instances[0].running_count)
    assert running.delta == right.instances[0].running_count - left.instances[0].running_count
    missing = pairs[1, "kv"]
    assert missing.left is None
    assert missing.delta is None
    assert missing.differs


def test_requests_stand_where_the_simulation_says() -> None:
    both = lockstep("more memory")
    run_to_stop(both.to_end())
    run_to_stop(both.seek_time(2_400_000))
    left, right = (RequestStatuses(side.tape, side.quick_moment().after) for side in both.sides)
    ended = {row.request_id: row for row in both.right.report().rows}
    pairs = list(differing_requests(left, right))
    assert pairs
    for pair in pairs:
        assert pair.left != pair.right
        row = ended[pair.name]
        if row.state == "completed":
            assert pair.right == RequestStatus("completed", row.e2e_us or 0)
        else:
            assert pair.right.state in ("waiting", "prefill", "decode", "stalled", "in transit")
    assert left.standing("nobody") == NOT_ARRIVED
    run_to_stop(both.seek_time(500_000))
    late = both.left.tape.names()[-1]
    assert RequestStatuses(both.left.tape, both.left.quick_moment().after).standing(late) == NOT_ARRIVED


@pytest.mark.parametrize("session", [{}, {"calls": [{"id": "ask", "parallel": 2}, {"id": "sum", "after": ["ask"]}]}])
def test_calls_of_sessions_are_paired_with_themselves_whatever_their_names(session: dict[str, object]) -> None:
    """With other answers' times, later calls arrive in another order, and carry each other's names."""
    short: dict[str, object] = {"workload.sessions": 8, "latency": "roofline", "policy": "blis"}
    short |= {f"workload.clients.0.session.{key}": value for key, value in session.items()}
    left, right = (blis_tui.load("conversations", set={**short, "cluster.instances": count}) for count in (3, 1))
    both = Lockstep(left, right)
    run_to_stop(both.to_end())
    rows = [{row.request_id: row for row in side.report().rows} for side in both.sides]
    renamed = 0
    for time_us in range(1_000_000, both.time_us, 1_000_000):
        run_to_stop(both.seek_time(time_us))
        statuses = [RequestStatuses(side.tape, side.quick_moment().after) for side in both.sides]
        for pair in differing_requests(*statuses):
            if not pair.right_name:
                assert NOT_ARRIVED in (pair.left, pair.right)
                continue
            request, other = rows[0][pair.name], rows[1][pair.right_name]
            assert (request.session_id, request.round_index) == (other.session_id, other.round_index)
            assert pair.right == statuses[1].standing(pair.right_name)
            renamed += pair.name != pair.right_name
    assert renamed


def test_requests_behind_the_window_of_a_snapshot_are_known_from_the_tape() -> None:
    both = lockstep("same")
    run_to_stop(both.seek_time(2_000_000))
    snapshot = both.left.simulation.snapshot()
    narrow = both.left.simulation.snapshot(0)
    full, blind = RequestStatuses(both.left.tape, snapshot), RequestStatuses(both.left.tape, narrow)
    assert full.live
    assert not blind.live
    for name in full.live:
        state = full.standing(name).state
        assert blind.standing(name).state == ("running" if state in ("prefill", "decode", "stalled") else state)


def test_a_request_that_only_one_side_has_is_found_there() -> None:
    both = lockstep("shorter")
    late = blis_tui.Simulation(both.left.experiment)
    late.run()
    name = late.report().rows[20].request_id
    assert run_to_stop(both.seek_request(name)).reason != "unknown"
    arrival_us = late.report().rows[20].arrival_us
    assert both.left.time_us == arrival_us
    assert both.right.time_us <= arrival_us
    here = position(both)
    assert run_to_stop(both.seek_request("nobody")).reason == "unknown"
    assert position(both) == here
