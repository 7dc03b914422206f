"""Kinds of files that deploy servers: kustomizations, values of charts, and documents of operators."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import blis_tui
from blis_tui.base.errors import BlisError, InputError, SpecError
from blis_tui.spec.foreign.charts import import_helm
from blis_tui.spec.foreign.manifests import import_kubernetes
from blis_tui.spec.foreign.reading import notes_text
from blis_tui.spec.foreign.server_commands import Wanted

if TYPE_CHECKING:
    from collections.abc import Callable

    from blis_tui.spec.foreign.reading import Imported

MODEL = "Qwen/Qwen3-14B"
FOLDER = Path(__file__).parent / "data" / "deployments"


def made(tmp_path: Path, convert: Callable[..., Imported], *texts: str, **named: Any) -> tuple[dict[str, Any], str]:
    files = []
    for at, text in enumerate(texts):
        files.append(tmp_path / f"{at}.yaml")
        files[-1].write_text(text, encoding="utf-8")
    found = convert(files, Wanted(named.pop("hardware", "h100"), **named))
    return yaml.safe_load(found.text), notes_text(found.notes)


# ---- kustomizations ----

BASE = f"""apiVersion: apps/v1
kind: Deployment
metadata: {{name: engine}}
spec:
  replicas: 2
  template:
    spec:
      containers:
      - {{name: vllm, image: "vllm/vllm-openai:v0.33.0", args: [--model, {MODEL}, --max-num-seqs, "8"]}}
"""


def kustomized(tmp_path: Path, text: str, **files: str) -> dict[str, Any]:
    (tmp_path / "base.yaml").write_text(BASE, encoding="utf-8")
    for name, inside in files.items():
        (tmp_path / f"{name}.yaml").write_text(inside, encoding="utf-8")
    (tmp_path / "kustomization.yaml").write_text(text, encoding="utf-8")
    found: dict[str, Any] = yaml.safe_load(import_kubernetes(tmp_path, Wanted("h100")).text)
    return found


PATCHES = {
    "operations": """- patch: |-
    - {op: replace, path: /spec/template/spec/containers/0/args/3, value: '16'}
  target: {kind: Deployment, name: engine}""",
    "a list": """- patch: |-
    [{op: add, path: /spec/template/spec/containers/0/args/-, value: --max-num-seqs=32}]
  target: {kind: Deploy.*}""",
    "a merge": """- patch: |-
    kind: Deployment
    metadata: {name: engine}
    spec: {template: {spec: {containers: [{name: side}, {name: vllm, args: [--model, Qwen/Qwen3-14B]}]}}}""",
    "a file": "- path: patch.yaml",
}


@pytest.mark.parametrize(("patch", "seqs"), [("operations", 16), ("a list", 32), ("a merge", None), ("a file", 64)])
def test_patches(tmp_path: Path, patch: str, seqs: int | None) -> None:
    """A strategic merge replaces the whole list of arguments, and finds containers by their names."""
    file = BASE.replace('"8"', '"64"').replace("replicas: 2", "replicas: 3")
    text = f"resources: [base.yaml]\nreplicas: [{{name: engine, count: 5}}]\npatches:\n{PATCHES[patch]}\n"
    found = kustomized(tmp_path, text, patch=file)
    assert found.get("engine", {}).get("max_num_seqs") == seqs
    assert found["cluster"] == {"instances": 5}


def test_a_base_in_another_folder_is_changed(tmp_path: Path) -> None:
    inner = tmp_path / "base"
    inner.mkdir()
    kustomized(inner, "resources: [base.yaml]\n")
    found = kustomized(tmp_path, "resources: [base]\nimages: [{name: vllm/vllm-openai, newTag: v0.10.2}]\n")
    assert found["policy"]["batching"]["version"] == "0.10"
    assert found["cluster"] == {"instances": 2}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("resources: ['https://github.com/o/r//base?ref=v1']", r"the base `https://.*v1` is elsewhere"),
        ("resources: [missing.yaml]", "the base `missing.yaml` is not here"),
        ("resources: [base.yaml]\npatches: [{path: no.yaml}]", "the patch `.*no.yaml` is not here"),
        ("resources: [base.yaml]\npatches: [{patch: '{kind: Job, metadata: {name: x}}'}]", "no resource is the Job x"),
        ("resources: [base.yaml]\npatches: [{patch: '- {op: add, path: /no/way}', target: {}}]", "cannot be applied"),
        ("resources: [base.yaml]\nhelmCharts: [{name: c}]", "`helmCharts` is not followed"),
        ("resources: [.]", "kustomizations name each other"),
    ],
)
def test_a_kustomization_that_cannot_be_made_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        kustomized(tmp_path, text)


def test_a_folder_of_manifests(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has no manifest"):
        import_kubernetes(tmp_path, Wanted("h100"))
    (tmp_path / "a.yaml").write_text(BASE, encoding="utf-8")
    scaler = "kind: HorizontalPodAutoscaler\nspec: {scaleTargetRef: {name: engine}, minReplicas: 1, maxReplicas: 4}\n"
    (tmp_path / "b.yml").write_text(scaler, encoding="utf-8")
    found = yaml.safe_load(import_kubernetes(tmp_path, Wanted("h100")).text)
    assert found["cluster"]["autoscaler"]["max_instances"] == 4


# ---- groups of pods, pools, AIBrix ----


def test_a_group_of_pods_is_one_server(tmp_path: Path) -> None:
    script = f"""
      - name: vllm
        image: ghcr.io/llm-d/llm-d-cuda:v0.5.1
        command: [/bin/bash, -c]
        args:
        - |-
          START_RANK=$(( ${{LWS_WORKER_INDEX:-0}} * DP_LOCAL ))
          exec vllm serve {MODEL} --data-parallel-size $((LWS_GROUP_SIZE * DP_LOCAL)) \\
            --data-parallel-start-rank $START_RANK
        env: [{{name: DP_LOCAL, value: "4"}}]
