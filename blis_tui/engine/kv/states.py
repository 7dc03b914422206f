"""Layers that keep a state for each request: how large it is, what vLLM makes of KV blocks beside it, and its weights.

A state never grows with the request's tokens. In vLLM it takes one block of the pool in each group of such layers; for
that, KV blocks hold so many tokens that they are as large as a state.

Sources: vLLM 0.28, ``model_executor/layers/mamba/mamba_utils.py`` (``MambaStateShapeCalculator``),
``platforms/interface.py`` (``_align_hybrid_block_size``; alike in 0.33), ``v1/core/single_type_kv_cache_manager.py``
(``MambaManager`` with ``mamba_cache_mode: none``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.base.portable_math import whole_sum

if TYPE_CHECKING:
    from blis_tui.model import LinearLayers

_KERNEL_TOKENS: Final = 16
"""Attention kernels take blocks of a multiple of so many tokens."""
_LATENT_TOKENS: Final = 128
"""Beside latent attention, blocks hold a multiple of so many tokens, whatever its kernel takes."""


def state_bytes(linear: LinearLayers, split: int) -> int:
    """Bytes of one request's state in one layer, on one of the ``split`` accelerators that share it."""
    keys = linear.keys
    if linear.key_heads % split:  # groups are copied, so that each accelerator has those of its heads
        keys = linear.key_dim * split
    channels = (linear.values + 2 * keys) // split
    matrices = linear.values // split * linear.key_dim
    return int((linear.conv_kernel - 1) * channels * linear.conv_bytes + matrices * linear.state_bytes)


def enlarged(block_size_tokens: int, state: int, token_bytes: int, *, latent: bool = False) -> int:
    """Tokens of a KV block that is at least as large as a state.

    Args:
        block_size_tokens: what the engine's configuration says; the block is a multiple of it.
        state: bytes of a state in one layer.
        token_bytes: bytes of a token's keys and values in one layer.
        latent: whether attention is latent (MLA).
    """
    step = max(block_size_tokens, _LATENT_TOKENS if latent else _KERNEL_TOKENS)
    return step * -(-state // (step * token_bytes))


def projections(linear: LinearLayers, hidden: int, split: int = 1) -> tuple[tuple[int, int], ...]:
    """Matrices of one layer as their outputs and inputs on one of ``split`` accelerators, as vLLM multiplies them.

    Sources: vLLM 0.28, ``model_executor/layers/mamba``: ``gdn/qwen_gdn_linear_attn.py`` (``in_proj_qkvz``,
    ``in_proj_ba``), ``gdn/kimi_gdn_linear_attn.py`` (``in_proj_qkvgfab``, ``f_b_proj``, ``g_a_proj``, ``g_b_proj``:
    gates of low rank, whose first matrix every accelerator has), ``mamba_mixer2.py`` (``in_proj``).
    """
    keys, values, heads = linear.keys, linear.values, linear.value_heads
    entry: tuple[tuple[int, int], ...]
    if linear.kind == "kda":
        rank = linear.value_dim
        entry = (((2 * keys + values + heads) // split + rank, hidden), (values // split, rank))
        return (*entry, (rank, hidden), (values // split, rank), (hidden, values // split))
    entry = (((2 * keys + 2 * values + heads) // split, hidden),)
    if linear.kind == "gdn":
        entry = (((2 * keys + 2 * values) // split, hidden), (2 * heads // split, hidden))
    return (*entry, (hidden, values // split))


def linear_parameters(linear: LinearLayers, hidden: int) -> int:
    """Number of weights of one such layer: its projections, its convolution, and what each head and the norm have."""
    convolution = (2 * linear.keys + linear.values) * linear.conv_kernel
    match linear.kind:
        case "gdn":
            small = 2 * linear.value_heads + linear.value_dim
        case "kda":
            small = linear.value_heads + linear.values + linear.value_dim
        case _:
            small = 3 * linear.value_heads + linear.values + 2 * linear.keys + linear.values
    return whole_sum([n * k for n, k in projections(linear, hidden)]) + convolution + small
