"""Imports a Hugging Face ``config.json`` as a Model."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from blis_tui.base.input_files import real_path
from blis_tui.spec.foreign.reading import Draft, Fate, Input, as_name
from blis_tui.spec.hf import ATTENTION, build_model, canonical_config, linear_layers, missing_fields
from blis_tui.spec.library import is_id
from blis_tui.spec.reader import complete
from blis_tui.spec.schema import properties_of

if TYPE_CHECKING:
    from pathlib import Path

    from blis_tui.base.source import DataPath, Json
    from blis_tui.spec.foreign.reading import Imported

_CONSEQUENCES: Final = {
    "attention_chunk_size": "every layer attends to the whole context",
    "attn_layer_period": "all layers count as attention",
    "layers_block_type": "all layers count as attention and MLP",
    "mamba_d_state": "state-space layers count as attention",
    "decoder_sparse_step": "all layers count as having experts",
    "mlp_only_layers": "all layers count as having experts",
    "moe_layer_freq": "all layers behind the first dense ones count as having experts",
    "rope_parameters": "the context is `max_position_embeddings`, unscaled; older configurations say `rope_scaling`",
    "index_topk": "sparse attention counts as full attention, except in the step times of `operators`",
    "moe_latent_size": "experts count as if they took the whole width of the residual stream",
    "routed_expert_hidden_size": "experts count as if they took the whole width of the residual stream",
    "num_nextn_predict_layers": "multi-token prediction is not simulated",
    "mtp_num_hidden_layers": "multi-token prediction is not simulated",
    "vision_config": "images are not simulated; the vision encoder's weights are not counted",
    "audio_config": "audio is not simulated; the audio encoder's weights are not counted",
}
"""Keys without a counterpart that would change results -> what is simulated instead."""
_OF_STATES: Final = {
    "full_attention_interval": "all layers count as full attention",
    "hybrid_override_pattern": "all layers count as attention and MLP",
    "mamba_num_heads": "state-space layers count as attention",
    "ssm_state_size": "state-space layers count as attention",
    "linear_num_value_heads": "linear attention counts as full attention",
    "linear_attn_config": "linear attention counts as full attention",
}
"""Keys of layers with a state -> what is simulated instead where a configuration does not describe them completely."""

_UNGATED: Final = ("gelu", "relu")
"""Beginnings of activations that are not gated, unless the model's type says so."""
_COUNTED: Final = "relu2"
"""One that counts with its two matrices."""
_WIDTH: Final = re.compile(r"(?:^|[-_.])(?:w\d{1,2}a\d{1,2}|fp8)(?![0-9a-z])")
"""Model names that contain the width of the weights."""


def import_model(path: Path, *, name: str | None = None) -> Imported:
    """Convert a model's configuration.

    Args:
        path: the JSON file.
        name: name of the document; default: the configuration's own name, otherwise the file's or (for ``config.json``)
            the folder's.

    Raises:
        InputError: the file cannot be read.
        SpecError: it is not a configuration of a transformer.
    """
    given = Input.read(path)
    data = given.root().data
    called = _name(path, data) if name is None else name
    config = canonical_config(data, frozenset(properties_of("Model", "config")))
    origins = _origins(data, config)
    for field in missing_fields(config):
        given.problem((), f"the configuration lacks `{field}`", code="BLIS2018")
    _notes(given, called, config)
    return Draft(
        source=given,
        kind="Model",
        name=called,
        description=f"Imported from {path.name}.",
        body={**_ids(data), "config": config},
        origins=origins,
    ).finish()


def _name(path: Path, data: dict[str, Json]) -> str:
    own = data.get("_name_or_path")
    if isinstance(own, str) and own.strip("./"):
        return as_name(own.rstrip("/").rpartition("/")[2])
    return as_name(path.stem if path.stem != "config" else real_path(path).parent.name)


def _ids(data: dict[str, Json]) -> dict[str, Json]:
    """Return the Hugging Face id that a configuration contains, if any."""
    own = data.get("_name_or_path")
    return {"huggingface_ids": [own]} if isinstance(own, str) and is_id(own) else {}