"""
    text = "kind: LeaderWorkerSet\nmetadata: {name: m}\nspec:\n  replicas: 2\n  leaderWorkerTemplate:\n    size: 2\n"
    pods = "    workerTemplate:\n     spec:\n      containers:" + script
    found, _ = made(tmp_path, import_kubernetes, text + pods)
    assert found["cluster"] == {"instances": 16}
    leader = pods.replace("workerTemplate", "leaderTemplate").replace("$((LWS_GROUP_SIZE * DP_LOCAL))", "3")
    assert made(tmp_path, import_kubernetes, text + leader + pods)[0]["cluster"] == {"instances": 6}


def test_two_kinds_of_gpu_are_pools(tmp_path: Path) -> None:
    text = "---\n".join(
        BASE.replace("engine", name).replace("    spec:\n", f"    spec:\n      nodeSelector: {{gpu: {gpu}}}\n")
        + f"---\nkind: PodAutoscaler\nspec: {{scaleTargetRef: {{name: {name}}}, minReplicas: 1, maxReplicas: {most}}}\n"
        for name, gpu, most in (("big", "NVIDIA-H200", 4), ("small", "NVIDIA-L40S", 6))
    )
    found, _ = made(tmp_path, import_kubernetes, text, hardware="")
    assert found["hardware"] == "h200"
    big, small = found["cluster"]["pools"]
    assert (big["max_instances"], small["max_instances"], small["hardware"]) == (4, 6, "l40s")
    assert found["cluster"]["autoscaler"]["max_instances"] == 6
    blis_tui.load(found)


WAITING = "metadata: {query: 'sum(vllm:num_requests_waiting{model=\"a\"})', threshold: '5'}"


@pytest.mark.parametrize(
    ("looks", "rule"),
    [
        (f"triggers: [{{type: prometheus, {WAITING}}}]", ("num_requests_waiting", 5.0, "External")),
        (f"triggers: [{{type: prometheus, metricType: Value, {WAITING}}}]", None),
        (f"triggers: [{{type: prometheus, {WAITING}}}, {{type: cron}}]", None),
        (f"triggers: [{{type: prometheus, {WAITING.replace('sum', 'avg')}}}]", None),
        (f"triggers: [{{type: prometheus, {WAITING.replace('5', '0')}}}]", None),
        (
            "metrics: [{type: Pods, pods: {metric: {name: gpu_cache_usage_perc}, target: {averageValue: 650m}}}]",
            ("kv_cache_usage_perc", 0.65, "Pods"),
        ),
        ("metrics: [{type: Resource, resource: {name: cpu, target: {averageUtilization: 50}}}]", None),
        ("metrics: [{type: Pods, pods: {metric: {name: 'vllm:num_requests_running'}, target: {value: 3}}}]", None),
        ("metrics: {type: Pods}", None),
    ],
)
def test_an_autoscaler_that_looks_at_one_gauge_of_vllm_is_simulated(
    looks: str, rule: tuple[str, float, str] | None, tmp_path: Path
) -> None:
    spec = f"kind: ScaledObject\nspec:\n  scaleTargetRef: {{name: engine}}\n  maxReplicaCount: 4\n  {looks}\n"
    found, notes = made(tmp_path, import_kubernetes, f"{BASE}---\n{spec}")
    scaler = found["cluster"]["autoscaler"]
    if rule is None:
        assert "rule" not in scaler
        assert "simulated is one by queues and KV use" in notes
    else:
        metric, target, source = rule
        named = {"kind": "hpa", "metric": metric, "target": target, "source": source}
        assert scaler["rule"] == {**named, "behavior": False}
        limited = spec + "  advanced: {horizontalPodAutoscalerConfig: {behavior: {scaleUp: {}}}}\n"
        assert made(tmp_path, import_kubernetes, f"{BASE}---\n{limited}")[0]["cluster"]["autoscaler"]["rule"] == named
    blis_tui.load(found)


def test_policies_of_an_autoscaler_are_settings_of_its_rule(tmp_path: Path) -> None:
    spec = f"""kind: ScaledObject
