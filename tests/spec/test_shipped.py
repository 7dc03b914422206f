"""What is shipped: schemas and documents."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest
from jsonschema import Draft202012Validator

from blis_tui.spec import hf
from blis_tui.spec.library import entries, find, names, suffix
from blis_tui.spec.load import load
from blis_tui.spec.read import read_document
from blis_tui.spec.reader import read
from blis_tui.spec.schema import KINDS, schema
from blis_tui.spec.shipped import data_root, shipped_specs
from blis_tui.spec.validate import validate

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SCHEMAS = sorted(path.name.removesuffix(".schema.json") for path in (data_root() / "schemas").glob("*.json"))
DOCUMENTS = sorted(shipped_specs().glob("*/*.yaml"))
EXPERIMENTS = names("Experiment")


def properties(node: object, path: str = "") -> Iterator[tuple[str, dict[str, object]]]:
    """Every property of a schema, with its path."""
    if isinstance(node, dict):
        for name, part in node.get("properties", {}).items():
            if not path.endswith("/if"):
                yield f"{path}/properties/{name}", part
        for key, part in node.items():
            yield from properties(part, f"{path}/{key}")
    elif isinstance(node, list):
        for at, part in enumerate(node):
            yield from properties(part, f"{path}/{at}")


def test_there_is_a_schema_for_every_kind() -> None:
    assert set(SCHEMAS) == {kind.lower() for kind in KINDS} | {"common", "extending"}


@pytest.mark.parametrize("name", SCHEMAS)
def test_schemas_are_valid_and_local(name: str) -> None:
    Draft202012Validator.check_schema(schema(name))
    text = json.dumps(schema(name))
    for reference in re.findall(r'"\$ref": "([^"]+)"', text):
        file = reference.partition("#")[0]
        assert file == "" or file.removesuffix(".schema.json") in SCHEMAS


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_property_is_described(name: str) -> None:
    bare = [path for path, part in properties(schema(name)) if not part.get("description") and "$ref" not in part]
    assert bare == []


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_object_refuses_unknown_keys(name: str) -> None:
    """Except the parts of a Hugging Face configuration."""

    def open_objects(node: object, path: str) -> Iterator[str]:
        if isinstance(node, dict):
            is_object = "object" in str(node.get("type")) and "properties" in node and "allOf" not in node
            if is_object and "additionalProperties" not in node:
                yield path
            for key, part in node.items():
                yield from open_objects(part, f"{path}/{key}")

    found = [
        path for path in open_objects(schema(name), "") if not path.startswith(("/$defs/config", "/$defs/model-config"))
    ]
    assert found == []


@pytest.mark.parametrize("name", SCHEMAS)
def test_defaults_are_valid(name: str) -> None:
    from jsonschema import validators  # noqa: PLC0415
    from referencing import Registry, Resource  # noqa: PLC0415

    def retrieve(uri: str) -> Resource[object]:
        return Resource.from_contents(schema(uri.removesuffix(".schema.json")))

    registry = Registry(retrieve=retrieve)  # type: ignore[call-arg]  # the stub omits an attrs field
    whole = validators.Draft202012Validator({"$ref": f"{name}.schema.json"}, registry=registry)
    for path, part in properties(schema(name)):
        if "default" in part:
            pointer = {"$ref": f"{name}.schema.json#{path}"}
            errors = list(whole.evolve(schema=pointer).iter_errors(part["default"]))
            assert errors == [], path


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_documents_are_valid_and_named_like_their_files(path: Path) -> None:
    valid = validate(path)
    assert path.name.removesuffix(suffix(valid.kind)) == valid.name
    first, second = path.read_text(encoding="utf-8").splitlines()[:2]
    match = re.fullmatch(r"# yaml-language-server: \$schema=(\S+)", first)
    assert match is not None
    assert (path.parent / match.group(1)).resolve() == (
        data_root() / "schemas" / f"{valid.kind.lower()}.schema.json"
    ).resolve()
    assert second.startswith("# ")
    assert read(read_document(path).data, valid.kind).violations == []


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_experiments_resolve(name: str) -> None:
    experiment = load(name)
    assert experiment.name == name
    assert experiment.description
    assert experiment.pools[0].engine.kv_blocks > 0
    assert experiment.expect


def test_there_are_enough_experiments() -> None:
    assert len(EXPERIMENTS) >= 8


def test_entries_lists_each_document_once() -> None:
    listed = [(entry.kind, entry.name) for entry in entries()]
    assert len(listed) == len(set(listed)) == len(DOCUMENTS)
    assert all(find(kind, name) is not None for kind, name in listed)


def test_models_mean_what_their_configuration_says() -> None:
    scout = (
        load(
            "quickstart",
            overrides=["model=llama-4-scout-17b-16e-instruct-fp8-dynamic", "cluster.tensor_parallel=2"],
        )
        .pools[0]
        .model
    )
    assert (scout.hidden_size, scout.num_experts, scout.num_experts_per_tok) == (5120, 16, 1)
    assert (scout.weight_bytes, scout.activation_bytes) == (1.0, 2.0)
    assert (scout.interleave_moe_layer_step, scout.dense_intermediate_size) == (1, 16384)
    assert scout.max_position_embeddings == 10485760
    lite = load("quickstart", overrides=["model=deepseek-v2-lite"]).pools[0].model
    assert (lite.num_experts, lite.moe_intermediate_size, lite.shared_expert_intermediate_size) == (
        64,
        1408,
        2816,
    )
    assert (lite.kv_lora_rank, lite.qk_rope_head_dim, lite.first_k_dense_replace) == (512, 64, 1)
    assert lite.max_position_embeddings == 163840
    nemo = load("quickstart", overrides=["model=mistral-nemo-instruct-2407"]).pools[0].model
    assert (nemo.head_dim, nemo.hidden_size // nemo.num_attention_heads) == (128, 160)


@pytest.mark.parametrize(
    ("name", "config", "weight_bytes"),
    [
        ("m", {"quantization_config": {"quant_method": "gptq", "bits": 4}}, 0.5),
        ("m", {"quantization_config": {"quant_method": "fp8"}}, 1.0),
        ("m", {"quantization_config": {"config_groups": {"g": {"weights": {"num_bits": 4}}}}}, 0.5),
        ("m-quantized.w4a16", {}, 0.5),
        ("m-w8a8", {}, 1.0),
        ("m-fp8-dynamic", {}, 1.0),
        ("m", {"torch_dtype": "float32"}, 4.0),
        ("power4all", {}, 2.0),
    ],
)
def test_bytes_of_a_weight(name: str, config: dict[str, object], weight_bytes: float) -> None:
    base: dict[str, object] = {
        "hidden_size": 64,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "vocab_size": 10,
        "max_position_embeddings": 100,
        "torch_dtype": "bfloat16",
        "hidden_act": "silu",
    }
    assert hf.build_model(name, base | config).weight_bytes == weight_bytes


@pytest.mark.parametrize(
    ("scaling", "context"),
    [
        (None, 100),
        ({"type": "linear", "factor": 2.0}, 200),
        ({"rope_type": "dynamic", "factor": 4}, 400),
        ({"rope_type": "llama3", "factor": 8.0}, 100),
        ({"type": "su", "factor": 8.0}, 100),
        ({"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 50}, 200),
        ({"rope_type": "default"}, 100),
    ],
)
def test_rotary_scaling(scaling: dict[str, object] | None, context: int) -> None:
    config: dict[str, object] = {
        "hidden_size": 64,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "vocab_size": 10,
        "max_position_embeddings": 100,
        "torch_dtype": "bfloat16",
        "hidden_act": "silu",
        "rope_scaling": scaling,
    }
    assert hf.build_model("m", config).max_position_embeddings == context
