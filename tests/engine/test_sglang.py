"""``sglang`` on cases small enough to follow by hand.

Steps take 100 + prefill + 10 * decodes microseconds; blocks hold one token. Requests generate all that they declare,
unless a case says otherwise. Batches of SGLang's own scheduler are in ``tests/parity``.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import pytest

import blis_tui
from blis_tui.base.errors import PolicyError, SpecError
from blis_tui.engine.records import AdapterHeld, Preempted, PreemptedByPriority, Retracted, StepFinished, TimedOut
from blis_tui.engine.stopped import SchedulingStopped
from blis_tui.model import Lora
from tests.builders import Outcome, experiment, request
from tests.engine.test_schedulers import steps, work

if TYPE_CHECKING:
    from blis_tui.engine.request import Request
    from blis_tui.model import Setting

ONE_BY_ONE: dict[str, Setting] = {"overlap_schedule": False}
"""Steps are planned when the one before is over, which is easier to follow."""


def run(
    requests: list[Request], settings: dict[str, Setting] | None = None, scheduling: str = "fcfs", **limits: int
) -> Outcome:
    limits = {"block_size": 1, "blocks": 1000, **limits}
    chosen = {**ONE_BY_ONE, **(settings or {})}
    return Outcome(experiment(batching="sglang", settings=chosen, scheduling=scheduling, **limits), requests)  # type: ignore[arg-type]


def declaring(index: int, arrival_us: int, tokens: int, output: int, declared: int) -> Request:
    """A request that stops before it has generated all that it declares."""
    made = request(index, arrival_us, tokens, output)
    made.max_output_tokens = declared
    return made


def retractions(outcome: Outcome) -> list[Retracted]:
    return [record for record in outcome.records if isinstance(record, Retracted)]


# ---- prompts ----


def test_prompts_go_first_and_who_runs_waits() -> None:
    outcome = run([request(0, 0, 8, 3), request(1, 50, 6, 2)])
    assert work(outcome) == [({"0": 8}, 0, ()), ({"1": 6}, 0, ()), ({}, 2, ()), ({}, 1, ())]


def test_one_prompt_is_split_and_goes_first_in_the_next_step() -> None:
    outcome = run([request(0, 0, 20, 1), request(1, 0, 7, 1)], {"chunked_prefill_size": 12})
    assert work(outcome) == [({"0": 12}, 0, ()), ({"0": 8, "1": 4}, 0, ()), ({"1": 3}, 0, ())]


def test_without_chunks_prompts_are_taken_while_input_tokens_last_but_never_fewer_than_one() -> None:
    settings: dict[str, Setting] = {"chunked_prefill_size": "none", "max_prefill_tokens": 16}
    outcome = run([request(0, 0, 20, 1), request(1, 0, 7, 1), request(2, 0, 7, 1), request(3, 0, 7, 1)], settings)
    # 2 of 16 tokens are left for the fourth.
    assert [chunks for chunks, _, _ in work(outcome)] == [{"0": 20}, {"1": 7, "2": 7}, {"3": 7}]


def test_with_mixed_chunks_who_runs_generates_beside_prompts_and_takes_of_their_budget() -> None:
    settings: dict[str, Setting] = {"enable_mixed_chunk": True, "chunked_prefill_size": 12}
    outcome = run([request(0, 0, 8, 4), request(1, 50, 20, 1)], settings)
    assert work(outcome) == [({"0": 8}, 0, ()), ({"1": 11}, 1, ()), ({"1": 9}, 1, ()), ({}, 1, ())]


def test_a_request_enters_when_it_fits_beside_what_is_expected_of_others() -> None:
    # 0 is expected to generate 0.7 of 39 more tokens, 27.3: of 100 blocks 50 - 27.3 = 22.7 are left, and 1 needs more
    # than 10 + 12. Each token of 0 takes a whole block, of which 0.7 were expected, so that 1 waits for its end.
    careful = run([request(0, 0, 50, 40), request(1, 50, 10, 12)], blocks=100)
    assert [chunks for chunks, _, _ in work(careful)][:42] == [{"0": 50}, *[{}] * 39, {"1": 10}, {}]
    bold = run([request(0, 0, 50, 40), request(1, 50, 10, 12)], {"schedule_conservativeness": 0.5}, blocks=100)
    assert [chunks for chunks, _, _ in work(bold)][:2] == [{"0": 50}, {"1": 10}]


def test_who_ignores_the_end_of_its_answer_is_expected_to_generate_all_of_it() -> None:
    # 39 of 50 tokens are expected of 0 then: 11 are left, though the others would be 0.1 of it.
    requests = [request(0, 0, 50, 40), request(1, 50, 10, 2)]
    requests[0].ignore_eos = True
    outcome = run(requests, {"schedule_conservativeness": 0.14}, blocks=100)
    assert [chunks for chunks, _, _ in work(outcome)][:2] == [{"0": 50}, {}]


def test_no_more_run_than_there_are_places() -> None:
    outcome = run([request(number, 0, 4, 2) for number in range(3)], max_num_seqs=2)
    assert work(outcome) == [({"0": 4, "1": 4}, 0, ()), ({}, 2, ()), ({"2": 4}, 0, ()), ({}, 1, ())]


# ---- the radix tree ----


def test_what_was_computed_is_found_token_by_token() -> None:
    shared = (("system", 13),)
    outcome = run([request(0, 0, 20, 1, segments=shared), request(1, 500, 18, 1, segments=shared)])
    assert [[(chunk.computed_tokens, chunk.new_tokens) for chunk in step.chunks] for step in steps(outcome)] == [
        [(0, 20)],
        [(13, 5)],
    ]


def test_blocks_of_several_tokens_are_found_as_a_whole() -> None:
    shared = (("system", 13),)
    requests = [request(0, 0, 20, 1, segments=shared), request(1, 500, 18, 1, segments=shared)]
    outcome = run(requests, block_size=4, blocks=100)
    assert [chunks for chunks, _, _ in work(outcome)] == [{"0": 20}, {"1": 6}]


def test_nothing_is_found_without_a_cache() -> None:
    shared = (("system", 13),)
    requests = [request(0, 0, 20, 1, segments=shared), request(1, 500, 18, 1, segments=shared)]
    outcome = run(requests, caching=False)
    assert [chunks for chunks, _, _ in work(outcome)] == [{"0": 20}, {"1": 18}]
    assert outcome.cluster.instances[0].pool.free == 1000


def test_the_least_recently_used_leaf_goes_as_a_whole() -> None:
    # Three prompts of 20 stay in a cache of 64 tokens. The fourth, of 6, needs two more: the 20 of the first go.
    heads = [((f"head {number}", 20),) for number in range(3)]
    requests = [request(number, 1000 * number, 21, 1, segments=head) for number, head in enumerate(heads)]
    requests += [
        request(3, 3000, 6, 1),
        request(4, 4000, 21, 1, segments=heads[1]),
        request(5, 5000, 21, 1, segments=heads[0]),
    ]
    outcome = run(requests, blocks=64)
    assert [[chunk.computed_tokens for chunk in step.chunks] for step in steps(outcome)][3:] == [[0], [20], [0]]


# ---- the order of the queue ----


def test_the_longest_declared_answer_goes_first() -> None:
    requests = [request(0, 0, 4, 9), *(request(number, 50, 4, output) for number, output in ((1, 2), (2, 5), (3, 2)))]
    outcome = run(requests, scheduling="lof", max_num_seqs=2)
    assert [step.admitted for step in steps(outcome) if step.admitted] == [("0",), ("2",), ("1",), ("3",)]


def test_the_longest_prefix_goes_first_and_of_those_that_share_one_only_one_at_a_time() -> None:
    settings: dict[str, Setting] = {"chunked_prefill_size": 83}
    known, new = (("known", 40),), (("new", 60),)
    requests = [
        request(0, 0, 42, 1, segments=known),
        request(1, 500, 70, 1, segments=new),
        request(2, 500, 70, 1, segments=new),
        request(3, 500, 8, 1),
        request(4, 500, 45, 1, segments=known),
    ]
    outcome = run(requests, settings, "lpm")
    # 4 finds 40 tokens. 2 shares 60 with 1, so that it goes behind 3, where no tokens are left - and finds them later.
    assert [chunks for chunks, _, _ in work(outcome)] == [{"0": 42}, {"4": 5, "1": 70, "3": 8}, {"2": 10}]


# ---- retraction ----


def test_the_one_that_has_generated_least_goes_back_to_the_end_of_the_queue() -> None:
    # After 20 decodes they hold 60 of 61 blocks and have 21 tokens each; of equals, the one stays that came first.
    requests = [request(0, 0, 10, 49), request(1, 50, 10, 38), request(2, 60, 4, 1)]
    outcome = run(requests, {"schedule_conservativeness": 0.01}, blocks=61, max_num_seqs=2)
    first = retractions(outcome)[0]
    (victim,) = [record for record in outcome.records if isinstance(record, Preempted) and record.event == first.event]
    assert (victim.request_id, victim.lost_tokens, victim.freed_blocks) == ("1", 30, 30)
    assert (first.retracted, first.kept, first.needed_blocks, first.free_blocks) == (1, 1, 2, 1)
    # 0 has generated 21 of 49: (21 + 20) / (49 + 1) is expected from then on.
    assert first.ratio == 0.82
    after = [step.admitted for step in steps(outcome) if step.admitted and step.time_us > first.time_us]
    assert after[:2] == [("2",), ("1",)]


def test_a_retracted_request_keeps_its_answer_and_finds_its_prompt() -> None:
    # Room for 20 tokens of the other is free without its prompt.
    requests = [request(0, 0, 10, 40), request(1, 50, 10, 40)]
    outcome = run(requests, {"schedule_conservativeness": 0.01}, blocks=70)
    (lost,) = [record for record in outcome.records if isinstance(record, Preempted)]
    again = next(step for step in steps(outcome) if step.time_us > lost.time_us and step.chunks)
    (chunk,) = again.chunks
    assert chunk.computed_tokens == 10
    assert chunk.computed_tokens + chunk.new_tokens == lost.lost_tokens + 1
    assert [row.output_tokens for row in outcome.rows.values()] == [40, 40]


# ---- overlap ----


def test_who_arrives_during_a_step_is_seen_one_step_later() -> None:
    requests = [request(0, 0, 8, 4), request(1, 50, 6, 1)]
    # Steps 1 and 2 are planned at 0; 1 arrives at 50, when step 2 has been planned, and is in step 3.
    assert work(run(requests, {"overlap_schedule": True}))[:3] == [({"0": 8}, 0, ()), ({}, 1, ()), ({"1": 6}, 0, ())]


def test_who_ends_by_length_is_left_out_and_who_ends_otherwise_generates_once_more() -> None:
    overlap: dict[str, Setting] = {"overlap_schedule": True}
    assert work(run([request(0, 0, 8, 3)], overlap)) == [({"0": 8}, 0, ()), ({}, 1, ()), ({}, 1, ())]
    early = run([declaring(0, 0, 8, 3, 9)], overlap)
    assert work(early) == [({"0": 8}, 0, ()), ({}, 1, ()), ({}, 1, ()), ({}, 1, ())]
    assert [step.completed for step in steps(early)] == [(), (), ("0",), ()]
    assert early.rows["0"].output_tokens == 3


def test_no_retraction_while_somebody_ends_anyway() -> None:
    # With 6 tokens stored of each, all 32 blocks are taken, and 0 has its last token in the step under way: the next
    # one is planned when that is over.
    requests = [request(0, 0, 10, 7), request(1, 0, 10, 9)]
    outcome = run(requests, {"overlap_schedule": True, "schedule_conservativeness": 0.01}, blocks=32)
    assert not retractions(outcome)
    last = next(step for step in steps(outcome) if step.completed == ("0",))
    assert last.kv_used_blocks == 32
    assert [row.output_tokens for row in outcome.rows.values()] == [7, 9]


# ---- priorities ----


def urgent(priority: int, made: Request) -> Request:
    """A smaller number is more urgent."""
    made.priority = priority
    return made


BY_PRIORITY: dict[str, Setting] = {"enable_priority_scheduling": True, "priority_scheduling_preemption_threshold": 2}


def test_the_most_urgent_goes_first_and_of_equals_the_one_that_came_first() -> None:
    requests = [urgent(0, request(0, 0, 4, 9))]
    requests += [urgent(priority, request(1 + number, 50, 4, 2)) for number, priority in enumerate((2, 1, 2, 1))]
    outcome = run(requests, BY_PRIORITY, max_num_seqs=2)
    assert [step.admitted for step in steps(outcome) if step.admitted] == [("0",), ("2",), ("4",), ("1",), ("3",)]
    larger = {**BY_PRIORITY, "schedule_low_priority_values_first": False}
    for one in requests:
        one.priority = -one.priority
    again = [urgent(one.priority, request(one.index, one.arrival_us, 4, one.output_tokens)) for one in requests]
    outcome = run(again, larger, max_num_seqs=2)
    assert [step.admitted for step in steps(outcome) if step.admitted] == [("0",), ("2",), ("4",), ("1",), ("3",)]


def test_with_lof_the_longest_answer_goes_first_among_those_that_are_equally_urgent() -> None:
    requests = [urgent(0, request(0, 0, 4, 9))]
    shapes = ((2, 9), (1, 2), (2, 3), (1, 5))
    requests += [urgent(priority, request(1 + at, 50, 4, output)) for at, (priority, output) in enumerate(shapes)]
    outcome = run(requests, BY_PRIORITY, "lof", max_num_seqs=2)
    assert [step.admitted for step in steps(outcome) if step.admitted] == [("0",), ("4",), ("2",), ("1",), ("3",)]


def test_a_place_is_taken_from_the_least_urgent_if_they_are_far_enough_apart() -> None:
    # 1 and 2 are equally urgent, and 2 came last. It keeps its three tokens, finds its prompt, and is next.
    def requests(priority: int) -> list[Request]:
        running = [urgent(1, request(0, 0, 4, 9)), urgent(5, request(1, 0, 4, 9)), urgent(5, request(2, 0, 4, 9))]
        return [*running, urgent(priority, request(3, 320, 6, 2))]

    near = run(requests(3), BY_PRIORITY, max_num_seqs=3)
    assert not [record for record in near.records if isinstance(record, Preempted)]
    far = run(requests(2), BY_PRIORITY, max_num_seqs=3)
    (lost,) = [record for record in far.records if isinstance(record, Preempted)]
    (why,) = [record for record in far.records if isinstance(record, PreemptedByPriority)]
    assert (lost.request_id, lost.for_request, lost.lost_tokens) == ("2", "3", 6)
    assert (why.request_id, why.beneficiary, why.priority, why.beneficiary_priority, why.threshold) == (
        *("2", "3", 5, 2),
        2,
    )
    assert [step.admitted for step in steps(far) if step.admitted] == [("0", "1", "2"), ("3",), ("2",)]
    again = [step for step in steps(far) if step.admitted == ("2",)]
    assert [(chunk.computed_tokens, chunk.new_tokens) for chunk in again[0].chunks] == [(4, 3)]
    assert [row.output_tokens for row in far.rows.values()] == [9, 9, 9, 2]
    tallies = far.cluster.instances[0].tallies
    assert (tallies.preemptions, tallies.allocation_failures, tallies.kv_wait_us) == (1, 0, 0)


def test_for_want_of_kv_blocks_no_request_is_preempted_by_priority() -> None:
    requests = [urgent(9, request(0, 0, 60, 20)), urgent(0, request(1, 50, 60, 20))]
    outcome = run(requests, BY_PRIORITY, blocks=100)
    assert not [record for record in outcome.records if isinstance(record, Preempted)]
    assert [step.admitted for step in steps(outcome) if step.admitted] == [("0",), ("1",)]


def test_one_is_preempted_only_where_those_who_may_be_leave_enough_room() -> None:
    # The three hold 12 of 100 tokens and are expected to generate all that they declare: 1 + 29 + 29 more. So there is
    # room for 29, and 3 declares 70: it lacks 41, which is more than 1 or 2 leaves, and less than both do.
    def requests(least: int) -> list[Request]:
        running = [urgent(1, request(0, 0, 4, 2)), urgent(least, request(1, 0, 4, 4)), urgent(6, request(2, 0, 4, 4))]
        for one in running[1:]:
            one.max_output_tokens = 30
        return [*running, urgent(0, request(3, 50, 4, 70))]

    settings = {**BY_PRIORITY, "schedule_conservativeness": 10.0}
    both = run(requests(6), settings, blocks=100, max_num_seqs=3)
    assert [record.request_id for record in both.records if isinstance(record, Preempted)] == ["1", "2"]
    none = run(requests(2), settings, blocks=100, max_num_seqs=3)
    assert not [record for record in none.records if isinstance(record, Preempted)]


def test_a_run_goes_on_from_a_checkpoint_as_it_would_have() -> None:
    batching = {"kind": "sglang", **BY_PRIORITY}
    changed = {"policy": {"batching": batching, "priority": "slo-class"}, "engine.max_num_seqs": 12}
    load = partial(blis_tui.load, "service-classes", set={**changed, "workload.requests": 120, "expect": []})
    whole, parted = blis_tui.Simulation(load()), blis_tui.Simulation(load())
    parted.run(max_events=400)
    again = blis_tui.Simulation(load())
    again.restore(parted.checkpoint())
    assert again.digest() == parted.digest()
    whole.run()
    again.run()
    assert again.digest() == whole.digest()
    assert whole.cluster.instances[0].tallies.outranked > 0


def test_requests_that_have_left_are_forgotten() -> None:
    clients = [
        {"id": "a", "input_tokens": {"kind": "uniform", "min": 20, "max": 900}, "output_tokens": 3},
        {"id": "b", "input_tokens": 400, "output_tokens": 30, "timeout_us": 900_000, "slo_class": "batch"},
    ]
    changed: dict[str, object] = {
        "policy": {"batching": {"kind": "sglang", **BY_PRIORITY, "enable_mixed_chunk": True}, "priority": "slo-class"},
        "workload": {"requests": 600, "rate_per_s": 40, "clients": clients},
        "engine.max_num_seqs": 6,
        "expect": [],
    }
    simulation = blis_tui.Simulation(blis_tui.load("quickstart", set=changed))
    simulation.run()
    for instance in simulation.cluster.instances:
        remembered = [len(one) for one in instance.steps.rule.state() if isinstance(one, list)]
        assert max(remembered) < 100


# ---- clients that give up ----


def named(outcome: Outcome, name: str) -> list[str]:
    """The kinds of records about a request after its client has given up."""
    records = outcome.records
    since = next(at for at, record in enumerate(records) if isinstance(record, TimedOut) and record.request_id == name)
    return [type(record).__name__ for record in records[since + 1 :] if getattr(record, "request_id", "") == name]


@pytest.mark.parametrize(("overlaps", "decodes"), [(False, 3), (True, 4)])
def test_a_request_given_up_keeps_its_place_until_its_next_token(overlaps: bool, decodes: int) -> None:
    # Tokens at 108, 218, 328: the client gives up at 250, SGLang hears of it at 328, and the next token comes at 438.
    # With overlap, the step after that is planned by then.
    given_up, behind = request(0, 0, 8, 50, deadline_us=250), request(1, 300, 8, 1)
    outcome = run([given_up, behind], {"overlap_schedule": overlaps}, max_num_seqs=1)
    chunks = [at for at, (chunks, _, _) in enumerate(work(outcome)) if chunks]
    assert chunks == [0, 1 + decodes]
    assert outcome.rows["0"].state == "timed-out"
    assert outcome.rows["0"].output_tokens == 3
    assert outcome.rows["1"].state == "completed"
    instance = outcome.cluster.instances[0]
    assert instance.tallies.itl_us == {110: 2}  # nobody received the fourth token
    assert named(outcome, "0") == []
    assert (instance.pool.used, instance.seen.present, instance.batch.given_up) == (0, 0, {})


def test_what_it_computed_can_be_found_later_and_its_blocks_are_held_until_then() -> None:
    given_up = request(0, 0, 8, 50, segments=(("g", 8),), deadline_us=250)
    outcome = run([given_up, request(1, 600, 9, 1, segments=(("g", 8),))])
    used = [step.kv_used_blocks for step in steps(outcome)]
    assert used[:4] == [8, 9, 10, 11]
    assert [chunk.computed_tokens for step in steps(outcome) for chunk in step.chunks] == [0, 8]


def test_a_split_prompt_and_who_waits_leave_at_once() -> None:
    split, waiting = request(0, 0, 40, 5, deadline_us=150), request(1, 0, 8, 5, deadline_us=150)
    outcome = run([split, waiting, request(2, 0, 8, 1)], {"chunked_prefill_size": 8}, max_num_seqs=1)
    assert [chunks for chunks, _, _ in work(outcome)] == [{"0": 8}, {"0": 8}, {"2": 8}]


def test_who_is_retracted_after_its_client_has_gone_is_prefilled_once_more() -> None:
    # Both generate until there are no blocks; 1 has generated less. Its client gives up a step before.
    requests = [request(0, 0, 10, 40), request(1, 150, 10, 40)]
    settings: dict[str, Setting] = {"schedule_conservativeness": 0.0}
    retracted_us = retractions(run(requests, settings, blocks=80))[0].time_us
    requests = [request(0, 0, 10, 40), request(1, 150, 10, 40, deadline_us=retracted_us - 1)]
    outcome = run(requests, settings, blocks=80)
    assert [retraction.time_us for retraction in retractions(outcome)] == [retracted_us]
    assert not any(isinstance(record, Preempted) for record in outcome.records)
    prefilled = [(step.time_us, chunk.request_id) for step in steps(outcome) for chunk in step.chunks]
    assert [name for _, name in prefilled] == ["0", "1", "1"]
    assert prefilled[-1][0] > retracted_us
    assert set(named(outcome, "1")) == {"SchedulingStopped"}  # it waits at the head of the queue
    assert outcome.rows["1"].preemptions == 0
    assert outcome.rows["0"].state == "completed"


@pytest.mark.parametrize(("interval", "decodes"), [(1, 3), (6, 7)])
def test_that_a_client_has_given_up_is_heard_every_so_many_decodes(interval: int, decodes: int) -> None:
    outcome = run([request(0, 0, 8, 50, deadline_us=250)], {"scheduler_recv_interval": interval})
    assert len(steps(outcome)) == 1 + decodes
    assert outcome.rows["0"].output_tokens == 3
    assert outcome.cluster.instances[0].tallies.itl_us == {110: 2}


def test_an_answer_that_ends_before_that_is_heard_ends_nothing_else() -> None:
    outcome = run([request(0, 0, 8, 5, deadline_us=250)], {"scheduler_recv_interval": 50})
    assert len(steps(outcome)) == 5
    assert outcome.rows["0"].state == "timed-out"
    assert named(outcome, "0") == []


@pytest.mark.parametrize("settings", [{}, {"scheduler_recv_interval": 7, "enable_mixed_chunk": True}])
@pytest.mark.parametrize("overlaps", [True, False])
def test_books_are_right_after_every_event_and_a_checkpoint_goes_on_alike(
    overlaps: bool, settings: dict[str, Setting]
) -> None:
    batching = {"kind": "sglang", "schedule_conservativeness": 0.05, "overlap_schedule": overlaps, **settings}
    changed: dict[str, object] = {
        "policy.batching": batching,
        "workload.requests": 60,
        "workload.clients.0.timeout_us": 2_000_000,
        "workload.clients.1.timeout_us": 1_500_000,
        "engine.kv_blocks": 6000,
        "cluster.instances": 2,
        "expect": [],
    }
    load = partial(blis_tui.load, "retraction", set=changed)
    simulation = blis_tui.Simulation(load(), check="all")
    points: dict[int, bytes] = {}
    while simulation.step():
        given_up = [one for instance in simulation.cluster.instances for one in instance.batch.given_up]
        if given_up and len(points) < 3:
            points[simulation.events] = simulation.checkpoint()
            assert all(simulation.request(f"request_{index}") is None for index in given_up)
    assert len(points) == 3
    assert simulation.report().requests.timed_out > 20
    for saved in points.values():
        again = blis_tui.Simulation(load())
        again.restore(saved)
        again.run()
        assert again.digest() == simulation.digest()


@pytest.mark.parametrize("drain", ["wait", "redirect", "immediate"])
def test_instances_that_go_take_those_who_were_given_up_with_them(drain: str) -> None:
    changed: dict[str, object] = {
        "policy.batching": {"kind": "sglang", "schedule_conservativeness": 0.05},
        "cluster.lifecycle.drain": drain,
        "workload.clients.0.timeout_us": 1_200_000,
        "workload.requests": 100,
        "expect": [],
    }
    simulation = blis_tui.Simulation(blis_tui.load("autoscaling", set=changed), check="all")
    simulation.run()
    assert simulation.report().requests.timed_out > 20
    assert not any(instance.batch.given_up or instance.seen.present for instance in simulation.cluster.instances)


# ---- what it says of itself ----


def test_what_cannot_fit_is_cut_or_turned_down_at_the_door() -> None:
    # A request enters when prompt + answer + 1 < blocks.
    outcome = run([request(0, 0, 10, 99), request(1, 0, 28, 1), request(2, 0, 27, 9)], blocks=30)
    assert [row.state for row in outcome.rows.values()] == ["completed", "dropped-unservable", "completed"]
    assert [row.output_tokens for row in outcome.rows.values()] == [18, 0, 1]


def test_an_answer_is_cut_by_two_tokens_at_most_to_the_longest_request() -> None:
    # With a context of 32 tokens, SGLang refuses who declares more than it leaves, and ends all others 2 tokens before.
    outcome = run(
        [request(index, 0, 10, declared) for index, declared in enumerate((20, 21, 22, 23))], max_model_len=30
    )
    assert [row.output_tokens for row in outcome.rows.values()] == [20, 20, 20, 0]
    assert [row.state for row in outcome.rows.values()][2:] == ["completed", "dropped-unservable"]


@pytest.mark.parametrize(
    ("page", "caching", "ignores"),
    [(1, True, False), (1, False, False), (4, True, False), (4, False, False), (1, False, True)],
)
def test_an_answer_is_cut_to_what_whole_pages_of_its_prompt_leave(page: int, caching: bool, ignores: bool) -> None:
    asked = request(0, 0, 5, 100)
    asked.ignore_eos = ignores
    outcome = run([asked], block_size=page, blocks=40 // page, caching=caching)
    prompt = -(-5 // page) * page
    assert outcome.rows["0"].output_tokens == 40 - page - 1 - prompt - ignores


def test_the_queue_is_looked_into_every_so_many_decodes() -> None:
    for interval, steps_before in ((1, 2), (5, 6)):
        outcome = run([request(0, 0, 4, 12), request(1, 110, 4, 1)], {"scheduler_recv_interval": interval})
        assert [at for at, (chunks, _, _) in enumerate(work(outcome)) if chunks] == [0, steps_before]


def test_what_it_has_no_use_for_is_refused() -> None:
    with pytest.raises(PolicyError, match="has no radix tree, which `lpm` needs"):
        Outcome(experiment(scheduling="lpm"), [])
    with pytest.raises(PolicyError, match="chooses by itself which requests to retract"):
        Outcome(experiment(batching="sglang", victim="priority"), [])
    with pytest.raises(PolicyError, match="orders queues that are `fcfs` or `lof`, not `lpm`"):
        Outcome(experiment(batching="sglang", settings={"enable_priority_scheduling": True}, scheduling="lpm"), [])


# ---- who waits for what ----


def test_who_waits_behind_a_plan_that_takes_all_tokens_does_not_wait_for_a_place() -> None:
    requests = [request(number, 0, 64, 2) for number in range(4)]
    outcome = run(requests, {"overlap_schedule": True, "chunked_prefill_size": 64}, max_num_seqs=2)
    prompts = [({name: 64}, 0, ()) for name in "0123"]
    assert work(outcome) == [*prompts[:2], ({}, 2, ()), *prompts[2:], ({}, 2, ())]
    # While the first prompt is computed, and the third, the plan behind it has another one and no token left. While the
    # second is, and in the step after it, there is no place.
    assert outcome.cluster.instances[0].tallies.seqs_wait_us == 164 + 120


@pytest.mark.parametrize(("kind", "says"), [("sglang", True), ("tensorrt-llm", True), ("nano", False)])
def test_a_refusal_says_whether_the_engine_would_have_refused(kind: str, says: bool) -> None:
    for setting, value in (
        ("engine.pipeline_parallel", 2),
        ("engine.speculative", {"draft_tokens": 2, "acceptance": 0.5}),
    ):
        with pytest.raises(SpecError) as refused:
            blis_tui.load("quickstart", set={"policy.batching": kind, setting: value})
        assert ("but it is not simulated with its batching rule" in str(refused.value)) == says, setting


def test_a_request_without_a_place_for_its_adapter_is_passed_over_and_the_base_model_takes_one() -> None:
    made = experiment(batching="sglang", settings={"overlap_schedule": False}, block_size=1, blocks=1000)
    (pool,) = made.pools
    lora = Lora(max_loras=1, max_cpu_loras=4, step_overhead=0.0, base_latency_us=0, storage_latency_us=0)
    made = replace(made, pools=(replace(pool, engine=replace(pool.engine, lora=lora)),))
    requests = [
        request(0, 0, 8, 3),
        request(1, 10, 8, 2, adapter="a"),
        request(2, 20, 8, 2),
        request(3, 30, 8, 1, adapter="a"),
    ]
    outcome = Outcome(made, requests)
    steps = [record for record in outcome.records if isinstance(record, StepFinished) and record.chunks]
    assert [[chunk.request_id for chunk in step.chunks] for step in steps] == [["0"], ["2"], ["1", "3"]]
    why = [record for record in outcome.records if isinstance(record, SchedulingStopped) and record.cause == "adapter"]
    assert [one.request_id for one in why][:1] == ["1"]
    assert [
        (record.request_id, record.adapter, record.reason)
        for record in outcome.records
        if isinstance(record, AdapterHeld)
    ] == [
        ("1", "a", "slots"),
        ("3", "a", "slots"),
    ]