spec:
  scaleTargetRef: {{name: engine}}
  maxReplicaCount: 4
  triggers: [{{type: prometheus, {WAITING}}}]
  advanced:
    horizontalPodAutoscalerConfig:
      behavior:
        scaleUp:
          policies:
          - {{type: Pods, value: 2, periodSeconds: 60}}
          - {{type: Percent, value: 50, periodSeconds: 30}}
          - {{type: Pods, value: 9, periodSeconds: 600}}
          selectPolicy: Min
        scaleDown: {{selectPolicy: Disabled, policies: [{{type: Cores, value: 1, periodSeconds: 1}}]}}
"""
    found, notes = made(tmp_path, import_kubernetes, f"{BASE}---\n{spec}")
    rule = found["cluster"]["autoscaler"]["rule"]
    assert rule["scale_up_pods"] == {"value": 2, "period_s": 60}
    assert rule["scale_up_percent"] == {"value": 50, "period_s": 30}
    assert (rule["scale_up_select"], rule["scale_down_select"]) == ("Min", "Disabled")
    assert "scale_down_pods" not in rule
    assert "behavior" not in rule
    assert "of several policies of one type under `scaleUp`, the first is simulated" in notes
    assert "one of its policies under `scaleDown` is none of Kubernetes'" in notes
    blis_tui.load(found)


SCALED_BY_VARIANT = """---
kind: HorizontalPodAutoscaler
spec:
  scaleTargetRef: {name: engine}
  minReplicas: 1
  maxReplicas: 6
  behavior: {scaleDown: {stabilizationWindowSeconds: 120}}
  metrics: [{type: External, external: {metric: {name: wva_desired_replicas}, target: {averageValue: 1}}}]
---
kind: VariantAutoscaling
spec: {scaleTargetRef: {name: engine}, modelID: x, variantCost: "40.0"}
"""


def with_thresholds(text: str) -> str:
    return f"{SCALED_BY_VARIANT}---\nkind: ConfigMap\nmetadata: {{name: c}}\ndata:\n  default: |\n    {text}\n"


def test_what_llm_d_decides_for_an_autoscaler_is_simulated(tmp_path: Path) -> None:
    found, notes = made(tmp_path, import_kubernetes, BASE + SCALED_BY_VARIANT)
    scaler = found["cluster"]["autoscaler"]
    assert (scaler["rule"], scaler["interval_us"], scaler["max_instances"]) == ({"kind": "wva"}, 60_000_000, 6)
    assert scaler["scale_down_stabilization_window_us"] == 120_000_000
    assert "`cluster.autoscaler.rule`: llm-d's analyzer by percentages (`wva`)" in notes
    assert "its thresholds are the usual ones" in notes
    assert "`variantCost`: pools are compared by" in notes
    blis_tui.load(found)
    text = with_thresholds("{kvCacheThreshold: 0.7, queueLengthThreshold: 9, kvSpareTrigger: 0.2, other: 1}")
    interval = '---\nkind: ConfigMap\nmetadata: {name: d}\ndata: {GLOBAL_OPT_INTERVAL: "15s"}\n'
    found, notes = made(tmp_path, import_kubernetes, BASE + text + interval)
    thresholds = {"kv_utilization_threshold": 0.7, "queue_length_threshold": 9, "kv_spare_trigger": 0.2}
    assert found["cluster"]["autoscaler"]["rule"] == {"kind": "wva", **thresholds}
    assert found["cluster"]["autoscaler"]["interval_us"] == 15_000_000
    assert "usual ones" not in notes
    found, notes = made(tmp_path, import_kubernetes, BASE + with_thresholds("analyzerName: epp-saturation"))
    assert found["cluster"]["autoscaler"]["rule"] == {"kind": "wva"}
    assert "`epp-saturation` is not simulated" in notes


def test_llm_d_s_analyzer_by_tokens_is_the_autoscaler_itself(tmp_path: Path) -> None:
    text = with_thresholds("{analyzerName: saturation, kvCacheThreshold: 0.9}")
    found, notes = made(tmp_path, import_kubernetes, BASE + text)
    scaler = found["cluster"]["autoscaler"]
    assert "rule" not in scaler
    assert scaler["kv_utilization_threshold"] == 0.9
    assert (scaler["scale_up_threshold"], scaler["scale_down_boundary"]) == (0.85, 0.7)
    assert "llm-d's analyzer by tokens" in notes
    blis_tui.load(found)


def test_a_variant_without_an_autoscaler_has_limits_of_its_own(tmp_path: Path) -> None:
    alone = "---\nkind: VariantAutoscaling\nspec: {scaleTargetRef: {name: engine}, maxReplicas: 5}\n"
    found, _ = made(tmp_path, import_kubernetes, BASE + alone)
    assert found["cluster"]["autoscaler"]["max_instances"] == 5
    assert found["cluster"]["autoscaler"]["rule"] == {"kind": "wva"}
    _, notes = made(tmp_path, import_kubernetes, BASE + alone.replace(", maxReplicas: 5", ""))
    assert "no autoscaler here carries its decisions out" in notes


def test_what_has_no_instances_is_no_part(tmp_path: Path) -> None:
    none = BASE.replace("replicas: 2", "replicas: 0").replace("engine", "spare")
    found, notes = made(tmp_path, import_kubernetes, BASE, none)
    assert found["cluster"] == {"instances": 2}
    assert "spare: no effect: it has no instances" in notes


def test_a_router_in_a_container(tmp_path: Path) -> None:
    router = """---
