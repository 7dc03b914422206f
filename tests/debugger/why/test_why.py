"""Explanations: every figure in them is one of the run."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

import blis_tui
from blis_tui.base.units import plural, span_text, time_text
from blis_tui.debugger.debugger import Debugger
from blis_tui.debugger.history import run_to_stop
from blis_tui.debugger.why.event_stories import usual_duration
from blis_tui.debugger.why.explain import explain, explain_event, explain_request
from blis_tui.debugger.why.explanation import (
    Explanation,
    Part,
    Subject,
    event_ref,
    instance_ref,
    request_ref,
    sentence_text,
)
from blis_tui.debugger.why.ranking import Position, Ranked, ranking
from blis_tui.engine.records import RECORD_KINDS, Preempted, StepFinished
from tests.debugger.pressed_runs import RUNS, experiment, finished, refs

if TYPE_CHECKING:
    from pytest_regressions.file_regression import FileRegressionFixture


MORE = {
    "kv-overload": 60,
    "lora-adapters": 60,
    "thinking": 25,
    "conversations": 6,
    "retraction": 80,
    "wide-experts": 16,
}
"""Experiments as they ship, but for the number of their requests or sessions."""


def at(name: str, event: int) -> Debugger:
    debugger = finished(name)
    run_to_stop(debugger.seek(event))
    return debugger


def part(explanation: Explanation, heading: str) -> Part:
    return next(one for one in explanation.parts if one.heading.startswith(heading))


def sentences(one: Part) -> str:
    return "\n".join(sentence_text(sentence) for sentence in one.sentences)


@pytest.mark.parametrize("name", RUNS)
def test_everything_can_be_explained_anywhere(name: str, file_regression: FileRegressionFixture) -> None:
    """No moment and no request is too strange, nothing moves the reader, and texts are whole sentences.

    Of every form of a line, the first one stands in a file: there it shows when a sentence or a figure is another one
    (`pytest tests/debugger/why --force-regen` writes them).
    """
    file_regression.check(everywhere(finished(name)))


@pytest.mark.parametrize(("name", "requests"), MORE.items())
def test_what_those_runs_have_not_can_be_explained_too(
    name: str, requests: int, file_regression: FileRegressionFixture
) -> None:
    """Copies on the host, adapters, reasoning, sessions, retraction, experts on ranks: as above."""
    key = "workload.sessions" if name == "conversations" else "workload.requests"
    debugger = Debugger(blis_tui.load(name, set={key: requests, "expect": []}))
    run_to_stop(debugger.run())
    file_regression.check(everywhere(debugger))


def test_what_happened_is_said_in_whole_sentences() -> None:
    """Also of events of which the records alone tell, such as a prompt that is computed for another instance."""
    debugger = finished("split")
    kinds: dict[str, int] = {}
    for event in range(1, debugger.frontier + 1):
        kinds.setdefault(debugger.tape.row(event).kind, event)
    assert "prefilled" in kinds
    for event in kinds.values():
        told = explain_event(debugger, event).headline
        assert told[0].isupper() or told.startswith("request_"), told
        assert told.endswith("."), told


def everywhere(debugger: Debugger) -> str:
    """What is explained at seven places of a run, each form of a line once."""
    shown = Shown()
    names = debugger.tape.names()
    for event in range(0, debugger.frontier + 1, debugger.frontier // 6):
        run_to_stop(debugger.seek(event))
        digest = debugger.digest()
        snapshot = debugger.simulation.snapshot()
        asked = {request.request_id for request in snapshot.in_transit} | {names[event % len(names)]}
        for instance in snapshot.instances:
            asked |= {
                request.request_id for request in (*instance.waiting[:4], *instance.running[:3], *instance.running[-2:])
            }
        for one in sorted(asked):
            shown.add(explain_request(debugger, one), f"{one} at event {event}")
        shown.add(explain_event(debugger, event), f"event {event}")
        assert debugger.event == event
        assert debugger.digest() == digest
    return "\n".join(shown.lines) + "\n"


class Shown:
    """Lines of explanations that are well made, without those that say the same of another figure or name."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._forms: set[str] = set()

    def add(self, explanation: Explanation, about: str) -> None:
        well_made(explanation)
        fresh = []
        for line in explanation.to_text().splitlines():
            form = " ".join(re.sub(r"<?\w*\d[\w.,]*( (us|ms|s|%)(?!\w))?", "#", line).split())
            if form and form not in self._forms:
                self._forms.add(form)
                fresh.append(f"    {line}".rstrip())
        if fresh:
            self.lines += [f"{about}:", *fresh]


