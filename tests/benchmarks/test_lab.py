"""The performance lab: what is worked out of a run's own figures, without the measurements."""

from __future__ import annotations

from statistics import mean, median
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks.lab import cached, contradiction, document

if TYPE_CHECKING:
    from pathlib import Path


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


def test_equal_prompts_whose_first_half_is_fast_were_not_computed() -> None:
    """A line of 1,000 that are served one after the other, the first half of them in a share of the time."""
    for share in (0.5, 0.4, 0.36, 0.25):
        times = [
            10_000 * (share * at / 500 if at < 500 else share + (1 - share) * (at - 499) / 500) for at in range(1000)
        ]
        assert median(times) / mean(times) == pytest.approx(4 * share / (1 + 2 * share), rel=0.01)
        figures = {"ttft_mean_ms": mean(times), "ttft_p50_ms": median(times), "ttft_p99_ms": times[989]}
        run = {"load": {"kind": "at-once", "prompts": 1000}, "measured": figures}
        assert cached(run) == (
            f"1,000 equal prompts, half of them within {10 * share:.1f} of {times[989] / 1000:.1f} s"
            if share < 0.37
            else ""
        )
        assert not cached({**run, "load": {"kind": "at-once-sharegpt", "prompts": 1000}})
    assert not cached(burst(40.0))


@pytest.mark.parametrize(
    ("engine", "version", "template", "asked"),
    [
        ("vllm", "0.10.1.1", 8, {"version": "0.10.1", "endpoint": "chat"}),
        ("vllm", "0.11.0", 0, {"version": "0.11.0", "endpoint": None}),
        ("sglang", "0.5.4.post2", 6, {"version": None, "endpoint": "chat"}),
    ],
)
def test_a_run_says_its_version_and_endpoint(
    tmp_path: Path, engine: str, version: str, template: int, asked: dict[str, str | None]
) -> None:
    (tmp_path / "m.json").write_text("{}", encoding="utf-8")
    run: dict[str, Any] = {
        "model": "m",
        "config": "m.json",
        "engine": engine,
        "engine_version": version,
        "hardware": "h100",
    }
    run |= {"engine_arguments": {}, "kv_dtype": "auto", "batching": {"kind": "x"}, "tensor_parallel": 1}
    load = {"kind": "at-once", "prompts": 3, "isl": 10, "osl": 5, "template_tokens": template}
    made: dict[str, Any] = document({**run, "expert_parallel": False, "load": load}, tmp_path, tmp_path / "trace.csv")
    assert {"version": made["engine"].get("version"), "endpoint": made["workload"].get("endpoint")} == asked
