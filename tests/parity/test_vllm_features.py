"""Runs of vLLM's scheduler with time-outs, adapters, drafts, pipelines and windows: the same batch in every step.

``vllm-features.jsonl.xz`` has recorded runs of each kind, of vLLM 0.32.0 and 0.33.0 (``version``), each step of
1,000 us: the case in vLLM's names, requests and steps by columns. Loading an adapter takes no time there. With
asynchronous scheduling, how many drafts a step verifies is not compared: for answers that have ended, vLLM plans more.
"""

from __future__ import annotations

import csv
import json
import lzma
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

import blis_tui
from blis_tui.engine.options import adapters
from blis_tui.engine.records import DraftsVerified, StepFinished

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

FILE: Final = Path(__file__).with_name("vllm-features.jsonl.xz")
RUNS: Final = [json.loads(line) for line in lzma.decompress(FILE.read_bytes()).decode().splitlines()]
KINDS: Final = Counter(f"{run['version']} {run['feature']}" for run in RUNS)


def document(run: dict[str, Any], trace: Path) -> dict[str, object]:
    case = run["case"]
    by_priority = case["policy"] == "priority"
    engine = {
        "max_num_seqs": case["max_num_seqs"],
        "max_num_batched_tokens": case["max_num_batched_tokens"],
        "long_prefill_token_threshold": case["long_prefill_token_threshold"],
        "block_size_tokens": case["block_size"],
        "max_model_len": case["max_model_len"],
        "kv_blocks": case["num_gpu_blocks"] - 1,  # vLLM's null block is never used
        "enable_prefix_caching": case["enable_prefix_caching"],
        "pipeline_parallel": case.get("pipeline_parallel", 1),
    }
    if "max_loras" in case:
        engine["lora"] = {"max_loras": case["max_loras"], "max_cpu_loras": 64, "step_overhead": 0}
    if "draft_tokens" in case:
        engine["speculative"] = {
            "method": "eagle" if case.get("eagle") else "ngram_gpu" if case["async_scheduling"] else "ngram",
            "draft_tokens": case["draft_tokens"],
            "acceptance": case["acceptance"],
        }
    if "kv_windows" in case:
        engine["disable_hybrid_kv_cache_manager"] = False
    batching = {
        "kind": "vllm-v1",
        "version": run["version"],
        "async_scheduling": case["async_scheduling"],
        "watermark": case["watermark"],
        "reserve_full_input": case["scheduler_reserve_full_isl"],
        "enable_chunked_prefill": case["enable_chunked_prefill"],
    }
    if "prefill_schedule_interval" in case:
        batching["prefill_schedule_interval"] = case["prefill_schedule_interval"]
    return {
        "apiVersion": "blis/v1",
        "kind": "Experiment",
        "metadata": {"name": "case"},
        "seed": 1,
        "model": _model(case["kv_windows"]) if "kv_windows" in case else "qwen3-14b",
        "hardware": "h100",
        "latency": {"kind": "blackbox", "alpha": [0, 0, 0], "beta": [1000, 0, 0]},
        "policy": {
            "scheduling": "priority-fcfs" if by_priority else "fcfs",
            "priority": "slo-class" if by_priority else "constant",
            "preemption": {"victim": "priority" if by_priority else "tail"},
            "batching": batching,
        },
        "engine": engine,
        "workload": {"trace": {"file": str(trace), "format": "requests"}},
    }


def _model(windows: list[int]) -> dict[str, object]:
    """A model with a group of one layer for each window; 0 = a group without."""
    return {
        "apiVersion": "blis/v1",
        "kind": "Model",
        "metadata": {"name": "windows"},
        "config": {
            "hidden_size": 64,
            "num_hidden_layers": len(windows),
            "num_attention_heads": 1,
            "num_key_value_heads": 1,
            "intermediate_size": 64,
            "vocab_size": 64,
            "max_position_embeddings": 131072,
            "hidden_act": "silu",
            "torch_dtype": "bfloat16",
            "sliding_window": max(windows),
            "layer_types": ["sliding_attention" if window else "full_attention" for window in windows],
        },
    }