def well_made(explanation: Explanation) -> None:
    assert explanation.title
    assert explanation.headline.endswith(".")
    assert explanation.parts
    for one in explanation.parts:
        assert one.sentences or one.rows
        for sentence in one.sentences:
            assert sentence_text(sentence)[-1] in ".:", sentence
            assert "  " not in sentence_text(sentence)
    text = explanation.to_text()
    assert explanation.headline in text
    for ref in refs(explanation):
        assert ref.text in text


def test_who_runs_and_gets_nothing_of_a_spent_budget_is_told_who_spent_it() -> None:
    debugger = finished("one pass")
    budget = debugger.tape.profiles[0].limits.max_num_batched_tokens
    found = 0
    for event in range(1, debugger.frontier + 1):
        row = debugger.tape.row(event)
        if row.step < 0 or debugger.tape.step(row.step).batch_tokens < budget:
            continue
        step = next(record for record in debugger.records_of(event) if isinstance(record, StepFinished))
        if not step.stalled:
            continue
        run_to_stop(debugger.seek(event))
        text = explain_request(debugger, step.stalled[0]).to_text().replace("\n", " ")
        told = re.search(
            r"in the order in which they arrived: the whole token budget of (\d+) was spent[^:]*: (.*?)\.", text
        )
        assert told is not None, text
        assert int(told[1]) == budget == step.decode_requests + sum(chunk.new_tokens for chunk in step.chunks)
        most = max(step.chunks, key=lambda chunk: chunk.new_tokens)
        assert f"{most.request_id} {most.new_tokens}" in re.sub(" +", " ", told[2])
        found += 1
        if found == 3:
            return
    raise AssertionError(f"only {found} such steps")


# ---- waiting ----


def waiting_behind(debugger: Debugger, wanted: str) -> Explanation:
    """The explanation of some waiting request that says something, searched over the run."""
    for event in range(1, debugger.frontier, 7):
        row = debugger.tape.row(event)
        if row.step < 0 or not debugger.tape.step(row.step).waiting:
            continue
        run_to_stop(debugger.seek(event))
        for instance in debugger.simulation.snapshot().instances:
            for request in instance.waiting[:2]:
                explanation = explain_request(debugger, request.request_id)
                if re.search(wanted, explanation.to_text()):
                    return explanation
    raise AssertionError(f"nobody waits so: {wanted}")


def test_waiting_for_a_place_in_the_batch() -> None:
    debugger = finished("small batch")
    explanation = waiting_behind(debugger, "max_num_seqs")
    told = sentences(part(explanation, "Why it waits now"))
    assert "6 requests were running, which is the limit (max_num_seqs 6)." in told


def test_waiting_for_tokens_names_who_spent_them() -> None:
    debugger = finished("small budget")
    explanation = waiting_behind(debugger, "was spent")
    told = sentences(part(explanation, "Why it waits now"))
    match = re.search(r"the whole token budget of 24 was spent \(max_num_batched_tokens\): (.*)\.", told)
    assert match
    spent = re.sub(r"(\d+) decodes? took 1 each", r"decode \1", match[1])
    spent = re.sub(r"\d+ more prefills? ", "more ", spent)
    assert sum(int(one.split()[-1]) for one in spent.split(", ")) == 24


