"""Plans and sensitivity: an API server that limits an instance, and its processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import blis_tui
from blis_tui.study.api import study_from
from blis_tui.study.planning.answer import busy_processes
from blis_tui.study.runners import InProcessRunner
from blis_tui.study.sensitivity import PROCESSES, Effect, sensitivity
from blis_tui.study.store import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Mapping

_SHORT: Mapping[str, object] = {
    "model": "llama-3.1-8b-instruct",
    "hardware": "h100",
    "latency": {"kind": "operators", "sampling": "plain"},
    "cluster": {"instances": 1, "tensor_parallel": 1},
    "engine": {"front_end": {"request_us": 10_000}},
    "workload": {
        "requests": 200,
        "rate_per_s": 120,
        "clients": [{"id": "a", "arrivals": "poisson", "input_tokens": 64, "output_tokens": 4}],
    },
    "expect": [],
}
"""Short prompts and answers, at a rate that a process of 10 ms a request cannot take."""
_SIZES = ("cluster.instances", 1, 8)
_BOUND = "latency.ttft_ms.p50<=200"


def test_processes_are_proposed_where_they_are_what_an_instance_lacks() -> None:
    made = blis_tui.plan("quickstart", slos=[_BOUND], set=dict(_SHORT), seeds=[1], duration_s=3, sizes=_SIZES)
    assert made.best is not None
    assert made.best.size == 2
    assert made.front_end is not None
    assert (made.front_end.size, made.front_end.processes) == (1, 2)


def test_what_a_request_takes_is_that_of_its_endpoint() -> None:
    """100 completions a second take 0.39 of a process, as many chat requests of vLLM 0.11.0 more than all of it."""
    usual = {**_SHORT, "engine": {"version": "0.11.0"}, "policy.batching": {"kind": "vllm-v1"}}
    for endpoint, busy in (("completions", None), ("chat", 1)):
        experiment = blis_tui.load("quickstart", set={**usual, "workload.endpoint": endpoint})
        assert busy_processes(experiment, 100.0, 1) == busy
    given = {**usual, "workload.endpoint": "chat", "engine": {"version": "0.11.0", "front_end": {"request_us": 3900}}}
    assert busy_processes(blis_tui.load("quickstart", set=given), 100.0, 1) is None


def test_processes_are_not_proposed_where_the_gpu_is_the_limit() -> None:
    long = {"requests": 60, "rate_per_s": 12, "clients": [{"id": "a", "input_tokens": 8000, "output_tokens": 4}]}
    changes = {**_SHORT, "workload": long, "engine": {}}
    made = blis_tui.plan(
        "quickstart", slos=["latency.ttft_ms.p50<=900"], set=changes, seeds=[1], duration_s=3, sizes=_SIZES
    )
    assert made.best is not None
    assert (made.best.size or 0) > 1
    assert made.front_end is None


def tried(settings: Mapping[str, object]) -> list[Effect]:
    study = study_from("quickstart", {}, [1, 2], settings, [_BOUND], (), (), {})
    with InProcessRunner() as runner:
        found = sensitivity(study, runner, MemoryStore())
    return [effect for effect in found.effects if effect.path == PROCESSES]


def test_processes_are_among_what_is_tried() -> None:
    (two,) = tried(_SHORT)
    assert (two.now, two.value, two.holds) == (1, 2, 2)
    assert not tried({**_SHORT, "engine": {}, "latency": "roofline"})  # which knows no API server
