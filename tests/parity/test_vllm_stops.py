"""Runs of vLLM's own asynchronous scheduler in which answers end by themselves: the same batch in every step.

``vllm-stops.jsonl.xz`` is what ``make_vllm_cases.py --stops`` recorded of vLLM 0.32.0 and 0.33.0 (``version``), some of
it in pipelines (``--stages``). That an answer ends before its budget, vLLM learns when its last token is there; by then
the next step of its request is planned.
"""

from __future__ import annotations

import json
import lzma
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from blis_tui.engine.records import StepFinished
from tests.builders import Outcome
from tests.parity.test_vllm import batches, document_of, request_of

if TYPE_CHECKING:
    from blis_tui.engine.request import Request
    from blis_tui.model import Experiment

FILE: Final = Path(__file__).with_name("vllm-stops.jsonl.xz")
_ALL: Final = [json.loads(line) for line in lzma.decompress(FILE.read_bytes()).decode().splitlines()]
RUNS: Final = [run for run in _ALL if "pipeline_parallel" not in run["case"]]
PIPELINED: Final = [run for run in _ALL if "pipeline_parallel" in run["case"]]


def with_budget(number: int, row: list[Any], *, known: bool) -> Request:
    *plain, budget = row
    made = request_of(number, plain)
    made.declare(plain[2] if known else budget)
    return made


def found_in(run: dict[str, Any], *, known: bool = False) -> list[dict[str, Any]]:
    """``known``: as if all budgets were used up."""
    trace = run["trace"]
    requests = [with_budget(number, row, known=known) for number, row in enumerate(trace)]
    steps = [record for record in Outcome(document_of(run), requests).records if isinstance(record, StepFinished)]
    stops = [] if known else [number for number, row in enumerate(trace) if row[2] < row[6]]
    return batches(steps, [row[1] + row[4] for row in trace], stops)


@pytest.mark.parametrize("number", range(len(RUNS)))
def test_every_batch_is_vllms(number: int) -> None:
    run = RUNS[number]
    for ours, theirs in zip(found_in(run), run["steps"], strict=True):
        expected = {**theirs, "batch": sorted(theirs["batch"])}
        assert {key: ours[key] for key in expected} == expected


def staged(run: dict[str, Any], made: Experiment) -> Experiment:
    (pool,), stages = made.pools, run["case"]["pipeline_parallel"]
    return replace(made, pools=(replace(pool, engine=replace(pool.engine, pipeline_parallel=stages)),))


def compared(run: dict[str, Any], steps: list[StepFinished]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Ours and vLLM's. A record does not say who decodes: how many do is compared, and who computes a prompt."""
    ours: list[dict[str, Any]] = [
        {
            "t": step.time_us,
            "chunks": {int(chunk.request_id): [chunk.computed_tokens, chunk.new_tokens] for chunk in step.chunks},
            "decodes": step.decode_requests,
            "preempted": [int(name) for name in step.preempted],
            "admitted": [int(name) for name in step.admitted],
            "completed": [int(name) for name in step.completed],
        }
        for step in steps
    ]
    theirs = []
    for step, chunks in zip(run["steps"], [one["chunks"] for one in ours] + [{}] * len(run["steps"]), strict=False):
        batch = {name: [computed, new] for name, computed, new in step["batch"]}
        prefills = {name: batch[name] for name in chunks if name in batch}
        names = ("t", "preempted", "admitted", "completed")
        theirs.append(
            {**{name: step[name] for name in names}, "chunks": prefills, "decodes": len(batch) - len(prefills)}
        )
    return ours, theirs


def batches_of(run: dict[str, Any], *, known: bool = False) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    requests = [with_budget(number, row, known=known) for number, row in enumerate(run["trace"])]
    records = Outcome(staged(run, document_of(run)), requests).records
    return compared(run, [record for record in records if isinstance(record, StepFinished)])


@pytest.mark.parametrize("number", range(len(PIPELINED)))
def test_every_batch_in_a_pipeline_is_vllms(number: int) -> None:
    ours, theirs = batches_of(PIPELINED[number])
    assert ours == theirs
    ours, theirs = batches_of(PIPELINED[number], known=True)
    assert ours != theirs


def test_budgets_that_are_used_up_make_other_batches() -> None:
    assert all(found_in(run, known=True) != found_in(run) for run in RUNS)


def test_the_runs_cover_what_is_hard() -> None:
    for version in ("0.32", "0.33"):
        some = [run for run in RUNS if run["version"] == version]
        assert {run["case"]["policy"] for run in some} == {"fcfs", "priority"}
        assert {run["case"]["enable_prefix_caching"] for run in some} == {False, True}
        assert any(row[2] == row[6] for run in some for row in run["trace"])
        in_vain = [vain_of(run, before, step) for run in some for before, step in pairs(run)]
        assert sum(map(len, in_vain)) > 200
        assert any(len(one) > 1 for one in in_vain)
        # Some are preempted with their last token under way, and some are alone in their step.
        ends = [(before, step) for run in some for before, step in pairs(run)]
        assert any(one in step["preempted"] for before, step in ends for one in before["completed"])
        assert any(len(step["batch"]) == len(vain) for (_, step), vain in zip(ends, in_vain, strict=True) if vain)


def pairs(run: dict[str, Any]) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    return list(zip(run["steps"], run["steps"][1:], strict=False))


def vain_of(run: dict[str, Any], before: dict[str, Any], step: dict[str, Any]) -> list[int]:
    """Who computes a token behind its answer."""
    stops = [one for one in before["completed"] if run["trace"][one][2] < run["trace"][one][6]]
    return [one for one, *_ in step["batch"] if one in stops]
