"""More work takes no less time: every shipped model on every GPU, by the tables and by the law."""

from __future__ import annotations

from itertools import cycle, pairwise, product
from typing import TYPE_CHECKING

import pytest

import blis_tui
from blis_tui.base.source import as_map
from blis_tui.engine.latency.creation import create_latency
from blis_tui.engine.latency.model import Chunk, StepLoad
from blis_tui.spec.library import find, names
from blis_tui.spec.operator_files import tables_of
from blis_tui.spec.read import read_document
from tests.builders import request

if TYPE_CHECKING:
    from blis_tui.engine.latency.model import StepTimeModel

TOKENS = (1, 2, 3, 8, 16, 33, 64, 100, 200, 257, 400, 512, 513, 600, 1024, 1500, 2048, 4096, 6000, 8192)
CONTEXTS = (1, 10, 100, 128, 129, 500, 1000, 4000, 8000, 16_000, 64_000)
BATCHES = (1, 2, 3, 4, 7, 8, 12, 16, 24, 32, 48, 64, 100, 128, 200, 256)


def one_of_each_kind() -> list[str]:
    """Of models of the same family with the same type of weights, which differ in size alone, one."""
    found: dict[object, str] = {}
    for name in names("Model"):
        path = find("Model", name)
        assert path is not None
        config = as_map(read_document(path).get("config"))
        found.setdefault((config["model_type"], str(config.get("quantization_config"))), name)
    return list(found.values())


GPUS = names("Hardware")
MODELS = one_of_each_kind()
SPLITS = cycle((1, 2, 4, 8))
DIVIDED = {"qwen2.5-7b-instruct": 4, "phi-4": 2, "llama-3.2-3b-instruct": 4}
"""Models whose heads some numbers of GPUs do not divide."""
CASES = [
    (model, gpu, DIVIDED.get(model, split), kind)
    for (model, gpu, kind), split in zip(product(MODELS, GPUS, ("operators", "fitted")), SPLITS, strict=False)
    if kind == "fitted" or tables_of(gpu)
]
LAW = [case for case in CASES if case[-1] == "fitted"]
NIGHTLY = [case for number, case in enumerate(LAW) if number % 3]
"""By the law, a GPU is two numbers: on each change, a third of them for each model, and all of them in some model."""


def step_time(model: object, gpu: str, split: int, kind: str, **latency: object) -> StepTimeModel:
    settings = {
        "model": model,
        "hardware": gpu,
        "cluster.tensor_parallel": split,
        "latency": {"kind": kind, **latency},
    }
    made = blis_tui.load(
        "steady-chat", set={**settings, "engine.kv_blocks": 20_000, "workload.requests": 5, "expect": []}
    )
    return create_latency(made.plugins, made.pools[0])


def taken(latency: StepTimeModel, new: int, before: int = 0, decodes: int = 0, context: int = 0) -> int:
    """Time of a step with a chunk and decodes of that mean context."""
    whole = request(0, 0, before + new, 1)
    chunks = [Chunk(whole, before, new, before + new)] if new else []
    return latency.step_time_us(StepLoad(chunks, decodes, decodes * context))


@pytest.mark.parametrize("model", MODELS)
def test_more_work_takes_no_less_time(model: str) -> None:
    for case in CASES:
        if case[0] == model and case not in NIGHTLY:
            require_rising(step_time(*case), case)


@pytest.mark.nightly
@pytest.mark.parametrize("model", MODELS)
def test_more_work_takes_no_less_time_by_the_law_on_any_gpu(model: str) -> None:
    for case in NIGHTLY:
        if case[0] == model:
            require_rising(step_time(*case), case)


@pytest.mark.parametrize("gpu", ["h200", "b200", "rtx-pro-6000"])
@pytest.mark.parametrize("model", ["llama-3.1-70b-instruct", "glm-5.2-fp8"])
def test_more_work_takes_no_less_time_with_the_kernels_of_tensorrt_llm(model: str, gpu: str) -> None:
    require_rising(step_time(model, gpu, 4, "operators", engine="tensorrt-llm"), (model, gpu))


@pytest.mark.parametrize("gpu", ["a100-80", "h200", "b200", "gb300", "rtx-pro-6000"])
@pytest.mark.parametrize("model", ["llama-3.1-70b-instruct", "qwen3-235b-a22b"])
def test_more_work_takes_no_less_time_in_nvfp4(model: str, gpu: str) -> None:
    path = find("Model", model)
    assert path is not None
    config = {**as_map(read_document(path).get("config")), "quantization_config": {"quant_method": "nvfp4"}}
    body = {"apiVersion": "blis/v1", "kind": "Model", "metadata": {"name": "nvfp4"}, "config": config}
    require_rising(step_time(body, gpu, 4, "operators"), (model, gpu))


@pytest.mark.parametrize("apart", [2, 4, 8])
@pytest.mark.parametrize(
    ("model", "gpu"), [("gpt-oss-120b", "h200"), ("glm-5.2-fp8", "b200"), ("qwen3-30b-a3b", "l40s")]
)
def test_more_work_takes_no_less_time_where_experts_are_spread_over_gpus(model: str, gpu: str, apart: int) -> None:
    require_rising(step_time(model, gpu, 8, "operators", expert_parallel=apart), (model, gpu, apart))


def require_rising(latency: StepTimeModel, case: tuple[object, ...]) -> None:
    """More tokens, decodes or contexts take no less time."""
    courses = {
        "tokens": [taken(latency, new) for new in TOKENS],
        "tokens beside decodes": [taken(latency, new, 0, 16, 1000) for new in (0, *TOKENS)],
        "tokens before the chunk": [taken(latency, 512, before) for before in (0, *CONTEXTS)],
        "decodes": [taken(latency, 0, 0, batch, 1000) for batch in BATCHES],
        "context of one decode": [taken(latency, 0, 0, 1, context) for context in CONTEXTS],
        "context of 16 decodes": [taken(latency, 0, 0, 16, context) for context in CONTEXTS],
    }
    for name, times in courses.items():
        assert all(0 < low <= high for low, high in pairwise(times)), (*case, name, times)


@pytest.mark.parametrize("split", [1, 2, 4, 8])
def test_prompt_attention_where_the_most_heads_were_not_measured(split: int) -> None:
    """H100's tables have no prompts of 64 heads as wide as those of GLM 5.2."""
    latency = step_time("glm-5.2-fp8", "h100", split, "operators")
    assert taken(latency, 8192) > taken(latency, 1024) > 10_000
