"""Experiments as what starts their servers; imported again, they are the same."""

from __future__ import annotations

import json
import re
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from click.testing import CliRunner

from blis_tui.base.errors import InputError
from blis_tui.cli.main import cli
from blis_tui.cli.options import EXPORTS
from blis_tui.cli.standard_streams import ExitCode
from blis_tui.spec.foreign.charts import import_helm
from blis_tui.spec.foreign.export import FORMATS, export
from blis_tui.spec.foreign.manifests import import_kubernetes
from blis_tui.spec.foreign.server_commands import Wanted, import_sglang, import_vllm
from blis_tui.spec.load import resolve_source

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from blis_tui.spec.foreign.export import Exported

EXPERIMENTS = sorted(path.name.removesuffix(".blis.yaml") for path in Path("specs/experiments").glob("*.blis.yaml"))
"""Shipped experiments, of which those of vLLM and SGLang can be exported."""
KEYS = ("model", "hardware", "latency", "policy", "cluster", "engine")
IMPORTS: Mapping[str, Callable[..., Any]] = {
    "vllm": import_vllm,
    "sglang": import_sglang,
    "compose": import_kubernetes,
    "kubernetes": import_kubernetes,
    "llm-d": lambda file, wanted: import_helm([file], wanted),
}
ENGINES = {"vllm-v1": ("vllm", "compose", "kubernetes", "llm-d"), "sglang": ("sglang", "compose", "kubernetes")}


def documents(source: str, text: str | None = None, overrides: tuple[str, ...] = ()) -> dict[str, Any]:
    data: Any = resolve_source(source, stdin_text=text, overrides=overrides).document.data
    return {key: data.get(key) for key in KEYS}


def again(made: Exported, kind: str, tmp_path: Path, hardware: str) -> dict[str, Any]:
    file = tmp_path / "exported.yaml"
    file.write_text(made.text, encoding="utf-8")
    names_gpu = "nodeSelector" in made.text or "acceleratorTypes" in made.text
    return documents("-", IMPORTS[kind](file, Wanted("" if names_gpu else hardware)).text)


def leaves(value: Any, path: str) -> dict[str, Any]:
    """Values by their dotted paths; lists are values."""
    if not isinstance(value, dict) or not value:
        return {path: value}
    return {at: leaf for key, inner in value.items() for at, leaf in leaves(inner, f"{path}.{key}").items()}


def apart(one: Mapping[str, Any], other: Mapping[str, Any]) -> set[str]:
    """Paths at which two experiments differ, but for the names of their parts."""
    both = [{at: v for key in KEYS for at, v in leaves(each[key], key).items()} for each in (one, other)]
    paths = [at for at in {**both[0], **both[1]} if "metadata" not in at]
    return {at for at in paths if both[0].get(at) != both[1].get(at)}


def assert_listed(made: Exported, different: set[str]) -> None:
    """All that differs is listed, in the file as well; another kind stands for all that has other keys then."""
    lost = [one.partition(":")[0].removesuffix(".kind") for one in made.lost]
    assert not {at for at in different if not any(re.match(rf"{re.escape(one)}(\.|$)", at) for one in lost)}
    assert bool(different) == bool(lost)
    assert all(f"#   {one}\n" in made.text for one in made.lost)


def test_commands_offer_what_there_is() -> None:
    assert tuple(FORMATS) == EXPORTS == tuple(IMPORTS)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_a_shipped_experiment_comes_back(name: str, tmp_path: Path) -> None:
    """But for what is said to be lost; engines that a format has no servers of are refused."""
    whole = documents(name)
    kinds = ENGINES.get(whole["policy"]["batching"]["kind"], ())
    turn = EXPERIMENTS.index(name)
    for kind in FORMATS:
        if kind not in kinds:
            with pytest.raises(InputError, match="no server of"):
                export(kind, name)
        elif name == "mixed-fleet" and kind != "kubernetes":
            with pytest.raises(InputError, match=r"its pools have no roles|servers of one kind, or two"):
                export(kind, name)
        elif (kinds.index(kind) + turn) % 2:  # two formats of each
            made = export(kind, name)
            found = again(made, kind, tmp_path, whole["hardware"]["metadata"]["name"])
            for part in (whole, found):
                part["model"].pop("metadata", None)
            assert_listed(made, apart(whole, found))


