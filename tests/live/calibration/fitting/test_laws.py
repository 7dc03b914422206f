"""Laws say what the engine's step-time models say."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from blis_tui.engine.latency.creation import create_latency
from blis_tui.engine.latency.fitted import FittedSettings
from blis_tui.engine.latency.model import Chunk, StepLoad
from blis_tui.engine.request import Request
from blis_tui.live.calibration.fitting.fit import Gapped
from blis_tui.live.calibration.fitting.laws import BlackboxLaw, FittedLaw, loads_of
from blis_tui.live.calibration.simulated_load import with_latency
from blis_tui.model.engine import Speculative
from blis_tui.spec.shipped import builtin
from tests.live.calibration.servers import served

if TYPE_CHECKING:
    from blis_tui.live.calibration.fitting.laws import Array, Law

WORKS: list[tuple[int, int, list[tuple[int, int]]]] = [
    (3, 900, []),
    (0, 0, [(0, 700)]),
    (200, 90_000, [(16, 500), (0, 1200)]),
]
LAWS: dict[str, Law] = {
    "fitted": FittedLaw(FittedSettings()),
    "sorted": FittedLaw(FittedSettings(sorted_sampling=True, flops=1.6)),
    "blackbox": BlackboxLaw((8000.0, 20.0, 150.0, 9000.0, 1.0), (1.0,) * 5, 70.0),
    "gapped": Gapped(FittedLaw(replace(FittedSettings(), step_us=700.0))),
}


def base_of(law: Law) -> Array:
    return np.array([term.base for term in law.terms])


@pytest.mark.parametrize("model", ["llama-3.1-8b-instruct", "mixtral-8x7b-v0.1", "deepseek-v2-lite", "gpt-oss-120b"])
@pytest.mark.parametrize("name", LAWS)
def test_slopes_add_up_to_what_the_engine_says(name: str, model: str) -> None:
    law = LAWS[name]
    values = base_of(law)
    made = with_latency(served(model, 1.0, 800), law.config(values))
    (pool,) = made.pools
    latency = create_latency(builtin(), pool)
    found = law.steps(values, pool, loads_of(WORKS, pool.model.sliding_window)) @ values
    request = Request(0, "r", 0, 10, 10)
    for time, (decodes, context, chunks) in zip(found, WORKS, strict=True):
        load = StepLoad([Chunk(request, before, new, before + new) for before, new in chunks], decodes, context)
        assert time == pytest.approx(latency.step_time_us(load), abs=1)


@pytest.mark.parametrize("model", ["llama-3.1-8b-instruct", "mixtral-8x7b-v0.1", "qwen2.5-7b-instruct"])
def test_slopes_know_what_hardware_reaches(model: str) -> None:
    law = FittedLaw(FittedSettings())
    (pool,) = with_latency(served(model, 1.0, 800), law.config(base_of(law))).pools
    for weight_bytes, overlap in ((1.0, 0.0), (2.0, 0.3), (1.0, 1.0)):
        reached = replace(pool.hardware, reached_products=0.4, reached_memory=0.7, reached_overlap=overlap)
        if weight_bytes == 1.0:
            reached = replace(reached, reached_experts=0.3)
        other = replace(pool, hardware=reached, model=replace(pool.model, weight_bytes=weight_bytes))
        latency = create_latency(builtin(), other)
        found = law.steps(base_of(law), other, loads_of(WORKS, 0)) @ base_of(law)
        request = Request(0, "r", 0, 10, 10)
        for time, (decodes, context, chunks) in zip(found, WORKS, strict=True):
            load = StepLoad([Chunk(request, before, new, before + new) for before, new in chunks], decodes, context)
            assert time == pytest.approx(latency.step_time_us(load), abs=1)


@pytest.mark.parametrize("model", ["llama-3.1-8b-instruct", "gpt-oss-120b"])
@pytest.mark.parametrize("drafts", [1, 4])
def test_slopes_know_of_tokens_that_are_verified(model: str, drafts: int) -> None:
    """Rows and products of drafts: many decodes, so that products take longer than weights, and few."""
    law = FittedLaw(FittedSettings(flops=3.0))
    values = base_of(law)
    (pool,) = with_latency(served(model, 1.0, 800), law.config(values)).pools
    engine = replace(pool.engine, speculative=Speculative(draft_tokens=drafts, acceptance=0.7))
    pool = replace(pool, engine=engine)
    latency = create_latency(builtin(), pool)
    works = [*WORKS, (400, 40_000, []), (1, 30, [(0, 1)])]
    found = law.steps(values, pool, loads_of(works, pool.model.sliding_window)) @ values
    request = Request(0, "r", 0, 10, 10)
    for time, (decodes, context, chunks) in zip(found, works, strict=True):
        load = StepLoad([Chunk(request, before, new, before + new) for before, new in chunks], decodes, context)
        assert time == pytest.approx(latency.step_time_us(load), abs=1)


@pytest.mark.parametrize("name", LAWS)
def test_what_comes_before_the_queue_and_behind_steps(name: str) -> None:
    law = LAWS[name]
    (pool,) = with_latency(served("llama-3.1-8b-instruct", 1.0, 800), law.config(base_of(law))).pools
    latency = create_latency(builtin(), pool)
    for tokens in (1, 3000):
        waits = law.queue(np.array([float(tokens)])) @ base_of(law)
        assert waits[0] == pytest.approx(latency.queueing_time_us(Request(0, "r", 0, tokens, 10)), abs=1)
        behind = law.client_us(np.array([float(tokens)]))
        assert behind[0] == pytest.approx(tokens * latency.output_token_overhead_us + latency.post_decode_overhead_us)


def test_engines_do_not_log_the_gap_between_steps() -> None:
    law = LAWS["gapped"]
    (pool,) = served("llama-3.1-8b-instruct", 1.0, 800).pools
    values = base_of(law)
    values[-1] = 2400.0
    slopes = law.steps(values, pool, loads_of(WORKS, 0))
    assert slopes @ values - law.logged(slopes) @ values == pytest.approx(2400.0)
    assert law.config(values).settings["step_us"] == 3100.0
