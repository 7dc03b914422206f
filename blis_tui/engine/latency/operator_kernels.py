"""Kernels that no table has: formulas whose constants were found on measured servers, each with its reason.

They were chosen with servers of a performance lab in view (GPUStack's: gpt-oss, Qwen3 235B, DeepSeek V3.2);
``docs/lab/measured-servers.md`` says how far off each group of them is with and without these laws.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from blis_tui.engine.kv.capacity import index_bytes
from blis_tui.engine.latency.operator_tables import EXPERTS_LAUNCH_US, WEIGHT_BYTES, Curve, chosen_experts, rising

if TYPE_CHECKING:
    from blis_tui.engine.latency.operator_layers import Layers
    from blis_tui.engine.latency.operator_tables import OperatorTables
    from blis_tui.model import Model

_UNPACKED_READ: Final = 0.83
"""Share of the memory's bandwidth at which FlashAttention 2 reads the KV cache once for each query head."""
_AMPERE: Final = (8.0, 8.9)
"""Compute capabilities, from and below, on which that was seen: A100. An RTX PRO 6000 (12.0) shows none of it; its L2
cache of 128 MB holds what the A100's of 40 MB does not."""
_SINKS: Final = 4.5
"""Found on two models on one machine (gpt-oss 20B and 120B, A100)."""
_SPARSE_HEADS: Final = 64
"""FlashMLA's kernel of sparse attention computes at least so many heads."""
_SPARSE_REACHED: Final = 0.47
"""Share of the peak of 16-bit units that it reaches."""
_SPARSE_LAYER_US: Final = 190.0
"""What the indexer of a layer costs a step: its products, scores, choice and conversions. Found on one row of DeepSeek
V3.2 (8 x H200); with it six rows of that model are 9 % off in mean ITL at the median, and so is one of GLM-5.2."""
_INDEX_READ: Final = 0.75
"""Share of the memory's bandwidth at which the indexer reads its keys (measured on kernels alone: H200, vLLM 0.24, 1 to
128 requests of 32,768 to 131,072 tokens, 0.037 ns a token)."""
_TRITON_TOKEN_US: Final = 0.022
"""Found on two servers of gpt-oss 120B on one A100, with contexts of 32,000 tokens."""
_MARLIN_BELOW: Final = {"fp8": 8.9, "mxfp4": 9.0, "nvfp4": 9.0}
"""Least compute capability on which vLLM has other kernels than Marlin's for experts of a type."""
_MARLIN_ROWS: Final = (8, 16, 32, 48, 64)
_MARLIN_FULL: Final = 0.9
"""Marlin's blocks of rows, and how full the mean number of an expert's tokens may make one before vLLM takes the next
(``fused_marlin_moe``)."""
_MARLIN_TOKENS: Final = (*(1 << at for at in range(8)), *range(192, 1025, 64), *range(1280, 4097, 256), 8192, 16384)
_MARLIN_REACHED: Final = 0.55
"""Share of the peak of 16-bit units that it reaches."""
_MARLIN_READ: Final = 0.8
"""Share of the memory's bandwidth at which it reads weights."""

_OLD_TILES: Final = Curve((8.0, 16.0, 32.0, 64.0, 128.0, 256.0), (1.0, 1.36, 1.37, 1.58, 1.88, 2.0))
"""By tokens of an expert, how much longer vLLM's Triton kernel takes with its default tiles up to 0.16 (64 rows, 64
columns, 32 in depth; ``get_default_config`` in ``fused_moe.py``) than with those of now. Measured for Qwen3 30B's 128
experts in FP8 on H100 (vLLM pull request 24700: 355, 392, 536, 912 and 1,648 us for 256, 512, 1,024, 2,048 and 4,096
tokens) against the tables, of vLLM 0.24. "Up to 2 times" says pull request 34846, which replaced them in 0.17; for
experts in 16 bits on H200 it was 1.0 at 8 tokens and 1.38 at 16 (SGLang pull request 34150, whose tiles are alike)."""
_TUNED_TILES: Final = {
    "h100": frozenset(
        {
            *((8, 1792), (8, 2048), (8, 3584), (8, 4096), (8, 7168), (16, 1344), (16, 1792), (16, 2688), (62, 256)),
            *((62, 512), (64, 320), (64, 640), (64, 1280), (72, 384), (72, 768), (128, 192), (128, 512), (128, 928)),
            *((128, 1856), (256, 512), (512, 128), (512, 256), (512, 512)),
        }
    ),
    "h200": frozenset(
        {
            *((8, 1792), (8, 2048), (8, 3584), (8, 4096), (8, 7168), (8, 14336), (16, 1024), (16, 2048), (64, 320)),
            *((64, 640), (64, 1280), (64, 2560), (128, 192), (128, 384), (128, 512), (128, 768), (128, 1024)),
            *((512, 64), (512, 128), (512, 256), (512, 512)),
        }
    ),
}
"""GPU -> experts of a GPU and their widths, in 16 bits, for which vLLM 0.16.0 ships tuned tiles
(``fused_moe/configs``). Those of former versions are among them, so a few that these lack count as tuned."""