def _origins(data: dict[str, Json], config: dict[str, Json]) -> dict[DataPath, DataPath]:
    """Return where each field was given: in the text part or at the top level, under that name or an alias."""
    known = frozenset(properties_of("Model", "config"))
    origins: dict[DataPath, DataPath] = {}
    for path, key, value in _keys(data):
        for field in canonical_config({key: value}, known):
            # The text part comes last and wins; a field's own name wins over its aliases.
            if field in config and (field == key or len(path) > 1 or ("config", field) not in origins):
                origins["config", field] = path
    return origins


def _notes(given: Input, name: str, config: dict[str, Json]) -> None:
    known = {*properties_of("Model", "config"), "text_config"}
    places = {key: path for path, key, _ in _keys(given.document.data)}
    idle: list[str] = []
    described = linear_layers(config) is not None
    for path, key, value in _keys(given.document.data):
        if value is None:
            continue
        if key in known:
            kinds = ATTENTION | {"linear_attention"} if described else ATTENTION
            if key == "layer_types" and isinstance(value, list) and not kinds.issuperset(map(str, value)):
                given.note(Fate.APPROXIMATED, path, "layers of neither full nor sliding attention count as full")
            elif key in _OF_STATES and not described:
                given.note(Fate.NOT_CARRIED, path, _OF_STATES[key])
        elif key in _CONSEQUENCES and _matters(key, value, config):
            given.note(Fate.NOT_CARRIED, path, _CONSEQUENCES[key])
        elif key not in _CONSEQUENCES:
            idle.append(key)
    if idle:
        listed = ", ".join(dict.fromkeys(idle))
        given.note(Fate.NO_EFFECT, (), f"left out, because they do not affect a simulation: {listed}")
    activation, gemma = str(config.get("hidden_act", "")), str(config.get("model_type")).startswith("gemma")
    if activation.startswith(_UNGATED) and activation != _COUNTED and not gemma:
        text = "without a gate, a feed-forward block has two matrices: three are counted, as if it had one"
        given.note(Fate.APPROXIMATED, places["hidden_act"], text)
    if _int(config.get("interleave_moe_layer_step")) > 1:
        text = "its memory counts as if every layer had experts; set engine.kv_blocks to what the server reports"
        given.note(Fate.APPROXIMATED, places["interleave_moe_layer_step"], text)
    if "torch_dtype" not in config:
        given.note(Fate.APPROXIMATED, (), "`torch_dtype` is missing: bfloat16 is assumed")
    if isinstance(config.get("quantization_config"), dict) and _weights_are_unknown(name, config):
        text = "the bits per weight are missing: the width of `torch_dtype` is assumed"
        given.note(Fate.APPROXIMATED, ("quantization_config",), text)


def _keys(data: Json) -> list[tuple[DataPath, str, Json]]:
    """Return every key of the configuration and of its text part."""
    top = data if isinstance(data, dict) else {}
    inner = top.get("text_config")
    keys: list[tuple[DataPath, str, Json]] = [((key,), key, value) for key, value in top.items()]
    if isinstance(inner, dict):
        keys += [(("text_config", key), key, value) for key, value in inner.items()]
    return keys


def _int(value: Json) -> int:
    return value if isinstance(value, int) else 0


def _matters(key: str, value: Json, config: dict[str, Json]) -> bool:
    if key == "rope_parameters":
        kind = value.get("rope_type") if isinstance(value, dict) else None
        return kind not in {None, "default"} and "rope_scaling" not in config
    if key == "layers_block_type":
        return "hybrid_override_pattern" not in config
    if key in {"decoder_sparse_step", "moe_layer_freq"}:
        return value != 1 and bool(config.get("num_local_experts"))
    return bool(value)


def _weights_are_unknown(name: str, config: dict[str, Json]) -> bool:
    """Whether the weights count at the activations' width although they are quantized."""
    if missing_fields(config) or _WIDTH.search(name.lower()):
        return False
    try:
        document = complete({"config": config}, "Model")
        part = document.get("config") if isinstance(document, dict) else None
        model = build_model(name, part if isinstance(part, dict) else {})
    except (KeyError, TypeError, ValueError, ZeroDivisionError):  # invalid: the validation reports it, with places
        return False
    return model.weight_bytes == model.activation_bytes and not model.expert_weight_bytes
