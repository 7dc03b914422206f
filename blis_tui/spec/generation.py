"""The sampling defaults of a family's chat models, for model documents that do not state them."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from blis_tui.base.source import as_map

if TYPE_CHECKING:
    from collections.abc import Mapping

    from blis_tui.base.source import Json

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


def family_generation(model: Mapping[str, Json]) -> Mapping[str, Json]:
    """Return the generation configuration of a model's family; empty if it is unknown."""
    config = as_map(model.get("config"))
    kind, vocabulary = config.get("model_type"), config.get("vocab_size")
    if not isinstance(kind, str) or not isinstance(vocabulary, int):
        return {}
    return _FAMILIES.get((kind, vocabulary), {})
