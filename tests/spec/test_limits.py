"""Limits that a document leaves out: those of the engine's server, each written here as its source has it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

import blis_tui
from blis_tui.base.errors import SpecError
from blis_tui.base.units import number_text
from blis_tui.model.defaults import DEFAULTS, Server, running_requests, static_share
from blis_tui.spec.authoring.provenance import compose
from blis_tui.spec.load import load

if TYPE_CHECKING:
    from blis_tui.model import Engine

_GPUS: Final = {"a100-80": 80, "a10g": 24, "b200": 180, "h100": 80, "h200": 141, "l40s": 48, "mi300x": 192}


def engine(hardware: str = "h100", batching: object = "vllm-v1", **more: object) -> Engine:
    """The limits of a small model on a GPU."""
    settings = {"model": "qwen2.5-7b-instruct", "hardware": hardware, "policy.batching": batching, "expect": []}
    return blis_tui.load("quickstart", set={**settings, **more}).pools[0].engine


@pytest.mark.parametrize(
    ("hardware", "version", "tokens", "seqs"),
    [
        # vLLM 0.32.0, engine/arg_utils.py lines 2923 to 2952, OPENAI_API_SERVER: from 160 GiB; from 70 GiB unless
        # "a100" is in the name; else.
        ("b200", "0.32", 16384, 1024),
        ("mi300x", "0.33", 16384, 1024),
        ("h100", "0.32", 8192, 1024),
        ("h200", "0.32", 8192, 1024),
        ("rtx-pro-6000", "0.32", 8192, 1024),
        ("a100-80", "0.32", 2048, 256),
        ("a100-sxm", "0.33", 2048, 256),
        ("l40s", "0.32", 2048, 256),
        ("a10g", "0.32", 2048, 256),
        # vLLM 0.10.2, engine/arg_utils.py lines 1669 to 1688: the same without the largest GPUs.
        ("b200", "0.10", 8192, 1024),
        ("h100", "0.10", 8192, 1024),
        ("a100-80", "0.10", 2048, 256),
        ("l40s", "0.10", 2048, 256),
    ],
)
def test_vllm_takes_its_budgets_by_gpu_and_version(hardware: str, version: str, tokens: int, seqs: int) -> None:
    found = engine(hardware, {"kind": "vllm-v1", "version": version})
    assert (found.max_num_batched_tokens, found.max_num_seqs) == (tokens, seqs)
    # vLLM 0.32.0, config/cache.py line 102: 0.92; 0.10.2, config/cache.py line 42: 0.9.
    assert found.gpu_memory_utilization == (0.9 if version == "0.10" else 0.92)


@pytest.mark.parametrize(
    ("more", "tokens", "seqs"),
    [
        # engine/arg_utils.py lines 3133 to 3176.
        ({"policy.batching.enable_chunked_prefill": False}, 32768, 1024),  # the model's length
        ({"engine.max_model_len": 20000, "policy.batching.enable_chunked_prefill": False}, 20000, 1024),
        ({"engine.max_num_seqs": 3, "engine.max_model_len": 1000}, 3000, 3),
        ({"engine.max_num_batched_tokens": 500}, 500, 500),
        ({"engine.max_num_batched_tokens": 500, "engine.max_num_seqs": 600}, 500, 600),
        ({"engine.max_num_batched_tokens": "auto", "engine.max_num_seqs": "auto"}, 8192, 1024),
    ],
)
def test_vllm_fits_budgets_to_each_other_and_to_the_length(more: dict[str, object], tokens: int, seqs: int) -> None:
    found = engine("h100", "vllm-v1", **more)
    assert (found.max_num_batched_tokens, found.max_num_seqs) == (tokens, seqs)


def test_deepeps_kernels_of_low_latency_have_a_small_budget() -> None:
    """vLLM 0.32.0, config/scheduler.py line 42, and engine/arg_utils.py line 3113."""
    wide = {"data_parallel": 16, "expert_parallel": True, "all_to_all": {"backend": "deepep_low_latency"}}
    made = blis_tui.load("quickstart", set={"model": "deepseek-v3", "hardware": "h200", "engine": wide, "expect": []})
    assert made.pools[0].engine.max_num_batched_tokens == 256


@pytest.mark.parametrize(
    ("hardware", "split", "chunk", "reserved_mib"),
    [
        # SGLang 0.5.23, arg_groups/memory_hook.py lines 84 to 180 (chunk and largest decode graph) and 300 to 327:
        # 512 + 1.5 x chunk + 128 x GPUs + 2 x decodes + 8 x prefill graphs; at least 10,240 on more than 60 GiB.
        ("a10g", 1, 4096, 512 + 6144 + 128 + 2 * 48 + 8 * 50),
        ("a10g", 4, 4096, 512 + 6144 + 512 + 2 * 160 + 8 * 50),
        ("l40s", 1, 4096, 512 + 6144 + 128 + 2 * 32 + 8 * 50),
        ("h100", 1, 8192, 512 + 12288 + 128 + 2 * 256 + 8 * 58),
        ("h100", 4, 8192, 512 + 12288 + 512 + 2 * 512 + 8 * 58),
        ("h200", 2, 8192, 512 + 12288 + 256 + 2 * 256 + 8 * 58),
        ("b200", 1, 16384, 512 + 24576 + 128 + 2 * 512 + 8 * 74),
    ],
)
def test_sglang_takes_its_chunk_and_its_share_by_gpu(hardware: str, split: int, chunk: int, reserved_mib: int) -> None:
    settings = {"model": "qwen2.5-7b-instruct", "hardware": hardware, "policy": "sglang", "expect": []}
    made = blis_tui.load("quickstart", set={**settings, "cluster.tensor_parallel": split})
    batching, found = made.policy.batching.settings, made.pools[0].engine
    memory_mib = _GPUS[hardware] * 1024
    assert (batching["chunked_prefill_size"], found.max_num_batched_tokens) == (chunk, chunk)
    assert (batching["max_prefill_tokens"], batching["schedule_conservativeness"]) == (16384, 1.0)
    assert found.gpu_memory_utilization == round((memory_mib - reserved_mib) / memory_mib, 3)


@pytest.mark.parametrize(
    ("more", "reserved_mib"),
    [
        ({"policy.batching.chunked_prefill_size": 2048}, 10240),  # 512 + 3072 + 128 + 512 + 8 x 46 is less
        ({"policy.batching.chunked_prefill_size": "none"}, 512 + 24576 + 128 + 512),
        ({"engine.max_num_seqs": 100}, 512 + 12288 + 128 + 2 * 100 + 8 * 58),
        ({"engine.enforce_eager": True}, 512 + 12288 + 128),
        ({"model": "deepseek-v2-lite"}, 512 + 12288 + 128 + 512 + 1536),
    ],
)
def test_sglangs_share_follows_from_what_is_given(more: dict[str, object], reserved_mib: int) -> None:
    found = engine("h100", "sglang", **more)
    assert found.gpu_memory_utilization == round((81920 - reserved_mib) / 81920, 3)


def test_graphs_of_chunks_that_no_memory_holds_are_counted_not_listed() -> None:
    """A chunk of 10^15 tokens is within the bounds of its key; a list of its graphs would take all memory."""
    server = Server(engine="sglang", version="0.5.23", hardware="h100", memory_gib=80)
    graphs = 50 + (10**15 - 4096) // 512  # 50 up to 4,096 tokens, then one for each 512
    reserved_mib = 512 + 1.5 * 10**15 + 128 + 512 + 8 * graphs
    assert static_share(server, 10**15, None) == round((81920 - reserved_mib) / 81920, 3)


@pytest.mark.parametrize(
    ("kv_tokens", "longest", "running"),
    [(100_000, 32768, 2048), (200_000, 32768, 3125), (10**6, 32768, 4096), (3000, 32768, 1500), (1, 10, 1)],
)
def test_sglang_runs_as_many_requests_as_the_cache_allows(kv_tokens: int, longest: int, running: int) -> None:
    """SGLang 0.5.23, mem_cache/kv_cache_configurator.py lines 3123 to 3132."""
    assert running_requests(kv_tokens, longest) == running


def test_sglangs_requests_follow_from_the_cache_of_an_experiment() -> None:
    found = engine("h100", "sglang")
    assert found.max_num_seqs == min(4096, int(found.kv_blocks * 16 / 32768 * 512)) > 2048
    assert engine("h100", "sglang", **{"engine.kv_blocks": 100}).max_num_seqs == 800


@pytest.mark.parametrize(
    ("batching", "tokens", "seqs", "share"),
    [
        ("tensorrt-llm", 8192, 2048, 0.9),  # TensorRT-LLM 1.1, commands/serve.py, llmapi/llm_args.py
        ("llm-serving-sim", 2048, 128, 0.9),  # LLMServingSim, serving/__main__.py
        ("nano", 16384, 512, 0.9),  # nano-vLLM, config.py
        ("blis", 2048, 256, 0.9),  # BLIS, command line
    ],
)
@pytest.mark.parametrize("hardware", ["h100", "a10g"])
def test_others_take_the_same_on_each_gpu(batching: str, tokens: int, seqs: int, share: float, hardware: str) -> None:
    length = {"engine.max_model_len": 8000} if batching == "tensorrt-llm" else {}  # it does not split prompts
    found = engine(hardware, batching, **length)
    assert (found.max_num_batched_tokens, found.max_num_seqs, found.gpu_memory_utilization) == (tokens, seqs, share)
    assert found.max_model_len == {"nano": 4096, "tensorrt-llm": 8000}.get(batching, 32768)


def test_what_is_given_stays() -> None:
    given = {"max_num_seqs": 7, "max_num_batched_tokens": 99, "gpu_memory_utilization": 0.5, "kv_blocks": 50}
    for batching in ("vllm-v1", "sglang", "blis", "llm-serving-sim"):
        found = engine("b200", batching, engine=given)
        assert {name: getattr(found, name) for name in given} == given


def test_each_pool_has_the_limits_of_its_gpu() -> None:
    pools = [{"name": name, "instances": 1, "hardware": name} for name in ("h100", "a100-80", "b200")]
    made = blis_tui.load("quickstart", set={"cluster": {"pools": pools}, "expect": []})
    assert [pool.engine.max_num_batched_tokens for pool in made.pools] == [8192, 2048, 16384]
    given = blis_tui.load(
        "quickstart", set={"cluster": {"pools": pools}, "engine": {"max_num_batched_tokens": 512}, "expect": []}
    )
    assert [pool.engine.max_num_batched_tokens for pool in given.pools] == [512] * 3
    assert [pool.engine.max_num_seqs for pool in given.pools] == [512, 256, 512]


def test_one_rule_cannot_have_two_chunks() -> None:
    pools = [{"name": name, "instances": 1, "hardware": name} for name in ("h100", "b200")]
    settings = {"cluster": {"pools": pools}, "policy": "sglang", "expect": []}
    with pytest.raises(SpecError) as caught:
        blis_tui.load("quickstart", set=settings)
    (problem,) = caught.value.diagnostics
    assert problem.code == "BLIS2026"
    assert "8,192 on h100, 16,384 on b200" in problem.message
    assert problem.help == "set policy.batching.chunked_prefill_size to one number"
    given = {**settings, "policy.batching": {"kind": "sglang", "chunked_prefill_size": 8192}}
    assert [pool.engine.max_num_batched_tokens for pool in blis_tui.load("quickstart", set=given).pools] == [8192] * 2


# ---- memory ----


def shape(kind: str, **config: object) -> dict[str, object]:
    rest = {"torch_dtype": "bfloat16", "max_position_embeddings": 40960, "vocab_size": 151936}
    return {"metadata": {"name": kind}, "config": {"model_type": kind, "head_dim": 128, **rest, **config}}


_QWEN3_32B: Final = shape(
    "qwen3",
    hidden_size=5120,
    num_hidden_layers=64,
    num_attention_heads=64,
    num_key_value_heads=8,
    intermediate_size=25600,
)
_QWEN3_8B: Final = shape(
    "qwen3",
    hidden_size=4096,
    num_hidden_layers=36,
    num_attention_heads=32,
    num_key_value_heads=8,
    intermediate_size=12288,
)


def test_sglangs_share_decides_alone_whether_there_is_a_cache() -> None:
    """32B in 16 bits on one H100: a share of 0.834 and one of 0.833 differ by 21 blocks; only weights are needed."""

    def blocks(share: float) -> int:
        return engine("h100", "sglang", model=_QWEN3_32B, **{"engine.gpu_memory_utilization": share}).kv_blocks

    assert (blocks(0.834), blocks(0.833)) == (1426, 1405)
    weights_gib = 32.76e9 * 2 / 2**30
    least = weights_gib / (80 - 0.15)
    assert blocks(round(least + 0.002, 4)) < 60
    with pytest.raises(SpecError, match="BLIS2005"):
        blocks(round(least - 0.002, 4))


@pytest.mark.parametrize(
    ("hardware", "batching", "model", "prompt", "at_least_tokens"),
    [
        # gpustack's performance lab: servers that ran such prompts with the limits that they take by themselves.
        ("rtx-4090", {"kind": "vllm-v1", "version": "0.10"}, _QWEN3_8B, 8192, 30_000),
        ("rtx-4090", {"kind": "vllm-v1", "version": "0.10"}, _QWEN3_8B, 20480, 30_000),
        ("a100-80", {"kind": "vllm-v1", "version": "0.10"}, _QWEN3_32B, 32000, 32_768),
        ("a100-80", "vllm-v1", _QWEN3_32B, 32000, 32_768),
        ("h100", "sglang", "gpt-oss-120b", 2000, 40_000),
        ("a100-80", "sglang", "gpt-oss-120b", 2000, 40_000),
        ("h100", "vllm-v1", "gpt-oss-120b", 2000, 30_000),
    ],
)
def test_servers_that_ran_start(
    hardware: str, batching: object, model: object, prompt: int, at_least_tokens: int
) -> None:
    found = engine(
        hardware,
        batching,
        model=model,
        workload={
            "requests": 5,
            "rate_per_s": 1,
            "clients": [{"id": "a", "input_tokens": prompt, "output_tokens": 100}],
        },
    )
    assert found.kv_blocks * found.block_size_tokens >= at_least_tokens


# ---- where they come from ----


def test_each_says_where_it_comes_from() -> None:
    found = compose("quickstart")
    assert (
        found.origins["engine", "max_num_seqs"] == "default from 70 GiB except A100: vLLM 0.32.0, engine/arg_utils.py"
    )
    assert found.origins["engine", "gpu_memory_utilization"] == "default of vLLM 0.32.0, config/cache.py"
    other = compose("quickstart", overrides=["policy=sglang", "engine.max_num_seqs=9", "engine.kv_blocks=auto"])
    chunk = "default from 60 GiB: SGLang 0.5.23, arg_groups/memory_hook.py"
    assert other.origins["policy", "batching", "chunked_prefill_size"] == chunk
    assert other.origins["engine", "max_num_batched_tokens"] == chunk
    assert other.origins["engine", "max_num_seqs"] == "--set"
    word = compose("quickstart", overrides=["engine.max_num_seqs=auto"])
    assert word.origins == found.origins


def test_a_resolved_document_has_numbers_and_gives_the_same(tmp_path: Path) -> None:
    for policy in ("default", "sglang", "nano", "blis"):
        found = compose("quickstart", overrides=[f"policy={policy}"])
        (tmp_path / "again.yaml").write_text(found.to_yaml(), encoding="utf-8")
        assert load(tmp_path / "again.yaml").sha256 == found.spec_sha256
        assert "max_num_seqs: auto" not in found.to_yaml()


def test_the_page_says_what_the_table_does() -> None:
    """Each number of a row is in the table of its engine, beside its source."""
    page = (Path(__file__).parents[2] / "docs" / "schedulers.md").read_text(encoding="utf-8")
    for row in DEFAULTS:
        for value in row.values.values():
            if not isinstance(value, str):
                text = f"{value:,}" if isinstance(value, int) else number_text(value)
                assert re.search(rf"\| {re.escape(text)} [^\n]*{re.escape(row.source)}", page), (text, row.source)
