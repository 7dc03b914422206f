"""The panes of clusters: each figure against what the records say, and what the keys do."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

import pytest

import blis_tui
from blis_tui.base.units import bytes_text, percent_text, span_text, time_text
from blis_tui.cluster.records import (
    Dispatched,
    Held,
    InstanceChanged,
    RoutingDecision,
    Scaled,
    ScalingDecided,
    TransferFinished,
    TransferStarted,
)
from blis_tui.debugger.debugger import Debugger
from blis_tui.debugger.history import run_to_stop
from blis_tui.debugger.why.explanation import Subject, event_ref, instance_ref
from blis_tui.engine.records import Completed, Prefilled, Queued, Rejected, Routed, Scheduled, StepFinished
from blis_tui.runs.simulation import Simulation
from blis_tui.tui.boxes import Rows, RowsBox
from blis_tui.tui.drawing.life_line import STATE_STYLES
from blis_tui.tui.panes import fleet as fleet_pane
from blis_tui.tui.panes import gateway as gateway_pane
from blis_tui.tui.panes import panes_of
from blis_tui.tui.panes import router as router_pane
from blis_tui.tui.panes.events import event_line
from blis_tui.tui.panes.fleet import MEASURES, VERDICTS, fleet_lines, level, value_text
from blis_tui.tui.panes.gateway import gateway_lines
from blis_tui.tui.panes.instances import instances_lines
from blis_tui.tui.panes.router import decision_of, router_lines
from tests.cluster.fleets import GATEWAY, fleet
from tests.tui.debugging import NARROW, debugging, experiment
from tests.tui.pane_harness import OnePane, text_of, view_at
from tests.tui.screens import screen_text

if TYPE_CHECKING:
    from blis_tui.engine.records import Record


def made(name: str, event: int) -> Debugger:
    debugger = Debugger(fleet(name))
    run_to_stop(debugger.seek(event))
    return debugger


def records_until(debugger: Debugger, event: int) -> list[Record]:
    return [record for one in range(1, event + 1) for record in debugger.records_of(one)]


@cache
def streamed(name: str) -> tuple[Record, ...]:
    """The records of a run by itself."""
    simulation = Simulation(fleet(name))
    records: list[Record] = []
    simulation.subscribe("all", records.append)
    simulation.run()
    return tuple(records)


def test_ranks_are_told_with_their_replica_their_dummy_batches_and_how_long_they_wait() -> None:
    """By the records: steps of the replica are the times at which any of its ranks starts one.

    A moment at which all ranks have records of the latest, when some have had dummy batches.
    """
    wide = {
        "model": "qwen3-30b-a3b",
        "latency": {"kind": "operators"},
        "cluster.instances": 2,
        "engine": {"data_parallel": 2, "expert_parallel": True},
        "policy.batching": "vllm-v1",
        "workload.requests": 12,
    }
    debugger = Debugger(blis_tui.load("quickstart", set=wide))
    starts: list[set[int]] = [set() for _ in range(4)]
    for event in range(1, 500):
        run_to_stop(debugger.seek(event))
        for record in debugger.records_of(event):
            if isinstance(record, StepFinished):
                starts[record.instance].add(record.time_us)
        latest = [max(start, default=-1) for start in starts]
        if event >= 420 and latest[0] == latest[1] and latest[2] == latest[3]:
            break
    assert latest[0] == latest[1]
    assert latest[2] == latest[3]
    assert starts[0] != starts[1]
    assert starts[2] != starts[3]
    for instance, (replica, rank) in enumerate([(0, 0), (0, 1), (1, 0), (1, 1)]):
        view = view_at(debugger, instance=instance)
        steps = starts[2 * replica] | starts[2 * replica + 1]
        dummies = f"dummy batches {percent_text(len(steps - starts[instance]), len(steps))}"
        for lines in (fleet_lines(view, 100, 30), instances_lines(view, 100)):
            text = " ".join(text_of(list(lines)).split())
            assert f"instance {instance} (rank {rank} of replica {replica})" in text
            assert dummies in text
            assert "waited for ranks" in text
        assert "4 ranks of 2 replicas" in text_of(list(fleet_lines(view, 100, 30)))


@pytest.fixture(scope="module")
def split() -> Debugger:
    return made("SPLIT", 700)


@pytest.fixture(scope="module")
def weighted() -> Debugger:
    return made("WEIGHTED", 1781)


@pytest.fixture(scope="module")
def growing() -> Debugger:
    return made("GROWING", 8600)


@pytest.fixture(scope="module")
def gateway() -> Debugger:
    return made("GATEWAY", 700)


# ---- which there are ----


def test_panes_appear_where_there_is_something_to_show() -> None:
    names = ("kv-pressure", "quickstart", "GATEWAY", "autoscaling")
    more = {name: [pane.id for pane in panes_of(experiment(name))][9:] for name in names}
    assert more == {
        "kv-pressure": ["summary", "values", "moments"],
        "quickstart": ["fleet", "router", "summary", "values", "moments"],
        "GATEWAY": ["fleet", "router", "gateway", "summary", "values", "moments"],
        "autoscaling": ["fleet", "router", "summary", "values", "moments"],
    }


async def test_the_keys_of_panes_that_are_not_there_do_nothing() -> None:
    async with debugging(at="100", size=NARROW) as here:
        await here.press("0", "R", "W", "u")
        assert here.screen.arrangement.active == "events"


async def test_the_selected_instance_is_that_of_the_other_panes() -> None:
    async with debugging("SPLIT", at="700", requests=None, at_once=True) as here:
        await here.press("0", "right", "right", "right")
        assert here.session.selection.instance == 2
        await here.press("enter")
        assert here.screen.arrangement.active == "instances"
        assert "instance 2 (3 of 5)" in str(here.screen.query_one("#instances").border_subtitle)
        await here.press("0", "u", "u")
        assert here.session.selection.measure == "kv"


async def test_every_pane_about_one_instance_follows_the_selected_one() -> None:
    async with debugging("WEIGHTED", at="1781", requests=None, at_once=True) as here:
        for keys, instance in ((("0", *["right"] * 12, "left"), 10), (("R", "up"), None)):
            await here.press(*keys)
            chosen = here.session.selection.instance
            assert instance in (None, chosen)
            await here.press("2")
            assert f"instance {chosen} (" in str(here.screen.query_one("#instances").border_subtitle)
            for key, text in (("5", f"│ instance {chosen}  "), ("4", f"▸i{chosen} "), ("0", f"▸{chosen:>3} ")):
                await here.press(key)
                assert text in screen_text(here.app)
            await here.press("R")
            router = here.screen.query_one("#router", RowsBox)
            assert router.copied(path=False) == str(chosen)


# ---- the fleet ----


def test_the_map_shows_what_the_records_say(split: Debugger) -> None:
    view = view_at(split, 700)
    queued, in_flight = Counter[int](), Counter[int]()
    for record in records_until(split, 700):
        if isinstance(record, Routed):
            in_flight[record.instance] += 1
        elif isinstance(record, Queued):
            queued[record.instance] += 1
        elif isinstance(record, Scheduled):
            queued[record.instance] -= 1
        elif isinstance(record, Completed | Prefilled):
            in_flight[record.instance] -= 1
    for instance in view.moment.state.instances:
        assert MEASURES["queue"].read(instance) == queued[instance.index]
        assert instance.in_flight == in_flight[instance.index]
        assert MEASURES["load"].read(instance) == in_flight[instance.index]  # queue and batch are among them
        assert in_flight[instance.index] >= queued[instance.index] + instance.running_count
    text = text_of(fleet_lines(view, 78, 20))
    for instance in view.moment.state.instances:
        assert f"{instance.index:>3} " in text
        assert value_text(instance, MEASURES["load"]) in text
    assert "prefill  2 instances" in text
    assert "decode  3 instances" in text


def test_transfers_under_way_are_those_that_started_and_have_not_ended(split: Debugger) -> None:
    seen = 0
    under_way: dict[str, TransferStarted] = {}
    for event in range(1, 260):
        for record in split.records_of(event):
            if isinstance(record, TransferStarted):
                under_way[record.request_id] = record
            elif isinstance(record, TransferFinished):
                del under_way[record.request_id]
        view = view_at(split, event)
        moving = view.moment.state.transfers
        assert [transfer.request_id for transfer in moving] == list(under_way)
        text = text_of(fleet_lines(view, 78, 30))
        for record in under_way.values():
            seen += 1
            assert record.request_id in text
            assert bytes_text(record.bytes) in text
            assert span_text(view.moment.time_us - record.time_us) in text
        assert ("in progress" in text) == bool(under_way)
    assert seen


@pytest.mark.parametrize("height", [8, 60])
def test_every_instance_has_a_cell_and_every_cell_its_instance(weighted: Debugger, height: int) -> None:
    """What is under a column, and what the cursor stops at, in the same order."""
    subjects: list[Subject] = []
    stops: list[Subject] = []
    for fleet_line in fleet_lines(view_at(weighted), 40, height):
        stops += fleet_line.subjects()
        for column in range(fleet_line.draw().cell_length):
            subject = fleet_line.under(column).subject
            if subject is not None and subject not in subjects:
                subjects.append(subject)
    assert subjects == stops == [instance_ref(index) for index in range(12)]


def test_cells_are_as_high_as_the_figure(weighted: Debugger) -> None:
    instances = view_at(weighted).moment.state.instances
    for measure in MEASURES.values():
        top = max(8, *map(measure.read, instances))
        for instance in instances:
            value, whole = measure.read(instance), top if measure.whole is None else measure.whole(instance)
            high = level(instance, measure, top)
            assert (high == 0) == (value == 0)
            assert value == 0 or (high - 1) * whole < value * 8 <= high * whole


async def test_arrows_and_clicks_select_instances(weighted: Debugger) -> None:
    app = OnePane(RowsBox.of(fleet_pane.PANE), view_at(weighted))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("right", "right", "down", "left")
        await pilot.pause()
        assert [message.instance for message in app.picked] == [0, 1, 7, 6]
        lines = app.query_one(Rows).lines
        line, column = next(
            (at, column)
            for at, one in enumerate(lines)
            for column in range(70)
            if one.under(column).subject == instance_ref(7)
        )
        await pilot.click(offset=(column + 2, line + 1))
        await pilot.pause()
        assert app.picked[-1].instance == 7


async def test_arrows_stop_at_the_edges_of_the_map_and_cross_from_pool_to_pool(split: Debugger) -> None:
    app = OnePane(RowsBox.of(fleet_pane.PANE), view_at(split, instance=0))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("left", "up")
        await pilot.pause()
        assert app.picked == []
        first, second = split.experiment.pools
        await pilot.press("down")
        await pilot.pause()
        assert [message.instance for message in app.picked] == [first.instances]
        await pilot.press("up")
        await pilot.pause()
        assert app.picked[-1].instance == 0
        await pilot.press(*["right"] * (first.instances + second.instances - 1))
        await pilot.pause()
        assert app.picked[-1].instance == first.instances + second.instances - 1


STAGES_AT = (900, 2790, 8400)
"""Where instances of GROWING load, warm up, are dead, drain, and are gone."""


@pytest.mark.parametrize("event", STAGES_AT)
def test_stages_of_life_are_those_of_the_records(growing: Debugger, event: int) -> None:
    states = dict.fromkeys(range(growing.experiment.instances), "active")
    for record in (one for one in streamed("GROWING") if one.event <= event):
        if isinstance(record, InstanceChanged):
            states[record.instance] = record.state
    view = view_at(growing, event)
    assert {instance.index: instance.life for instance in view.moment.state.instances} == states
    counts = Counter(states.values())
    for height, wide in ((8, False), (40, True)):
        text = text_of(fleet_lines(view, 78, height))
        assert f"{counts['active']} active" in text
        for life, stage in STATE_STYLES.items():
            assert (f"{stage.glyph} {counts[life]} {stage.word}" in text) == (life in counts)
            signs = [index for index, state in states.items() if state == life]
            if wide:
                assert all(f"{index:>3} {stage.glyph} " in text for index in signs)
    there = len(states) - counts["terminated"]
    assert f"{there} instances  mean" in text_of(fleet_lines(view, 100, 40))


def test_the_selected_instance_tells_its_stage(growing: Debugger) -> None:
    text = text_of(fleet_lines(view_at(growing, 900, instance=0), 100, 40))
    assert text.startswith("instance 0  ✕ failed  load ")
    text = text_of(instances_lines(view_at(growing, 900, instance=0), 100))
    assert text.startswith("instance 0  ✕ failed  step ")
    assert "idle: no request is waiting or running. Failed: it receives no requests." in text


def test_each_instance_tells_how_many_transfers_it_takes_part_in(split: Debugger) -> None:
    under_way: dict[str, TransferStarted] = {}
    seen = 0
    for event in range(1, 260):
        for record in split.records_of(event):
            if isinstance(record, TransferStarted):
                under_way[record.request_id] = record
            elif isinstance(record, TransferFinished):
                del under_way[record.request_id]
        counts = Counter(
            place for transfer in under_way.values() for place in (transfer.instance, transfer.decode_instance)
        )
        view = view_at(split, event)
        for instance in view.moment.state.instances:
            assert MEASURES["transfers"].read(instance) == counts[instance.index]
        text = text_of(fleet_lines(view, 78, 30))
        for index in counts.keys() - {-1}:
            seen += 1
            value = value_text(view.moment.instance(index), MEASURES["load"])
            assert re.search(rf"{index:>3} \S {value} →", text)
    assert seen


@pytest.mark.parametrize("event", [300, 1300, 7790, 8400])
def test_the_autoscaler_tells_its_latest_look_and_what_took_effect(growing: Debugger, event: int) -> None:
    records = [record for record in streamed("GROWING") if record.event <= event]
    scaling = [each for each in records if isinstance(each, ScalingDecided)][-1]
    text = text_of(fleet_lines(view_at(growing, event), 130, 40))
    assert f"{time_text(scaling.time_us)} {VERDICTS[scaling.verdict]}" in text
    assert scaling.reason in text
    supply = scaling.supply_tokens + scaling.pending_tokens
    assert f"{percent_text(scaling.demand_tokens, supply)} of supply  supply {supply:,} tokens" in text
    assert "up above 80 %  down below 40 %" in text
    effects = [f"{each.change:+} at {time_text(each.time_us)}" for each in records if isinstance(each, Scaled)]
    match = re.search("took effect  (.*)", text)
    assert (match.group(1).split("  ") if match else []) == effects[::-1][:5]


def test_the_autoscaler_tells_its_latest_look_at_each_role() -> None:
    pools = [{"name": role, "role": role, "instances": 1} for role in ("prefill", "decode")]
    cluster = {"disaggregation": {}, "pools": pools, "autoscaler": {"interval_us": 100_000, "max_instances": 3}}
    made = {"cluster": cluster, "engine.kv_blocks": 200, "workload.requests": 40}
    debugger = Debugger(blis_tui.load("quickstart", set=made))
    run_to_stop(debugger.seek(300))
    looks = [record for record in records_until(debugger, 300) if isinstance(record, ScalingDecided)][-2:]
    assert looks[0].event == looks[1].event
    text = text_of(fleet_lines(view_at(debugger, 300), 150, 40))
    for scaling in looks:
        count = f" {scaling.instances} in {scaling.pool}" if scaling.instances else ""
        assert f"{time_text(scaling.time_us)} {VERDICTS[scaling.verdict]}{count}: {scaling.reason}" in text
        supply = scaling.supply_tokens + scaling.pending_tokens
        assert f"{percent_text(scaling.demand_tokens, supply)} of supply" in text


def test_an_autoscaler_that_has_not_looked_yet_says_so(growing: Debugger) -> None:
    assert "It has not evaluated yet." in text_of(fleet_lines(view_at(growing, 10), 130, 40))


async def test_everything_can_be_shown_while_instances_come() -> None:
    """Also where the run is known only as far as it has been played: nobody counts on instances of the start alone."""
    async with debugging("GROWING", at="76", requests=None, at_once=True) as here:
        for key, event in (("4", "500"), ("0", "700"), ("2", "1100"), ("5", "1300"), ("R", "2000")):
            await here.press(key, "g")
            await here.type(event)
        assert len(here.debugger.tape.profiles) == 6
        await here.press("0", "right", "g")
        await here.type("8400")
        assert "draining" in screen_text(here.app)


async def test_what_the_autoscaler_saw_can_be_selected(growing: Debugger) -> None:
    app = OnePane(RowsBox.of(fleet_pane.PANE), view_at(growing, 8400))
    async with app.run_test(size=(120, 30)) as pilot:
        await pilot.pause()
        event = growing.tape.latest_of("scaling-decided", 8400)
        lines = app.query_one(Rows).lines
        line = next(at for at, one in enumerate(lines) if one.subject == event_ref(event))
        await pilot.click(offset=(5, line + 1))
        await pilot.pause()
        assert app.picked[-1].event == event


# ---- the router ----


def test_the_decision_is_that_of_the_record(weighted: Debugger) -> None:
    view = view_at(weighted, 1781)
    record = next(one for one in view.moment.records if isinstance(one, RoutingDecision))
    assert decision_of(view) == record
    text = text_of(router_lines(view, 130))
    rows = [line.split() for line in text.splitlines() if line[:1] in "✓ " and line[2:3].isdigit()]
    for row, each in zip(rows, record.top, strict=True):
        figures = [word for word in row if "█" not in word and "░" not in word]
        chosen, *rest = figures if each.instance == record.instance else ["", *figures]
        assert bool(chosen) == (each.instance == record.instance)
        index, score, *parts = rest[:5]
        assert (int(index), float(score)) == (each.instance, round(each.score_ppm / 1e6, 3))
        assert [float(part) for part in parts] == [round(value / 1e6, 2) for value in each.scores_ppm]
        assert [int(word) for word in rest[5:8]] == [each.waiting, each.running, each.in_flight]
        assert float(rest[-1]) == round(each.true_score_ppm / 1e6, 3)
    assert "regret 0.000 by what it saw" in text
    assert record.true_regret_ppm is not None
    assert f"{record.true_regret_ppm / 1e6:.3f} by the true state" in text


def test_other_decisions_are_found_by_request_and_by_event(weighted: Debugger) -> None:
    lives = {name: weighted.tape.life(name, 1781) for name in weighted.tape.names()}
    routed = {entry.event: name for name, life in lives.items() for entry in life if entry.what == "routed"}
    events = sorted(routed)
    latest = decision_of(view_at(weighted, 1790))
    assert latest is not None
    assert latest.event == max(event for event in events if event <= 1790)
    chosen = decision_of(view_at(weighted, 1790, request=routed[events[3]]))
    assert chosen is not None
    assert (chosen.event, chosen.request_id) == (events[3], routed[events[3]])
    assert "pause to see" in text_of(router_lines(view_at(weighted, 1790, playing=True), 78))
    assert "No request has been routed yet." in text_of(router_lines(view_at(weighted, 0), 78))


async def test_candidates_can_be_selected(weighted: Debugger) -> None:
    view = view_at(weighted, 1781)
    record = decision_of(view)
    assert record is not None
    pane = RowsBox.of(router_pane.PANE)
    app = OnePane(pane, view)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("down", "down")
        await pilot.pause()
        assert [message.instance for message in app.picked] == [each.instance for each in record.top[:2]]
        assert pane.copied(path=False) == str(record.top[1].instance)
    subjects = [router_line.subject for router_line in router_lines(view, 78) if router_line.subject]
    assert subjects == [instance_ref(each.instance) for each in record.top]


# ---- the gateway ----


def test_the_queue_is_what_the_records_leave_in_it(gateway: Debugger) -> None:
    held: dict[str, Held] = {}
    for record in records_until(gateway, 700):
        if isinstance(record, Held):
            held[record.request_id] = record
        elif isinstance(record, Dispatched | Rejected):
            held.pop(record.request_id, None)
    view = view_at(gateway, 700)
    state = view.moment.state.gateway
    assert state is not None
    assert state.waiting == len(held) > 0
    counted = Counter(one.priority for one in held.values())
    assert {band.priority: band.waiting for band in state.bands} == counted
    for band in state.bands:
        assert sum(flow.waiting for flow in band.flows) == band.waiting
        for flow in band.flows:
            assert held[flow.head].time_us == flow.since_us
    text = text_of(gateway_lines(view, 100))
    assert f"waiting {len(held)} of 40" in text
    assert f"▶ {state.upcoming}" in text
    for band in state.bands:
        assert f"priority {band.priority}: {band.waiting} waiting" in text
        assert f"dispatched below saturation {band.ceiling:.2f}" in text


@pytest.mark.parametrize("fairness", ["global-strict", "round-robin", "weighted"])
@pytest.mark.parametrize("bands", [True, False])
def test_who_is_said_to_be_next_is_dispatched_next(fairness: str, *, bands: bool) -> None:
    """Unless a more urgent one comes first."""
    changes = {"policy.gateway.fairness": fairness, "policy.gateway.bands": bands, "workload.requests": 120}
    changes |= {} if bands else {"policy.gateway.usage_limit": 1.0}
    simulation = Simulation(blis_tui.load("quickstart", set={**GATEWAY, **changes}))
    records: list[Record] = []
    simulation.subscribe("all", records.append)
    upcoming, seen = "", 0
    while simulation.arrived < 120 or upcoming:  # behind that, nothing is dispatched
        records.clear()
        simulation.step()
        sent = [record.request_id for record in records if isinstance(record, Dispatched)]
        if sent and not any(isinstance(record, Held) for record in records):
            assert sent[0] == upcoming
            seen += 1
        state = simulation.snapshot(0).gateway
        assert state is not None
        upcoming = state.upcoming
    assert seen > 5


@pytest.mark.parametrize(
    ("saturation", "words"),
    [
        (0.79, "The queue is empty: by the latest signals, requests go straight to the router."),
        (0.8, "By the latest signals the least urgent requests would be held."),
        (1.0, "By the latest signals the instances are saturated: a request would be held."),
    ],
)
def test_an_empty_queue_means_what_the_saturation_says(gateway: Debugger, saturation: float, words: str) -> None:
    view = view_at(gateway, 1)
    state = view.moment.state
    assert state.gateway is not None
    assert not state.gateway.waiting
    told = replace(state, gateway=replace(state.gateway, saturation=saturation))
    text = text_of(gateway_lines(replace(view, moment=replace(view.moment, after=told)), 40))
    assert words in " ".join(text.split())


async def test_heads_of_queues_can_be_selected(gateway: Debugger) -> None:
    app = OnePane(RowsBox.of(gateway_pane.PANE), view_at(gateway, 700))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("down")
        await pilot.pause()
        state = app.shown.moment.state.gateway
        assert state is not None
        assert app.picked[-1].request == state.bands[0].flows[0].head


@pytest.mark.parametrize("width", [34, 50, 78, 130])
def test_no_line_is_wider_than_the_pane(
    split: Debugger, weighted: Debugger, gateway: Debugger, growing: Debugger, width: int
) -> None:
    for debugger, event in ((split, 700), (weighted, 1781), (gateway, 700), (growing, 8400)):
        view = view_at(debugger, event, instance=2)
        lines = [*fleet_lines(view, width, 12), *router_lines(view, width), *gateway_lines(view, width)]
        for line in lines:
            assert line.draw().cell_length <= width, line.draw().plain


def test_a_change_in_the_number_of_instances_has_its_sign(growing: Debugger) -> None:
    """Otherwise one that is added looks like the only one."""
    scaled = [one for one in range(1, growing.frontier + 1) if growing.tape.kind(one) == "scaled"]
    said = {"".join(run.text for run in event_line(growing.tape, one).parts) for one in scaled}
    assert "+1 instances" in said