POOLS = """cluster={disaggregation: {}, pools: [{name: prefill, role: prefill, instances: 2, tensor_parallel: 2},
 {name: decode, role: decode, instances: 1, tensor_parallel: 4, engine: {max_num_seqs: 9}}]}"""
VLLM = (
    ("engine.max_num_seqs=7", "engine.max_model_len=4096", "engine.gpu_memory_utilization=0.8"),
    ("engine.enable_prefix_caching=false", "engine.enforce_eager=true", "cluster.tensor_parallel=2"),
    ("engine.cudagraph_mode=FULL_DECODE_ONLY", "engine.kv_cache_dtype=fp8", "engine.block_size_tokens=32"),
    ("policy.scheduling=priority-fcfs", "policy.batching.async_scheduling=false"),
    ("engine.speculative={draft_tokens: 3, method: eagle, acceptance: 0.7}",),
    ("engine.lora={max_loras: 3, max_lora_rank: 32}", "engine.front_end.processes=4"),
    ("cluster={disaggregation: {prefill_instances: 2, decode_instances: 1}}",),
    (POOLS,),
)
SGLANG_POOLS = """cluster={disaggregation: {order: decode-first}, pools: [{name: prefill, role: prefill, instances: 2,
 tensor_parallel: 2}, {name: decode, role: decode, instances: 1, tensor_parallel: 2}]}"""
SGLANG = (
    ("engine.max_num_seqs=7", "engine.max_model_len=4096", "engine.gpu_memory_utilization=0.8"),
    ("engine.enable_prefix_caching=false", "engine.enforce_eager=true", "cluster.tensor_parallel=2"),
    ("engine.kv_cache_dtype=fp8", "engine.block_size_tokens=16", "engine.kv_blocks=5000"),
    ("policy.batching.chunked_prefill_size=none", "policy.batching.max_prefill_tokens=9000"),
    ("policy.batching.chunked_prefill_size=4096", "policy.batching.enable_mixed_chunk=true"),
    ("engine.cudagraph_mode=FULL_DECODE_ONLY",),
    ("policy.batching.overlap_schedule=false", "policy.batching.schedule_conservativeness=0.3"),
    ("engine.lora={max_loras: 3, max_lora_rank: 32}", "cluster.instances=3"),
    ("engine.kv_tiers={kind: hicache, hicache_ratio: 3.0}",),
    ("cluster={disaggregation: {order: decode-first, prefill_instances: 2, decode_instances: 1}}",),
    ("policy.batching.num_reserved_decode_tokens=99", SGLANG_POOLS),
)


@pytest.mark.parametrize(
    ("batching", "change"), [*(("vllm-v1", one) for one in VLLM), *(("sglang", one) for one in SGLANG)]
)
def test_what_a_command_can_say_is_said(batching: str, change: tuple[str, ...], tmp_path: Path) -> None:
    chosen = () if batching == "vllm-v1" else (f"policy.batching={{kind: {batching}}}",)
    overrides = ("latency=auto", "expect=[]", *chosen, *change)
    whole = documents("quickstart", None, overrides)
    turn = (VLLM if batching == "vllm-v1" else SGLANG).index(change)
    for kind in ENGINES[batching][turn % 2 :: 2]:
        made = export(kind, "quickstart", overrides)
        assert made.lost == ()
        assert apart(whole, again(made, kind, tmp_path, "h100")) == set()


