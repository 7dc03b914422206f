"""Runs of SGLang's own scheduler (``sglang-0.5.23.jsonl``): the same batch in every step.

They were recorded from SGLang 0.5.23's ``Scheduler``, ``PrefillAdder``, ``UnifiedRadixCache`` and result processor, on
a CPU without a model, with a simulated clock on which every step takes 1,000 us; of pages of several tokens with the
paged allocator that it has for machines without Triton. Each line has SGLang's names (``case``), the requests
(``rows``: name, arrival, tokens beside the shared ones, tokens until it stops, declared ones, group and length of a
shared prefix) and its batches (``steps``: start, kind, [request, tokens before, new tokens], retracted, completed).

Those of ``sglang-0.5.23-priorities.jsonl.xz`` have priorities (last of a row), and in each SGLang preempts by priority.
They were recorded with ``enable_priority_scheduling`` and its preemption, where requests came into the queue in the
order of the calls that put them there, however short the time between them; who is preempted for one request at once,
SGLang puts back in the order of a Python set: there that of the running batch.

Those of ``sglang-0.5.23-loras.jsonl.xz`` have LoRA adapters (last of a row; empty = the base model), which take no time
to load.

Those of ``sglang-0.5.23-hicache.jsonl.xz`` have its hierarchical cache, whose tree and scheduler are SGLang's; a
controller that moves nothing says that a transfer is over ``base_us`` and a microsecond for each ``tokens_per_us``
tokens after it began, one after the other each way. A step lasts until what it loads is there. ``loaded`` are tokens,
in all.

Those of ``sglang-0.5.23-combined.jsonl.xz`` combine all of that, and more: prompts that begin with the prompt and the
answer of another request (group ``@r003``), requests that ignore the end of their answers (``ignoring``) beside others,
requests whose clients give up (``deadlines``), ``scheduler_recv_interval``, ``--disable-priority-preemption``, and
declared answers that SGLang cuts to what its cache takes (``cut``). Between steps SGLang counts itself idle only when
nobody waits and nothing is written or loaded (``is_fully_idle``); while it waits idle, it looks at its queue twice each
time that something happens.

In those of ``sglang-0.5.23-timeouts.jsonl.xz`` clients give up while their requests generate (``AbortReq``), alone and
with all of that. Who is given up is neither among ``completed`` nor among those put back any more, but in the batches.
"""

from __future__ import annotations

import json
import lzma
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from blis_tui.base.errors import StalledError
from blis_tui.engine.options import adapters as costs
from blis_tui.engine.records import StepFinished
from blis_tui.engine.request import under_adapter
from blis_tui.model import KvTier, KvTiers, Lora
from blis_tui.results.sections.instances import tiers_report
from tests.builders import Outcome, experiment
from tests.builders import request as made_request

if TYPE_CHECKING:
    from collections.abc import Iterator

    from blis_tui.engine.request import Request, Segments
    from blis_tui.model import Experiment, Setting

FILE: Final = Path(__file__).with_name("sglang-0.5.23.jsonl")
RUNS: Final = [json.loads(line) for line in FILE.read_text("utf-8").splitlines()]
PRIORITIES: Final = Path(__file__).with_name("sglang-0.5.23-priorities.jsonl.xz")
LORAS: Final = Path(__file__).with_name("sglang-0.5.23-loras.jsonl.xz")
COMBINED: Final = Path(__file__).with_name("sglang-0.5.23-combined.jsonl.xz")
TIMEOUTS: Final = Path(__file__).with_name("sglang-0.5.23-timeouts.jsonl.xz")
HICACHE: Final = Path(__file__).with_name("sglang-0.5.23-hicache.jsonl.xz")
SHARED: Final = Path(__file__).parents[2].parent / "shared/parity-sglang/runs.jsonl.xz"
FURTHER: Final = Path(os.environ.get("BLIS_PARITY_SGLANG_RUNS", SHARED))


def read(file: Path) -> list[dict[str, Any]]:
    """The runs of a compressed file."""
    with lzma.open(file, "rt") as lines:
        return [json.loads(line) for line in lines]


