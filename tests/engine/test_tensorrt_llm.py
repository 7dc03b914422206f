"""``tensorrt-llm`` on cases small enough to follow by hand.

Steps take 100 + prefill + 10 * decodes microseconds; blocks hold four tokens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from blis_tui.engine.records import Preempted
from tests.builders import Outcome, experiment, request
from tests.engine.test_schedulers import work

if TYPE_CHECKING:
    from blis_tui.engine.request import Request
    from blis_tui.model import Setting

AFTER_EACH_OTHER = {"disable_overlap_scheduler": True}
"""Steps are planned when the one before is over, which is easier to follow."""


def run(requests: list[Request], settings: dict[str, Setting] | None = None, **limits: int) -> Outcome:
    settings = {**AFTER_EACH_OTHER, **(settings or {})}
    return Outcome(experiment(batching="tensorrt-llm", settings=settings, **limits), requests)  # type: ignore[arg-type]


def preemptions(outcome: Outcome) -> int:
    return sum(isinstance(record, Preempted) for record in outcome.records)


def test_prompts_are_computed_whole_beside_decodes() -> None:
    requests = [request(0, 0, 10, 3), request(1, 50, 8, 1), request(2, 60, 9, 1)]
    # 9 tokens exceed what 8 and a decode leave of 16; the next step takes them.
    assert work(run(requests, budget=16)) == [({"0": 10}, 0, ()), ({"1": 8}, 1, ()), ({"2": 9}, 1, ())]


def test_a_request_enters_only_if_everybody_can_stay_to_the_end() -> None:
    # 8 + 9 - 1 tokens are 4 blocks each: two have 8, of which there are 7.
    requests = [request(0, 0, 8, 9), request(1, 50, 8, 9)]
    guaranteed = run(requests, blocks=7)
    assert preemptions(guaranteed) == 0
    assert [chunks for chunks, _, _ in work(guaranteed) if chunks] == [{"0": 8}, {"1": 8}]
    assert [decodes for _, decodes, _ in work(guaranteed)] == [0, *[1] * 8, 0, *[1] * 8]


@pytest.mark.parametrize("steps", range(8))
def test_what_fits_exactly_enters_at_once_wherever_the_others_stand_in_their_blocks(steps: int) -> None:
    """Both need 4 of 8 blocks in the end; the block of a token that is being generated is taken already."""
    come = 50 if not steps else 108 + 110 * steps - 50
    found = [chunks for chunks, _, _ in work(run([request(0, 0, 8, 9), request(1, come, 8, 9)], blocks=8))]
    assert found[: steps + 2] == [{"0": 8}, *[{}] * steps, {"1": 8}]


def test_utilization_first_admits_whose_prompt_fits_and_preempts() -> None:
    requests = [request(0, 0, 8, 9), request(1, 50, 8, 9)]
    crowded = run(requests, {"capacity_scheduler_policy": "MAX_UTILIZATION"}, blocks=7)
    assert work(crowded)[1] == ({"1": 8}, 1, ())
    assert preemptions(crowded) == 1


def test_prompts_wait_for_others_while_somebody_generates() -> None:
    waiting: dict[str, Setting] = {"batch_wait_timeout_iters": 3, "batch_wait_max_tokens_ratio": 0.5}
    alone = run([request(0, 0, 8, 9), request(1, 50, 8, 1)], waiting, budget=40)
    assert [chunks for chunks, _, _ in work(alone)][:6] == [{"0": 8}, {}, {}, {}, {"1": 8}, {}]
    # 1 decode, 8 and 12 tokens are half of 40: with the second prompt, which comes in step 2, it is time.
    both = run([request(0, 0, 8, 9), request(1, 50, 8, 1), request(2, 150, 12, 1)], waiting, budget=40)
    assert [chunks for chunks, _, _ in work(both)][:4] == [{"0": 8}, {}, {"1": 8, "2": 12}, {}]


def test_nobody_waits_where_nobody_generates() -> None:
    waiting: dict[str, Setting] = {"batch_wait_timeout_iters": 3, "batch_wait_max_tokens_ratio": 1.0}
    outcome = run([request(0, 0, 8, 1), request(1, 50, 8, 1)], waiting, budget=40)
    assert work(outcome) == [({"0": 8}, 0, ()), ({"1": 8}, 0, ())]


def ending_early(index: int, arrival_us: int, prompt: int, answer: int, budget: int) -> Request:
    made = request(index, arrival_us, prompt, answer)
    made.declare(budget)
    return made


def test_an_answer_that_ends_by_itself_is_computed_once_more_and_keeps_its_place_meanwhile() -> None:
    overlap: dict[str, Setting] = {"disable_overlap_scheduler": False}
    # When the last token of 0 is being computed, the step after it is planned with it.
    assert [decodes for _, decodes, _ in work(run([ending_early(0, 0, 8, 3, 9)], overlap))] == [0, 1, 1, 1]
    assert [decodes for _, decodes, _ in work(run([request(0, 0, 8, 3)], overlap))] == [0, 1, 1]
    assert [decodes for _, decodes, _ in work(run([ending_early(0, 0, 8, 3, 9)]))] == [0, 1, 1]
    # As far as that plan knows, 0 may need 4 of 5 blocks, so that 1 waits for one step more.
    crowded = run([ending_early(0, 0, 8, 3, 9), request(1, 200, 8, 1)], overlap, blocks=5)
    assert [chunks for chunks, _, _ in work(crowded)] == [{"0": 8}, {}, {}, {}, {"1": 8}]
    sure = run([request(0, 0, 8, 3), request(1, 200, 8, 1)], overlap, blocks=5)
    assert [chunks for chunks, _, _ in work(sure)] == [{"0": 8}, {}, {}, {"1": 8}]