def test_waiting_for_blocks() -> None:
    debugger = finished("kv-pressure")
    explanation = waiting_behind(debugger, r"did not fit: it needs \d+ KV block")
    told = sentences(part(explanation, "Why it waits now"))
    needed = re.search(r"it needs (\d+) KV blocks? of 16 tokens", told)
    free = re.search(r"(\d+) of 600 were free", told)
    assert needed
    if free:
        assert int(needed[1]) > int(free[1])
    assert "The largest holders are request_" in told


@pytest.mark.parametrize("overlap", [False, True])
def test_waiting_for_what_a_rule_asks_beside_blocks(overlap: bool) -> None:
    made = blis_tui.load(
        {
            "apiVersion": "blis/v1",
            "kind": "Experiment",
            "metadata": {"name": "guaranteed"},
            "model": "llama-3.1-8b-instruct",
            "hardware": "h100",
            "latency": "operators",
            "engine": {"kv_blocks": 60, "max_model_len": 900, "max_num_batched_tokens": 2048},
            "policy": {
                "apiVersion": "blis/v1",
                "kind": "Policy",
                "metadata": {"name": "guaranteed"},
                "batching": {"kind": "tensorrt-llm", "disable_overlap_scheduler": not overlap},
            },
            "workload": {
                "requests": 8,
                "clients": [
                    {
                        "id": "users",
                        "arrivals": {"kind": "closed-loop", "users": 4},
                        "input_tokens": 200,
                        "output_tokens": 100,
                    }
                ],
            },
        }
    )
    debugger = Debugger(made)
    run_to_stop(debugger.run())
    told = sentences(part(waiting_behind(debugger, "GUARANTEED_NO_EVICT"), "Why it waits now"))
    assert "The blocks of all admitted prompts and their whole declared answers must fit (GUARANTEED_NO_EVICT)." in told


def test_head_of_line_blocking_is_called_by_its_name() -> None:
    debugger = finished("kv-pressure")
    explanation = waiting_behind(debugger, "Head-of-line blocking")
    told = sentences(part(explanation, "Why it waits now"))
    needs = int(re.search(r"it needs (?:up to )?(\d+) KV", told)[1])  # type: ignore[index]
    smaller = int(re.search(r"further back, needs (\d+) block", told)[1])  # type: ignore[index]
    free = int(re.search(r"(\d+) of 600 were free", told)[1])  # type: ignore[index]
    assert smaller <= free < needs


def test_waiting_since_a_step_began() -> None:
    """Who comes while a step is under way is not said to be kept out by anything else."""
    debugger = finished("kv-pressure")
    tape = debugger.tape
    event = next(
        event
        for event in range(100, debugger.frontier)
        if tape.kind(event) == "queued" and tape.time_us(event + 1) > tape.time_us(event)
    )
    run_to_stop(debugger.seek(event))
    name = tape.name(tape.row(event).request)
    told = sentences(part(explain_request(debugger, name), "Why it waits now"))
    assert f"{name} was queued after the latest step of instance 0 had begun; the next step, at " in told


# ---- preemption ----


def test_preemption_is_told_with_the_records_figures() -> None:
    debugger = finished("kv-pressure")
    run_to_stop(debugger.seek(debugger.frontier))
    tape = debugger.tape
    event = next(e for e in range(1, debugger.frontier) if tape.is_step(e) and tape.step(tape.row(e).step).preempted)
    record = next(one for one in debugger.records_of(event) if isinstance(one, Preempted))
    told = sentences(part(explain_request(debugger, record.request_id), "Why it was preempted"))
    assert f"At event {event:,} it lost {plural(record.lost_tokens, 'computed token')}" in told
    assert f"freed {plural(record.freed_blocks, 'KV block')}" in told
    assert f"{record.for_request} needed" in told
    assert "the youngest running request" in told
    life = tape.life(record.request_id)
    again = next(one for one in life if one.what == "scheduled" and one.event > event)
    assert f"It waited {span_text(again.time_us - record.time_us)} to be scheduled again" in told