kind: Deployment
spec:
  template:
    spec:
      containers:
      - {name: router, image: "lmcache/lmstack-router", args: [--routing-logic, session, --session-key, x]}
"""
    found, notes = made(tmp_path, import_kubernetes, BASE, router)
    assert found["policy"]["routing"] == {"kind": "session-affinity"}
    assert "router: taken: `policy.routing: session-affinity`" in notes


def test_servers_whose_gpu_nothing_says_have_that_of_the_others(tmp_path: Path) -> None:
    named = BASE.replace("    spec:\n", "    spec:\n      nodeSelector: {gpu: NVIDIA-H200}\n")
    other = BASE.replace("engine", "other").replace("v0.33.0", "v0.33.1")
    found, notes = made(tmp_path, import_kubernetes, named, other, hardware="")
    assert (found["hardware"], found["cluster"]) == ("h200", {"instances": 4})
    assert "where nothing says which GPU, it is h200, too" in notes


def test_words_that_a_compose_file_hands_on(tmp_path: Path) -> None:
    text = f"""services:
  a: &a
    image: vllm/vllm-openai:latest
    entrypoint: ["/bin/bash", "-c", "pip install x && exec vllm serve \\"$$@\\"", "--"]
    command: [{MODEL}, --max_num_seqs, "32"]
    environment: [VLLM_LOGGING_LEVEL=INFO, CUDA_VISIBLE_DEVICES=0]
  b: {{<<: *a, environment: {{CUDA_VISIBLE_DEVICES: 1}}}}
"""
    found, notes = made(tmp_path, import_kubernetes, text)
    assert (found["engine"], found["cluster"]) == ({"max_num_seqs": 32}, {"instances": 2})
    assert "VLLM_LOGGING_LEVEL: no effect" in notes


STORM = f"""kind: StormService
metadata: {{name: pd}}
spec:
  replicas: 1
  template:
    spec:
      roles:
      - name: prefill
        replicas: 2
        template:
          spec:
            containers:
            - name: prefill
              image: aibrix/vllm-openai:v0.10.2-nixl
              command: [sh, -c]
              args: ["vllm serve {MODEL} --kv-transfer-config.kv_connector NixlConnector --port 80"]
      - name: decode
        replicas: 3
        template:
          spec:
            containers:
            - {{name: decode, image: "aibrix/vllm-openai:v0.10.2", command: [vllm, serve, {MODEL}, -tp, "2"]}}