def old_tiles(curve: Curve, kind: str, gpu: str, experts: int, width: float, top_k: float) -> Curve:
    """Return the times of a layer's experts with vLLM's default tiles up to 0.16, where it ships no tuned ones.

    Args:
        curve: their times with tuned tiles, by tokens.
        kind: type of their weights.
        gpu: name of its tables.
        experts: how many a GPU has.
        width: of the part of one that a GPU has.
        top_k: how many of them a token chooses.
    """
    tuned = _TUNED_TILES.get(gpu)
    if kind != "bfloat16" or tuned is None or (experts, width) in tuned:
        return curve
    most = _OLD_TILES.sizes[-1]
    slower = (
        time * _OLD_TILES.at(min(most, size * top_k / experts))
        for size, time in zip(curve.sizes, curve.times_us, strict=True)
    )
    return replace(curve, times_us=tuple(slower))


def sinks_factor(layers: Layers, tables: OperatorTables, engine: str) -> float:
    """Return how many times longer attention of prompts takes because it has sinks (gpt-oss).

    Where FlashAttention 3 is missing, vLLM computes it with Triton's kernel, whose blocks of 16 rows hold two tokens of
    eight query heads.
    """
    triton = engine == "vllm" and layers.expert_weights == "mxfp4" and not 9.0 <= tables.capability < 12.0
    return _SINKS if triton else 1.0


def context_token_us(layers: Layers, tables: OperatorTables, engine: str) -> float:
    """Return the least time per token of a context and layer that attention of decodes takes because it has sinks.

    Triton's kernel, as above, goes through the context of a request block by block: a long context takes its time
    however few requests there are, while it leaves most of the GPU idle.
    """
    return _TRITON_TOKEN_US if sinks_factor(layers, tables, engine) > 1.0 else 0.0


def index_read_us(model: Model, tables: OperatorTables) -> float:
    """Return the time per token of a context and layer in which sparse attention's indexer reads the token's key."""
    return index_bytes(model) / (_INDEX_READ * tables.bytes_per_us) if model.kv_lora_rank else 0.0


def read_again_us(layers: Layers, tables: OperatorTables, engine: str) -> float:
    """Return the time per token of decodes' context and layer that a step takes longer because it also has prompts.

    FlashAttention 2 packs the query heads that share a KV head into one block of work only if no request of the step
    has several tokens. Otherwise each query head reads the cache by itself. FlashAttention 3 (Hopper) and Triton's
    kernel (attention with sinks: gpt-oss) always pack.
    """
    unpacked = engine == "vllm" and _AMPERE[0] <= tables.capability < _AMPERE[1]
    if not unpacked or layers.latent or layers.expert_weights == "mxfp4":
        return 0.0
    bytes_ = 2.0 * layers.cache_dim * layers.kv_heads * (1.0 if layers.kv_cache == "fp8" else 2.0)
    return bytes_ * max(0.0, layers.heads / layers.kv_heads - 1.0) / (_UNPACKED_READ * tables.bytes_per_us)


def sparse_us(model: Model, layers: Layers, tables: OperatorTables) -> tuple[float, float]:
    """Return what sparse attention takes beside full attention: per step, and per token.

    Each token attends to as many others, whatever its context: the kernel masks those that are missing.
    """
    if not (model.index_topk and model.kv_lora_rank):
        return 0.0, 0.0
    wide = 2.0 * model.kv_lora_rank + model.qk_rope_head_dim
    flops = 2.0 * max(_SPARSE_HEADS, layers.heads) * model.index_topk * wide
    token_us = flops / (_SPARSE_REACHED * tables.peak_per_us("bfloat16"))
    return model.num_hidden_layers * _SPARSE_LAYER_US, model.num_hidden_layers * token_us


def runs_marlin(kind: str, tables: OperatorTables, engine: str) -> bool:
    """Return whether the engine multiplies experts of a weight type with Marlin's kernel on that GPU."""
    return engine == "vllm" and tables.capability < _MARLIN_BELOW.get(kind, 0.0)


def marlin_experts(
    tables: OperatorTables, kind: str, hidden: int, width: float, experts: int, top_k: float, spread: float
) -> Curve:
    """Return the time of a layer's experts in Marlin's kernel, which widens weights for 16-bit units.

    It reads the weights of the experts in use, and multiplies each expert's tokens in blocks of rows, the last of which
    is padded; one does not hide the other. Of the sizes of blocks, vLLM chooses the smallest that most experts' tokens
    fit into.

    Args:
        tables: of the GPU.
        kind: type of the experts' weights.
        hidden: hidden size of the model.
        width: intermediate size of an expert on a GPU.
        experts: on the GPU.
        top_k: mean number of experts that a token chooses there.
        spread: of the experts' popularity; see :func:`chosen_experts`.
    """
    peak_per_us = _MARLIN_REACHED * tables.peak_per_us("bfloat16")
    times = []
    for tokens in _MARLIN_TOKENS:
        each = tokens * top_k / experts
        block = next((rows for rows in _MARLIN_ROWS if each < _MARLIN_FULL * rows), _MARLIN_ROWS[-1])
        used = chosen_experts(experts, top_k, tokens, spread)
        rows = used * max(float(block), tokens * top_k / used + block / 2.0)
        read_us = 3.0 * used * hidden * width * WEIGHT_BYTES[kind] / (_MARLIN_READ * tables.bytes_per_us)
        times.append(EXPERTS_LAUNCH_US + read_us + 6.0 * rows * hidden * width / peak_per_us)
    return Curve(tuple(map(float, _MARLIN_TOKENS)), rising(times), "extrapolated", float(_MARLIN_TOKENS[-1]))
