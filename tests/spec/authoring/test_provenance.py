"""A composed experiment is the same experiment, and says truly where everything comes from."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from blis_tui.base.source import Source
from blis_tui.spec.authoring.provenance import compose
from blis_tui.spec.library import names
from blis_tui.spec.load import load
from blis_tui.spec.read import parse
from blis_tui.spec.shipped import shipped_specs

if TYPE_CHECKING:
    from pathlib import Path

PARENT = """\
apiVersion: blis/v1
kind: Experiment
metadata: {name: parent}
model: qwen3-14b
hardware: {memory_gib: 80, peak_tflops: {bf16: 900}, memory_bandwidth_tb_per_s: 3, mfu: {prefill: 0.5, decode: 0.3}}
workload: ./load.yaml
engine: {max_num_seqs: 32}
"""
CHILD = """\
apiVersion: blis/v1
kind: Experiment
metadata: {name: child}
extends: ./parent.blis.yaml
cluster:
  instances: 2
"""


@pytest.mark.parametrize("name", names("Experiment"))
def test_the_composed_text_is_the_same_experiment(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    composed = compose(name)
    assert composed.spec_sha256 == load(name).sha256
    monkeypatch.chdir(tmp_path)  # nothing of the folder it came from is needed
    again = load("-", stdin_text=composed.to_yaml())
    assert again.sha256 == composed.spec_sha256
    assert compose("-", stdin_text=composed.to_yaml()).spec_sha256 == composed.spec_sha256


@pytest.fixture
def child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "parent.blis.yaml").write_text(PARENT)
    (tmp_path / "child.blis.yaml").write_text(CHILD)
    shutil.copy(shipped_specs() / "workloads" / "chatbot.yaml", tmp_path / "load.yaml")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "child.blis.yaml"


def test_origins(child: Path) -> None:
    composed = compose(str(child), overrides=["engine.kv_blocks=900", "policy=vllm-v1", "latency=roofline"], seed=7)
    origins = {".".join(map(str, path)): origin for path, origin in composed.origins.items()}
    assert origins["metadata.name"] == "child.blis.yaml:3"
    assert origins["cluster.instances"] == "child.blis.yaml:6"
    assert origins["cluster.tensor_parallel"] == "default"
    assert origins["engine.max_num_seqs"] == "parent.blis.yaml:7 (extends parent)"
    assert origins["hardware.memory_gib"] == "parent.blis.yaml:5 (extends parent)"
    assert origins["workload.requests"] == "load.yaml:11"
    assert origins["engine.kv_blocks"] == "--set"
    assert origins["seed"] == "--seed"
    assert origins["engine.max_model_len"] == "computed"
    assert origins["policy.batching.kind"].endswith("specs/policies/vllm-v1.yaml:12")
    assert origins["latency.alpha"].endswith("specs/latency/roofline.yaml")
    text = composed.to_yaml()
    assert (
        load("-", stdin_text=text).sha256
        == load(child, overrides=["engine.kv_blocks=900", "policy=vllm-v1", "latency=roofline"], seed=7).sha256
    )
    values = [line for line in text.splitlines() if not line.startswith("#") and not line.rstrip().endswith(":")]
    assert all("  # " in line for line in values)


def test_origins_of_what_extends_merges_into_a_named_document(child: Path) -> None:
    child.write_text(CHILD + "workload: {rate_per_s: 5}\n")
    composed = compose(str(child))
    assert composed.origins["workload", "rate_per_s"] == "child.blis.yaml:7"
    assert composed.origins["workload", "requests"] == "load.yaml:11"
    assert composed.origins["workload", "metadata", "name"] == "load.yaml:9"
    assert load("-", stdin_text=composed.to_yaml()).sha256 == composed.spec_sha256


def test_origins_point_at_the_line_that_says_the_value() -> None:
    for path, origin in compose("service-classes").origins.items():
        file, _, line = origin.partition(":")
        if line.isdecimal():
            document = parse(
                Source(file, (shipped_specs().parent / file.removeprefix("blis-tui/")).read_text(encoding="utf-8"))
            )
            assert any(place.span.line == int(line) for place in document.values.values()), path


def test_a_trace_is_named_from_where_the_text_will_be(tmp_path: Path) -> None:
    composed = compose("trace-replay", relative_to=tmp_path)
    path = tmp_path / "resolved.blis.yaml"
    path.write_text(composed.to_yaml(), encoding="utf-8")
    assert not str(composed.data["workload"]["trace"]["file"]).startswith("/")  # type: ignore[index, call-overload]
    assert load(path).sha256 == composed.spec_sha256
