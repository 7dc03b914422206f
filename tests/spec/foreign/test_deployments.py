"""Deployments of several servers, as experiments: what a reader can know of each file is in the experiment."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

import blis_tui
from blis_tui.base.errors import SpecError
from blis_tui.spec.foreign.charts import import_helm
from blis_tui.spec.foreign.manifests import import_kubernetes
from blis_tui.spec.foreign.reading import notes_text
from blis_tui.spec.foreign.server_commands import Wanted, import_sglang, import_vllm

if TYPE_CHECKING:
    from collections.abc import Callable

    from blis_tui.spec.foreign.reading import Imported

FOLDER = Path(__file__).parent / "data" / "deployments"
H100 = Wanted("h100", model="qwen3-14b")
KINDS: dict[str, tuple[Callable[..., Imported], str, Wanted]] = {
    "two-roles": (import_vllm, "start.sh", Wanted("h100")),
    "kubernetes": (import_kubernetes, "deployment.yaml", Wanted("")),
    "kustomize": (import_kubernetes, "", Wanted("", model="qwen3-14b")),
    "production-stack": (import_helm, "values.yaml", H100),
    "llm-d": (import_helm, "model-values.yaml scheduler-values.yaml", Wanted("h100")),
    "kserve": (import_kubernetes, "service.yaml", Wanted("h100", model="qwen3-30b-a3b")),
    "dynamo": (import_kubernetes, "graph.yaml", H100),
}
ENGINES = {"vllm-v1": "vllm", "sglang": "sglang", "tensorrt-llm": "tensorrt-llm"}
KEYS = {"block_size": "block_size_tokens", "prefix_caching": "enable_prefix_caching"}


def document_and_notes(imported: Imported) -> tuple[dict[str, Any], str]:
    return yaml.safe_load(imported.text), notes_text(imported.notes)


def of_folder(name: str) -> tuple[dict[str, Any], str]:
    convert, files, wanted = KINDS[name]
    paths = [FOLDER / name / one for one in files.split()] or [FOLDER / name]
    return document_and_notes(convert(paths[0] if convert is import_vllm else paths, wanted))


@pytest.mark.parametrize("name", KINDS)
def test_what_a_reader_can_know_is_in_the_experiment(name: str) -> None:
    """`expect.json` has it; null is not stated."""
    found, _ = of_folder(name)
    expected = json.loads((FOLDER / name / "expect.json").read_text(encoding="utf-8"))
    cluster, engine = found["cluster"], found.get("engine", {})
    pools = {pool["role"]: pool for pool in cluster.get("pools", ())}
    assert ENGINES[found["policy"]["batching"]["kind"]] == expected["engine"]
    assert sum(pool["instances"] for pool in pools.values()) + cluster.get("instances", 0) == expected["instances"]
    if "tensor_parallel" in expected:
        sizes = {pool.get("tensor_parallel", 1) for pool in pools.values()} or {cluster.get("tensor_parallel", 1)}
        assert sizes == {expected["tensor_parallel"]}
    if expected.get("gpu"):
        assert found["hardware"] == expected["gpu"]
    for key, value in expected.get("limits", {}).items():
        assert engine.get(KEYS.get(key, key)) == value
    for role in ("prefill", "decode") if "disaggregation" in expected else ():
        assert pools[role]["instances"] == expected["disaggregation"][f"{role}_instances"]
        for key, value in expected["disaggregation"].get(role, {}).items():
            own = {**pools[role], **pools[role].get("engine", {})}
            assert own[key] == (value is not None if key == "expert_parallel" else value)
    blis_tui.load(found)


def test_beside_the_servers() -> None:
    """Routing, autoscalers and loads are taken, and what is otherwise is said."""
    assert of_folder("production-stack")[0]["policy"]["routing"] == {"kind": "session-affinity"}
    found, notes = of_folder("llm-d")
    assert found["policy"]["routing"]["scorers"] == [
        {"kind": "precise-prefix-cache", "weight": 3},
        {"kind": "queue-depth", "weight": 2},
        {"kind": "kv-utilization", "weight": 1},
    ]
    assert "max-score-picker: no effect" in notes
    found, notes = of_folder("kubernetes")
    assert found["cluster"]["autoscaler"] == {
        "interval_us": 15_000_000,
        "min_instances": 3,
        "max_instances": 8,
        "scale_down_stabilization_window_us": 300_000_000,
        "rule": {"kind": "hpa", "metric": "num_requests_waiting", "target": 5.0, "source": "Pods"},
    }
    assert "`cluster.autoscaler.rule`: 5 of `num_requests_waiting` an instance (Pods)" in notes
    assert found["engine"]["lora"] == {"max_loras": 2}
    assert (
        "KServe's own configuration decides: `prefix-affinity` 2, `load-aware` 1; prompts of more than 100 uncached"
        in of_folder("kserve")[1]
    )
    assert "it weighs cached blocks and load equally" in of_folder("dynamo")[1]
    found, notes = of_folder("two-roles")
    assert (found["workload"]["requests"], found["workload"]["rate_per_s"]) == (600, 6.0)
    assert "start.sh:9:98: decode.max-num-seqs: taken" in notes
    assert "decode: taken: `instances: 3` of pool `decode`" in notes


# ---- scripts ----


def script(tmp_path: Path, text: str, convert: Callable[..., Imported] = import_vllm, **named: Any) -> Any:
    file = tmp_path / "start.sh"
    file.write_text(text, encoding="utf-8")
    return document_and_notes(convert(file, Wanted("h100", variables=named.pop("variables", {})), **named))


def test_equal_servers_are_instances(tmp_path: Path) -> None:
    line = "CUDA_VISIBLE_DEVICES=$i vllm serve Qwen/Qwen3-14B --port $((8000+i)) --max-num-seqs 8 &"
    found, notes = script(tmp_path, f"for i in 0 1 2; do {line} done\nvllm-router --policy cache_aware --port 80")
    assert found["cluster"] == {"instances": 3}
    assert found["policy"]["routing"]["scorers"][0]["kind"] == "prefix-affinity"
    assert notes.count("max-num-seqs") == 1
    again = "vllm serve Qwen/Qwen3-14B &\nvllm bench serve --random-input-len 9 --num-prompts 5\n"
    assert "cluster" not in script(tmp_path, again * 2)[0]  # the same one, started again


def test_loads_of_other_tools_are_named(tmp_path: Path) -> None:
    text = "vllm serve Qwen/Qwen3-14B &\nvllm bench serve --dataset-name sharegpt\nguidellm benchmark --rate 3\n"
    with pytest.raises(SpecError, match="the lengths of `sharegpt` are not in the command"):
        script(tmp_path, text)
    found, notes = script(tmp_path, text.replace("--dataset-name sharegpt", "--random-input-len 7"))
    assert found["workload"]["clients"][0]["input_tokens"] == 7
    assert "guidellm: set elsewhere: its load: `spec import load` converts it" in notes
    given = Wanted("h100", workload="quickstart-chat")
    with pytest.raises(SpecError, match="quickstart-chat"):  # the load of the script is not looked at
        import_vllm(tmp_path / "start.sh", given)


def test_a_mistake_of_equal_servers_is_told_once(tmp_path: Path) -> None:
    with pytest.raises(SpecError) as caught:
        script(tmp_path, "for i in 0 1; do vllm serve Qwen/Qwen3-14B --port $i --max-num-seqs $SEQS & done")
    (problem,) = caught.value.diagnostics
    assert (problem.message, problem.line) == ("the script does not say what `$SEQS` is", 1)


def test_roles_are_those_that_a_proxy_is_told(tmp_path: Path) -> None:
    text = """C='{"kv_connector": "NixlConnector", "kv_role": "kv_both"}'
