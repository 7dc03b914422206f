"""Steps that are planned while others run, by hand. They take 100 + prefill + 10 * decodes microseconds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.cluster.cluster import Cluster
from blis_tui.engine.records import ChunkDone, Observers, StepFinished
from blis_tui.results.request_log import RequestLog
from tests.builders import ListSource, Outcome, experiment, request

if TYPE_CHECKING:
    from blis_tui.engine.request import Request
    from blis_tui.model import Experiment


def planning_ahead(budget: int = 64) -> Experiment:
    return experiment(batching="vllm-v1", settings={"async_scheduling": True}, budget=budget)


def steps(requests: list[Request], budget: int = 64) -> list[StepFinished]:
    outcome = Outcome(planning_ahead(budget), requests)
    return [record for record in outcome.records if isinstance(record, StepFinished)]


def test_a_step_computes_who_timed_out_since_it_was_planned() -> None:
    # Steps begin at 0, 116, 236, 356. The second one is under way at 160, and the third one planned.
    found = steps([request(0, 0, 8, 6), request(1, 0, 8, 6, deadline_us=160)])
    assert [(step.decode_requests, step.decode_context_tokens, step.duration_us) for step in found[:4]] == [
        (0, 0, 116),
        (2, 8 + 8, 120),
        (2, 9 + 9, 120),
        (1, 10, 110),
    ]
    assert [step.running for step in found[:4]] == [2, 2, 1, 1]


def test_so_it_computes_the_chunk_of_a_prompt_and_whom_it_was_to_admit() -> None:
    # The first step, of 110, has 8 tokens of 0; the second, planned at once, 2 of 0 and 6 of 1.
    first, second, third, *_ = steps([request(0, 0, 10, 3), request(1, 0, 9, 3, deadline_us=50)], budget=8)
    assert first.chunks == (ChunkDone("0", 0, 8),)
    assert (second.admitted, second.chunks) == (("1",), (ChunkDone("0", 8, 2), ChunkDone("1", 0, 6)))
    assert (third.chunks, third.decode_requests, third.running) == ((), 1, 1)


def test_a_step_for_nobody_is_waited_for() -> None:
    found = steps([request(0, 0, 8, 6, deadline_us=160), request(1, 300, 8, 1)])
    assert [(step.time_us, step.duration_us, step.running) for step in found] == [
        (0, 108, 1),
        (108, 110, 1),
        (218, 110, 0),
        (328, 108, 0),
    ]


def test_blocks_are_free_when_the_step_under_way_is_over() -> None:
    asked = [request(0, 0, 8, 6), request(1, 0, 8, 6, deadline_us=160)]
    cluster = Cluster(planning_ahead(), ListSource(asked), RequestLog(), Observers())
    used = []
    for until in (159, 235, 236):
        cluster.run(1000, until)
        used.append(cluster.instances[0].pool.used)
    assert used == [6, 6, 3]
