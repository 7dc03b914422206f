"""Hugging Face ``config.json`` fields: one name per meaning, and figures derived from them; how models sample."""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from blis_tui.base.source import as_map
from blis_tui.model import LinearLayers, Model
from blis_tui.model.machine import MXFP4_BYTES, NVFP4_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from blis_tui.base.source import Json

_OTHER_NAMES: Final = (
    ("intermediate_size", ("ffn_hidden_size",)),
    ("num_key_value_heads", ("num_kv_heads", "multi_query_group_num")),
    ("num_local_experts", ("num_routed_experts", "n_routed_experts", "num_experts")),
    ("torch_dtype", ("dtype",)),
    ("max_position_embeddings", ("model_max_length",)),
    ("num_experts_per_tok", ("num_experts_per_token",)),
    ("n_shared_experts", ("num_shared_experts",)),
    ("shared_expert_intermediate_size", ("moe_shared_expert_intermediate_size",)),
    ("hidden_act", ("mlp_hidden_act",)),
    ("mamba_ssm_dtype", ("mamba_ssm_cache_dtype",)),
)
"""Canonical field -> its other names, in order of precedence."""

DTYPE_BYTES: Final[Mapping[str, float]] = MappingProxyType(
    {
        "float32": 4.0,
        "float16": 2.0,
        "bfloat16": 2.0,
        "int8": 1.0,
        "uint8": 1.0,
        "fp8": 1.0,
        "fp8_e4m3": 1.0,
        "fp8_e5m2": 1.0,
        "float8_e4m3fn": 1.0,
        "int4": 1.0,
        "nf4": 1.0,
    }
)
_UNSCALED: Final = frozenset({"su", "longrope", "llama3"})
"""Types of RoPE scaling whose factor is already included in ``max_position_embeddings``."""

_QK_NORMS: Final[Mapping[str, str]] = MappingProxyType(
    {
        **dict.fromkeys(("qwen3", "qwen3_moe", "qwen3_next", "gemma3", "gemma3_text"), "heads"),
        **dict.fromkeys(("qwen3_5", "qwen3_5_moe", "qwen3_5_moe_text", "qwen3_5_text"), "heads"),
        **dict.fromkeys(("minimax_m2", "olmo2", "olmoe"), "layer"),
    }
)
"""Model types that normalise queries and keys, and the dimension that they normalise over."""

_TIED: Final = frozenset(
    (
        "bloom",
        "cohere",
        "cohere2",
        "ernie4_5",
        "ernie4_5_moe",
        "falcon",
        "gemma",
        "gemma2",
        "gemma3",
        "gemma3_text",
        "gemma3n",
        "gemma3n_text",
        "gemma4",
        "gemma4_text",
        "gpt2",
        "gpt_bigcode",
        "granite_swa",
        "jetmoe",
        "lfm2",
        "lfm2_moe",
        "minicpm3",
        "mpt",
        "opt",
        "smollm3",
        "starcoder2",
    )
)
"""Model types whose input and output embeddings are one matrix unless the configuration says otherwise: it leaves out
what is the default of its type. Source: transformers 5.19, the classes of these configurations."""

_OTHER_LAYERS: Final[Mapping[str, str]] = MappingProxyType(
    {
        **dict.fromkeys(("deepseek_v32", "glm_moe_dsa"), "sparse attention"),
        **dict.fromkeys(
            (
                "kimi_linear",
                "minimax",
                "minimax_m1",
                "qwen3_5",
                "qwen3_5_moe",
                "qwen3_5_moe_text",
                "qwen3_5_text",
                "qwen3_next",
            ),
            "linear attention",
        ),
        **dict.fromkeys(
            (
                "bamba",
                "falcon_h1",
                "falcon_mamba",
                "granitemoehybrid",
                "jamba",
                "mamba",
                "mamba2",
                "nemotron_h",
                "plamo2",
                "recurrent_gemma",
                "rwkv",
                "zamba",
                "zamba2",
            ),
            "state-space layers",
        ),
    }
)
"""Model types some or all of whose layers are not attention over the whole context or a window, and what they are."""
ATTENTION: Final = frozenset({"full_attention", "sliding_attention"})
"""The ``layer_types`` that are simulated as they are, whatever else a configuration says."""
_GATED_QUERIES: Final = frozenset({"qwen3_next"})
"""Model types whose attention has an output gate that their configurations do not mention."""
_LAYERS: Final[Mapping[str, str]] = MappingProxyType({"mamba": "M", "attention": "*", "mlp": "-", "moe": "E"})
"""Nemotron-H's ``layers_block_type``, as newer versions of transformers write ``hybrid_override_pattern``."""
_INTERVAL: Final = 4
"""Of Qwen3-Next's and Qwen3.5's configurations, where they leave ``full_attention_interval`` out."""
_CONV_KERNEL: Final = 4
_FLOAT32: Final = 4.0