def drawn(random: Random) -> tuple[str, ...]:
    """Settings of a random server, of which commands can say most."""
    sglang = random.random() < 0.4
    choices: dict[str, tuple[object, ...]] = {
        "model": ("qwen3-14b", "llama-3.1-8b-instruct", "mixtral-8x7b-v0.1"),
        "hardware": ("h100", "h200", "mi300x"),
        "cluster.instances": (1, 2, 5),
        "cluster.tensor_parallel": (2, 4),
        "engine.max_num_seqs": (3, 100),
        "engine.max_model_len": (4096, 9000),
        "engine.enable_prefix_caching": ("false",),
        "engine.kv_cache_dtype": ("fp8",),
        "engine.kv_blocks": (40_000,),
        "policy.routing": (
            "least-loaded",
            "session-affinity",
            "{kind: weighted, scorers: [{kind: queue-depth, weight: 2}]}",
        ),
        "policy.scheduling": ("sjf",),
        "policy.priority": ("slo-class",),
    }
    if sglang:
        choices["policy.batching.schedule_conservativeness"] = (0.5, 1.2)
        choices["policy.batching.scheduler_recv_interval"] = (3,)
    else:
        choices["policy.batching.watermark"] = (0.02,)
        choices["engine.pipeline_parallel"] = (2,)
    taken = [f"{path}={random.choice(values)}" for path, values in choices.items() if random.random() < 0.45]
    return ("latency=auto", "expect=[]", *(("policy.batching={kind: sglang}",) if sglang else ()), *taken)


@pytest.mark.parametrize("seed", range(8))
def test_random_experiments_come_back_but_for_what_is_listed(seed: int, tmp_path: Path) -> None:
    random = Random(seed)  # noqa: S311
    overrides = drawn(random)
    whole = documents("quickstart", None, overrides)
    kind = random.choice(ENGINES[whole["policy"]["batching"]["kind"]])
    made = export(kind, "quickstart", overrides)
    found = again(made, kind, tmp_path, whole["hardware"]["metadata"]["name"])
    assert_listed(made, apart(whole, found))


@pytest.mark.parametrize("source", ["External", "Pods"])
def test_the_metric_of_an_autoscaler_comes_back(source: str, tmp_path: Path) -> None:
    rule = {"kind": "hpa", "metric": "kv_cache_usage_perc", "target": 0.65, "source": source, "tolerance": 0.1}
    rule |= {"behavior": True, "scale_up_select": "Max", "scale_down_select": "Disabled"}
    rule |= {"scale_up_pods": {"value": 3, "period_s": 60}}
    overrides = (f"cluster.autoscaler.rule={json.dumps(rule)}", "cluster.autoscaler.interval_us=15000000")
    made = export("kubernetes", "autoscaling", overrides)
    assert not [path for path in made.lost if "autoscaler" in str(path)]
    assert again(made, "kubernetes", tmp_path, "h100")["cluster"]["autoscaler"]["rule"] == rule


def test_thresholds_of_llm_d_s_autoscaler_come_back(tmp_path: Path) -> None:
    rule = {"kind": "wva", "kv_utilization_threshold": 0.75, "queue_length_threshold": 12}
    rule |= {"kv_spare_trigger": 0.2, "queue_spare_trigger": 4.5}
    overrides = (f"cluster.autoscaler.rule={json.dumps(rule)}", "cluster.autoscaler.interval_us=60000000")
    made = export("kubernetes", "autoscaling", overrides)
    assert not [path for path in made.lost if "autoscaler" in str(path)]
    assert "kind: VariantAutoscaling" in made.text
    assert again(made, "kubernetes", tmp_path, "h100")["cluster"]["autoscaler"]["rule"] == rule


