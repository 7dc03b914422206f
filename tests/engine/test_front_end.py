"""The process in front of an engine: who waits for it, and for how long."""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

import blis_tui
from blis_tui.base.streams import Streams
from blis_tui.engine.client_times import FrontEnd, ServiceTimes
from blis_tui.engine.latency.model import StepLoad
from tests.builders import request

if TYPE_CHECKING:
    from blis_tui.results.request_log import RequestRow

TIMES = ServiceTimes(request_us=1000.0, prompt_token_us=2.0, stream_us=50.0)
IDLE = StepLoad()


class Steps:
    """All take 10 ms."""

    output_token_overhead_us = post_decode_overhead_us = 0

    def step_time_us(self, load: StepLoad) -> int:
        return 10_000 if load.decode_requests else 1

    def queueing_time_us(self, request: object) -> int:
        return 0


def front_end() -> FrontEnd:
    return FrontEnd(TIMES, Streams(7).stream("front-end/0"), Steps())


def works(tokens: list[int]) -> list[float]:
    """What requests with these prompts take: half of it always, half drawn."""
    stream = Streams(7).stream("front-end/0")
    return [(1000.0 + 2.0 * token) * (1.0 + stream.exponential()) / 2.0 for token in tokens]


def accepted(found: FrontEnd, arrivals: list[tuple[int, int]]) -> list[int]:
    """When requests are accepted that arrive with (time, prompt tokens), in order."""
    requests = [request(at, now, tokens, 1) for at, (now, tokens) in enumerate(arrivals)]
    first = [now + found.delay_us(one, IDLE, now) for one, (now, _) in zip(requests, arrivals, strict=True)]
    times = [found.accepted_us(one) or time for one, time in zip(requests, first, strict=True)]
    assert all(time >= before for time, before in zip(times, first, strict=True))
    for one in requests:
        found.forget(one)
    return times


def looped(arrivals: list[tuple[int, int]], first_pass: float) -> list[int]:
    """The same by an event loop: as long as requests wait it takes all of them, and accepts one after the other."""
    work = [int(one) for one in works([tokens for _, tokens in arrivals])]
    times: list[int] = []
    free = 0
    while len(times) < len(arrivals):
        first = len(times)
        start = max(free, arrivals[first][0])
        # One that finds it idle is taken in alone.
        more = [at for at in range(first, len(arrivals)) if arrivals[at][0] < start] or [first]
        in_all = sum(work[at] for at in more)
        for number in range(len(more)):
            up_to = sum(work[at] for at in more[: number + 1])
            times.append(start + int(first_pass * in_all + (1.0 - first_pass) * up_to))
        free = start + in_all
    return times


@given(
    gaps=st.lists(st.tuples(st.sampled_from((0, 0, 0, 1, 400, 2000, 20_000)), st.integers(1, 3000)), max_size=40),
    first_pass=st.sampled_from((0.0, 0.25, 0.5, 1.0)),
)
def test_those_that_wait_are_taken_in_together(gaps: list[tuple[int, int]], first_pass: float) -> None:
    arrivals = list(zip(accumulate(gap for gap, _ in gaps), (tokens for _, tokens in gaps), strict=True))
    found = FrontEnd(TIMES._replace(first_pass=first_pass), Streams(7).stream("front-end/0"), Steps())
    assert accepted(found, arrivals) == looped(arrivals, first_pass)


def test_without_a_first_pass_one_request_follows_the_other() -> None:
    first, second, third = map(int, works([100, 900, 10]))
    found = FrontEnd(TIMES._replace(first_pass=0.0), Streams(7).stream("front-end/0"), Steps())
    assert accepted(found, [(0, 100), (0, 900), (50_000, 10)]) == [first, first + second, 50_000 + third]


def test_the_engine_begins_late_with_a_burst() -> None:
    """Of 1,000 requests of 4 ms, the second is accepted after half of all their work, the last one after all of it."""
    times = ServiceTimes(request_us=4000.0, prompt_token_us=0.0, varying=0.0)
    found = FrontEnd(times, Streams(7).stream("front-end/0"), Steps())
    burst = accepted(found, [(0, 100)] * 1000)
    assert burst[0] == 4000
    assert burst[1] == 4000 + 999 * 4000 // 2 + 2000
    assert burst[-1] == 1000 * 4000


def test_streams_leave_it_the_rest_of_its_time() -> None:
    """40 tokens every 10 ms at 50 us each are a fifth of it; however many there are, a fifth is left."""
    (alone,) = works([500])
    for streams, left in ((40, 0.8), (100, 0.5), (1000, 0.2)):
        busy = front_end().delay_us(request(0, 0, 500, 1), StepLoad([], streams, streams * 100), 0)
        assert busy == int(alone / left)


def test_who_comes_first_is_taken_in_first() -> None:
    taken = accepted(front_end(), [(at * 700, 300) for at in range(50)])
    assert all(before < after for before, after in pairwise(taken))
    assert taken[-1] > 49 * 700 + 20_000  # 1.6 ms each, one every 0.7 ms


def test_processes_take_requests_in_turn() -> None:
    """Two of them: the third request waits for the first alone; streaming takes half as much of each."""
    times = ServiceTimes(request_us=1000.0, prompt_token_us=2.0, stream_us=50.0, varying=0.0, processes=2)
    found = FrontEnd(times, Streams(7).stream("front-end/0"), Steps())
    # The third and the fifth are taken in together.
    assert accepted(found, [(0, 500)] * 5) == [2000, 2000, 5000, 4000, 6000]
    assert found.delay_us(request(5, 10_000, 500, 1), StepLoad([], 100, 10_000), 10_000) == int(2000 / 0.75)
    assert found.state()[:3] == (((2000, 4000), (10_000, int(2000 / 0.75))), 0, ())