def test_victims_of_the_other_rule() -> None:
    debugger = at("priority victims", 10**9)
    name = next(name for name in debugger.tape.names() if any(h.what == "preempted" for h in debugger.tape.life(name)))
    assert "least urgent" in explain_request(debugger, name).to_text()


def test_before_it_is_let_in_again() -> None:
    debugger = finished("kv-pressure")
    name, event = next(
        (name, one.event)
        for name in debugger.tape.names()
        for one in debugger.tape.life(name)
        if one.what == "preempted"
    )
    run_to_stop(debugger.seek(event))
    assert "It has not been scheduled again since." in explain_request(debugger, name).to_text()


# ---- ends ----


def by_e2e(debugger: Debugger, until: int) -> list[Ranked]:
    return ranking(debugger.tape, "e2e", Position(until, until))


def test_a_slow_request_is_compared_with_the_median() -> None:
    debugger = at("kv-pressure", 10**9)
    ranked = by_e2e(debugger, debugger.frontier)
    assert [one.value for one in ranked] == sorted((one.value for one in ranked), reverse=True)
    explanation = explain_request(debugger, ranked[0].name)
    assert explanation.headline.startswith(f"It took {span_text(ranked[0].value)} end to end, slower than all others;")
    median = ranked[len(ranked) // 2]
    told = sentences(part(explanation, "Compared"))
    assert (
        f"{median.name}, took {span_text(median.value)}; this one {span_text(ranked[0].value - median.value)} more:"
        in told
    )
    fastest = explain_request(debugger, ranked[-1].name)
    assert "no slower than all others" in fastest.headline


def test_slowest_knows_only_what_has_happened() -> None:
    debugger = finished("kv-pressure")
    half = debugger.frontier // 2
    early = by_e2e(debugger, half)
    completed = [e for e in range(1, half + 1) if debugger.tape.kind(e) == "completed"]
    assert len(early) == len(completed)


@pytest.mark.parametrize(
    ("run", "kind", "words"),
    [("admission", "rejected", "insufficient tokens"), ("time-outs", "timed-out", "Its deadline passed while it")],
)
def test_requests_that_were_not_served(run: str, kind: str, words: str) -> None:
    debugger = at(run, 10**9)
    event = next(e for e in range(1, debugger.frontier) if debugger.tape.kind(e) == kind)
    name = debugger.tape.name(debugger.tape.row(event).request)
    told = sentences(part(explain_request(debugger, name), "How it ended"))
    assert words in told
    assert f"That was event {event:,}." in told


def test_a_request_that_can_never_be_served() -> None:
    debugger = Debugger(blis_tui.load("kv-pressure", set={"engine.max_model_len": 600, "workload.requests": 60}))
    run_to_stop(debugger.run())
    event = next(e for e in range(1, debugger.frontier) if debugger.tape.kind(e) == "dropped")
    reason = debugger.tape.reason(event)
    assert "max_model_len is 600" in reason
    name = debugger.tape.name(debugger.tape.row(event).request)
    assert reason in explain_request(debugger, name).to_text()
    assert reason in explain_event(debugger, event).headline


def test_unknown_requests() -> None:
    debugger = Debugger(experiment("kv-pressure"))
    assert "It may arrive later" in explain_request(debugger, "request_7").to_text()
    run_to_stop(debugger.run())
    assert "No request of this run has that name." in explain_request(debugger, "nobody").to_text()
    run_to_stop(debugger.seek(3))
    assert "It arrives later, at event " in explain_request(debugger, "request_70").to_text()


# ---- events ----


def test_every_kind_of_event_has_a_meaning() -> None:
    for name in ("kv-pressure", "admission", "time-outs", "three instances"):
        debugger = at(name, 10**9)
        for kind, record in RECORD_KINDS.items():
            event = next((e for e in range(1, debugger.frontier) if debugger.tape.kind(e) == kind), None)
            if event is not None:
                explanation = explain_event(debugger, event)
                well_made(explanation)
                assert kind in explanation.title
                assert record.shown.explanation in sentences(explanation.parts[0])


def test_events_that_are_not_there() -> None:
    debugger = Debugger(experiment("kv-pressure"))
    well_made(explain_event(debugger, 0))
    assert explain_event(debugger, 5).headline == "That event has not happened yet."


@pytest.mark.parametrize("name", ["three instances", "split", "time-outs", "ahead"])
def test_a_choice_is_shown_with_the_load_it_met(name: str) -> None:
    """Wherever the loads come from: steps that are planned ahead, queues for decoding, deadlines, lost instances."""
    if name == "ahead":
        debugger = Debugger(blis_tui.load("instance-dies", set={"workload.requests": 120}))
        run_to_stop(debugger.run())
    else:
        debugger = finished(name)
    tape = debugger.tape
    routed = [event for event in range(1, debugger.frontier + 1) if tape.kind(event) == "routed"]
    for event in routed[:: max(len(routed) // 25, 1)]:
        run_to_stop(debugger.seek(event - 1))
        instances = debugger.simulation.snapshot().instances
        rows = part(explain_event(debugger, event), "The instances just before").rows
        assert [row.label for row in rows if row.share == "chosen"] == [f"instance {tape.row(event).instance}"]
        assert [row.figure for row in rows] == [f"{instance.waiting_count:,} waiting" for instance in instances]
        for row, instance in zip(rows, instances, strict=True):
            assert f"{instance.running_count:,} running, {instance.kv.used_blocks:,} KV block" in sentence_text(
                row.note
            )
            assert sentence_text(row.note).endswith(f", {instance.life}") == (instance.life != "active")
    run_to_stop(debugger.seek(debugger.frontier))


def test_a_long_step_is_compared_with_the_usual() -> None:
    debugger = at("kv-pressure", 10**9)
    tape = debugger.tape
    steps = [event for event in range(1, debugger.frontier + 1) if tape.is_step(event)]
    event = max(steps, key=lambda step: tape.step(tape.row(step).step).duration_us)
    before = [tape.step(tape.row(step).step).duration_us for step in steps if step < event][-1000:]
    usual = usual_duration(tape, 0, event)
    assert usual == sorted(before)[len(before) // 2]
    duration = tape.step(tape.row(event).step).duration_us
    assert usual is not None
    assert f"{duration / usual:.1f} times as long as usual." in explain_event(debugger, event).headline


@pytest.mark.parametrize(("dense", "together"), [(False, True), (True, False)])
def test_the_step_of_a_rank_says_that_it_lasted_as_long_as_the_slowest(dense: bool, together: bool) -> None:
    changes: dict[str, object] = {"workload.requests": 20}
    if dense:  # its ranks are engines of their own
        changes |= {"model": "llama-3.1-8b-instruct", "engine.data_parallel": 4, "engine.expert_parallel": False}
    debugger = Debugger(blis_tui.load("wide-experts", set=changes))
    run_to_stop(debugger.seek(300))
    tape = debugger.tape
    steps = [tape.row(event) for event in range(1, debugger.frontier + 1) if tape.is_step(event)]
    last = steps[-17]  # of steps whose beside are known, too
    beside = [tape.step(row.step).duration_us for row in steps if row.time_us == last.time_us]
    assert (len(beside) > 1 and len(set(beside)) == 1) == together
    parts = {part.heading: part for part in explain_event(debugger, last.event).parts}
    told = " ".join(map(sentence_text, parts["Its duration"].sentences))
    assert ("until the slowest of them was done" in told) == together


def test_refs() -> None:
    debugger = at("kv-pressure", 500)
    assert explain(debugger, request_ref("request_3")) == explain_request(debugger, "request_3")
    assert explain(debugger, event_ref(12)) == explain_event(debugger, 12)
    assert explain(debugger, instance_ref(0)) is None
    assert Subject("event", "12345").text == "event 12,345"


@pytest.mark.parametrize("name", ["kv-pressure", "vllm-preemption", "whole prompts", "first chunk only"])
def test_who_did_not_fit_needed_more_than_was_free(name: str) -> None:
    debugger = finished(name)
    total = debugger.experiment.pools[0].engine.kv_blocks
    checked = 0
    for event in range(1, debugger.frontier, 83):
        run_to_stop(debugger.seek(event))
        instance = debugger.simulation.snapshot().instances[0]
        if not instance.waiting:
            continue
        told = explain_request(debugger, instance.waiting[0].request_id).to_text()
        needed = re.search(r"it needs (?:up to )?(\d+) KV", told)
        free = re.search(rf"(\d+) of {total} were free", told)
        kept = re.search(r"(\d+) blocks? must stay free", told)
        if needed and free and "Its prompt of" not in told:
            assert int(needed[1]) + (int(kept[1]) if kept else 0) > int(free[1]), told
            checked += 1
    assert checked


def test_a_comparison_says_how_much_there_was_to_compute() -> None:
    debugger = at("kv-pressure", 10**9)
    ranked = by_e2e(debugger, debugger.frontier)
    lives = [debugger.tape.life(ranked[place].name) for place in (0, len(ranked) // 2)]
    rows = {
        row.label: sentence_text(row.note) for row in part(explain_request(debugger, ranked[0].name), "Compared").rows
    }
    assert rows["prefill"] == f"{lives[0][0].first:,} prompt tokens, median {lives[1][0].first:,}"
    assert rows["decode"] == f"{lives[0][-1].first:,} output tokens, median {lives[1][-1].first:,}"


def test_a_step_tells_when_it_was_planned_and_who_is_planned_waits_for_the_step_under_way() -> None:
    debugger = finished("vllm-preemption")
    tape = debugger.tape
    checked = 0
    for name in tape.names()[5:60:9]:
        scheduled = next(event for event in tape.life(name) if event.what == "scheduled")
        started = next(event for event in tape.life(name) if event.what == "started")
        run_to_stop(debugger.seek(scheduled.event))
        explained = explain_event(debugger, started.event)
        told = sentences(part(explained, "When it was planned"))
        if started.event == scheduled.event:
            assert told == f"It was planned when it started, at {time_text(started.time_us)}."
            continue
        assert told.startswith(
            f"It was planned at {time_text(scheduled.time_us)} (event {scheduled.event:,}) and started"
        )
        now = sentences(part(explain_request(debugger, name), "What it does now"))
        assert f"for the next step, which starts at {time_text(started.time_us)}: the current step has to end" in now
        run_to_stop(debugger.seek(started.event))
        rows = {row.label: row.figure for row in explain_request(debugger, name).parts[-1].rows}
        assert rows["planned for the next step"] == span_text(started.time_us - scheduled.time_us)
        checked += 1
    assert checked


@pytest.mark.parametrize("rule", ["sglang", "nano"])
def test_a_step_is_of_those_whom_it_computes_something_for(rule: str) -> None:
    """Who runs and waits for others' prompts gets nothing of the step, and is not counted."""
    limits = {"engine.max_model_len": 2048, "engine.max_num_batched_tokens": 2048}
    changed = {"policy": rule, "workload.requests": 30, **({} if rule == "sglang" else limits)}
    debugger = Debugger(blis_tui.load("kv-pressure", set=changed))
    run_to_stop(debugger.run())
    held = 0
    for event in [one for one in range(1, debugger.frontier + 1) if debugger.tape.is_step(one)]:
        step = next(record for record in debugger.records_of(event) if isinstance(record, StepFinished))
        served = plural(len(step.chunks) + step.decode_requests, "request")
        if step.chunks and not step.decode_requests and step.running > len(step.chunks) and held < 5:
            assert f" for {served} in " in explain_event(debugger, event).headline
            run_to_stop(debugger.seek(event))
            (instance,) = debugger.simulation.snapshot().instances
            for request in instance.running:
                if request.phase != "prefill" and request.request_id not in step.first_tokens:
                    now = sentences(part(explain_request(debugger, request.request_id), "What it does now"))
                    assert ") computed nothing for it." in now or ") computes nothing for it." in now
                    held += 1
    assert held