def test_an_autoscaler_without_a_behavior_comes_back_without_one(tmp_path: Path) -> None:
    window = "cluster.autoscaler.scale_down_stabilization_window_us"
    overrides = ("cluster.autoscaler.rule={kind: hpa, behavior: false}", "cluster.autoscaler.interval_us=15000000")
    made = export("kubernetes", "autoscaling", (*overrides, f"{window}=300000000"))
    assert "behavior" not in made.text
    assert not [path for path in made.lost if "autoscaler" in str(path)]
    assert again(made, "kubernetes", tmp_path, "h100")["cluster"]["autoscaler"]["rule"]["behavior"] is False
    made = export("kubernetes", "autoscaling", (*overrides, f"{window}=60000000"))  # a flag of the controller
    assert [path for path in made.lost if window in str(path)]


@pytest.mark.parametrize(
    ("version", "rules", "tag"),
    [
        ("0.11.0", "0.10", "v0.11.0"),
        ("0.13.0", "0.32", "v0.13.0"),
        (None, "0.10", "v0.10.2"),
        (None, "0.33", "v0.33.0"),
    ],
)
def test_the_version_of_an_engine_is_its_image(version: str | None, rules: str, tag: str, tmp_path: Path) -> None:
    synchronous = "async_scheduling: false, " if tag < "v0.14" else ""
    overrides = [f'policy.batching={{kind: vllm-v1, {synchronous}version: "{rules}"}}', "model=qwen3-14b"]
    overrides += [] if version is None else [f"engine.version={version}"]
    made = export("compose", "quickstart", overrides)
    assert f"vllm/vllm-openai:{tag}" in made.text
    assert made.lost == ()
    assert again(made, "compose", tmp_path, "h100")["engine"].get("version") == version


def test_values_of_llm_d_have_the_routing() -> None:
    made = export("llm-d", "prefix-routing")
    assert made.lost == ()
    values = yaml.safe_load(made.text)
    (picker,) = values["inferenceExtension"]["pluginsCustomConfig"].values()
    assert "pluginRef: precise-prefix-cache-scorer, weight: 2" in picker
    assert values["prefill"] == {"create": False}


def test_the_command() -> None:
    def run(*args: str) -> Any:
        return CliRunner().invoke(cli, ["spec", "export", *args])

    single = run("vllm", "quickstart", "--set", "cluster.instances=1", "--set", "engine.max_num_seqs=8")
    assert single.stdout.splitlines()[2:] == ["vllm serve Qwen/Qwen3-14B \\", "  --max-num-seqs 8"]
    assert single.stdout in (Path(__file__).parents[3] / "docs" / "specs.md").read_text(encoding="utf-8")
    lossy = run("kubernetes", "autoscaling", "--strict")
    assert lossy.exit_code == ExitCode.CHECK_FAILED
    assert "not said: policy.routing.kind: least-loaded" in lossy.stderr
    assert re.search(r"^  maxReplicas: 4$", lossy.stdout, re.MULTILINE)


def test_a_plan_writes_what_deploys_its_answer(tmp_path: Path) -> None:
    file = tmp_path / "serve.yaml"
    words = ["plan", "quickstart", "--slo", "latency.ttft_ms.p99<=1000", "--rate", "6", "--duration", "1", "--format"]
    words += ["json", "--sizes", "cluster.instances=1..2", "--set", "latency=roofline", "--export"]
    done = CliRunner().invoke(cli, [*words, "kubernetes", str(file)])
    assert done.exit_code == ExitCode.OK
    (replicas,) = re.findall(r"^  replicas: (\d+)$", file.read_text(encoding="utf-8"), re.MULTILINE)
    assert f'"size": {replicas}' in done.stdout
    assert "not said: latency.kind: roofline" in done.stderr
    assert CliRunner().invoke(cli, [*words[:-1], "--strict"]).exit_code == ExitCode.USAGE
    refused = CliRunner().invoke(cli, [*words, "sglang", str(tmp_path / "other")])
    assert refused.exit_code == ExitCode.IO
    assert "no server of SGLang has it" in refused.stderr
    assert not (tmp_path / "other").exists()
