"""Explanations of swaps and reloads, the tiers on the map, and breakpoints on thrashing."""

from __future__ import annotations

import re

import pytest

import blis_tui
from blis_tui.base.units import span_text
from blis_tui.debugger.debugger import Debugger
from blis_tui.debugger.history import run_to_stop
from blis_tui.debugger.why.explain import explain_event, explain_request
from blis_tui.debugger.why.explanation import sentence_text
from blis_tui.debugger.why.memory import choice_sentence, return_text
from blis_tui.engine.records import Preempted, PreemptedByPriority, RestoreChosen, Retracted, SwappedBack, TiersLoaded
from blis_tui.results.conditions.breakpoints import Watch, parse_breakpoint
from blis_tui.tui.panes.kv import kv_map
from tests.cluster.fleets import SPLIT
from tests.tui.pane_harness import debugger, text_of, view_at


@pytest.fixture(scope="module")
def swapping() -> Debugger:
    return debugger("kv-overload", 620, engine__max_num_seqs=256, engine__max_num_batched_tokens=2048)


@pytest.fixture(scope="module")
def tiered() -> Debugger:
    tiers = {"kind": "offload", "tiers": [{"name": "cpu", "blocks": 4000}]}
    made = debugger("kv-tiers", 0, engine__kv_tiers=tiers)
    run_to_stop(made.run(Watch([parse_breakpoint("tiers-loaded", made.experiment)])))
    return made


def test_a_swap_is_explained_with_what_recomputing_would_have_cost(swapping: Debugger) -> None:
    records = [record for event in range(1, 621) for record in swapping.records_of(event)]
    chosen = {record.choice: record for record in records if isinstance(record, RestoreChosen)}
    assert set(chosen) == {"swap", "recompute"}
    for choice, words in (("swap", "moved to the host"), ("recompute", "that is cheaper")):
        told = explain_event(swapping, chosen[choice].event).to_text()
        assert words in told
        assert span_text(chosen[choice].swap_us) in told
        assert span_text(chosen[choice].recompute_us) in told
    back = next(record for record in records if isinstance(record, SwappedBack))
    told = " ".join(explain_request(swapping, back.request_id).to_text().split())
    assert "its KV cache stays on the host" in told
    assert f"{back.tokens:,} tokens of it back from the host in {span_text(back.transfer_us)}" in told


def test_a_request_that_does_not_fit_is_told_how_many_blocks_hold_its_states() -> None:
    model = {"model": "qwen3.5-27b", "cluster__tensor_parallel": 2, "engine__kv_blocks": 12}
    made = debugger("quickstart", 900, **model, workload__requests=60)
    told = " ".join(explain_request(made, "request_9").to_text().split())
    assert "it needs 4 KV blocks of 784 tokens, 3 of them for its states" in told


def test_a_retraction_is_explained_with_what_is_expected_before_and_after() -> None:
    made = debugger("retraction", 0)
    run_to_stop(made.run(Watch([parse_breakpoint("retracted", made.experiment)])))
    records = made.records_of(made.event)
    retracted = next(record for record in records if isinstance(record, Retracted))
    (victim,) = [record.request_id for record in records if isinstance(record, Preempted)]
    for explanation in (explain_request(made, victim), explain_event(made, made.event)):
        told = " ".join(explanation.to_text().split())
        assert f"needed {retracted.needed_blocks} KV blocks, and {retracted.free_blocks:,} were available" in told
        now, before = (f"{100 * ratio:.1f} %" for ratio in (retracted.ratio, retracted.ratio_before))
        shares = f"take {now} of their declared length from then on, {before} before"
        assert f"answers were expected to {shares}" in told
    assert retracted.needed_blocks == retracted.kept + 1 > retracted.free_blocks
    assert "the running request that had generated least" in explain_request(made, victim).to_text()