"""


def test_roles_of_aibrix(tmp_path: Path) -> None:
    found, _ = made(tmp_path, import_kubernetes, STORM)
    assert [(one["role"], one["instances"]) for one in found["cluster"]["pools"]] == [("prefill", 2), ("decode", 3)]
    assert "version" not in found["policy"]["batching"]  # the tag is that of AIBrix


# ---- values of charts ----

STACK = f"""servingEngineSpec:
  modelSpec:
  - name: p
    repository: lmcache/vllm-openai
    tag: latest
    modelURL: {MODEL}
    replicaCount: 1
    vllmConfig: {{enablePrefixCaching: true, maxModelLen: 32000, maxNumSeqs: 16}}
    lmcacheConfig: {{enabled: true, kvRole: kv_producer, enableNixl: true}}
  - name: d
    repository: lmcache/vllm-openai
    tag: latest
    modelURL: {MODEL}
    replicaCount: 3
    vllmConfig: {{enablePrefixCaching: true, maxModelLen: 32000}}
    lmcacheConfig: {{enabled: true, kvRole: kv_consumer}}
routerSpec: {{routingLogic: disaggregated_prefill}}
"""


def test_roles_as_two_models(tmp_path: Path) -> None:
    found, notes = made(tmp_path, import_helm, STACK)
    assert found["policy"]["routing"] == {"kind": "round-robin"}
    assert found["engine"] == {"enable_prefix_caching": True, "max_model_len": 32000}
    prefill, decode = found["cluster"]["pools"]
    assert (prefill["engine"], decode["instances"]) == ({"max_num_seqs": 16}, 3)
    assert "0.yaml:8:45: prefill.max-model-len: taken" in notes
    assert "0.yaml:15:45: decode.max-model-len: taken" in notes
    both = STACK.replace(", kvRole: kv_producer, enableNixl: true", "").replace(", kvRole: kv_consumer", "")
    labels = "routerSpec: {extraArgs: [--prefill-model-labels=p, --decode-model-labels, d]}\n"
    store = "cacheserverSpec: {replicaCount: 1, serde: naive}\n"
    found, notes = made(tmp_path, import_helm, both + store, labels)
    assert "cacheserverSpec: not carried: a store that servers share" in notes
    assert {one["role"] for one in found["cluster"]["pools"]} == {"prefill", "decode"}
    assert found["engine"]["kv_tiers"]["kind"] == "offload"


def test_later_values_win(tmp_path: Path) -> None:
    one = STACK.partition("  - name: d")[0].replace(", kvRole: kv_producer, enableNixl: true", "")
    found, _ = made(tmp_path, import_helm, one, "routerSpec: {routingLogic: roundrobin}\n", one.replace("16", "17"))
    assert found["engine"]["max_num_seqs"] == 17


PICKER = """kind: EndpointPickerConfig
plugins:
- {type: disagg-profile-handler, parameters: {deciders: {prefill: by-prefix}}}
- {type: prefix-based-pd-decider, name: by-prefix, parameters: {nonCachedTokens: 300}}
- {type: prefill-filter}
- {type: prefix-cache-scorer, parameters: {lruCapacityPerServer: 5000, blockSize: 64}}
- {type: active-request-scorer}
- {type: new-scorer}
- {type: load-aware-scorer, parameters: {threshold: 8}}
- {type: max-score-picker}
schedulingProfiles:
- name: prefill
  plugins: [{pluginRef: prefill-filter}, {pluginRef: prefix-cache-scorer, weight: 2}, {pluginRef: new-scorer}]
- {name: decode, plugins: [{pluginRef: active-request-scorer}]}
saturationDetector: {queueDepthThreshold: 7, kvCacheUtilThreshold: 0.7, metricsStalenessThreshold: 200ms}
"""
PRECISE = """kind: EndpointPickerConfig
plugins:
- {type: precise-prefix-cache-scorer, parameters: {tokenProcessorConfig: {blockSize: 32}}}
"""
SERVICE = f"""modelArtifacts: {{uri: "hf://{MODEL}", name: q}}
decode:
  create: true
  replicas: 3
  parallelism: {{tensor: 2}}
  acceleratorTypes: {{labelKey: gpu, labelValues: [NVIDIA-H200]}}
  containers:
  - {{name: vllm, image: "ghcr.io/llm-d/llm-d-cuda:v0.4.0", modelCommand: vllmServe, args: [--block-size=64]}}
  - {{name: side, image: "other:1", modelCommand: custom, command: [sleep]}}
prefill:
  replicas: 1
  containers: [{{name: vllm, image: "x", modelCommand: vllmServe, args: [--block-size=64]}}]
