"""The shipped models have as many parameters as their makers say."""

import pytest

from blis_tui.engine.kv.capacity import parameters, unmentioned_parameters
from blis_tui.spec.library import names
from blis_tui.spec.load import load

BILLIONS = {
    "codellama-34b-instruct-hf": 33.7,
    "deepseek-v2-lite": 15.7,
    "deepseek-v3": 671,
    "deepseek-v3.2": 671,
    "glm-4.5-air": 106,
    "glm-4.5-air-fp8": 106,
    "glm-4.6-fp8": 355,
    "glm-5.2-fp8": 744,
    "gpt-oss-120b": 117,
    "gpt-oss-20b": 20.9,
    "kimi-k2-instruct": 1026,
    "kimi-linear-48b-a3b": 49.1,
    "llama-2-7b-hf": 6.74,
    "llama-3.1-405b-instruct": 406,
    "llama-3.1-405b-instruct-fp8": 406,
    "llama-3.1-70b-instruct": 70.6,
    "llama-3.1-8b-instruct": 8.03,
    "llama-3.1-8b-instruct-fp8": 8.03,
    "llama-3.2-1b-instruct": 1.24,
    "llama-3.2-3b-instruct": 3.21,
    "llama-3.3-70b-instruct-fp8": 70.6,
    "llama-4-scout-17b-16e-instruct-fp8-dynamic": 107.8,
    "mimo-7b-base": 7.6,
    "minimax-m2.5": 229,
    "mistral-7b-instruct-v0.3": 7.25,
    "mistral-nemo-instruct-2407": 12.2,
    "mistral-small-24b-instruct-2501": 23.6,
    "mixtral-8x22b-instruct-v0.1": 141,
    "mixtral-8x7b-v0.1": 46.7,
    "nemotron-3-nano-30b-a3b": 31.6,
    "phi-4": 14.7,
    "qwen2.5-14b-instruct": 14.8,
    "qwen2.5-32b-instruct": 32.8,
    "qwen2.5-72b-instruct": 72.7,
    "qwen2.5-7b-instruct": 7.62,
    "qwen3-0.6b": 0.596,
    "qwen3-1.7b": 1.72,
    "qwen3-14b": 14.8,
    "qwen3-14b-fp8": 14.8,
    "qwen3-235b-a22b": 235,
    "qwen3-235b-a22b-2507": 235,
    "qwen3-235b-a22b-2507-fp8": 235,
    "qwen3-235b-a22b-fp8": 235,
    "qwen3-30b-a3b": 30.5,
    "qwen3-30b-a3b-fp8": 30.5,
    "qwen3-32b": 32.8,
    "qwen3-32b-fp8": 32.8,
    "qwen3-4b": 4.02,
    "qwen3-8b": 8.19,
    "qwen3-8b-awq": 8.19,
    "qwen3-coder-480b-a35b-instruct": 480,
    "qwen3-next-80b-a3b": 80,
    "qwen3.5-122b-a10b": 122,
    "qwen3.5-27b": 27,
    "qwen3.5-35b-a3b": 35,
    "qwen3.5-397b-a17b": 397,
    "yi-34b": 34.4,
}
"""By their model cards, Kimi Linear by its checkpoint (the card says 48); GLM-4.6 and MiMo without the layer that
predicts further tokens, Scout without what sees images."""
BYTES = {"fp8": 1.0, "awq": 0.5}
"""Bytes of a weight by the end of a name."""


def test_every_shipped_model_has_a_size() -> None:
    assert set(BILLIONS) == set(names("Model"))


@pytest.mark.parametrize("name", sorted(BILLIONS))
def test_parameters_are_those_of_the_model_card(name: str) -> None:
    (pool, *_) = load("quickstart", overrides=[f"model={name}", "latency=roofline", "engine.kv_blocks=1000"]).pools
    counted = parameters(pool.model) + unmentioned_parameters(pool.model)
    assert counted / 1e9 == pytest.approx(BILLIONS[name], rel=0.02)
    if (width := BYTES.get(name.rpartition("-")[2])) is not None:
        assert pool.model.weight_bytes == pytest.approx(width, rel=0.15)