_NVFP4_BITS: Final = 4

_LLAMA_3: Final[Mapping[str, Json]] = MappingProxyType({"temperature": 0.6, "top_p": 0.9})
_QWEN_3: Final[Mapping[str, Json]] = MappingProxyType({"temperature": 0.6, "top_p": 0.95, "top_k": 20})
_FAMILIES: Final[Mapping[tuple[str, int], Mapping[str, Json]]] = MappingProxyType(
    {
        ("llama", 128256): _LLAMA_3,
        ("llama4", 202048): _LLAMA_3,
        ("llama4_text", 202048): _LLAMA_3,
        ("qwen3", 151936): _QWEN_3,
        ("qwen3_moe", 151936): _QWEN_3,
        ("deepseek_v2", 102400): MappingProxyType({"temperature": 0.3, "top_p": 0.95}),
        ("deepseek_v3", 129280): MappingProxyType({"temperature": 0.6, "top_p": 0.95}),
    }
)
"""Type and vocabulary size of a model -> the ``generation_config.json`` that its chat models share: Llama 3.1 to 3.3
and 4, Qwen3, DeepSeek V2, V3 and R1. Other types are left out because their models differ (such as ``qwen2``), or may.
"""
_REQUIRED: Final = (
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "vocab_size",
    "max_position_embeddings",
)


def canonical_config(config: Mapping[str, Json], known: frozenset[str]) -> dict[str, Json]:
    """Return the fields in ``known`` under canonical names; a nested ``text_config`` wins; nulls are left out."""
    inner = config.get("text_config")
    flat: dict[str, Json] = {key: value for key, value in config.items() if value is not None and key != "text_config"}
    if isinstance(inner, dict):
        flat |= {key: value for key, value in inner.items() if value is not None and key != "text_config"}
    for name, others in _OTHER_NAMES:
        stated = [flat.pop(other) for other in others if other in flat]
        if name not in flat and stated:
            flat[name] = stated[0]
    listed = flat.get("layers_block_type")
    if flat.get("model_type") == "nemotron_h" and isinstance(listed, list) and _LAYERS.keys() >= set(map(str, listed)):
        flat.setdefault("hybrid_override_pattern", "".join(_LAYERS[str(layer)] for layer in listed))
    if flat.get("model_type") in _TIED:
        flat.setdefault("tie_word_embeddings", True)
    return {key: value for key, value in sorted(flat.items()) if key in known}


def missing_fields(config: Mapping[str, object]) -> tuple[str, ...]:
    """Return the required fields that a (canonical) configuration lacks; empty if it is usable."""
    return tuple(name for name in _REQUIRED if not config.get(name))


def contradictions(config: Mapping[str, object]) -> tuple[str, ...]:
    """Return the contradictions within a canonical configuration, in words."""
    problems: list[str] = []
    heads, hidden = _int(config, "num_attention_heads"), _int(config, "hidden_size")
    if not config.get("head_dim") and heads and hidden % heads:
        problems.append(f"hidden_size {hidden} is not a multiple of num_attention_heads {heads}; give head_dim")
    kv_heads = _int(config, "num_key_value_heads", heads)
    if kv_heads and heads % kv_heads:
        problems.append(f"num_attention_heads {heads} is not a multiple of num_key_value_heads {kv_heads}")
    experts, chosen = _int(config, "num_local_experts"), _int(config, "num_experts_per_tok")
    if experts > 1 and not chosen:
        problems.append("num_experts_per_tok is missing although the model has experts")
    if chosen > max(experts, 1):
        problems.append(f"num_experts_per_tok {chosen} exceeds the number of experts, {experts}")
    return (*problems, *_linear_contradictions(config))


