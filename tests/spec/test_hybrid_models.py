"""Models whose layers have a state for each request: configurations, what is refused, and what each run says."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from click.testing import CliRunner

import blis_tui
from blis_tui.base.errors import SpecError
from blis_tui.cli.main import cli
from blis_tui.engine.kv.capacity import active_parameters, parameters
from blis_tui.model import LinearLayers
from blis_tui.spec.foreign.export import export
from blis_tui.spec.foreign.hf_config import import_model
from blis_tui.spec.foreign.reading import Fate

if TYPE_CHECKING:
    from pathlib import Path

    from blis_tui.model import Model

CONFIG: dict[str, Any] = {
    "hidden_size": 1024,
    "num_hidden_layers": 8,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "vocab_size": 1000,
    "max_position_embeddings": 4096,
    "torch_dtype": "bfloat16",
}
GDN: dict[str, Any] = {
    "linear_num_key_heads": 4,
    "linear_key_head_dim": 64,
    "linear_num_value_heads": 8,
    "linear_value_head_dim": 32,
    "linear_conv_kernel_dim": 3,
}
KDA: dict[str, Any] = {
    "linear_attn_config": {
        "kda_layers": [1, 2, 3, 5, 6, 7],
        "full_attn_layers": [4, 8],
        "num_heads": 4,
        "head_dim": 64,
        "short_conv_kernel_size": 4,
    }
}


def listing(kda: list[int], full: list[int] | None) -> dict[str, Any]:
    """Layers with Kimi Delta Attention, by these numbers."""
    others = {} if full is None else {"full_attn_layers": full}
    return {"linear_attn_config": {"kda_layers": kda, **others, "num_heads": 4, "head_dim": 64}}


MAMBA: dict[str, Any] = {
    "hybrid_override_pattern": "MEM*M-ME",
    "mamba_num_heads": 8,
    "mamba_head_dim": 16,
    "ssm_state_size": 32,
    "n_groups": 2,
    "conv_kernel": 4,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 64,
    "intermediate_size": 96,
    "mlp_hidden_act": "relu2",
}


def model(**keys: object) -> Model:
    given = {"model": {"config": {**CONFIG, **keys}}, "latency": "roofline", "engine.kv_blocks": 500}
    return blis_tui.load("quickstart", set=given).pools[0].model


def imported(tmp_path: Path, **keys: object) -> tuple[dict[str, Any], dict[str, Fate]]:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**CONFIG, **keys}, indent=1))
    found = import_model(path, name="m")
    return yaml.safe_load(found.text)["config"], {".".join(map(str, note.path)): note.fate for note in found.notes}


def test_gated_delta_net_is_read() -> None:
    listed = ["linear_attention", "full_attention"] * 4
    for keys, layers in (({}, 6), ({"full_attention_interval": 2}, 4), ({"layer_types": listed}, 4)):
        found = model(**GDN, **keys)
        assert found.linear == LinearLayers(
            kind="gdn",
            layers=layers,
            key_heads=4,
            key_dim=64,
            value_heads=8,
            value_dim=32,
            conv_kernel=3,
            conv_bytes=2.0,
            state_bytes=2.0,
        )
        assert (found.attention_layers, found.feed_forwards, found.other_layers) == (8 - layers, 8, "")
    assert model(**GDN, mamba_ssm_dtype="float32").linear == LinearLayers(
        kind="gdn",
        layers=6,
        key_heads=4,
        key_dim=64,
        value_heads=8,
        value_dim=32,
        conv_kernel=3,
        conv_bytes=2.0,
        state_bytes=4.0,
    )


def test_kimi_delta_attention_is_read() -> None:
    linear = model(**KDA).linear
    assert linear is not None
    assert (linear.kind, linear.layers, linear.keys, linear.values, linear.state_bytes) == ("kda", 6, 256, 256, 4.0)


def test_nemotron_lists_feed_forward_blocks_as_layers() -> None:
    found = model(**MAMBA)
    assert found.linear is not None
    assert (found.linear.kind, found.linear.layers, found.linear.key_heads, found.linear.state_bytes) == (
        "mamba2",
        4,
        2,
        4.0,
    )
    assert (found.num_hidden_layers, found.attention_layers, found.feed_forwards) == (5, 1, 3)
    assert (found.first_k_dense_replace, found.feed_forward_matrices) == (1, 2)


def test_parameters_are_counted_matrix_by_matrix() -> None:
    """Counted here layer by layer, as the modules of transformers list them."""
    found, hidden = model(**MAMBA), 1024
    mamba = hidden * (2 * 128 + 2 * 2 * 32 + 8) + (128 + 128) * 4 + (128 + 128) + 3 * 8 + 128 + 128 * hidden
    attention = hidden * (1024 + 2 * 256) + 1024 * hidden
    experts, dense = 4 * 2 * hidden * 64 + 4 * hidden, 2 * hidden * 96
    whole = 4 * mamba + attention + 2 * experts + dense + 8 * hidden + hidden + 2 * 1000 * hidden
    assert parameters(found) == whole
    assert active_parameters(found) == whole - 2 * 2 * 2 * hidden * 64


@pytest.mark.parametrize(
    ("name", "billions"),
    [("qwen3.5-35b-a3b", 3.4), ("qwen3-next-80b-a3b", 3.9), ("nemotron-3-nano-30b-a3b", 3.6)],
)
def test_active_parameters_are_as_published(name: str, billions: float) -> None:
    """With embeddings and head; "A3B" is without one or both."""
    found = blis_tui.load("quickstart", set={"model": name, "latency": "roofline", "engine.kv_blocks": 500})
    assert active_parameters(found.pools[0].model) / 1e9 == pytest.approx(billions, rel=0.03)


@pytest.mark.parametrize("keys", [GDN, KDA, MAMBA, {**GDN, "layer_types": ["linear_attention", "full_attention"] * 4}])
def test_a_configuration_that_describes_them_is_carried(keys: dict[str, Any], tmp_path: Path) -> None:
    config, notes = imported(tmp_path, **keys)
    assert {key: config[key] for key in keys if key in config} == {k: v for k, v in keys.items() if k in config}
    assert not {key: fate for key, fate in notes.items() if fate is not Fate.NO_EFFECT}


@pytest.mark.parametrize(
    ("keys", "missing", "fate"),
    [
        (GDN, "linear_key_head_dim", {"linear_num_value_heads": Fate.NOT_CARRIED}),
        (MAMBA, "mamba_head_dim", {"hybrid_override_pattern": Fate.NOT_CARRIED, "mamba_num_heads": Fate.NOT_CARRIED}),
    ],
)
def test_one_that_does_not_is_said_to_count_as_attention(
    keys: dict[str, Any], missing: str, fate: dict[str, Fate], tmp_path: Path
) -> None:
    _, notes = imported(tmp_path, **{key: value for key, value in keys.items() if key != missing})
    assert notes.items() >= fate.items()


def test_layers_of_nemotron_h_are_read_by_their_newer_name(tmp_path: Path) -> None:
    keys = {key: value for key, value in MAMBA.items() if key != "hybrid_override_pattern"}
    listed = ["mamba", "moe", "mamba", "attention", "mamba", "mlp", "mamba", "moe"]
    config, notes = imported(tmp_path, **keys, model_type="nemotron_h", layers_block_type=listed)
    assert config["hybrid_override_pattern"] == MAMBA["hybrid_override_pattern"]
    assert "layers_block_type" not in notes
    _, notes = imported(tmp_path, **keys, model_type="nemotron_h", layers_block_type=[*listed[:-1], "conv"])
    assert notes["layers_block_type"] is Fate.NOT_CARRIED


def test_multi_token_prediction_is_said_to_be_left_out(tmp_path: Path) -> None:
    _, notes = imported(tmp_path, **GDN, mtp_num_hidden_layers=1)
    assert notes == {"mtp_num_hidden_layers": Fate.NOT_CARRIED}


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ({**MAMBA, "hybrid_override_pattern": "ME*"}, "hybrid_override_pattern has 3 layers, num_hidden_layers is 8"),
        ({**MAMBA, "hybrid_override_pattern": "MEMEMEM-"}, "all 4 layers have a state, and none attends"),
        ({**GDN, "layer_types": ["linear_attention"] * 8}, "all 8 layers have a state, and none attends"),
        ({**GDN, "linear_num_value_heads": 6}, "linear_num_value_heads 6 is not a multiple of linear_num_key_heads 4"),
        (
            {**GDN, "layer_types": ["linear_attention", "full_attention"]},
            "layer_types has 2 layers, num_hidden_layers is 8",
        ),
        (listing([1, 2, 3, 5, 6, 7], [4]), "does not list each of the layers 1 to 8 once"),
        (listing([1, 1, 2, 3, 5, 6, 7], None), "does not list each of the layers 1 to 8 once"),
        (listing([5, 6, 99], None), "does not list each of the layers 1 to 8 once"),
        (
            {**GDN, "sliding_window": 64, "layer_types": ["linear_attention", "sliding_attention"] * 4},
            "layers with a sliding window beside layers with a state are not simulated",
        ),
    ],
)
def test_what_contradicts_itself_is_refused(keys: dict[str, Any], text: str) -> None:
    with pytest.raises(SpecError, match=text):
        model(**keys)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("engine.enable_prefix_caching", "true", "a prefix cache with copies of states"),
        ("engine.pipeline_parallel", "2", "`engine.pipeline_parallel` is not simulated"),
        ("engine.disable_hybrid_kv_cache_manager", "true", "which only the hybrid KV cache manager has room for"),
        ("policy.preemption.restore", "swap", "`policy.preemption.restore` is not simulated"),
        ("engine.speculative", "{method: mtp, draft_tokens: 1, acceptance: 0.8}", "`engine.speculative` is not"),
    ],
)
def test_what_is_not_simulated_with_states_is_refused(key: str, value: str, message: str) -> None:
    settings = {"model": "qwen3.5-27b", "hardware": "h200", "latency": "fitted", "policy.batching": "vllm-v1"}
    with pytest.raises(SpecError) as caught:
        blis_tui.load("quickstart", set={**settings, key: yaml.safe_load(value)})
    assert [diagnostic.code for diagnostic in caught.value.diagnostics] == ["BLIS2027"]
    assert message in caught.value.diagnostics[0].message


def test_heads_of_states_are_split_evenly() -> None:
    settings = {"model": "qwen3.5-27b", "hardware": "h200", "latency": "fitted", "cluster.tensor_parallel": 3}
    with pytest.raises(SpecError, match=r"does not divide the 16 key heads of qwen3\.5-27b's states"):
        blis_tui.load("quickstart", set=settings)


def test_too_few_blocks_for_a_request_are_said_to_hold_its_states_too() -> None:
    settings = {"model": "qwen3.5-27b", "hardware": "h200", "latency": "fitted", "engine.kv_blocks": 3}
    with pytest.raises(SpecError, match="exceeds the KV cache") as caught:
        blis_tui.load("quickstart", set=settings)
    assert caught.value.diagnostics[0].help == "3 blocks of 784 tokens hold 0 of one request, as 3 hold its states"


@pytest.mark.parametrize(("groups", "message"), [(8, "does not divide the 8 groups of"), (1, "")])
def test_only_a_single_group_of_mamba_2_is_copied(groups: int, message: str) -> None:
    """vLLM 0.28, ``mamba_mixer2.py``: "If tensor parallel world size does not divide num_groups ... must equal 1"."""
    config = {**CONFIG, **MAMBA, "num_attention_heads": 16, "mamba_num_heads": 16, "n_groups": groups}
    settings = {"model": {"config": config}, "hardware": "h200", "latency": "fitted", "cluster.tensor_parallel": 16}
    if not message:
        blis_tui.load("quickstart", set=settings)
        return
    with pytest.raises(SpecError, match=message) as caught:
        blis_tui.load("quickstart", set=settings)
    assert caught.value.diagnostics[0].help == "possible values are 1, 2, 4, 8"


@pytest.mark.parametrize("batching", ["vllm-v1", "sglang"])
def test_each_run_says_that_no_server_like_this_was_measured(batching: str) -> None:
    config = {**CONFIG, **GDN, "num_attention_heads": 8, "head_dim": 128}
    settings = {
        "model": {"config": config},
        "hardware": "h100",
        "latency": "operators",
        "policy.batching": batching,
        "workload.requests": 20,
        "engine.kv_blocks": 2000,
    }
    report = blis_tui.run(blis_tui.load("steady-chat", set={**settings, "expect": []}))
    (finding,) = [warning for warning in report.warnings if warning.id == "states"]
    where = "in KV blocks, enlarged to" if batching == "vllm-v1" else "beside the KV blocks"
    assert where in finding.message
    assert "No server with such layers was measured" in finding.message
    assert report.tokens.cached == 0


def test_a_command_that_is_written_turns_the_prefix_cache_off() -> None:
    """vLLM has it on for these models from 0.28 on."""
    made = export("vllm", "quickstart", ["model=qwen3.5-27b", "hardware=h200"])
    assert "--no-enable-prefix-caching" in made.text
    assert not [one for one in made.lost if one.startswith("engine")]


@pytest.mark.parametrize(
    ("model", "engine"),
    [("Qwen/Qwen3-Next-80B-A3B-Instruct", {}), ("Qwen/Qwen3-32B", {"enable_prefix_caching": True})],
)
def test_a_command_with_a_prefix_cache_is_imported_without_it(model: str, engine: dict[str, bool]) -> None:
    """Only where layers have a state; what is left out is said, and not that it was taken."""
    words = ["vllm", "serve", model, "-tp", "4", "--enable-prefix-caching"]
    done = CliRunner().invoke(cli, ["spec", "import", "vllm", "--hardware", "h100", "--", *words])
    assert done.exit_code == 0, done.output
    assert yaml.safe_load(done.stdout).get("engine", {}) == engine
    lines = [line for line in done.stderr.splitlines() if "enable-prefix-caching:" in line]
    assert len(lines) == 1
    assert ("not carried: prefix caches with copies of states" in lines[0]) == (not engine)