vllm serve Qwen/Qwen3-14B --port 8100 --kv-transfer-config "$C" -tp 2 &
vllm serve Qwen/Qwen3-14B --port=8200 --kv-transfer-config "$C" -tp 2 &
"""
    proxy = "python3 toy_proxy_server.py --prefiller-hosts localhost --prefiller-ports 8100 --decoder-ports 8200"
    found, notes = script(tmp_path, text + proxy)
    assert found["cluster"]["disaggregation"] == {}
    assert [(pool["role"], pool["tensor_parallel"]) for pool in found["cluster"]["pools"]] == [
        ("prefill", 2),
        ("decode", 2),
    ]
    assert "toy_proxy_server.py: no effect: requests reach the servers at once" in notes
    found, notes = script(tmp_path, text)
    assert found["cluster"] == {"tensor_parallel": 2, "instances": 2}
    assert "nothing says what the server does of each request" in notes


def test_sglang_has_roles(tmp_path: Path) -> None:
    text = "\n".join(
        f"python3 -m sglang.launch_server --model-path Qwen/Qwen3-14B --disaggregation-mode {role} --base-gpu-id {at}"
        f" --disaggregation-transfer-backend nixl --disaggregation-bootstrap-port 8998{more} &"
        for at, (role, more) in enumerate((("prefill", ""), ("decode", " --num-reserved-decode-tokens 256")))
    )
    found, notes = script(tmp_path, text, import_sglang)
    apart = {"prefill_instances": 1, "decode_instances": 1, "order": "decode-first"}
    assert found["cluster"] == {"instances": 2, "disaggregation": apart}
    assert found["policy"]["batching"] == {"kind": "sglang", "num_reserved_decode_tokens": 256}
    assert "disaggregation-transfer-backend: not carried" in notes
    assert "disaggregation-bootstrap-port: no effect" in notes
    assert "decode.disaggregation-mode: taken: `role: decode` of `cluster.disaggregation`" in notes
    cached = text.replace(
        " --disaggregation-bootstrap-port", " --enable-hierarchical-cache --disaggregation-bootstrap-port"
    )
    assert script(tmp_path, cached, import_sglang)[0] == found
    _, notes = script(tmp_path, text.splitlines()[0], import_sglang)
    assert "a server that does only prefill is simulated as one that does all" in notes


@pytest.mark.parametrize(
    ("tag", "arguments", "mode"),
    [
        ("v0.5.6.post2-cu129-amd64-runtime", "", "FULL_DECODE_ONLY"),
        ("v0.5.10", "", None),
        ("v0.5.10", "--disable-piecewise-cuda-graph", "FULL_DECODE_ONLY"),
        ("v0.5.9", "--enable-piecewise-cuda-graph", None),
        ("v0.5.9", "--disable-cuda-graph", None),
        ("latest", "", None),
    ],
)
def test_sglangs_version_says_whether_prompts_are_graphs(
    tag: str, arguments: str, mode: str | None, tmp_path: Path
) -> None:
    line = f"docker run lmsysorg/sglang:{tag} python3 -m sglang.launch_server --model-path Qwen/Qwen3-14B {arguments}"
    found, _ = script(tmp_path, line, import_sglang)
    assert found.get("engine", {}).get("cudagraph_mode") == mode


def test_followers_are_a_part_of_their_server(tmp_path: Path) -> None:
    text = """vllm serve Qwen/Qwen3-14B -dp 4 --data-parallel-size-local 2 &
