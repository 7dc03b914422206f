"""What a plan says that seeds decide, against the streams that are really read."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

import blis_tui
from blis_tui.base.streams import Stream, stream_key
from blis_tui.study.planning.plan import other_random_draws
from tests.cluster.fleets import fleet

if TYPE_CHECKING:
    from blis_tui.model import Experiment

FRONT_END = "how long the front end takes per request"
ROUTER = "which instance the router chooses"
DRAFTS = "which drafts are accepted"
COMING = "when instances come and go"


def traced(**changes: object) -> Experiment:
    return blis_tui.load("trace-replay", set={"cluster.instances": 3, **changes})


PLAIN = {"policy.routing": "round-robin", "latency": "roofline"}
SERVED = {"policy.routing": "round-robin", "latency": "operators"}
DRAFTED = {
    "policy.batching": {"kind": "vllm-v1", "async_scheduling": False},
    "engine.speculative": {"draft_tokens": 2, "acceptance": 0.6},
}
FAILING = {"cluster.failures": [{"instance": 1, "mean_time_between_us": 5_000_000, "repair_us": 1_000_000}]}


def read_streams(monkeypatch: pytest.MonkeyPatch, made: Experiment) -> dict[str, int]:
    """How many numbers were drawn from which streams, by the beginning of their names."""
    names = {stream_key(made.seed, f"front-end/{index}"): "front end" for index in range(99)}
    names |= {stream_key(made.seed, "policy/routing"): "router"}
    read = Counter[str]()
    next_word = Stream.next_word

    def counting(self: Stream) -> int:
        read[names.get(self._key, "other")] += 1
        return next_word(self)

    with monkeypatch.context() as patched:
        patched.setattr(Stream, "next_word", counting)
        blis_tui.run(made)
    return read


@pytest.mark.parametrize(
    ("changes", "draws"),
    [
        (PLAIN, ()),
        (SERVED, (FRONT_END,)),
        ({"latency": "roofline", "policy.routing": "power-of-two"}, (ROUTER,)),
        ({**SERVED, "policy.routing": "power-of-two"}, (FRONT_END, ROUTER)),
    ],
)
def test_what_is_said_to_be_drawn_is_what_is_read(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, object], draws: tuple[str, ...]
) -> None:
    made = traced(**changes)
    assert other_random_draws(made) == draws
    read = read_streams(monkeypatch, made)
    assert (read["front end"] > 0, read["router"] > 0, read["other"]) == (FRONT_END in draws, ROUTER in draws, 0)
    reports = [blis_tui.run(traced(**changes, seed=seed)).to_dict()["latency"] for seed in (1, 2, 3)]
    assert (reports[0] == reports[1] == reports[2]) == (not draws)


def test_drafts_are_luck() -> None:
    assert DRAFTS in other_random_draws(traced(**PLAIN, **DRAFTED))


def test_generated_requests_are_not_counted() -> None:
    """Their streams are the workload's."""
    assert other_random_draws(blis_tui.load("quickstart", set={**PLAIN, "workload.requests": 20})) == ()


def test_instances_that_fail_at_random() -> None:
    assert COMING not in other_random_draws(fleet("GROWING"))  # at times that are said
    assert COMING in other_random_draws(traced(**PLAIN, **FAILING))