def _linear_contradictions(config: Mapping[str, object]) -> Iterator[str]:
    """Yield contradictions about layers with a state."""
    layers, pattern = _int(config, "num_hidden_layers"), config.get("hybrid_override_pattern")
    if isinstance(pattern, str) and len(pattern) != layers:
        yield f"hybrid_override_pattern has {len(pattern)} layers, num_hidden_layers is {layers}"
        return
    linear = linear_layers(config)
    if linear is None:
        return
    yield from _miscounted(config, layers)
    mixing = layers if linear.kind != "mamba2" else len(str(pattern)) - _blocks(str(pattern))
    if _sliding_window(config)[1]:
        yield "layers with a sliding window beside layers with a state are not simulated"
    if linear.layers >= mixing:
        yield f"all {mixing} layers have a state, and none attends: such models are not simulated"
    if linear.value_heads % linear.key_heads:
        name = "mamba_num_heads" if linear.kind == "mamba2" else "linear_num_value_heads"
        per = "n_groups" if linear.kind == "mamba2" else "linear_num_key_heads"
        yield f"{name} {linear.value_heads} is not a multiple of {per} {linear.key_heads}"


def _miscounted(config: Mapping[str, object], layers: int) -> Iterator[str]:
    """Yield what lists layers with a state, but not those that the model has."""
    kinds, given = config.get("layer_types"), config.get("linear_attn_config")
    if isinstance(kinds, list) and len(kinds) != layers:
        yield f"layer_types has {len(kinds)} layers, num_hidden_layers is {layers}"
    if not isinstance(given, dict):
        return
    parts = [part for part in (given.get("kda_layers"), given.get("full_attn_layers")) if isinstance(part, list)]
    listed = [number for part in parts for number in part]
    known = set(listed) <= set(range(1, layers + 1))
    if len(set(listed)) != len(listed) or not known or (len(parts) > 1 and len(listed) != layers):
        yield f"linear_attn_config does not list each of the layers 1 to {layers} once"


def build_model(name: str, config: Mapping[str, object], kv_cache_dtype: str = "auto") -> Model:
    """Return the shape of a model from its canonical configuration (see :func:`canonical_config`).

    ``kv_cache_dtype`` is the engine's setting; ``auto`` stores the KV cache in the activations' type.
    """
    hidden, heads = _int(config, "hidden_size"), _int(config, "num_attention_heads")
    intermediate = _int(config, "intermediate_size", 4 * hidden)
    experts = _int(config, "num_local_experts")
    expert_width = _int(config, "moe_intermediate_size")
    shared = _int(config, "shared_expert_intermediate_size")
    if not shared:
        shared = _int(config, "n_shared_experts") * (expert_width or intermediate)
    activation_bytes = DTYPE_BYTES[str(config["torch_dtype"])]
    weight_bytes = _weight_bytes(name, config, activation_bytes)
    window, window_layers = _sliding_window(config)
    layers, blocks, dense = _layer_counts(config)
    return Model(
        name=name,
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=_int(config, "num_key_value_heads") or heads,
        head_dim=_head_dim(config) or hidden // heads,
        intermediate_size=intermediate,
        vocab_size=_int(config, "vocab_size"),
        activation_bytes=activation_bytes,
        kv_cache_bytes=DTYPE_BYTES.get(kv_cache_dtype, activation_bytes),
        weight_bytes=weight_bytes,
        max_position_embeddings=_context(config),
        tie_word_embeddings=config.get("tie_word_embeddings") is True,
        hidden_act=_activation(config),
        num_experts=experts,
        num_experts_per_tok=_int(config, "num_experts_per_tok"),
        moe_intermediate_size=expert_width,
        shared_expert_intermediate_size=shared,
        interleave_moe_layer_step=_int(config, "interleave_moe_layer_step"),
        dense_intermediate_size=_int(config, "intermediate_size_mlp"),
        first_k_dense_replace=dense,
        kv_lora_rank=_int(config, "kv_lora_rank"),
        qk_rope_head_dim=_int(config, "qk_rope_head_dim"),
        q_lora_rank=_int(config, "q_lora_rank"),
        qk_norm=_QK_NORMS.get(str(config.get("model_type")), ""),
        fp8_scales=_fp8_scales(config, weight_bytes),
        expert_weight_bytes=_expert_weight_bytes(config),
        sliding_window=window,
        sliding_window_layers=window_layers,
        index_topk=_int(config, "index_topk"),
        index_head_dim=_int(config, "index_head_dim"),
        other_layers=_other_layers(config),
        linear=linear_layers(config),
        feed_forward_layers=blocks,
        output_gate=config.get("attn_output_gate") is True or str(config.get("model_type")) in _GATED_QUERIES,
    )


