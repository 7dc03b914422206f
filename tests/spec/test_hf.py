"""Hugging Face configurations: what their fields mean."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from blis_tui.spec.hf import build_model
from blis_tui.spec.shipped import shipped_specs

FLOAT, INTEGER = ({"config_groups": {"group_0": {"weights": {"num_bits": 4, "type": one}}}} for one in ("float", "int"))
EVERY_LAYER = [f"model.layers.{layer}.self_attn*" for layer in range(94)]


def weights(quantization: dict[str, Any], model: str = "qwen3-235b-a22b") -> tuple[float, float]:
    """Bytes per weight, and of experts apart."""
    body = yaml.safe_load((shipped_specs() / "models" / f"{model}.yaml").read_text(encoding="utf-8"))
    found = build_model("m", {**body["config"], "quantization_config": quantization})
    return found.weight_bytes, found.expert_weight_bytes


@pytest.mark.parametrize(
    ("quantization", "expected"),
    [
        ({"quant_method": "fp8"}, (1.0, 0.0)),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, (1.0, 0.0)),
        ({"quant_method": "awq", "bits": 4}, (0.5, 0.0)),
        ({"quant_method": "mxfp4"}, (2.0, 0.53125)),
        ({"quant_method": "nvfp4"}, (0.5625, 0.0)),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head"]}, (0.5625, 0.0)),
        ({"quant_method": "compressed-tensors", **FLOAT}, (0.5625, 0.0)),
        ({"quant_method": "compressed-tensors", **INTEGER}, (0.5, 0.0)),
        ({"quant_method": "compressed-tensors", **INTEGER, "ignore": ["re:.*self_attn.*"]}, (2.0, 0.5)),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": EVERY_LAYER}, (2.0, 0.5625)),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": EVERY_LAYER[:3]}, (0.5625, 0.0)),
    ],
)
def test_quantization_says_the_bytes_of_weights(quantization: dict[str, Any], expected: tuple[float, float]) -> None:
    """NVFP4 has a byte of scale for 16 weights; where attention is left out, experts alone are quantised."""
    assert weights(quantization) == expected


def test_a_dense_model_has_no_experts_to_quantise_alone() -> None:
    left_out = {"quant_method": "compressed-tensors", **INTEGER, "ignore": ["re:.*self_attn.*"]}
    assert weights(left_out, "llama-3.1-8b-instruct") == (0.5, 0.0)