ssh node "vllm serve Qwen/Qwen3-14B -dp 4 --headless --data-parallel-start-rank 2"
vllm serve Qwen/Qwen3-14B -dp 4 --headless --data-parallel-start-rank 2 &
"""
    found, notes = script(tmp_path, text)
    assert found["cluster"] == {"instances": 4}
    assert "it is a part of another server" in notes


def test_a_container_with_another_entrypoint(tmp_path: Path) -> None:
    line = "docker run --entrypoint {} -e VLLM_NEW=1 --gpus all vllm/vllm-openai:v0.33.0 {}"
    for entry, words in (
        ("bash", "-c 'cd / && vllm serve Qwen/Qwen3-14B -tp 2'"),
        ("python3", "-m vllm.entrypoints.openai.api_server --model Qwen/Qwen3-14B -tp 2"),
    ):
        found, notes = script(tmp_path, line.format(entry, words))
        assert (found["cluster"], found["policy"]["batching"]["version"]) == ({"tensor_parallel": 2}, "0.33")
        assert "VLLM_NEW: not carried" in notes


def test_host_memory_for_kv_blocks(tmp_path: Path) -> None:
    found, _ = script(tmp_path, "vllm serve Qwen/Qwen3-14B -tp 2 --kv-offloading-size 40")
    (tier,) = found["engine"]["kv_tiers"]["tiers"]
    assert tier == {"name": "cpu", "blocks": 16384, "bandwidth_tokens_per_us": tier["bandwidth_tokens_per_us"]}
    assert 0.3 < tier["bandwidth_tokens_per_us"] < 1
    lmcache = """--kv-transfer-config '{"kv_connector": "LMCacheConnectorV1", "kv_role": "kv_both"}'"""
    found, _ = script(tmp_path, f"LMCACHE_MAX_LOCAL_CPU_SIZE=20 vllm serve Qwen/Qwen3-14B {lmcache}")
    assert found["engine"]["kv_tiers"]["tiers"][0]["blocks"] == 8192
    _, notes = script(tmp_path, f"vllm serve Qwen/Qwen3-14B {lmcache}")
    assert "5 GiB, LMCache's default" in notes
    _, notes = script(tmp_path, f"vllm serve Qwen/Qwen3-14B {lmcache} --no-enable-prefix-caching")
    assert "prefix caching is off, and here nothing is kept" in notes


def test_a_store_that_servers_share_can_be_added(tmp_path: Path) -> None:
    """Nothing of a server's start says how large it is."""
    advice = "a store that servers share: its size is not in here: add it to `engine.kv_tiers` as the last tier"
    config = (
        """--kv-transfer-config '{"kv_connector": "%s", "kv_role": "kv_both", "kv_connector_extra_config": {%s}}'"""
    )
    for connector, extra in (
        ("MooncakeStoreConnector", ""),
        ("LMCacheMPConnector", ""),
        ("LMCacheConnectorV1", '"lmcache.remote_url": "lm://store:65432"'),
    ):
        found, notes = script(tmp_path, f"vllm serve Qwen/Qwen3-14B {config % (connector, extra)}")
        assert advice in notes
        assert "it does all" not in notes
        assert ("kv_tiers" in found.get("engine", {})) == (connector == "LMCacheConnectorV1")
    _, notes = script(tmp_path, "LMCACHE_REMOTE_URL=lm://store:65432 vllm serve Qwen/Qwen3-14B")
    assert f"LMCACHE_REMOTE_URL: not carried: {advice}" in notes


