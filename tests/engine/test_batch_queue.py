"""``vllm-v1`` in a pipeline: a queue of batches, on cases small enough to follow by hand.

Steps take 100 + prefill + 10 * decodes microseconds; blocks hold four tokens.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from blis_tui.base.errors import PolicyError
from blis_tui.engine.records import Preempted, StepFinished
from blis_tui.model import Speculative
from tests.builders import Outcome, experiment, request

if TYPE_CHECKING:
    from blis_tui.engine.request import Request
    from blis_tui.model import Experiment


def piped(requests: list[Request], stages: int = 2, *, ahead: bool = False, **limits: int) -> Outcome:
    return Outcome(in_stages(stages, ahead=ahead, **limits), requests)


def in_stages(stages: int, *, ahead: bool = False, **limits: int) -> Experiment:
    made = experiment(batching="vllm-v1", settings={"async_scheduling": ahead}, **limits)  # type: ignore[arg-type]
    pool = made.pools[0]
    return replace(made, pools=(replace(pool, engine=replace(pool.engine, pipeline_parallel=stages)),))


def steps(outcome: Outcome) -> list[tuple[int, int, int, int]]:
    """When each was planned, how long it took from then on, its prefilled tokens and its decodes."""
    found = [record for record in outcome.records if isinstance(record, StepFinished)]
    return [
        (step.time_us, step.duration_us, sum(chunk.new_tokens for chunk in step.chunks), step.decode_requests)
        for step in found
    ]


def test_who_comes_while_a_batch_is_under_way_is_seen_when_it_is_over() -> None:
    outcome = piped([request(0, 0, 8, 3), request(1, 1, 8, 2)])
    # The second stage of the pipeline never has work of its own: all that is there is in one batch.
    assert steps(outcome) == [(0, 108, 8, 0), (108, 118, 8, 1), (226, 120, 0, 2)]


def test_chunks_of_a_prompt_follow_one_another() -> None:
    outcome = piped([request(0, 0, 24, 1)], budget=8)
    # The second enters the first stage when the first leaves it, at 54; the third is planned when the first is over.
    assert steps(outcome) == [(0, 108, 8, 0), (0, 162, 8, 0), (108, 108, 8, 0)]


def test_requests_that_do_not_fit_into_one_batch_take_turns() -> None:
    outcome = piped([request(0, 0, 8, 2), request(1, 0, 8, 2)], budget=8)
    assert steps(outcome) == [(0, 108, 8, 0), (0, 162, 8, 0), (108, 110, 0, 1), (162, 111, 0, 1)]


def test_a_decode_is_planned_ahead_as_many_plans_later_as_there_are_stages() -> None:
    outcome = piped([request(0, 0, 8, 3)], ahead=True)
    # At 0 the first decode, which enters when its token is there, at 108; then one that finds nothing, then the next.
    assert steps(outcome) == [(0, 108, 8, 0), (0, 218, 0, 1), (108, 220, 0, 1)]
    tallies = outcome.cluster.instances[0].tallies
    assert (tallies.active_us, tallies.computing_us) == (328, 328)  # so that half of both stages' time is bubble


def test_a_plan_that_finds_nothing_takes_a_place() -> None:
    late = [request(0, 0, 8, 1, deadline_us=0), request(1, 0, 8, 1), request(2, 50, 8, 1), request(3, 50, 8, 1)]
    # Two of three places are taken at first, then nothing is there to plan: the third is taken when 2 and 3 are seen,
    # at 108, one of them goes ahead, and the other has to wait until the second batch is over.
    assert steps(piped(late, ahead=True, budget=8)) == [
        (0, 108, 8, 0),
        (0, 162, 8, 0),
        (108, 108, 8, 0),
        (162, 108, 8, 0),
    ]


def test_a_victim_under_way_keeps_the_token_that_is_being_computed() -> None:
    outcome = piped([request(0, 0, 4, 9), request(1, 0, 4, 9)], budget=4, blocks=4)
    # The fifth decode of 0 needs a third block, at 544. 1 is under way with its fourth decode then.
    lost = [record for record in outcome.records if isinstance(record, Preempted)]
    assert [(one.time_us, one.request_id) for one in lost] == [(544, "1")]
    chunks = [
        record.chunks
        for record in outcome.records
        if isinstance(record, StepFinished) and record.chunks and record.time_us > 544
    ]
    assert [(chunk.request_id, chunk.computed_tokens + chunk.new_tokens) for (chunk,) in chunks][-1] == ("1", 4 + 5)


@pytest.mark.parametrize(("ahead", "prompts", "preempted"), [(False, (8, 3), ["1"]), (True, (8, 5, 8), ["1", "2"])])
def test_whom_a_plan_preempts_that_finds_nothing_to_do_stands_in_the_next_step(
    ahead: bool, prompts: tuple[int, ...], preempted: list[str]
) -> None:
    asked = [request(number, 0, tokens, 6) for number, tokens in enumerate(prompts)]
    outcome = piped(asked, ahead=ahead, budget=8, blocks=4)
    assert [record.request_id for record in outcome.records if isinstance(record, Preempted)] == preempted
    found = [record for record in outcome.records if isinstance(record, StepFinished)]
    assert [name for step in found for name in step.preempted] == preempted


@pytest.mark.parametrize("ahead", [False, True])
def test_the_bubble_is_what_stages_idle_while_any_batch_is_under_way(ahead: bool) -> None:
    outcome = piped([request(n, 37 * n, 5 + n, 1 + n % 5) for n in range(12)], 3, ahead=ahead, budget=9)
    found = steps(outcome)
    covered = {at for start, took, _, _ in found for at in range(start, start + took)}
    computed = sum(100 + prefilled + 10 * decodes for _, _, prefilled, decodes in found)
    tallies = outcome.cluster.instances[0].tallies
    assert (tallies.active_us, tallies.computing_us) == (len(covered), computed)


@pytest.mark.parametrize(
    ("ahead", "method", "refusal"),
    [
        (False, "eagle", "only with asynchronous scheduling"),
        (False, "ngram", "only with asynchronous scheduling"),
        (True, "ngram", "does not support asynchronous scheduling with the drafter `ngram`"),
    ],
)
def test_what_vllm_refuses_beside_pipelines(ahead: bool, method: str, refusal: str) -> None:
    made = in_stages(2, ahead=ahead)
    (pool,) = made.pools
    drafts = Speculative(draft_tokens=2, acceptance=0.5, draft_token_us=0, method=method)
    with pytest.raises(PolicyError, match=refusal):
        Outcome(replace(made, pools=(replace(pool, engine=replace(pool.engine, speculative=drafts)),)), [])
