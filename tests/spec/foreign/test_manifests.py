"""Servers in Kubernetes manifests and compose files, as experiments."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import blis_tui
from blis_tui.base.errors import BlisError, SpecError
from blis_tui.spec.foreign.kubernetes import gpu_named
from blis_tui.spec.foreign.manifests import import_kubernetes
from blis_tui.spec.foreign.server_commands import Wanted

if TYPE_CHECKING:
    from pathlib import Path

DEPLOYMENT = """
kind: Deployment
spec:
  replicas: 3
  template:
    spec:
      nodeSelector: {gpu.product: NVIDIA-H100-80GB-HBM3}
      initContainers: [{name: fetch, image: "alpine:3", command: [sh, -c, "sleep 1"]}]
      containers:
      - name: engine
        image: mirror.example.com/vllm-openai:v0.33.1
        command: [/bin/sh, -c]
        args:
        - |
          # over several lines
          exec vllm serve $(MODEL) \\
            -tp $((GPUS / 2 * 2)) --max-model-len 16384 \\
            --port 80
        env: [{name: MODEL, value: Qwen/Qwen3-14B}, {name: GPUS, value: "5"}]
      - {name: metrics, image: "prom/statsd-exporter:v0.28"}
---
kind: HorizontalPodAutoscaler
spec: {minReplicas: 3}
"""
COMPOSE = """
x-server: &server {image: "vllm/vllm-openai:${TAG:-v0.10.2}"}
services:
  chat:
    <<: *server
    command: >-
      --model Qwen/Qwen3-14B --max-num-seqs ${SEQS:-64} ${EXTRA:---no-enable-prefix-caching}
    deploy: {replicas: 2}
  embed:
    <<: *server
    command: ["--model", "BAAI/bge-m3", "--task", "embed"]
  vectors: {image: "qdrant/qdrant:v1.15"}
"""


def made(tmp_path: Path, text: str, hardware: str = "", **named: str) -> tuple[dict[str, Any], str]:
    file = tmp_path / "file.yaml"
    file.write_text(text, encoding="utf-8")
    found = import_kubernetes(file, Wanted(hardware, variables=named))
    return yaml.safe_load(found.text), "\n".join(note.to_text() for note in found.notes)


def test_a_deployment(tmp_path: Path) -> None:
    found, notes = made(tmp_path, DEPLOYMENT)
    assert found["hardware"] == "h100"
    assert found["cluster"] == {"instances": 3, "tensor_parallel": 4}
    assert found["policy"]["batching"] == {"kind": "vllm-v1", "version": "0.33"}
    assert found["engine"] == {"max_model_len": 16384}
    assert "HorizontalPodAutoscaler: no effect" in notes
    assert "file.yaml:17:13: tensor-parallel-size: taken" in notes
    assert [pool.instances for pool in blis_tui.load(found).pools] == [3]


@pytest.mark.parametrize(
    ("label", "gpu"),
    [("NVIDIA-GB200", "gb200"), ("NVIDIA-B200", "b200"), ("NVIDIA-A100-SXM4-80GB", "a100-80"), ("nvidia-l4", "l4")],
)
def test_the_gpu_is_that_of_the_nodes(tmp_path: Path, label: str, gpu: str) -> None:
    named = DEPLOYMENT.replace("Qwen/Qwen3-14B}", "Qwen/Qwen3-14B}, {name: OLD, value: h200}")
    assert made(tmp_path, named.replace("NVIDIA-H100-80GB-HBM3", label))[0]["hardware"] == gpu
    with pytest.raises(SpecError, match="does not say which GPU"):  # of 40 or 80 GiB?
        made(tmp_path, named.replace("NVIDIA-H100-80GB-HBM3", "NVIDIA-A100"))


def test_a_compose_file(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("# limits\nSEQS=48\n", encoding="utf-8")
    found, notes = made(tmp_path, COMPOSE, "h100")
    assert found["cluster"] == {"instances": 2}
    assert found["engine"] == {"max_num_seqs": 48, "enable_prefix_caching": False}
    assert found["policy"]["batching"] == {"kind": "vllm-v1", "version": "0.10", "async_scheduling": False}
    assert "`embed` generates nothing" in notes
    assert made(tmp_path, COMPOSE, "h100", SEQS="8")[0]["engine"]["max_num_seqs"] == 8


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kind: Pod\n", "no container starts a known engine"),
        (COMPOSE.replace('"BAAI/bge-m3", "--task", "embed"', "Qwen/Qwen3-14B"), "the servers differ, and nothing says"),
        (COMPOSE, "the file does not say which GPU"),
        ("a: [", "expected"),
        ("image: {{ .Values.image }}\n", "unhashable"),
    ],
)
def test_what_cannot_be_imported_is_said(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        made(tmp_path, text, "h100" if "differ" in message else "")


def test_aliases_do_not_multiply_without_end(tmp_path: Path) -> None:
    lines = ["a0: &a0 [1]", *(f"a{at}: &a{at} [{', '.join([f'*a{at - 1}'] * 9)}]" for at in range(1, 12))]
    with pytest.raises(SpecError, match="too many values"):
        made(tmp_path, "\n".join(lines))


@given(
    st.recursive(
        st.sampled_from([None, 0, -1, 1e300, True, "", "vllm/vllm-openai:v0.9", "--model", "$(X)", "${", "$((1/0))"]),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    ["services", "spec", "containers", "image", "command", "args", "env", "name", "replicas"]
                ),
                inner,
                max_size=4,
            )
        ),
        max_leaves=12,
    )
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
def test_any_file_gives_an_experiment_or_an_error(tmp_path: Path, data: object) -> None:
    with suppress(BlisError):
        made(tmp_path, yaml.safe_dump({"spec": data, "services": data}), "h100")


@pytest.mark.parametrize(
    ("label", "hardware"),
    [
        ("NVIDIA-A100-SXM4-40GB", "a100-40"),
        ("NVIDIA-A100-SXM4-80GB", "a100-80"),
        ("NVIDIA-A100", ""),
        ("NVIDIA-H100-80GB-HBM3", "h100"),
        ("NVIDIA-H100-PCIe", "h100-pcie"),
        ("NVIDIA-H100-NVL", "h100-nvl"),
        ("NVIDIA-H20", "h20"),
        ("NVIDIA-H200", "h200"),
        ("NVIDIA-L4", "l4"),
        ("NVIDIA-L40", "l40"),
        ("NVIDIA-L40S", "l40s"),
        ("NVIDIA-RTX-A6000", "rtx-a6000"),
        ("NVIDIA-RTX-6000-Ada-Generation", "rtx-6000-ada"),
        ("NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition", "rtx-pro-6000"),
    ],
)
def test_labels_of_nodes_name_the_hardware(label: str, hardware: str) -> None:
    """As NVIDIA's feature discovery writes ``nvidia.com/gpu.product``."""
    assert gpu_named(label) == hardware
