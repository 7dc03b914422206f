"""The performance lab: what is worked out of a run's own figures, without the measurements."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.lab import HARMONY_US, PARSING_US, chat_us, contradiction


def burst(ttft_s: float, **more: Any) -> dict[str, Any]:
    """1,000 requests at once in 108 s; with 63 ms a token and 200 of them, 118 run at a time."""
    return {
        "load": {"kind": "at-once-sharegpt", "prompts": 1000, "input_total": 217_393, "output_total": 201_600},
        "measured": {"ttft_mean_ms": 1000 * ttft_s, "tpot_mean_ms": 63.45, **more},
    }


@pytest.mark.parametrize("rate", [{"total_tokens_per_s": 3869.3}, {"duration_s": 108.3}])
def test_a_burst_whose_first_tokens_come_before_their_turn_contradicts_itself(rate: dict[str, float]) -> None:
    assert contradiction(burst(15.4, **rate)).endswith("118 at a time: the mean one waits 48 s, not 15")
    assert not contradiction(burst(40.0, **rate))


def test_what_says_too_little_contradicts_nothing() -> None:
    assert not contradiction(burst(15.4))
    closed = burst(1.0, duration_s=108.3)
    closed["load"]["kind"] = "closed"
    assert not contradiction(closed)
    assert not contradiction({**burst(1.0), "measured": {"duration_s": 50.0}})


@pytest.mark.parametrize(
    ("model", "engine", "version", "template", "expected"),
    [
        ("qwen3-32b", "vllm", "0.11.0", 10, PARSING_US),
        ("qwen3-32b", "vllm", "0.13.0", 10, None),
        ("qwen3-32b", "vllm", "0.11.0", 0, None),
        ("qwen3-32b", "sglang", "0.11.0", 10, None),
        ("gpt-oss-20b", "vllm", "0.11.0", 68, HARMONY_US),
    ],
)
def test_chat_requests_cost_what_their_template_does(
    model: str, engine: str, version: str, template: int, expected: int | None
) -> None:
    run = {"model": model, "engine": engine, "engine_version": version, "load": {"template_tokens": template}}
    assert chat_us(run) == expected