"""


def schedule(text: str) -> str:
    lines = "".join(f"      {line}\n" for line in text.splitlines())
    return f"inferenceExtension:\n  pluginsConfigFile: a.yaml\n  pluginsCustomConfig:\n    a.yaml: |\n{lines}"


def test_a_picker_with_roles(tmp_path: Path) -> None:
    found, notes = made(tmp_path, import_helm, SERVICE, schedule(PICKER), hardware="h200")
    apart = found["cluster"]["disaggregation"]
    assert apart["decider"] == {"kind": "prefix-threshold", "threshold_tokens": 300}
    assert apart["prefill_routing"]["scorers"] == [{"kind": "prefix-affinity", "weight": 2, "capacity_blocks": 5000}]
    assert apart["decode_routing"]["scorers"] == [{"kind": "active-requests", "weight": 1}]
    thresholds = {"queue_depth_threshold": 7, "kv_utilization_threshold": 0.7}
    assert found["policy"]["admission"] == {"kind": "gaie-legacy", **thresholds}
    assert "`new-scorer` is not simulated" in notes
    assert "plugins.load-aware-scorer: no effect: no profile has it" in notes
    assert "plugins.prefix-cache-scorer: approximated: `blockSize`" in notes
    blis_tui.load(found)
    nested = f"stack:\n  modelservice:\n{''.join(f'    {line}' for line in SERVICE.splitlines(keepends=True))}"
    assert len(made(tmp_path, import_helm, nested, hardware="h200")[0]["cluster"]["pools"]) == 2
    queued = PICKER + "featureGates: [flowControl]\nflowControl: {defaultRequestTTL: 30s, maxBytes: 9}\n"
    found, notes = made(tmp_path, import_helm, SERVICE, schedule(queued), hardware="h200")
    gateway = found["policy"]["gateway"]
    assert (gateway["saturation"], gateway["request_ttl_us"]) == ({"kind": "utilization", **thresholds}, 30_000_000)
    assert "flowControl: not carried: `maxBytes`" in notes


def test_a_picker_in_a_config_map(tmp_path: Path) -> None:
    lines = "".join(f"    {line}\n" for line in PICKER.splitlines())
    found, _ = made(tmp_path, import_kubernetes, BASE, f"kind: ConfigMap\ndata:\n  a.yaml: |\n{lines}")
    assert found["policy"]["routing"]["scorers"] == [{"kind": "active-requests", "weight": 1}]


def test_a_picker_alone_is_a_policy(tmp_path: Path) -> None:
    found, notes = made(tmp_path, import_helm, PICKER)
    assert found["kind"] == "Policy"
    assert found["routing"]["scorers"] == [{"kind": "active-requests", "weight": 1}]
    assert "plugins.by-prefix: no effect" in notes


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["a: 1\n"], "these are values of no known chart"),
        (["inferenceExtension: {pluginsConfigFile: inside.yaml}\n"], "neither a server nor a configuration"),
        ([SERVICE, schedule(PRECISE)], "counts in blocks of 32 tokens, the engine in blocks of 64"),
        (["servingEngineSpec: {modelSpec: []}\n"], "no container starts a known engine"),
    ],
)  # fmt: skip
def test_values_that_say_too_little_are_refused(tmp_path: Path, texts: list[str], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        made(tmp_path, import_helm, *texts)


def test_a_file_inside_an_image_is_said_to_be_unknown(tmp_path: Path) -> None:
    one = SERVICE.partition("prefill:")[0]
    _, notes = made(tmp_path, import_helm, one, "inferenceExtension: {pluginsConfigFile: inside.yaml}\n", hardware="")
    assert "`inside.yaml` is inside the picker's image" in notes
    assert "`hardware: h200`, as the nodes say" in notes


# ---- operators ----

KSERVE = f"""kind: LLMInferenceService
metadata: {{name: a}}
spec:
  model: {{uri: "hf://{MODEL}"}}
  scaling:
    minReplicas: 2
    maxReplicas: 5
    wva: {{hpa: {{behavior: {{scaleDown: {{stabilizationWindowSeconds: 60}}}}}}}}
  parallelism: {{tensor: 2}}
  template: {{nodeSelector: {{x: NVIDIA-H200}}, containers: [{{name: main, args: [--max-num-seqs=4]}}]}}
  router: {{scheduler: {{}}}}
  baseRefs: [{{name: shared-config}}]
