"""Whom a request has to do with, against what the records say; and what a group has in common, against plain counts."""

from __future__ import annotations

import re
from collections import defaultdict
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING

import pytest

import blis_tui
from blis_tui.base.units import plural
from blis_tui.debugger.debugger import Debugger
from blis_tui.debugger.history import run_to_stop
from blis_tui.debugger.why.common import common
from blis_tui.debugger.why.lifespans import read_life
from blis_tui.debugger.why.ranking import Position, ranking
from blis_tui.debugger.why.relations import block_sharers, prefix_text, relations
from blis_tui.engine.records import Preempted, Queued, Scheduled
from blis_tui.engine.sglang.radix_pool import radix_pool
from tests.debugger.pressed_runs import experiment, finished

if TYPE_CHECKING:
    from blis_tui.debugger.why.relations import Relation
    from blis_tui.engine.instance import Instance
    from blis_tui.engine.records import Record

WAITED_BEFORE, WAITED_AFTER = (
    "Scheduled first, queued before it",
    "Scheduled first, queued after it",
)


def related(relation: Relation) -> list[tuple[str, int]]:
    return [(other.request, other.event) for other in relation.requests]


def told(run: Debugger, name: str, until: int) -> dict[str, list[tuple[str, int]]]:
    life = read_life(run.tape, name, until)
    assert life is not None
    return {relation.title: related(relation) for relation in relations(run.tape, life)}


@pytest.mark.parametrize("name", ["kv-pressure", "vllm-preemption", "small batch", "priority victims"])
def test_relations_are_those_of_the_records(name: str) -> None:
    """A second reading: queues of each instance, changed by each record in turn."""
    run = finished(name)
    expected: dict[str, dict[str, dict[str, int]]] = defaultdict(lambda: defaultdict(dict))
    victims: dict[str, dict[str, list[tuple[str, int]]]] = defaultdict(lambda: defaultdict(list))
    queues: dict[int, dict[str, int]] = defaultdict(dict)
    records: list[Record] = []
    simulation = blis_tui.Simulation(experiment(name))
    simulation.subscribe("all", records.append)
    simulation.run()
    for event, of_event in groupby(records, attrgetter("event")):
        joining, leaving = [], []
        for record in of_event:
            if isinstance(record, Queued | Preempted):
                joining.append(record)
            if isinstance(record, Preempted):
                victims[record.for_request]["Preempted for it"].append((record.request_id, event))
                victims[record.request_id]["It was preempted for"].append((record.for_request, event))
            if isinstance(record, Scheduled):
                leaving.append((record, queues[record.instance].pop(record.request_id)))
        for record, since in leaving:
            for other, queued in queues[record.instance].items():
                title = WAITED_BEFORE if since < queued else WAITED_AFTER
                expected[other][title].setdefault(record.request_id, event)
        for record in joining:
            queues[record.instance][record.request_id] = event
    assert sum(map(len, expected.values())) > 20
    for request in run.tape.names():
        life = told(run, request, len(run.tape))
        for title in (WAITED_BEFORE, WAITED_AFTER):
            assert sorted(life.get(title, [])) == sorted(expected[request][title].items()), (request, title)
        for title, others in victims[request].items():
            mine = [pair for pair in others if title == "It was preempted for" or pair[0] != request]
            assert sorted(life.get(title, [])) == sorted(mine), (request, title)


def test_later_events_are_not_told() -> None:
    run = finished("kv-pressure")
    for name in run.tape.names()[:40]:
        whole = told(run, name, len(run.tape))
        for until in (run.tape.first_event_of(name), 900, 2000):
            if until >= run.tape.first_event_of(name):
                for title, others in told(run, name, until).items():
                    assert all(event <= until for _, event in others)
                    assert set(others) <= set(whole[title])


def test_the_other_calls_of_a_session() -> None:
    run = Debugger(blis_tui.load("conversations", set={"workload.sessions": 6}))
    run_to_stop(run.to_end())
    name = run.tape.names()[-1]
    number = run.tape.number(name)
    assert number is not None
    session = run.tape.sessions.of_request(number)
    assert session is not None
    calls = [call.request for call in run.tape.sessions.calls(session)]
    title, others = next(iter(told(run, name, len(run.tape)).items()))
    assert title.startswith(f"Session {run.tape.sessions.name(session)}, call {calls.index(number) + 1} of ")
    assert [run.tape.number(other) for other, _ in others] == [call for call in calls if call != number]


def test_what_the_slowest_have_in_common_counted_another_way() -> None:
    run = finished("kv-pressure")
    here = Position(len(run.tape), len(run.tape))
    names = [ranked.name for ranked in ranking(run.tape, "ttft", here, 12)]
    lives = {name: read_life(run.tape, name, here.event) for name in run.tape.names()}
    arrivals = {name: life.arrival_us for name, life in lives.items() if life is not None}
    shared = {each.text.split()[0]: each for each in common(run.tape, names, here)}
    group = sorted(arrivals[name] for name in names)[1:-1]
    arrived = shared["arrived"]
    assert arrived.having == sum(group[0] <= arrivals[name] <= group[-1] for name in names)
    assert arrived.among == sum(group[0] <= time_us <= group[-1] for time_us in arrivals.values())
    assert arrived.looked_at == len(arrivals)
    assert arrived.having >= 0.75 * len(names) >= 1.5 * 0.75 * len(names) * arrived.share