def _head_dim(config: Mapping[str, object]) -> int:
    """Return the width of a head; Kimi Linear's ``head_dim`` is that of no head, but ``hidden_size / heads``."""
    nope = _int(config, "qk_nope_head_dim")
    return nope if nope and config.get("model_type") == "kimi_linear" else _int(config, "head_dim") or nope


def _layer_counts(config: Mapping[str, object]) -> tuple[int, int | None, int]:
    """Return the number of layers with attention or a state, of feed-forward blocks, and of those without experts.

    Nemotron-H lists each feed-forward block as a layer of its own; elsewhere each layer has one (None).
    """
    pattern = config.get("hybrid_override_pattern")
    if not isinstance(pattern, str):
        return _int(config, "num_hidden_layers"), None, _int(config, "first_k_dense_replace")
    blocks = _blocks(pattern)
    return len(pattern) - blocks, blocks, pattern.count("-")


def _blocks(pattern: str) -> int:
    """Number of feed-forward blocks in a pattern of Nemotron-H."""
    return pattern.count("-") + pattern.count("E")


def linear_layers(config: Mapping[str, object]) -> LinearLayers | None:
    """Return the layers that keep a state for each request, as a canonical configuration describes them; None = none.

    Sources: vLLM 0.28, ``model_executor/layers/mamba/mamba_utils.py`` for the parts of a state and their types (Kimi
    Linear's matrices are of 32 bits; others of the activations' type, as Qwen3-Next's, if nothing says otherwise), and
    ``model_executor/models/config.py``: Qwen3.5 states the type, and Nemotron-H's is 32 bits if it does not.
    """
    return _gated_delta_net(config) or _kimi_delta_attention(config) or _mamba_2(config)


def _activation_bytes(config: Mapping[str, object]) -> float:
    """Return the bytes per activation; 2 where a configuration that was not completed leaves the type out."""
    return DTYPE_BYTES.get(str(config.get("torch_dtype")), 2.0)


def _gated_delta_net(config: Mapping[str, object]) -> LinearLayers | None:
    """Return Gated DeltaNet's layers (Qwen3-Next, Qwen3.5)."""
    names = ("num_key_heads", "key_head_dim", "num_value_heads", "value_head_dim")
    sizes = [_int(config, f"linear_{name}") for name in names]
    layers, listed = _int(config, "num_hidden_layers"), config.get("layer_types")
    count = layers - layers // max(1, _int(config, "full_attention_interval", _INTERVAL))
    if isinstance(listed, list):
        count = listed.count("linear_attention")
    if not all(sizes) or not count:
        return None
    activation_bytes = _activation_bytes(config)
    return LinearLayers(
        kind="gdn",
        layers=count,
        key_heads=sizes[0],
        key_dim=sizes[1],
        value_heads=sizes[2],
        value_dim=sizes[3],
        conv_kernel=_int(config, "linear_conv_kernel_dim", _CONV_KERNEL),
        conv_bytes=activation_bytes,
        state_bytes=DTYPE_BYTES.get(str(config.get("mamba_ssm_dtype")), activation_bytes),
    )