"""


def test_kserve(tmp_path: Path) -> None:
    found, notes = made(tmp_path, import_kubernetes, KSERVE, hardware="")
    assert (found["hardware"], found["engine"]) == ("h200", {"max_num_seqs": 4})
    cluster = found["cluster"]
    assert (cluster["instances"], cluster["tensor_parallel"], cluster["autoscaler"]["max_instances"]) == (2, 2, 5)
    assert cluster["autoscaler"]["scale_down_stabilization_window_us"] == 60_000_000
    assert found["policy"]["routing"]["scorers"][0] == {"kind": "prefix-affinity", "weight": 2}
    assert cluster["autoscaler"]["rule"] == {"kind": "wva"}
    assert "`shared-config` is not here" in notes
    inline = "".join(f"        {line}\n" for line in PICKER.splitlines())
    router = f"router:\n    scheduler:\n     config:\n      inline:\n{inline}"
    found, _ = made(tmp_path, import_kubernetes, KSERVE.replace("router: {scheduler: {}}\n", router))
    assert found["policy"]["routing"]["scorers"] == [{"kind": "active-requests", "weight": 1}]


def test_kserve_with_a_predictor(tmp_path: Path) -> None:
    text = f"""kind: InferenceService
metadata: {{name: a}}
spec:
  predictor:
    minReplicas: 1
    maxReplicas: 3
    scaleMetric: concurrency
    model: {{args: ["--model_name=q", --max-model-len=4096], storageUri: "hf://{MODEL}"}}
    workerSpec: {{tensorParallelSize: 2, pipelineParallelSize: 1}}
"""
    found, notes = made(tmp_path, import_kubernetes, text)
    assert found["model"] == MODEL
    assert found["engine"] == {"max_model_len": 4096, "pipeline_parallel": 1}
    assert (found["cluster"]["tensor_parallel"], found["cluster"]["autoscaler"]["max_instances"]) == (2, 3)
    assert "it looks at `concurrency`" in notes


def test_what_a_service_is_based_on(tmp_path: Path) -> None:
    base = """---
kind: LLMInferenceServiceConfig
metadata: {name: shared-config}
spec: {template: {containers: [{name: main, image: "vllm/vllm-openai:v0.33.0", command: [vllm, serve, /mnt/models]}]}}
"""
    found, notes = made(tmp_path, import_kubernetes, KSERVE + base, hardware="")
    assert (found["model"], found["policy"]["batching"]["version"]) == (MODEL, "0.33")
    assert found["engine"] == {"max_num_seqs": 4}
    assert "shared-config" not in notes
    text = f"""kind: InferenceService
spec: {{predictor: {{model: {{runtime: r, storageUri: "hf://{MODEL}", args: [--max-num-seqs=5]}}}}}}
---
kind: ServingRuntime
metadata: {{name: r}}
spec:
  containers:
  - {{name: k, image: "quay.io/x/vllm:latest", command: [python, -m, vllm.entrypoints.openai.api_server],
      args: [--port=8080, --model=/mnt/models, --max-num-seqs=4]}}
"""
    found, _ = made(tmp_path, import_kubernetes, text)
    assert (found["model"], found["engine"]) == (MODEL, {"max_num_seqs": 5})


DYNAMO = f"""apiVersion: nvidia.com/v1beta1
kind: DynamoGraphDeployment
spec:
  env: [{{name: VLLM_LOGGING_LEVEL, value: DEBUG}}]
  components:
  - name: Frontend
    type: frontend
    podTemplate: {{spec: {{containers: [{{name: main, args: [--router-mode, round-robin]}}]}}}}
  - name: prefill
    type: worker
    replicas: 2
    podTemplate:
      spec:
        containers:
        - name: main
          image: x/vllm-runtime:1.0
          command: [python3, -m, dynamo.vllm]
          args: [--model, {MODEL}, --disaggregation-mode, prefill]
  - name: decode
    type: worker
    podTemplate:
      spec:
        containers:
        - {{name: main, image: "x/vllm-runtime:1.0", command: [python3, -m, dynamo.vllm], args: [--model, {MODEL}]}}
  - {{name: Planner, type: planner}}