def outcome(run: dict[str, Any]) -> Outcome:
    return Outcome(made_of(run), requests_of(run))


def requests_of(run: dict[str, Any]) -> list[Request]:
    case, made = run["case"], []
    ignoring, deadlines = case.get("ignoring", ()), dict(case.get("deadlines", ()))
    dialogues: dict[str, Segments] | None = {} if any(row[5].startswith("@") for row in run["rows"]) else None
    for number, row in enumerate(run["rows"]):
        request = _request(number, row, ignore_eos=case["ignore_eos"] or row[0] in ignoring)
        request.deadline_us = deadlines.get(row[0], 0)
        if dialogues is not None:
            _continue(request, row, dialogues)
        made.append(request)
    return made


def _continue(request: Request, row: list[Any], dialogues: dict[str, Segments]) -> None:
    """Let the prompt begin with an earlier one and its answer, and let later prompts begin with this one and its."""
    name, own_tokens, group, shared_tokens = row[0], row[2], row[5], row[6]
    head, left = [], shared_tokens
    for segment, tokens in dialogues[group[1:]] if group.startswith("@") else ((group, shared_tokens),):
        head.append((segment, min(tokens, left)))
        left -= head[-1][1]
    prompt = (*head, (f"prompt/{name}", own_tokens))
    prompt = tuple(one for one in prompt if one[1])
    dialogues[name] = (*prompt, (f"answer/{name}", request.output_tokens))
    request.segments = under_adapter(request.adapter, prompt)
    request.content = under_adapter(request.adapter, dialogues[name])


def _longest(case: dict[str, Any]) -> int | None:
    """The longest request: 2 tokens less than SGLang's context, where it was asked to cut answers, if the KV cache is
    not smaller.
    """
    longest: int = case["max_context_len"]
    if "cut" in case:
        return longest - 2 if longest < case["max_total_tokens"] else None
    return longest


def made_of(run: dict[str, Any]) -> Experiment:
    case, page = run["case"], run["case"]["page_size"]
    made = experiment(
        batching="sglang",
        settings={
            "chunked_prefill_size": case["chunked_prefill_size"] if case["chunked_prefill_size"] > 0 else "none",
            "max_prefill_tokens": case["max_prefill_tokens"],
            "schedule_conservativeness": case["schedule_conservativeness"],
            "enable_mixed_chunk": case["enable_mixed_chunk"],
            "overlap_schedule": case["overlap"],
            "scheduler_recv_interval": case.get("scheduler_recv_interval", 1),
            **_priorities(case),
        },
        scheduling="priority-fcfs" if "disable_priority_preemption" in case else case["schedule_policy"],
        max_num_seqs=case["max_running_requests"],
        max_model_len=_longest(case),
        block_size=page,
        blocks=case["max_total_tokens"] // page,
        caching=not case["disable_radix_cache"],
        beta=(1000.0, 0.0, 0.0),
        kv_tiers=_tiers(case),
    )
    if "max_loras_per_batch" not in case:
        return made
    (pool,) = made.pools
    lora = Lora(max_loras=case["max_loras_per_batch"], max_cpu_loras=64, step_overhead=0.0)
    return replace(made, pools=(replace(pool, engine=replace(pool.engine, lora=lora)),))


def _priorities(case: dict[str, Any]) -> dict[str, Setting]:
    if "threshold" not in case:
        return {}
    return {
        "enable_priority_scheduling": True,
        "schedule_low_priority_values_first": case["low_first"],
        "priority_scheduling_preemption_threshold": case["threshold"],
    }


def _tiers(case: dict[str, Any]) -> KvTiers | None:
    if "hicache_ratio" not in case:
        return None
    host = KvTier(name="host", blocks=0, bandwidth_tokens_per_us=case["tokens_per_us"], base_latency_us=case["base_us"])
    ratio, policy = case["hicache_ratio"], case["hicache_write_policy"]
    return KvTiers(kind="hicache", tiers=(host,), ratio=ratio, write_policy=policy)