def _kimi_delta_attention(config: Mapping[str, object]) -> LinearLayers | None:
    """Return Kimi Delta Attention's layers (Kimi Linear)."""
    given = config.get("linear_attn_config")
    listed = given.get("kda_layers") if isinstance(given, dict) else None
    if not isinstance(given, dict) or not isinstance(listed, list) or not listed:
        return None
    heads, width = _int(given, "num_heads"), _int(given, "head_dim")
    if not heads or not width:
        return None
    return LinearLayers(
        kind="kda",
        layers=len(listed),
        key_heads=heads,
        key_dim=width,
        value_heads=heads,
        value_dim=width,
        conv_kernel=_int(given, "short_conv_kernel_size", _CONV_KERNEL),
        conv_bytes=_activation_bytes(config),
        state_bytes=_FLOAT32,
    )


def _mamba_2(config: Mapping[str, object]) -> LinearLayers | None:
    """Return Mamba-2 layers (Nemotron-H)."""
    pattern = config.get("hybrid_override_pattern")
    heads, width, state = (_int(config, name) for name in ("mamba_num_heads", "mamba_head_dim", "ssm_state_size"))
    if not isinstance(pattern, str) or "M" not in pattern or not (heads and width and state):
        return None
    return LinearLayers(
        kind="mamba2",
        layers=pattern.count("M"),
        key_heads=_int(config, "n_groups", 1),
        key_dim=state,
        value_heads=heads,
        value_dim=width,
        conv_kernel=_int(config, "conv_kernel", _CONV_KERNEL),
        conv_bytes=_activation_bytes(config),
        state_bytes=DTYPE_BYTES.get(str(config.get("mamba_ssm_dtype")), _FLOAT32),
    )


def _other_layers(config: Mapping[str, object]) -> str:
    """Return which layers are simulated as full attention although they are not; empty if there are none."""
    if linear_layers(config) is not None:
        return ""
    listed = config.get("layer_types")
    others = [layer for layer in map(str, listed) if layer not in ATTENTION] if isinstance(listed, list) else []
    named = _OTHER_LAYERS.get(str(config.get("model_type")), "")
    return named or (others[0].replace("_", " ") if others else "")


def _activation(config: Mapping[str, object]) -> str:
    """Return the activation of the feed-forward block; Gemma's GELU is gated, which its name does not say."""
    named = str(config["hidden_act"])
    return "geglu" if named.startswith("gelu") and str(config.get("model_type")).startswith("gemma") else named


def _fp8_scales(config: Mapping[str, object], weight_bytes: float) -> str:
    """Return how FP8 weights are scaled: per block for the method ``fp8``, per channel for all others."""
    if weight_bytes != 1.0:
        return ""
    quantization = config.get("quantization_config")
    blocks = isinstance(quantization, dict) and quantization.get("quant_method") == "fp8"
    return "block" if blocks else "channel"


def _expert_weight_bytes(config: Mapping[str, object]) -> float:
    """Return the bytes per weight of routed experts, if they alone are quantized; otherwise 0."""
    quantization = config.get("quantization_config")
    if not isinstance(quantization, dict):
        return 0.0
    if quantization.get("quant_method") == "mxfp4":
        return MXFP4_BYTES
    return _quantized_bytes(quantization) or 0.0 if _keeps_attention(quantization, config) else 0.0


def _keeps_attention(quantization: Mapping[str, object], config: Mapping[str, object]) -> bool:
    """Return whether quantization leaves out the attention of a model with experts, in all of its layers.

    Its dense layers and shared experts, which some checkpoints leave out and some do not, then count like attention.
    """
    ignored = quantization.get("ignore")
    named = [name for name in map(str, ignored) if "self_attn" in name] if isinstance(ignored, list) else []
    everywhere = any(name.startswith(("re:", "*")) for name in named)
    return _int(config, "num_local_experts") > 1 and (everywhere or len(named) >= _int(config, "num_hidden_layers"))