"""


def test_dynamo(tmp_path: Path) -> None:
    found, notes = made(tmp_path, import_kubernetes, DYNAMO)
    apart = {"prefill_instances": 2, "decode_instances": 1}
    assert found["cluster"] == {"instances": 3, "disaggregation": apart}
    assert found["policy"]["routing"] == {"kind": "round-robin"}
    assert "Planner: not carried" in notes
    other = DYNAMO.replace("dynamo.vllm", "dynamo.sglang").replace("--model,", "--model-path,")
    found, notes = made(tmp_path, import_kubernetes, other)
    assert found["cluster"]["disaggregation"] == {**apart, "order": "decode-first"}
    assert found["policy"]["batching"]["kind"] == "sglang"
    engine = "---\nkind: ConfigMap\nmetadata: {name: c}\ndata: {p.yaml: 'max_batch_size: 7'}\n"
    options = "--model-path, Qwen/Qwen3-14B, --extra-engine-args, /etc/p.yaml"
    other = DYNAMO.replace("dynamo.vllm", "dynamo.trtllm").replace(f"--model, {MODEL}", options)
    found, notes = made(tmp_path, import_kubernetes, other + engine)
    assert found["engine"] == {"max_num_seqs": 7, "max_model_len": 8192}


@pytest.mark.parametrize(
    ("config", "rule", "said"),
    [
        ("{mode: disagg, max_gpu_budget: 12}", "throughput", "`dynamo-load`, for `throughput`, 1 to 10 instances"),
        (
            "{optimization_target: latency, load_adjustment_interval: 9, max_gpu_budget: 12}",
            "latency",
            "the fuller role is given GPUs first where 12 are too few",
        ),
        ("{optimization_target: sla}", None, "`cluster.autoscaler.rule: dynamo-throughput` scales by that"),
        ("{ttft: 200, itl: 20}", None, "its target `sla` goes by a model of its engines"),
        ("{max_gpu_budget: -1}", None, "`max_gpu_budget` limits nothing"),
        ("{no_operation: true}", None, "Planner: no effect: it changes nothing"),
        ("", None, "Planner: not carried: the number of instances stays as it is"),
    ],
)
@pytest.mark.parametrize("inline", [True, False])
def test_dynamo_s_planner(config: str, rule: str | None, said: str, inline: bool, tmp_path: Path) -> None:
    option = json.dumps(config) if inline else "/etc/planner/p.yaml"
    main = f"{{name: main, args: [--config, {option}]}}" if config else "{name: main}"
    planner = f"{{name: Planner, type: planner, podTemplate: {{spec: {{containers: [{main}]}}}}}}"
    text = DYNAMO.replace("{name: Planner, type: planner}", planner)
    text = text.replace("- name: decode", "- name: decode\n    resources: {limits: {gpu: '2'}}")
    text += f"---\nkind: ConfigMap\nmetadata: {{name: c}}\ndata: {{p.yaml: {json.dumps(config)}}}\n"
    found, notes = made(tmp_path, import_kubernetes, text)
    assert said in notes
    scaler = found["cluster"].get("autoscaler")
    if rule is None:
        assert scaler is None
    else:
        assert scaler["rule"] == {"kind": "dynamo-load", "optimization_target": rule}
        assert "are compared with `engine.max_model_len`, which nothing says" in notes
        interval_us = 5_000_000 if rule[0] == "t" else 9_000_000
        assert (scaler["interval_us"], scaler["max_instances"], scaler["max_gpus"]) == (interval_us, 10, 12)
    blis_tui.load(found)


def test_a_budget_that_is_exceeded_from_the_start_is_not_taken(tmp_path: Path) -> None:
    config = json.dumps({"max_gpu_budget": 7})
    main = f"{{name: main, args: [--config, {json.dumps(config)}]}}"
    planner = f"{{name: Planner, type: planner, podTemplate: {{spec: {{containers: [{main}]}}}}}}"
    text = DYNAMO.replace("{name: Planner, type: planner}", planner)
    text = text.replace("- name: decode", "- name: decode\n    replicas: 3\n    resources: {limits: {gpu: '2'}}")
    found, notes = made(tmp_path, import_kubernetes, text)
    assert "max_gpus" not in found["cluster"]["autoscaler"]
    assert "Planner: not carried: its budget: the instances that start hold 8 GPUs" in notes
    blis_tui.load(found)


VALUES: list[Any] = [None, 0, -3, 1e99, True, "", "a b", [], {}, [{}], ["x"], {"a": "b"}, "$(", "'"]
FILES = [BASE, STORM, STACK, SERVICE, PICKER, KSERVE, DYNAMO]


@given(st.sampled_from(FILES), st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150)
def test_any_change_of_a_file_gives_an_experiment_or_an_error(tmp_path: Path, text: str, data: st.DataObject) -> None:
    """One or several values are replaced by others."""
    document = yaml.safe_load(text)
    for _ in range(data.draw(st.integers(1, 3))):
        inside: Any = document
        holder, key = inside, ""
        while isinstance(inside, dict | list) and inside:
            keys = list(inside) if isinstance(inside, dict) else list(range(len(inside)))
            holder, key = inside, data.draw(st.sampled_from(keys))
            inside = inside[key]
            if data.draw(st.integers(0, 5)) == 0:
                break
        holder[key] = data.draw(
            st.sampled_from([None, 0, -3, 1e99, True, "", "a b", [], {}, [{}], ["x"], {"a": "b"}, "$("])
        )
    with suppress(BlisError):
        made(tmp_path, import_helm if text in (STACK, SERVICE, PICKER) else import_kubernetes, yaml.safe_dump(document))