def ours(run: dict[str, Any], folder: Path) -> list[dict[str, object]]:
    """What each step computes: chunks by request, how many decodes, and with how many drafts."""
    trace = folder / f"{run['version']}-{run['feature']}-{run['seed']}.csv"
    columns = run["columns"] if "max_loras" in run["case"] else run["columns"][:-1]
    with trace.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([columns, *(row[: len(columns)] for row in run["rows"])])
    simulation = blis_tui.Simulation(blis_tui.load(document(run, trace)), check="off")
    steps: list[StepFinished] = []
    verified: list[DraftsVerified] = []
    simulation.subscribe(StepFinished, steps.append)
    simulation.subscribe(DraftsVerified, verified.append)
    simulation.run()
    drafts = {} if run["case"]["async_scheduling"] else {one.time_us: one.draft_tokens for one in verified}
    aborted = _aborted(run)
    return list(_with_victims(_ours(step, drafts.get(step.time_us, 0), aborted) for step in steps))


def _aborted(run: dict[str, Any]) -> set[str]:
    """Who ran out of time; vLLM may say besides that it has ended in the step under way."""
    column = run["step_columns"].index("aborted")
    return {name for step in run["steps"] for name in step[column]}


def _ours(step: StepFinished, drafts: int, aborted: set[str]) -> dict[str, object]:
    return {
        "t": step.time_us,
        "chunks": {chunk.request_id: [chunk.computed_tokens, chunk.new_tokens] for chunk in step.chunks},
        "decodes": step.decode_requests,
        "drafts": drafts if step.decode_requests else 0,
        "preempted": list(step.preempted),
        "admitted": list(step.admitted),
        "completed": [name for name in step.completed if name not in aborted],
    }


def theirs(run: dict[str, Any], found: list[dict[str, object]]) -> list[dict[str, object]]:
    """The same of vLLM's steps, which do not say who decodes: our chunks tell."""
    steps = [dict(zip(run["step_columns"], step, strict=True)) for step in run["steps"]]
    gone = _aborted(run)
    ahead = run["case"]["async_scheduling"]
    start = "start_us" if ahead and "pipeline_parallel" not in run["case"] else "t"
    made: list[dict[str, object]] = []
    chunks: Iterator[Any] = iter(one["chunks"] for one in found)
    for step in steps:
        batch = {name: [computed, new] for name, computed, new in step["batch"]}
        prefills = {name: batch[name] for name in next(chunks, ()) if name in batch} if batch else {}
        decodes = [new for name, (_, new) in batch.items() if name not in prefills]
        made.append(
            {
                "t": step[start],
                "chunks": prefills,
                "decodes": len(decodes),
                "drafts": 0 if ahead else sum(decodes) - len(decodes),
                "preempted": step["preempted"],
                "admitted": step["admitted"],
                "completed": [name for name in step["completed"] if name not in gone],
            }
        )
        gone.update(step["completed"])  # what is computed of it after its end, vLLM counts as another end
    return list(_with_victims(made))


def _with_victims(steps: Iterable[dict[str, Any]]) -> Iterator[dict[str, object]]:
    """A plan that computes nothing is no step: its victims count as the next one's."""
    victims: list[str] = []
    for step in steps:
        victims += step["preempted"]
        if step["chunks"] or step["decodes"]:
            yield {**step, "preempted": victims}
            victims = []


@pytest.mark.parametrize("kind", KINDS)
def test_every_batch_is_vllms(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapters.LoadTimes, "us", lambda *_: 0)
    for run in RUNS:
        if f"{run['version']} {run['feature']}" == kind:
            found = ours(run, tmp_path)
            assert found == theirs(run, found), run["seed"]


def test_there_are_runs_of_each_kind() -> None:
    assert len(KINDS) == 46
    assert min(KINDS.values()) >= 3
    for feature, column in (("abort", "aborted"), ("lora", "preempted"), ("spec", "preempted"), ("pp2", "preempted")):
        some = [run for run in RUNS if feature in run["feature"]]
        assert any(step[run["step_columns"].index(column)] for run in some for step in run["steps"]), feature