def _request(number: int, row: list[Any], *, ignore_eos: bool) -> Request:
    name, arrival_us, own_tokens, output_tokens, declared, group, shared_tokens, *more = row
    output_tokens = declared if ignore_eos else output_tokens
    segments = ((group, shared_tokens),) if group and not group.startswith("@") else ()
    tokens, adapter = own_tokens + shared_tokens, next((one for one in more if isinstance(one, str)), "")
    made = made_request(number, arrival_us, tokens, output_tokens, segments=segments, adapter=adapter)
    made.request_id = name
    made.max_output_tokens, made.ignore_eos = declared, ignore_eos
    made.priority = next((one for one in more if isinstance(one, int)), 0)
    return made


def ours(run: dict[str, Any]) -> Iterator[tuple[object, ...]]:
    """Of each step: its start, what is prefilled, how many decode, who was retracted, and who has ended."""
    yield from steps_of(outcome(run))


def steps_of(found: Outcome) -> Iterator[tuple[object, ...]]:
    for step in found.records:
        if isinstance(step, StepFinished):
            chunks = {chunk.request_id: [chunk.computed_tokens, chunk.new_tokens] for chunk in step.chunks}
            yield step.time_us, chunks, step.decode_requests, list(step.preempted), list(step.completed)


def theirs(run: dict[str, Any], steps: list[tuple[object, ...]]) -> Iterator[tuple[object, ...]]:
    """The same of SGLang's; a mixed batch does not say which of its rows decode, so that ours tell."""
    for number, step in enumerate(run["steps"]):
        batch = {name: [computed, new] for name, computed, new in step["batch"]}
        chunks = {} if step["mode"] == "decode" else batch
        if step["mode"] == "mixed" and number < len(steps):
            chunks = {name: batch[name] for name in steps[number][1] if name in batch}  # type: ignore[attr-defined]
        put_back = [*step.get("preempted", ()), *step["retracted"]]
        yield step["t"], chunks, len(batch) - len(chunks), put_back, step["completed"]


@pytest.mark.parametrize("number", range(len(RUNS)))
def test_every_batch_is_sglangs(number: int) -> None:
    steps = list(ours(RUNS[number]))
    assert steps == list(theirs(RUNS[number], steps))


def test_the_runs_cover_what_is_hard() -> None:
    cases = [run["case"] for run in RUNS]
    for key, values in (
        ("schedule_policy", {"fcfs", "lof", "lpm"}),
        ("overlap", {True, False}),
        ("enable_mixed_chunk", {True, False}),
        ("disable_radix_cache", {True, False}),
        ("ignore_eos", {True, False}),
    ):
        assert {case[key] for case in cases} == values
    assert {case["page_size"] for case in cases} > {1, 4}
    assert any(case["chunked_prefill_size"] < 0 for case in cases)
    for overlap in (True, False):
        some = [run for run in RUNS if run["case"]["overlap"] is overlap]
        assert any(step["retracted"] for run in some for step in run["steps"])


def test_every_batch_is_sglangs_with_priorities() -> None:
    *runs, last = read(PRIORITIES)
    with pytest.raises(StalledError, match="SGLang runs out of memory"):  # as SGLang does
        outcome(last)
    assert "Out of memory" in last["error"]
    for run in runs:
        steps = list(ours(run))
        assert steps == list(theirs(run, steps)), run["seed"]
    cases = [run["case"] for run in runs]
    for key, values in (
        ("schedule_policy", {"fcfs", "lof"}),
        ("low_first", {True, False}),
        ("threshold", {0, 1, 4, 10}),
        ("overlap", {True, False}),
        ("enable_mixed_chunk", {True, False}),
    ):
        assert {case[key] for case in cases} == values
    counts = [[len(step["preempted"]) for step in run["steps"]] for run in runs]
    assert len(runs) == 72
    assert all(map(any, counts))
    assert sum(max(each) > 1 for each in counts) >= 10
    assert any(step["retracted"] for run in runs for step in run["steps"])


