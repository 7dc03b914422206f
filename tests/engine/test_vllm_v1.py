"""``prefill_schedule_interval`` on cases small enough to follow by hand; ``tests/parity`` has runs of vLLM."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.engine.stopped import CADENCE, SchedulingStopped
from tests.builders import Outcome, experiment, request
from tests.engine.test_schedulers import work

if TYPE_CHECKING:
    from blis_tui.engine.request import Request


def run(requests: list[Request], interval: int, **limits: int) -> Outcome:
    settings = {"version": "0.33", "async_scheduling": False, "prefill_schedule_interval": interval}
    return Outcome(experiment(batching="vllm-v1", settings=settings, **limits), requests)  # type: ignore[arg-type]


def chunks(outcome: Outcome) -> list[dict[str, int]]:
    return [found for found, _, _ in work(outcome)]


def test_a_prompt_waits_until_the_interval_is_over() -> None:
    outcome = run([request(0, 0, 8, 9), request(1, 50, 8, 1)], 4)
    assert chunks(outcome)[:6] == [{"0": 8}, {}, {}, {}, {"1": 8}, {}]
    stops = [record for record in outcome.records if isinstance(record, SchedulingStopped)]
    assert [(one.cause, one.request_id, one.need, one.had) for one in stops] == [
        (CADENCE, "1", 4, number) for number in (1, 2, 3)
    ]


def test_chunks_of_a_prompt_wait_as_well() -> None:
    outcome = run([request(0, 0, 4, 12), request(1, 350, 40, 1)], 3, budget=16)
    # When it comes, three steps with decodes alone have begun. With 15 tokens for each step, it takes three of them.
    assert chunks(outcome) == [{"0": 4}, {}, {}, {}, {"1": 15}, {}, {}, {"1": 15}, {}, {}, {"1": 10}, {}]


def test_without_decodes_nobody_waits() -> None:
    outcome = run([request(0, 0, 40, 1), request(1, 50, 8, 1)], 5, budget=16)
    assert chunks(outcome) == [{"0": 16}, {"0": 16}, {"0": 8, "1": 8}]


def test_where_the_queue_cannot_be_emptied_prompts_are_computed_in_each_step() -> None:
    there = [request(0, 0, 8, 30), *(request(number, 50, 24, 1) for number in (1, 2, 3))]
    outcome = run(there, 4, budget=16)
    # In the step in which prompts may be computed again, two requests have to stay; from then on nothing pauses.
    assert chunks(outcome)[:10] == [
        *({"0": 8}, {}, {}, {}),
        *({"1": 15}, {"1": 9, "2": 6}, {"2": 15}, {"2": 3, "3": 12}, {}, {}),
    ]


def test_who_needs_only_its_last_token_enters_in_any_step() -> None:
    shared = (("system", 8),)
    there = [request(0, 0, 9, 12, segments=shared), request(1, 50, 9, 1, segments=shared), request(2, 60, 10, 1)]
    outcome = run(there, 5)
    assert chunks(outcome)[:6] == [{"0": 9}, {"1": 1}, {}, {}, {}, {"2": 10}]
