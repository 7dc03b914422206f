"""What is named as the cause of a difference is what was made different."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeAlias

import pytest

from blis_tui.live.twin.twin import compare_with_simulation
from blis_tui.live.twin.twin_text import twin_text
from tests.live.twin.servers import DECODE_US, PREFILL_US, STEP_US, experiment, recorded

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from blis_tui.live.observe.recording import Observed

SEEDS: Final = (12, 17)


def _steps(factor: float, prefills: float = 1.0) -> dict[str, object]:
    return {"latency__beta": [STEP_US * factor, PREFILL_US * factor * prefills, DECODE_US * factor]}


def _as_it_is(row: Observed) -> Observed:
    return row


def _through_a_front_end(row: Observed) -> Observed:
    """It was sent up to 30 ms before it came to the scheduler, each its own time."""
    return replace(row, sent_us=row.sent_us - int(row.request_id.removeprefix("request_")) * 7919 % 30_000)


SHARED: Final[Mapping[str, object]] = {
    "workload__clients": [
        {
            "id": "c",
            "prefix": {"group": "g", "tokens": 160},
            "input_tokens": {"kind": "uniform", "min": 20, "max": 100},
            "output_tokens": {"kind": "uniform", "min": 5, "max": 60},
        }
    ]
}
COLD: Final[Mapping[str, object]] = {**SHARED, "engine__enable_prefix_caching": False}


def _in_group(row: Observed) -> Observed:
    return replace(row, segments=(("g", 160),))


COLD_BLOCKS: Final[Mapping[str, object]] = {"engine__kv_blocks": 70, "engine__enable_prefix_caching": False}


Changes: TypeAlias = "Callable[[Observed], Observed]"
BLOCKS: Final = {"batch", "preemption"}
AHEAD: Final = "front end or async scheduling"
ASYNC: Final = {"policy__batching": "vllm-v1"}
CASES: Final[Mapping[str, tuple[Mapping[str, object], Mapping[str, object], Changes, set[str]]]] = {
    "requests take their time to the scheduler": ({}, {}, _through_a_front_end, {"front end", AHEAD}),
    "slower steps": (_steps(1.3), {}, _as_it_is, {"step time"}),
    "hardly slower steps": (_steps(1.03), {}, _as_it_is, {"step time"}),
    "faster steps": (_steps(0.8), {}, _as_it_is, {"step time"}),
    "slower prefills": (_steps(1.0, 3.0), {}, _as_it_is, {"step time"}),
    "a smaller batch": ({"engine__max_num_seqs": 4}, {}, _as_it_is, {"batch"}),
    "a larger batch": ({}, {"engine__max_num_seqs": 4}, _as_it_is, {"batch"}),
    "a smaller token budget": ({"engine__max_num_batched_tokens": 64}, {}, _as_it_is, {"batch"}),
    "a larger token budget": ({}, {"engine__max_num_batched_tokens": 64}, _as_it_is, {"batch"}),
    "another order of the queue": (
        {"policy__scheduling": "lof", "engine__max_num_seqs": 4},
        {"engine__max_num_seqs": 4},
        _as_it_is,
        {"batch"},
    ),
    "another batching rule": ({"policy__batching": "nano"}, {}, _as_it_is, {"batch"}),
    "another order of the queue, and other lengths": ({"policy__scheduling": "sjf"}, {}, _as_it_is, {"batch"}),
    "a scheduler that plans a step ahead": (ASYNC, {}, _as_it_is, {AHEAD}),
    "a scheduler that does not": ({}, ASYNC, _as_it_is, {"batch"}),
    "SGLang": ({"policy__batching": "sglang"}, {}, _as_it_is, {AHEAD}),
    "SGLang in the simulation": ({}, {"policy__batching": "sglang"}, _as_it_is, {"batch"}),
    "TensorRT-LLM": ({"policy__batching": "tensorrt-llm"}, {}, _as_it_is, {AHEAD}),
    "TensorRT-LLM in the simulation": ({}, {"policy__batching": "tensorrt-llm"}, _as_it_is, {"batch"}),
    "fewer KV blocks": ({"engine__kv_blocks": 70}, {}, _as_it_is, BLOCKS),
    "more KV blocks": ({}, {"engine__kv_blocks": 70}, _as_it_is, BLOCKS),
    "a cache that the simulation lacks": (SHARED, COLD, _in_group, {"cache"}),
    "no cache": (COLD, SHARED, _in_group, {"cache"}),
}
"""How the server differs; the server, the simulation, what is done to rows, and what may be named."""


@pytest.mark.parametrize("case", CASES)
def test_the_cause_that_is_named_is_the_one_that_was_made(case: str, tmp_path: Path) -> None:
    server, simulated, change, causes = CASES[case]
    named = []
    for seed in SEEDS:
        recording = recorded(experiment(seed=seed, **server), tmp_path / f"{seed}", change=change)
        parting = compare_with_simulation(recording, experiment(seed=seed, **simulated), "other").parting
        if parting is not None:
            named.append(parting.cause)
    assert named
    assert set(named) <= causes


def test_an_explanation_says_what_the_log_shows(tmp_path: Path) -> None:
    """By hand: 4 requests at most in a step of the server, where the simulation takes up to 32."""
    parting = compare_with_simulation(
        recorded(experiment(engine__max_num_seqs=4), tmp_path / "r"), experiment(), "other"
    ).parting
    assert parting is not None
    assert parting.why.startswith("the server never had more than 4 requests in a step (max_num_seqs); the server took")


@pytest.mark.parametrize(
    ("server", "simulated", "why"),
    [
        (
            {"policy__scheduling": "lof", "engine__max_num_seqs": 4},
            {"engine__max_num_seqs": 4},
            "the server took request_6 in the place of request_4: queues are in another order",
        ),
        ({"engine__max_num_batched_tokens": 128}, {}, "the server never had more than 128 tokens in a step"),
        ({"policy__batching": "nano"}, {}, "beside the prompt the server decoded nothing: batches follow another rule"),
        ({}, {"policy__batching": "nano"}, "beside the prompt the simulation decoded nothing: batches follow another"),
        (ASYNC, {}, "or a scheduler that plans a step ahead (async_scheduling)"),
        ({}, ASYNC, "request_1 waited in the simulation for one step: it plans a step ahead (async_scheduling), or"),
        ({"policy__scheduling": "sjf"}, {}, "the server took request_16 in the place of request_15: queues are in"),
        (COLD_BLOCKS, {"engine__kv_blocks": 70}, "or with more of it in the prefix cache"),
    ],
)
def test_an_explanation_names_what_was_changed(
    server: Mapping[str, object], simulated: Mapping[str, object], why: str, tmp_path: Path
) -> None:
    recording = recorded(experiment(seed=12, **server), tmp_path / "r")
    parting = compare_with_simulation(recording, experiment(seed=12, **simulated), "other").parting
    assert parting is not None
    assert why in parting.why


def test_a_request_that_comes_many_steps_later_is_one_of_ours(tmp_path: Path) -> None:
    """The last one, of which the recording says that it was sent 2.5 s later than it was."""

    def later(row: Observed) -> Observed:
        if row.request_id != "request_59":
            return row
        chunks = tuple((time_us + 2_500_000, tokens) for time_us, tokens in row.chunks)
        return replace(row, sent_us=row.sent_us + 2_500_000, done_us=row.done_us + 2_500_000, chunks=chunks)

    client = {"id": "c", "input_tokens": 50, "output_tokens": {"kind": "uniform", "min": 150, "max": 200}}
    made = experiment(seed=12, workload__clients=[client], engine__kv_blocks=500)
    recording = recorded(made, tmp_path / "r", change=later)
    twin = compare_with_simulation(recording, made, "other")
    parting, steps = twin.parting, twin.rungs[0].run.steps
    assert parting is not None
    assert parting.step is not None
    (number,) = (number for number, step in enumerate(steps) if "request_59" in step.admitted)
    assert number > parting.step + 64
    assert (parting.request, parting.cause) == ("request_59", "step time")
    assert "after the server's step began, the simulated step before that" in parting.why


@pytest.mark.parametrize("change", [_steps(3.0), {"engine__max_num_seqs": 2}, {}])
def test_without_a_log_no_cause_is_named(change: Mapping[str, object], tmp_path: Path) -> None:
    recording = replace(recorded(experiment(**change), tmp_path / "r"), steps=())
    twin = compare_with_simulation(recording, experiment(), "s")
    text = twin_text(twin)
    if change:
        assert twin.parting is not None
        assert twin.parting.cause == "not known"
        assert "first divergence at" in text
    else:  # which is not to say that the batches are the same
        assert twin.parting is None
        unknown = "unknown without an engine log (observe --log); every TTFT within 20 % or 50 ms"
        assert f"first divergence: {unknown}" in text
