"""Runs of vLLM's own scheduler: the same batch in every step.

``vllm-0.32.0.jsonl`` is what ``make_vllm_cases.py`` recorded; ``vllm-0.33.0.jsonl`` has runs of the next version with
priorities and too few KV blocks.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from blis_tui.engine.records import StepFinished
from tests.builders import Outcome, experiment, request

if TYPE_CHECKING:
    from collections.abc import Collection

    from blis_tui.engine.request import Request
    from blis_tui.model import Experiment


def recorded(version: str) -> list[dict[str, Any]]:
    text = Path(__file__).with_name(f"vllm-{version}.0.jsonl").read_text("utf-8")
    return [{"version": version, **json.loads(line)} for line in text.splitlines()]


RUNS: Final = recorded("0.32")
NEWER: Final = recorded("0.33")
SHARED: Final = Path(os.environ.get("BLIS_PARITY_VLLM_CASES", Path(__file__).parents[2].parent / "shared/parity-vllm"))
FOLDERS: Final = [folder for folder in (SHARED, SHARED / "async") if folder.is_dir()]


def document_of(run: dict[str, Any]) -> Experiment:
    case = run["case"]
    by_priority = case["policy"] == "priority"
    return experiment(
        batching="vllm-v1",
        settings={
            "version": run["version"],
            "async_scheduling": case["async_scheduling"],
            "watermark": case["watermark"],
            "reserve_full_input": case["scheduler_reserve_full_isl"],
            "enable_chunked_prefill": case["enable_chunked_prefill"],
        },
        max_num_seqs=case["max_num_seqs"],
        budget=case["max_num_batched_tokens"],
        threshold=case["long_prefill_token_threshold"],
        block_size=case["block_size"],
        max_model_len=case["max_model_len"],
        blocks=case["num_gpu_blocks"] - 1,  # vLLM's null block is never used
        caching=case["enable_prefix_caching"],
        scheduling="priority-fcfs" if by_priority else "fcfs",
        priority="slo-class" if by_priority else "constant",
        victim="priority" if by_priority else "tail",
        beta=(float(case["step_us"]), 0.0, 0.0),
    )


def outcome(run: dict[str, Any]) -> Outcome:
    return Outcome(document_of(run), [request_of(number, row) for number, row in enumerate(run["trace"])])


def request_of(number: int, row: list[Any]) -> Request:
    arrival_us, own_tokens, output_tokens, group, shared_tokens, slo_class = row
    segments = ((group, shared_tokens),) if shared_tokens else ()
    tokens = own_tokens + shared_tokens
    return request(number, arrival_us, tokens, output_tokens, segments=segments, slo_class=slo_class)


def batches(steps: list[StepFinished], prompts: list[int], stops: Collection[int] = ()) -> list[dict[str, Any]]:
    """The steps as vLLM's are written down: requests by number, and what each of them computes.

    Decodes are counted in a record, not named: they are all who run, prefill nothing and did not stall. If there are
    more, they are of those that have just ended by themselves (``stops``), the first admitted first.
    """
    running: list[int] = []
    stopped: list[int] = []
    targets: dict[int, int] = {}
    generated = [0] * len(prompts)
    found = []
    for step in steps:
        chunks = {int(chunk.request_id): [chunk.computed_tokens, chunk.new_tokens] for chunk in step.chunks}
        admitted, preempted, completed, stalled = (
            [int(name) for name in names] for names in (step.admitted, step.preempted, step.completed, step.stalled)
        )
        running = [one for one in running if one not in preempted]
        targets = {one: target for one, target in targets.items() if one not in preempted}
        running += admitted
        targets |= {one: prompts[one] + generated[one] for one in admitted}
        decodes = [one for one in running if one not in targets and one not in stalled]
        vain = [one for one in stopped if one not in preempted][: step.decode_requests - len(decodes)]
        assert len(decodes) + len(vain) == step.decode_requests
        batch = chunks | {decode: [prompts[decode] + generated[decode] - 1, 1] for decode in (*decodes, *vain)}
        ended = [one for one, (computed, new) in chunks.items() if computed + new == targets[one]]
        for one in ended:
            del targets[one]
        for one in (*ended, *decodes):
            generated[one] += 1
        stopped = [one for one in running if one in completed and one in stops]
        running = [one for one in running if one not in completed]
        found.append(
            {
                "t": step.time_us,
                "batch": sorted([one, *tokens] for one, tokens in batch.items()),
                "admitted": admitted,
                "preempted": preempted,
                "completed": completed,
                "used": step.kv_used_blocks,
                "waiting": step.waiting,
                "running": step.running,
            }
        )
    return found


def found_in(run: dict[str, Any]) -> list[dict[str, Any]]:
    steps = [record for record in outcome(run).records if isinstance(record, StepFinished)]
    return batches(steps, [row[1] + row[4] for row in run["trace"]])


@pytest.mark.parametrize("number", range(len(RUNS) + len(NEWER)))
def test_every_batch_is_vllms(number: int) -> None:
    run = [*RUNS, *NEWER][number]
    for ours, theirs in zip(found_in(run), run["steps"], strict=True):
        expected = {**theirs, "batch": sorted(theirs["batch"])}
        assert {key: ours[key] for key in expected} == expected


def test_versions_differ() -> None:
    """A request that is its own victim: in 0.33 those behind it run all the same."""
    other = [found_in(run) != found_in({**run, "version": "0.32"}) for run in NEWER]
    assert any(other)
    assert not all(other)


def test_the_runs_cover_what_is_hard() -> None:
    asynchronous = [run for run in RUNS if run["case"]["async_scheduling"]]
    assert 10 < len(asynchronous) < len(RUNS) - 10
    for some in (asynchronous, [run for run in RUNS if run not in asynchronous]):
        assert {run["case"]["policy"] for run in some} == {"fcfs", "priority"}
        assert any(run["case"]["watermark"] for run in some)
        assert any(run["case"]["long_prefill_token_threshold"] for run in some)
        assert any(not run["case"]["enable_chunked_prefill"] for run in some)
        assert any(step["preempted"] for run in some for step in run["steps"])


@pytest.mark.skipif(not FOLDERS, reason="no further runs here; BLIS_PARITY_VLLM_CASES can name their folder")
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_further_runs(folder: Path) -> None:
    command = [
        sys.executable,
        str(SHARED / "check.py"),
        "--cli",
        f"{sys.executable} -m blis_tui",
        "--cases",
        str(folder),
    ]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
