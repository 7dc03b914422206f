"""Step times of layers with a state: against the tables, physics, and models without such layers."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

import blis_tui
from blis_tui.engine.kv.states import state_bytes
from blis_tui.engine.latency.creation import create_latency
from blis_tui.engine.latency.linear_layers import FROM_SHAPE, States, linear_costs
from blis_tui.engine.latency.model import Chunk, StepLoad
from blis_tui.engine.latency.operator_steps import OperatorModel
from blis_tui.spec.operator_files import table_names
from blis_tui.spec.shipped import shipped_specs
from tests.builders import request

if TYPE_CHECKING:
    from blis_tui.engine.latency.model import StepTimeModel
    from blis_tui.model import LinearLayers, Pool

HYBRIDS = ("qwen3.5-27b", "qwen3-next-80b-a3b", "kimi-linear-48b-a3b", "nemotron-3-nano-30b-a3b")
H100 = {"bytes_per_us": 3.35e6, "flops_per_us": 989.5e6}


def made(model: str, latency: object = "operators", hardware: str = "h100", split: int = 2) -> tuple[Pool, Any]:
    settings = {
        "model": model,
        "hardware": hardware,
        "cluster.tensor_parallel": split,
        "latency": latency,
        "engine.kv_blocks": 20_000,
        "expect": [],
    }
    loaded = blis_tui.load("steady-chat", set=settings)
    return loaded.pools[0], create_latency(loaded.plugins, loaded.pools[0])


def decoding(model: StepTimeModel, batch: int, context: int) -> int:
    return model.step_time_us(StepLoad([], batch, batch * context))


def prefilling(model: StepTimeModel, new: int, count: int = 1) -> int:
    return model.step_time_us(StepLoad([Chunk(request(0, 0, new, 9), 0, new, new) for _ in range(count)]))


def linear_of(model: str) -> LinearLayers:
    linear_layers = made(model)[0].model.linear
    assert linear_layers is not None
    return linear_layers


def tables(gpu: str) -> dict[str, Any]:
    path = shipped_specs() / "latency" / "linear" / f"{gpu}.json"
    found: dict[str, Any] = json.loads(path.read_text())
    return found


@pytest.mark.parametrize("gpu", table_names())
def test_each_gpu_with_tables_has_those_of_gated_delta_net(gpu: str) -> None:
    linear = linear_of("qwen3.5-27b")
    found = linear_costs(linear, 1, 3.35e6, 989.5e6, tables(gpu))
    row = next(one for one in tables(gpu)["gdn"] if (one["key_heads"], one["value_heads"]) == (16, 48))
    for batch, time in zip(row["batch"], map(float, row["decode_us"].split()), strict=True):
        assert found.decodes_us(batch) == pytest.approx(48 * time)
    assert found.decode.known == "measured"
    lengths = row.get("length", ())
    for length, time in zip(lengths, map(float, row.get("prefill_us", "").split()), strict=True):
        assert found.prompts_us([Chunk(request(0, 0, length, 9), 0, length, length)]) == pytest.approx(48 * time)
    assert bool(lengths) == (gpu != "a100"), "SGLang's tables of A100 have no scan of prompts"


def test_many_prompts_fill_the_gpu() -> None:
    """Alone, 4,096 tokens take 265 us in a layer of 32 value heads; 64 prompts of 64 tokens together 240."""
    linear = linear_of("qwen3.5-35b-a3b")
    costs = linear_costs(linear, 1, 3.35e6, 989.5e6, tables("h100"))
    alone = [Chunk(request(0, 0, 4096, 9), 0, 4096, 4096)]
    many = [Chunk(request(0, 0, 64, 9), 0, 64, 64) for _ in range(64)]
    assert costs.prompts_us(alone) / costs.layers == pytest.approx(264.6, rel=0.01)
    assert costs.prompts_us(many) / costs.layers == pytest.approx(177.5 + 66.9, rel=0.05)


@pytest.mark.parametrize("kind", ["gdn", "kda"])
def test_the_law_is_near_the_tables(kind: str) -> None:
    """Where there are no tables, times are those of the law: within a third of large measured ones on H100."""
    linear = linear_of("qwen3.5-27b" if kind == "gdn" else "kimi-linear-48b-a3b")
    law, table = linear_costs(linear, 1, **H100), linear_costs(linear, 1, **H100, document=tables("h100"))
    for batch in (64, 256, 1024):
        assert law.decodes_us(batch) == pytest.approx(table.decodes_us(batch), rel=0.34)
    for length in (1024, 4096, 16384):
        chunks = [Chunk(request(0, 0, length, 9), 0, length, length)]
        assert law.prompts_us(chunks) == pytest.approx(table.prompts_us(chunks), rel=0.5)
        assert law.shared.at(length) == pytest.approx(table.shared.at(length), rel=0.5)


@pytest.mark.parametrize("name", HYBRIDS)
@pytest.mark.parametrize("gpu", ["h100", "a100", "b200"])
def test_more_work_takes_no_less_time(name: str, gpu: str) -> None:
    _, model = made(name, hardware=gpu if gpu != "a100" else "a100-80", split=4 if "80b" in name else 2)
    assert isinstance(model, OperatorModel)
    for context in (1, 5000):
        times = [decoding(model, batch, context) for batch in range(1, 300, 7)]
        assert all(low <= high for low, high in pairwise(times))
    times = [decoding(model, 32, context) for context in range(1, 40_000, 501)]
    assert all(low <= high for low, high in pairwise(times))
    times = [prefilling(model, new) for new in range(1, 8000, 97)]
    assert all(low <= high for low, high in pairwise(times))
    load = StepLoad([], 17, 17 * 900)
    times = [time_us for time_us, count in model.decode_runs(load, 40) for _ in range(count)]
    assert times == [model.step_time_us(StepLoad([], 17, 17 * 900 + 17 * at)) for at in range(40)]


@pytest.mark.parametrize("name", HYBRIDS)
@pytest.mark.parametrize("kind", ["operators", "fitted"])
def test_no_decode_step_is_faster_than_its_memory_traffic(name: str, kind: str) -> None:
    """States are read and written, keys and values of the layers with attention read."""
    pool, model = made(name, kind, split=2 if "80b" not in name else 4)
    shape, split, context, batch = pool.model, pool.tensor_parallel, 8000, 64
    assert shape.linear is not None
    cached = shape.kv_lora_rank + shape.qk_rope_head_dim
    heads = max(1, shape.num_key_value_heads // split)
    token = shape.attention_layers * 2 * (cached or 2 * heads * shape.head_dim)
    states = 2 * shape.linear.layers * state_bytes(shape.linear, split)
    traffic = batch * (context * token + states) / 3.35e6
    assert decoding(model, batch, context) - decoding(model, 1, 1) > 0.9 * traffic


@pytest.mark.parametrize("kind", sorted(FROM_SHAPE))
def test_only_layers_with_attention_read_a_context(kind: str) -> None:
    """16 of 64 layers have keys and values: four times fewer than if all had, whatever the law."""
    pool, model = made("qwen3.5-27b", kind)
    shape = dict(pool.model.__class__.__dataclass_fields__)
    assert "linear" in shape
    assert isinstance(model, States)
    config = {"model_type": "qwen3", "full_attention_interval": None, "linear_num_key_heads": None}
    overrides = {f"model.config.{key}": value for key, value in config.items()}
    settings = {"model": "qwen3.5-27b", "hardware": "h100", "cluster.tensor_parallel": 2, "latency": kind}
    full = blis_tui.load("steady-chat", set={**settings, "engine.kv_blocks": 20_000, "expect": [], **overrides})
    assert full.pools[0].model.linear is None
    whole = create_latency(full.plugins, full.pools[0])
    grows = [decoding(one, 200, 30_000) - decoding(one, 200, 10_000) for one in (model, whole)]
    if kind == "crossmodel":  # it counts decodes, not their contexts
        assert grows == [0, 0]
    else:
        assert grows[0] * 4 == pytest.approx(grows[1], rel=0.01)


def test_a_model_that_was_measured_as_a_whole_stays_as_it_was_measured() -> None:
    _, model = made("qwen3.5-27b", {"kind": "blackbox", "alpha": [0, 0, 0], "beta": [5000, 10, 20]})
    assert decoding(model, 8, 500) == 5000 + 8 * 20


def test_states_are_a_part_of_a_step() -> None:
    _, model = made("qwen3.5-27b")
    parts = model.costs.parts_us(32, 1000)
    assert parts["states"][0] == pytest.approx(model.costs.linear.decodes_us(32))
    assert model.costs.known()["states"] == "measured"