def test_a_preemption_by_priority_is_explained_with_both_priorities_and_the_threshold() -> None:
    batching = {"kind": "sglang", "enable_priority_scheduling": True, "priority_scheduling_preemption_threshold": 2}
    policy = {"batching": batching, "priority": {"kind": "slo-class"}}
    made = debugger("service-classes", 0, policy=policy, engine__max_num_seqs=24, engine__block_size_tokens=1)
    run_to_stop(made.run(Watch([parse_breakpoint("preempted-by-priority", made.experiment)])))
    records = made.records_of(made.event)
    told_of = next(record for record in records if isinstance(record, PreemptedByPriority))
    assert told_of.priority - told_of.beneficiary_priority > 2 == told_of.threshold
    for explanation in (explain_request(made, told_of.request_id), explain_event(made, made.event)):
        told = " ".join(explanation.to_text().split())
        assert f"{told_of.beneficiary}, with priority {told_of.beneficiary_priority}, was more urgent" in told
        apart = told_of.priority - told_of.beneficiary_priority
        assert f"{apart} apart, more than priority_scheduling_preemption_threshold 2" in told
        assert "KV cache was full" not in told


@pytest.mark.parametrize(
    ("restore", "swap_us", "why"),
    [
        ("cheapest", 4_999, "the host had no room for them"),
        ("cheapest", 5_000, "that is cheaper"),  # of equals, they are recomputed
        ("cheapest", 5_001, "that is cheaper"),
        ("swap", 5_001, "the host had no room for them"),
    ],
)
def test_recomputing_is_said_to_be_cheaper_unless_the_other_way_was(restore: str, swap_us: int, why: str) -> None:
    choice = RestoreChosen(1, 0, "a", 0, "recompute", 3, swap_us, 5_000)
    sentence = f"Its 3 KV blocks are recomputed, which makes steps an estimated 5.00 ms longer: {why}."
    assert sentence in sentence_text(choice_sentence(choice, restore))


def test_the_map_shows_who_is_swapped_out(swapping: Debugger) -> None:
    kv = view_at(swapping).moment.state.instances[0].kv
    assert [tier.name for tier in kv.below] == ["swapped out"]
    shown = text_of(kv_map(view_at(swapping), 80, 24))
    assert f"{kv.below[0].used_blocks:,} of 3,000 blocks, {kv.below[0].came_back:,} reloaded" in shown


def test_reloads_are_explained_and_tiers_are_on_the_map(tiered: Debugger) -> None:
    loaded = next(record for record in tiered.records_of(tiered.event) if isinstance(record, TiersLoaded))
    told = " ".join(explain_event(tiered, loaded.event).to_text().split())
    assert f"{loaded.blocks} KV blocks came back (cpu: {loaded.blocks})" in told
    assert "of 4,000 blocks" in text_of(kv_map(view_at(tiered), 80, 24))


def test_what_others_have_stored_has_not_come_back_and_a_shared_tier_is_on_the_map_once() -> None:
    store = {"name": "store", "blocks": 4000, "shared": True}
    changes = {"engine__kv_tiers": {"kind": "offload", "tiers": [store]}, "cluster__instances": 2}
    made = debugger("kv-tiers", 0, **changes)
    run_to_stop(made.run(Watch([parse_breakpoint("tiers-loaded", made.experiment)])))
    loaded = next(record for record in made.records_of(made.event) if isinstance(record, TiersLoaded))
    tier = f"store (stored by others): {loaded.blocks}"
    assert loaded.tiers == (tier,)
    told = " ".join(explain_event(made, loaded.event).to_text().split())
    assert f"{loaded.blocks} KV blocks came from tiers ({tier})" in told
    assert "instead of being computed here" in told
    assert return_text([loaded], loaded.request_id) == f", {loaded.blocks} KV blocks of it from tiers ({tier})"
    (held,) = {instance.kv.below[0].used_blocks for instance in view_at(made).moment.after.instances}
    (line,) = (line for line in text_of(kv_map(view_at(made), 120, 24)).splitlines() if "store" in line)
    assert line.startswith("store (shared) ")
    text = f"{held:,} of 4,000 blocks, {loaded.blocks} reloaded by these instances"
    assert f"{text}, {loaded.blocks} of them stored by others" in line


