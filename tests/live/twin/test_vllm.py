"""A real vLLM on this machine's CPU: observed, and simulated with its own step times. Where one is installed.

What else the machine does counts: it stretches steps and keeps requests in the server's front end.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

import blis_tui
from blis_tui.cli.main import cli
from blis_tui.cli.standard_streams import ExitCode
from blis_tui.live.observe.recording import read_recording
from blis_tui.live.twin.twin import compare_with_simulation
from blis_tui.live.twin.twin_text import twin_text
from tests.live.serving.outside import needs_vllm, vllm_server

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

pytestmark = [needs_vllm, pytest.mark.slow, pytest.mark.skipif(sys.platform == "win32", reason="it runs on Linux")]

CHAT = {"input_tokens": {"kind": "gaussian", "mean": 256, "std_dev": 100, "min": 2, "max": 800}} | {
    "output_tokens": {"kind": "gaussian", "mean": 256, "std_dev": 100, "min": 1, "max": 500}
}
CONVERSATION = {"input_tokens": {"kind": "uniform", "min": 40, "max": 160}} | {
    "output_tokens": {"kind": "uniform", "min": 20, "max": 100},
    "prefix": {"group": "system", "tokens": 128},
    "session": {"turns": 3, "think_time_ms": 200},
}
WORKLOADS: dict[str, dict[str, object]] = {
    "chat": {"requests": 80, "rate_per_s": 4, "clients": [{"id": "c", **CHAT}]},
    "rush": {"requests": 80, "rate_per_s": 8, "clients": [{"id": "c", **CHAT}]},
    "talks": {
        "requests": 90,
        "clients": [{"id": "c", "arrivals": {"kind": "closed-loop", "users": 12}, **CONVERSATION}],
    },
}
TINY = {
    "config": {
        "head_dim": 32,
        "hidden_size": 64,
        "intermediate_size": 128,
        "max_position_embeddings": 4096,
        "model_type": "llama",
        "num_attention_heads": 2,
        "num_hidden_layers": 2,
        "num_key_value_heads": 2,
        "torch_dtype": "float32",
        "vocab_size": 259,
        "hidden_act": "silu",
    }
}
ENGINE = {"max_num_seqs": 64, "max_num_batched_tokens": 1024, "max_model_len": 1024, "block_size_tokens": 32}
SERVER = {
    "policy.batching": {"kind": "vllm-v1", "async_scheduling": False},
    "latency": {"kind": "blackbox", "alpha": [0, 0, 0], "beta": [10000, 20, 300]},
    "cluster.instances": 1,
    "engine": {**ENGINE, "kv_blocks": 199},
}


def document(kind: str, name: str, body: Mapping[str, object]) -> str:
    return json.dumps({"apiVersion": "blis/v1", "kind": kind, "metadata": {"name": name}, **body})


def test_the_scheduler_forms_the_batches_of_vllm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.model.yaml").write_text(document("Model", "tiny", TINY))
    experiment = blis_tui.load("quickstart", set={**SERVER, "model": str(tmp_path / "tiny.model.yaml")})
    with vllm_server(tmp_path) as (url, log):
        for name, workload in WORKLOADS.items():
            (tmp_path / f"{name}.yaml").write_text(document("Workload", name, workload))
            words = [url, "--workload", f"{name}.yaml", "-o", name, "--log", str(log)]
            result = CliRunner().invoke(cli, ["observe", *words])
            assert result.exit_code == ExitCode.OK, result.output
    missed = []
    for name, workload in WORKLOADS.items():
        recording = read_recording(tmp_path / name)
        assert recording.server.kv_blocks == 199
        assert len(recording.answered) == workload["requests"]
        twin = compare_with_simulation(recording, experiment, name, "measured")
        halves = compare_with_simulation(recording, experiment, name, "fitted").halves
        assert twin.notes == ()
        assert twin.batches is not None
        assert halves is not None
        preempted, simulated = (side.counts["preemptions"] for side in (twin.left, twin.right))
        cached, found = (side.counts["prompt tokens from cache"] for side in (twin.left, twin.right))
        bars = {
            "E2E": twin.errors["e2e"].mape <= 0.1,
            "sizes of batches": (twin.batches.r or 0.0) > 0.9,
            "preemptions": abs(simulated - preempted) <= max(0.15 * preempted, 1),
            "tokens from the cache": abs(found - cached) <= 0.05 * cached,
            "E2E of predicted steps": halves.drifting["e2e"].mape <= 0.12,
            "ITL of predicted steps": halves.drifting["itl"].mape <= 0.12,
        }
        print(twin_text(replace(twin, halves=halves)))
        missed += [f"{name}: {bar}" for bar, holds in bars.items() if not holds]
    assert missed == []