def test_variables_of_engines_are_noted(tmp_path: Path) -> None:
    text = "export VLLM_LOGGING_LEVEL=INFO VLLM_ATTENTION_BACKEND=X VLLM_NEW=1\nvllm serve Qwen/Qwen3-14B\n"
    _, notes = script(tmp_path, text)
    assert "VLLM_LOGGING_LEVEL: no effect" in notes
    assert "VLLM_ATTENTION_BACKEND: not carried: step times" in notes
    assert "VLLM_NEW: not carried: unknown variable" in notes


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("vllm serve Qwen/Qwen3-14B &\nvllm serve Qwen/Qwen3-14B -tp 2 &", "the servers differ, and nothing says"),
        ("vllm serve Qwen/Qwen3-14B &\nvllm serve openai/gpt-oss-120b &", "several servers have different models"),
        (
            "if [ $BIG ]; then vllm serve Qwen/Qwen3-14B -tp 2; else vllm serve Qwen/Qwen3-14B; fi",
            r"whether this server is started depends on `\[ \$BIG \]`",
        ),
    ],
)
def test_servers_that_are_no_cluster_are_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        script(tmp_path, text)
    if "\n" in text:
        assert script(tmp_path, text, service="line 1")[0]["model"] == "Qwen/Qwen3-14B"
    else:
        assert "cluster" not in script(tmp_path, text, variables={"BIG": ""})[0]