def test_a_group_that_is_like_all_has_nothing_in_common() -> None:
    run = finished("kv-pressure")
    here = Position(len(run.tape), len(run.tape))
    assert common(run.tape, run.tape.names(), here) == ()
    assert common(run.tape, run.tape.names()[:2], here) == ()


def test_what_is_planted_is_found() -> None:
    """One client of three has long prompts, and one instance of two serves it."""
    clients = [
        {"id": f"client-{place}", "arrivals": {"kind": "poisson"}, "input_tokens": tokens, "output_tokens": 20}
        for place, tokens in enumerate((100, 120, 3000))
    ]
    run = Debugger(
        blis_tui.load("quickstart", set={"workload.clients": clients, "workload.requests": 120, "expect": []})
    )
    run_to_stop(run.to_end())
    here = Position(len(run.tape), len(run.tape))
    lives = [read_life(run.tape, name, here.event) for name in run.tape.names()]
    long = [life.name for life in lives if life is not None and life.input_tokens == 3000]
    texts = [each.text for each in common(run.tape, long, here)]
    assert "client client-2" in texts
    assert "prompt tokens 3,000" in texts


def held_copies(instance: Instance) -> dict[str, set[tuple[int, int]]]:
    """Each running request's findable blocks: content, and which copy of it."""
    index = instance.pool._index
    return {
        request.request_id: {
            (key, extent.label) for piece in request.pieces for extent in index.held(piece) for key in extent.keys
        }
        for request in instance.batch.running.values()
    }


def held_in_tree(instance: Instance) -> dict[str, set[tuple[int, int]]]:
    """The same of a radix tree, which has one copy of each content."""
    pool = radix_pool(instance.pool)
    return {
        request.request_id: {
            (key, 0) for keys in pool.keys(request, request.shared_blocks * pool.block_size_tokens) for key in keys
        }
        for request in instance.batch.running.values()
    }


@pytest.mark.parametrize("name", ["shared-prefixes", "conversations", "retraction"])
def test_shared_blocks_are_those_of_the_block_tables(name: str) -> None:
    run = Debugger(blis_tui.load(name, set={"expect": []}))
    found: dict[tuple[int, str], int] = {}
    stop = run.simulation.subscribe(
        "scheduled", lambda one: found.update({(one.event, one.request_id): one.cached_tokens})
    )
    pairs = 0
    for event in range(400, 6001, 400):
        run_to_stop(run.seek(event))
        for instance in run.simulation._cluster.instances:
            tables = (held_in_tree if instance.batch.traits.radix_tree else held_copies)(instance)
            size = instance.pool.block_size_tokens
            cached = {
                request: next(found[at, who] for at, who in reversed(found) if who == request and at <= run.event)
                for request in tables
            }
            for request, own in tables.items():
                sharing, life = run.kv_sharing(request), read_life(run.tape, request, run.event)
                assert sharing is not None
                assert life is not None
                common = {other: len(own & its) for other, its in tables.items() if other != request and own & its}
                assert {other.request_id: other.blocks for other in sharing.others} == common
                sharers = block_sharers(run.tape, life, sharing)
                assert (sharers is None) == (not common)
                for other in () if sharers is None else sharers.requests:
                    blocks = common[other.request]
                    assert other.remark.startswith(f"{plural(blocks, 'block')}, {plural(blocks * size, 'token')}, ")
                    holders = [request, *(each for each, their in common.items() if their >= blocks)]
                    computed = [each for each in holders if cached[each] < blocks * size]
                    words = {request: "this one", other.request: "it"}
                    told = " and ".join(words.get(each, each) for each in computed[:2]) or "one that has left"
                    assert other.remark.endswith(f"computed by {told}")
                    pairs += 1
                head = [
                    int(tokens.replace(",", "")) for tokens in re.findall(r" ([0-9,]+) tokens?", prefix_text(sharing))
                ]
                declared = sum(tokens for _, tokens in sharing.segments)
                assert sum(head) == min(max(common.values(), default=0) * size, declared)
    stop()
    assert pairs > 20


def test_blocks_of_layers_with_windows_are_counted_in_all_groups() -> None:
    run = Debugger(blis_tui.load("shared-prefixes", set={"model": "gpt-oss-20b", "expect": []}))
    pairs = 0
    for event in range(400, 3601, 400):
        run_to_stop(run.seek(event))
        instance = run.simulation._cluster.instances[0]
        tables = instance.pool._tables  # type: ignore[attr-defined]
        running = list(instance.batch.running.values())
        for request in running:
            sharing = run.kv_sharing(request.request_id)
            assert sharing is not None
            blocks = [block for row in tables[request.index].rows for block in row if block >= 0]
            common = {
                other.request_id: sum(block in row for row in tables[other.index].rows for block in blocks)
                for other in running
                if other is not request
            }
            assert {other.request_id: other.blocks for other in sharing.others} == {
                name: count for name, count in common.items() if count
            }
            pairs += len(sharing.others)
    assert pairs > 20


def test_who_does_not_run_shares_no_blocks() -> None:
    run = finished("kv-pressure")
    assert run.kv_sharing("request_1") is None
    assert run.kv_sharing("nobody") is None