def closed_loop(users: int, **latency: object) -> list[RequestRow]:
    """Users whose prompts and answers are all equally long."""
    client = {
        "id": "users",
        "arrivals": {"kind": "closed-loop", "users": users},
        "input_tokens": 512,
        "output_tokens": 40,
    }
    overrides = {
        "model": "llama-3.1-8b-instruct",
        "hardware": "h100",
        "latency": {"kind": "operators", **latency},
        "workload": {"requests": 5 * users, "clients": [client]},
        "expect": [],
    }
    simulation = blis_tui.Simulation(blis_tui.load("steady-chat", set=overrides))
    simulation.run()
    return list(simulation.report().rows)


def test_without_one_a_request_waits_for_nobody() -> None:
    off = closed_loop(4, queue_us=900, request_us=0, prompt_token_us=0)
    assert all(row.queued_us == row.arrival_us + 900 for row in off)


def test_users_who_ask_at_once_are_served_apart() -> None:
    together, apart = (closed_loop(8, **one) for one in ({"request_us": 0, "prompt_token_us": 0}, {}))
    assert len({row.queued_us for row in together[:8]}) == 1
    assert len({row.queued_us for row in apart[:8]}) == 8
    # In each of five rounds all users wait for each other's prompts, or for few of them.
    ends = [len({row.completed_us for row in rows[-8:]}) for rows in (together, apart)]
    assert ends[0] < ends[1]


def test_any_step_times_may_have_one() -> None:
    """Said of the engine, it is there with step times that know none, and counts before those that do."""
    client = {"id": "all", "arrivals": {"kind": "closed-loop", "users": 6}, "input_tokens": 300, "output_tokens": 5}
    front_end = {"request_us": 4000, "prompt_token_us": 10, "varying": 0}
    for kind, besides in (("roofline", 0), ("operators", 3600)):  # which it takes whatever else goes on
        overrides = {
            "model": "llama-3.1-8b-instruct",
            "hardware": "h100",
            "latency": {"kind": kind},
            "engine.front_end": front_end,
            "workload": {"requests": 6, "clients": [client]},
            "expect": [],
        }
        simulation = blis_tui.Simulation(blis_tui.load("steady-chat", set=overrides))
        simulation.run()
        rows = simulation.report().rows
        # Nothing is streamed while the first of them come in; each keeps it busy for 7 ms. Half of that is a first
        # pass: the second waits for those of the four behind it, too.
        assert [row.queued_us for row in rows][:2] == [7000 + besides, 28_000 + besides]
        assert len({row.queued_us for row in rows}) == 6


def test_no_process_is_none() -> None:
    overrides = {"latency": {"kind": "roofline"}, "model": "llama-3.1-8b-instruct", "hardware": "h100", "expect": []}
    simulation = blis_tui.Simulation(blis_tui.load("steady-chat", set=overrides))
    assert [instance.front_end for instance in simulation.cluster.instances] == [None] * len(
        simulation.cluster.instances
    )


def last_accepted_us(model: str, batching: str, **more: object) -> int:
    """When the last of 20 requests that come at once reaches the scheduler."""
    client = {"id": "all", "arrivals": {"kind": "closed-loop", "users": 20}, "input_tokens": 64, "output_tokens": 2}
    overrides = {
        "model": model,
        "hardware": "h100",
        "cluster.tensor_parallel": 2,
        "policy.batching": {"kind": batching},
        "latency": {"kind": "operators", "sampling": "plain"},
        "engine.front_end": {"varying": 0},
        "workload": {"requests": 20, "clients": [client], **more.pop("workload", {})},  # type: ignore[dict-item]
        "expect": [],
        **more,
    }
    simulation = blis_tui.Simulation(blis_tui.load("steady-chat", set=overrides))
    simulation.run()
    return max(row.queued_us or 0 for row in simulation.report().rows)


@pytest.mark.parametrize(
    ("model", "batching", "version", "more_us"),
    [
        ("qwen3-14b", "vllm-v1", "0.11.0", 7000),
        ("qwen3-14b", "vllm-v1", "0.11.1", 0),
        ("qwen3-14b", "vllm-v1", "0.10.2", 0),
        ("gpt-oss-120b", "vllm-v1", "0.11.0", 1300 - 3900),
        ("gpt-oss-120b", "vllm-v1", "0.32.0", 1300 - 3900),
        ("gpt-oss-120b", "sglang", "0.5.6", 0),
    ],
)
def test_chat_requests_of_some_servers_take_longer_or_shorter(
    model: str, batching: str, version: str, more_us: int
) -> None:
    """The process works on 20 requests, one after the other, so the last one comes 20 times as much later."""
    engine = {"engine.version": version}
    late = last_accepted_us(model, batching, workload={"endpoint": "chat"}, **engine)
    assert late - last_accepted_us(model, batching, **engine) == 20 * more_us


def test_what_a_document_says_of_requests_counts_before_the_endpoint() -> None:
    own = {"engine.front_end": {"varying": 0, "request_us": 5000}, "engine.version": "0.11.0"}
    both = [
        last_accepted_us("qwen3-14b", "vllm-v1", workload={"endpoint": at}, **own) for at in ("completions", "chat")
    ]
    assert both[0] == both[1]
    of_steps = {"latency": {"kind": "operators", "sampling": "plain", "request_us": 5000}, "engine.version": "0.11.0"}
    assert last_accepted_us("qwen3-14b", "vllm-v1", workload={"endpoint": "chat"}, **of_steps) == both[0]