def _sliding_window(config: Mapping[str, object]) -> tuple[int, int]:
    """Return the width of the sliding window and the number of layers that have it; both 0 if either is."""
    window, layers = _int(config, "sliding_window"), _int(config, "num_hidden_layers")
    if config.get("use_sliding_window") is False:
        return 0, 0
    listed = config.get("layer_types")
    if isinstance(listed, list):
        layers = listed.count("sliding_attention")
    elif period := _int(config, "sliding_window_pattern"):
        layers -= layers // period
    return (window, layers) if window > 0 and layers else (0, 0)


def _int(config: Mapping[str, object], key: str, otherwise: int = 0) -> int:
    value = config.get(key)
    return int(value) if isinstance(value, int | float) else otherwise


def _context(config: Mapping[str, object]) -> int:
    """Return the longest context in tokens: RoPE scaling extends it unless the published figure includes that."""
    longest = _int(config, "max_position_embeddings")
    scaling = config.get("rope_scaling")
    if not isinstance(scaling, dict) or "gemma3" in str(config.get("model_type", "")):
        return longest
    kind = str(scaling.get("rope_type") or scaling.get("type") or "")
    factor = scaling.get("factor")
    if kind in _UNSCALED or not isinstance(factor, int | float) or isinstance(factor, bool):
        return longest
    if kind == "yarn":
        longest = _int(scaling, "original_max_position_embeddings", longest)
    return int(longest * factor)


def _weight_bytes(name: str, config: Mapping[str, object], activation_bytes: float) -> float:
    """Return the bytes per weight, of experts that alone are quantized apart.

    They follow from quantisation, else from ``w4a16`` or ``fp8`` in the name, else from the type.
    """
    quantization = config.get("quantization_config")
    if isinstance(quantization, dict):
        if _keeps_attention(quantization, config):
            return activation_bytes
        if (size := _quantized_bytes(quantization)) is not None:
            return size
    if (match := re.search(r"(?:^|[-_.])w(\d{1,2})a\d{1,2}(?![0-9a-z])", name.lower())) is not None:
        return int(match.group(1)) / 8
    return 1.0 if re.search(r"(?:^|[-_.])fp8(?![0-9a-z])", name.lower()) else activation_bytes


def _quantized_bytes(quantization: Mapping[str, object]) -> float | None:
    """Return the bytes per quantized weight; None = it does not say."""
    named = [str(quantization.get(key)).lower() for key in ("quant_method", "quant_algo")]
    if "nvfp4" in named:
        return NVFP4_BYTES
    bits = quantization.get("bits")
    if isinstance(bits, int | float):
        return bits / 8
    if "fp8" in named:
        return 1.0
    groups = quantization.get("config_groups")
    for group in groups.values() if isinstance(groups, dict) else ():
        weights = group.get("weights") if isinstance(group, dict) else None
        if not isinstance(weights, dict):
            continue
        width = weights.get("num_bits")
        if isinstance(width, int | float):
            return NVFP4_BYTES if width == _NVFP4_BITS and weights.get("type") == "float" else width / 8
    return None


def sampling_of(model: Mapping[str, Json]) -> str:
    """Return how tokens are sampled by default, derived from the model's generation configuration."""
    generation = as_map(model["generation_config"]) if "generation_config" in model else _family_generation(model)
    if generation.get("repetition_penalty", 1.0) != 1.0:
        return "penalties"
    top_k = generation.get("top_k", 0)
    limited = isinstance(top_k, int) and top_k > 0
    return (
        "top-p" if generation.get("temperature", 1.0) and (limited or generation.get("top_p", 1.0) != 1.0) else "plain"
    )


def _family_generation(model: Mapping[str, Json]) -> Mapping[str, Json]:
    """Return the generation configuration of a model's family; empty if it is unknown."""
    config = as_map(model.get("config"))
    kind, vocabulary = config.get("model_type"), config.get("vocab_size")
    if not isinstance(kind, str) or not isinstance(vocabulary, int):
        return {}
    return _FAMILIES.get((kind, vocabulary), {})
