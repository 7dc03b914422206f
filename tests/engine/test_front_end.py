"""The process in front of an engine: who waits for it, and for how long."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

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
    return [(1000.0 + 2.0 * one) * (1.0 + stream.exponential()) / 2.0 for one in tokens]


def test_one_request_after_the_other() -> None:
    tokens, times = [100, 900, 10], [0, 0, 50_000]
    first, second, third = map(int, works(tokens))
    found = front_end()
    delays = [
        found.delay_us(request(at, now, new, 1), IDLE, now)
        for at, (new, now) in enumerate(zip(tokens, times, strict=True))
    ]
    assert delays == [first, first + second, third]


def test_streams_leave_it_the_rest_of_its_time() -> None:
    """40 tokens every 10 ms at 50 us each are a fifth of it; however many there are, a fifth is left."""
    (alone,) = works([500])
    for streams, left in ((40, 0.8), (100, 0.5), (1000, 0.2)):
        busy = front_end().delay_us(request(0, 0, 500, 1), StepLoad([], streams, streams * 100), 0)
        assert busy == int(alone / left)


def test_who_comes_first_is_taken_in_first() -> None:
    found = front_end()
    arrivals = [at * 700 for at in range(50)]
    taken = [now + found.delay_us(request(at, now, 300, 1), IDLE, now) for at, now in enumerate(arrivals)]
    assert all(before < after for before, after in pairwise(taken))
    assert taken[-1] > arrivals[-1] + 20_000  # 1.6 ms each, one every 0.7 ms


def test_processes_take_requests_in_turn() -> None:
    """Two of them: the third request waits for the first alone; streaming takes half as much of each."""
    times = ServiceTimes(request_us=1000.0, prompt_token_us=2.0, stream_us=50.0, varying=0.0, processes=2)
    found = FrontEnd(times, Streams(7).stream("front-end/0"), Steps())
    assert [found.delay_us(request(at, 0, 500, 1), IDLE, 0) for at in range(5)] == [2000, 2000, 4000, 4000, 6000]
    assert found.delay_us(request(5, 10_000, 500, 1), StepLoad([], 100, 10_000), 10_000) == int(2000 / 0.75)
    assert found.state()[:3] == (6000, 10_000 + int(2000 / 0.75), 0)


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
    said = {"request_us": 4000, "prompt_token_us": 10, "varying": 0}
    for kind, besides in (("roofline", 0), ("operators", 3600)):  # which it takes whatever else goes on
        overrides = {
            "model": "llama-3.1-8b-instruct",
            "hardware": "h100",
            "latency": {"kind": kind},
            "engine.front_end": said,
            "workload": {"requests": 6, "clients": [client]},
            "expect": [],
        }
        simulation = blis_tui.Simulation(blis_tui.load("steady-chat", set=overrides))
        simulation.run()
        rows = simulation.report().rows
        # Nothing is streamed while the first of them come in; each keeps it busy for 7 ms.
        assert [row.queued_us for row in rows][:2] == [7000 + besides, 14_000 + besides]
        assert len({row.queued_us for row in rows}) == 6


def test_no_process_is_none() -> None:
    overrides = {"latency": {"kind": "roofline"}, "model": "llama-3.1-8b-instruct", "hardware": "h100", "expect": []}
    simulation = blis_tui.Simulation(blis_tui.load("steady-chat", set=overrides))
    assert [one.front_end for one in simulation.cluster.instances] == [None] * len(simulation.cluster.instances)