def test_every_batch_is_sglangs_with_adapters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(costs.LoadTimes, "us", lambda *_: 0)
    runs, held = read(LORAS), 0
    for run in runs:
        found = outcome(run)
        steps = list(steps_of(found))
        assert steps == list(theirs(run, steps)), run["seed"]
        adapters = found.cluster.instances[0].batch.adapters
        assert adapters is not None
        held += adapters.holds > 0
    assert held > len(runs) // 2
    assert {run["case"]["max_loras_per_batch"] for run in runs} == {1, 2, 3}
    assert any(step["retracted"] for run in runs for step in run["steps"])


def test_every_batch_is_sglangs_with_a_hierarchical_cache() -> None:
    runs = read(HICACHE)
    for run in runs:
        found = outcome(run)
        steps = list(steps_of(found))
        assert steps == list(theirs(run, steps)), run["seed"]
        tiers = tiers_report(found.cluster.instances, found.cluster.pools)
        assert tiers is not None
        assert tiers.tiers["host"].reloaded * run["case"]["page_size"] == run["loaded"]
    cases = [run["case"] for run in runs]
    for key, values in (
        ("hicache_write_policy", {"write_through", "write_through_selective", "write_back"}),
        ("schedule_policy", {"fcfs", "lof", "lpm"}),
        ("overlap", {True, False}),
        ("enable_mixed_chunk", {True, False}),
    ):
        assert {case[key] for case in cases} == values
    assert {case["page_size"] for case in cases} > {1, 4}
    for policy in ("write_through", "write_through_selective", "write_back"):
        some = [run for run in runs if run["case"]["hicache_write_policy"] == policy]
        assert sum(run["loaded"] > 0 for run in some) >= 8
        assert any(step["retracted"] for run in some for step in run["steps"])


def test_every_batch_is_sglangs_with_everything_combined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(costs.LoadTimes, "us", lambda *_: 0)
    runs = read(COMBINED)
    for run in runs:
        steps = list(ours(run))
        assert steps == list(theirs(run, steps)), run["seed"]
    cases = [run["case"] for run in runs]
    for key in ("cut", "deadlines", "disable_priority_preemption", "ignoring", "scheduler_recv_interval"):
        assert any(key in case for case in cases)
    features = ("threshold", "max_loras_per_batch", "hicache_ratio")
    assert any(all(key in case for key in features) and case["page_size"] > 1 for case in cases)
    assert any(row[5].startswith("@") for run in runs for row in run["rows"])
    assert any(step["retracted"] for run in runs for step in run["steps"])


def test_every_batch_is_sglangs_where_clients_give_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(costs.LoadTimes, "us", lambda *_: 0)
    runs, late = read(TIMEOUTS), 0
    for run in runs:
        steps = list(ours(run))
        assert steps == list(theirs(run, steps)), run["seed"]
        deadlines = dict(run["case"]["deadlines"])
        late += any(deadlines.get(name, step["t"]) < step["t"] for step in run["steps"] for name, *_ in step["batch"])
    assert late == len(runs) == 82
    cases = [run["case"] for run in runs]
    for key in ("overlap", "enable_mixed_chunk", "disable_radix_cache", "ignore_eos"):
        assert {case[key] for case in cases} == {True, False}
    features = ("threshold", "max_loras_per_batch", "hicache_ratio", "scheduler_recv_interval", "cut", "ignoring")
    for key in features:
        assert any(key in case for case in cases)
    assert {case["page_size"] for case in cases} > {1, 4}


def test_deadlines_that_pass_in_the_last_step_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(costs.LoadTimes, "us", lambda *_: 0)
    continued = [run for run in read(COMBINED) if any(row[5].startswith("@") for row in run["rows"])]
    runs = [run for run in continued if "deadlines" not in run["case"]]
    for run in runs:
        run["case"]["deadlines"] = [[name, step["t"] + 1] for step in run["steps"] for name in step["completed"]]
        steps = list(ours(run))
        assert steps == list(theirs(run, steps)), run["seed"]
    assert len(runs) > 10


@pytest.mark.skipif(not FURTHER.is_file(), reason="no further runs here; BLIS_PARITY_SGLANG_RUNS can name their file")
def test_further_runs() -> None:
    for run in read(FURTHER):
        steps = list(ours(run))
        assert steps == list(theirs(run, steps)), run["seed"]