def test_a_breakpoint_stops_at_thrashing() -> None:
    """What is overwritten while hardly a block is in use is kept, and the next step may want it back."""
    made = debugger("kv-tiers", 0, engine__kv_tiers={"kind": "threshold", "cpu_blocks": 4000, "offload_at": 0})
    stop = run_to_stop(made.run(Watch([parse_breakpoint("tiers.thrashing > 0", made.experiment)])))
    assert stop.hits
    thrashed = [record.thrashing for record in made.records_of(made.event) if isinstance(record, TiersLoaded)]
    assert max(thrashed) > 0
    assert f"{sum(thrashed)} block" in stop.hits[0].sentence
    assert "thrashing" in explain_event(made, made.event).to_text()


_HANDED_OVER = {
    **SPLIT,
    "workload.requests": 60,
    "engine.kv_blocks": 100,
    "policy.batching": {"kind": "vllm-v1", "async_scheduling": False},
    "expect": [],
}
_FEW_BLOCKS = {"workload.requests": 40, "engine.kv_blocks": 300}


@pytest.mark.parametrize(
    ("name", "changed"), [("kv-pressure", _FEW_BLOCKS), ("quickstart", _HANDED_OVER)], ids=["running", "handed over"]
)
def test_who_waits_for_blocks_is_told_who_has_them(name: str, changed: dict[str, object]) -> None:
    """Here counted in the engine's books: also what queued requests hold whose prompts came from elsewhere.

    Both the page of the step that left a request waiting and that of the request say so.
    """
    made = Debugger(blis_tui.load(name, set=changed))
    run_to_stop(made.run())
    pages, queued = 0, 0
    for event in range(1, made.frontier + 1, 9):
        row = made.tape.row(event)
        stop = made.tape.stop(event, made.tape.step(row.step).number) if row.step >= 0 else None
        if stop is None or stop.cause != "blocks":
            continue
        run_to_stop(made.seek(event))
        batch = made.simulation.cluster.instances[row.instance].batch
        held = {holder.request_id: batch.cohort.held_blocks(holder) for holder in batch.holders()}
        largest = sorted(held.values(), reverse=True)[:3]
        head = batch.waiting.head().request_id
        for told in (explain_event(made, event).to_text(), explain_request(made, head).to_text()):
            match = re.search(r"The largest holders? (?:is|are) (.*)\.\n", told)
            assert match is not None, told
            named = {who: int(blocks) for who, blocks in re.findall(r"(\w+) \((\d+)\)", match[1])}
            assert list(named.values()) == largest
            assert all(held[who] == blocks for who, blocks in named.items())
            queued += any(who not in {request.request_id for request in batch.running.values()} for who in named)
            pages += 1
    assert pages > 20
    assert bool(queued) == (name == "quickstart")


def test_a_queued_request_that_has_its_blocks_needs_none() -> None:
    """Behind a head that lacks some, it is said to have them, not to need them once more."""
    made = Debugger(blis_tui.load("quickstart", set=_HANDED_OVER))
    run_to_stop(made.run())
    found = 0
    for event in range(1, made.frontier + 1, 9):
        row = made.tape.row(event)
        if row.step < 0 or not made.tape.step(row.step).waiting:
            continue
        run_to_stop(made.seek(event))
        batch = made.simulation.cluster.instances[row.instance].batch
        queue = batch.waiting.ordered()
        told = " ".join(explain_request(made, queue[0].request_id).to_text().split()) if queue else ""
        blocked = re.search(r"Head-of-line blocking: (\w+), further back, (needs|has its blocks already)", told)
        if blocked is not None:
            behind = next(request for request in queue if request.request_id == blocked[1])
            assert (blocked[2] != "needs") == (behind.index in batch.reserved)
            found += blocked[2] != "needs"
    assert found
