"""What is shown of reasoning and media: in records, on the request pane and by `?`, against the requests' rows."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

import blis_tui
from blis_tui.base.units import span_text
from blis_tui.debugger.debugger import Debugger
from blis_tui.debugger.history import run_to_stop
from blis_tui.debugger.why.explain import explain_event, explain_request
from blis_tui.debugger.why.explanation import sentence_text
from blis_tui.engine.records import AnswerBegun, PromptMedia
from blis_tui.results.conditions.breakpoints import Watch, parse_breakpoint
from blis_tui.tui.panes.request import inspector_lines
from tests.tui.pane_harness import text_of, view_at

if TYPE_CHECKING:
    from blis_tui.engine.records import Record
    from blis_tui.results.request_log import RequestRow

CAMERA = {
    "id": "camera",
    "input_tokens": 40,
    "output_tokens": {"kind": "uniform", "min": 1, "max": 60},
    "reasoning": {"ratio": {"kind": "beta", "alpha": 4, "beta": 2}},
    "multimodal": {
        "images": {"probability": 0.6, "count": {"kind": "uniform", "min": 1, "max": 2}, "tokens": 100},
        "audio": {"tokens": {"kind": "uniform", "min": 20, "max": 30}},
    },
}
CHAT = {"id": "chat", "input_tokens": {"kind": "exponential", "mean": 90}, "output_tokens": 8}
SMALL = {"kv_blocks": 40, "max_model_len": 512}


def debugged(**changes: object) -> Debugger:
    workload = {"requests": 60, "rate_per_s": 40, "clients": [CAMERA, CHAT]}
    return Debugger(blis_tui.load("quickstart", set={"workload": workload, "expect": [], **changes}))


@pytest.fixture(scope="module")
def whole() -> Debugger:
    debugger = debugged()
    run_to_stop(debugger.run())
    return debugger


@pytest.fixture(scope="module")
def rows(whole: Debugger) -> list[RequestRow]:
    return [*whole.simulation.report().rows]


def pane(debugger: Debugger, name: str, event: int | None = None) -> str:
    at = len(debugger.tape) if event is None else event
    return text_of(inspector_lines(view_at(debugger, at, request=name), 100, {}))


def told(debugger: Debugger, name: str, heading: str) -> str:
    parts = [part for part in explain_request(debugger, name).parts if part.heading.startswith(heading)]
    return " ".join(sentence_text(sentence) for part in parts for sentence in part.sentences)


def sentences(debugger: Debugger, event: int) -> list[str]:
    return [sentence_text(sentence) for part in explain_event(debugger, event).parts for sentence in part.sentences]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"engine": SMALL, "workload.rate_per_s": 400},
        {"engine": SMALL, "policy": "vllm-v1"},
        {"policy": "blis", "engine": {"max_model_len": 512, "speculative": {"draft_tokens": 3, "acceptance": 0.6}}},
        {"engine": {"pipeline_parallel": 2}, "policy": "llm-serving-sim"},
    ],
)
def test_records_say_when_answers_begin(changes: dict[str, object]) -> None:
    simulation = debugged(**changes).simulation
    seen: list[Record] = []
    simulation.subscribe("all", seen.append)
    simulation.run()
    rows = {row.request_id: row for row in simulation.report().rows}
    latest = {record.request_id: record for record in seen if isinstance(record, AnswerBegun)}
    assert {name for name, row in rows.items() if row.reasoning_tokens and row.ttfat_us is not None} == latest.keys()
    assert len(latest) > 10
    for name, answer_begun in latest.items():
        row = rows[name]
        told_of = (row.first_answer_us, row.ttfat_us, row.reasoning_tokens)
        assert (answer_begun.first_answer_us, answer_begun.ttfat_us, answer_begun.reasoning_tokens) == told_of


def test_nobody_is_told_where_nobody_reasons() -> None:
    simulation = blis_tui.Simulation(blis_tui.load("quickstart"))
    kinds: Counter[str] = Counter()
    simulation.subscribe("all", lambda record: kinds.update([record.kind]))
    simulation.run()
    assert not kinds.keys() & {"answer-begun", "prompt-media"}


def test_a_breakpoint_stops_where_the_first_answer_begins(rows: list[RequestRow]) -> None:
    debugger = debugged()
    run_to_stop(debugger.run(Watch([parse_breakpoint("first answer-begun", debugger.experiment)])))
    begun = [record for record in debugger.records_of(debugger.event) if isinstance(record, AnswerBegun)]
    assert begun
    first_us = min(row.first_answer_us for row in rows if row.reasoning_tokens and row.first_answer_us is not None)
    assert begun[0].first_answer_us == first_us


def test_the_pane_and_the_explanation_say_how_long_it_reasoned(whole: Debugger, rows: list[RequestRow]) -> None:
    reasoned = [row for row in rows if row.reasoning_tokens and row.ttfat_us is not None]
    for row in reasoned[:3]:
        assert row.ttfat_us is not None
        assert row.first_answer_us is not None
        assert row.first_token_us is not None
        answer = row.output_tokens - row.reasoning_tokens
        text = pane(whole, row.request_id)
        tokens = f"reasoned {row.reasoning_tokens} token{'s' * (row.reasoning_tokens != 1)}"
        assert tokens in text
        assert f"answer {answer} token{'s' * (answer != 1)}" in text
        assert f"time to first answer token {span_text(row.ttfat_us)}" in text
        headings = [part.heading for part in explain_request(whole, row.request_id).parts]
        assert headings.count(f"Time to first answer token: {span_text(row.ttfat_us)}") == 1
        why = told(whole, row.request_id, "Reasoning")
        assert f"Its answer began {span_text(row.ttfat_us)} after it was sent" in why
        thinking = span_text(row.first_answer_us - row.first_token_us)
        assert f"It had reasoned for {thinking} since its first token." in why
        assert f"{answer} of its {row.output_tokens} output token" in why
    plain = next(row for row in rows if not row.reasoning_tokens)
    assert "answer" not in pane(whole, plain.request_id)
    assert not told(whole, plain.request_id, "Reasoning")


def test_media_are_shown_by_their_kind(whole: Debugger, rows: list[RequestRow]) -> None:
    arrivals = {
        record.request_id: record
        for event in range(1, len(whole.tape) + 1)
        if whole.tape.kind(event) == "arrived"
        for record in whole.records_of(event)
        if isinstance(record, PromptMedia)
    }
    assert arrivals.keys() == {row.request_id for row in rows if row.image_tokens or row.audio_tokens}
    for row in [row for row in rows if row.image_tokens and row.audio_tokens][:3]:
        by_kind = f"{row.image_tokens} image tokens, {row.audio_tokens} audio tokens"
        assert f"media {by_kind}" in pane(whole, row.request_id)
        assert by_kind in told(whole, row.request_id, "Media")
    assert not told(whole, next(row.request_id for row in rows if row.request_id not in arrivals), "Media")


def test_an_event_tells_of_the_media_and_the_answers_in_it(whole: Debugger, rows: list[RequestRow]) -> None:
    for row in rows:
        arrival = " ".join(sentences(whole, whole.tape.first_event_of(row.request_id)))
        assert (f"Of its prompt, {row.image_tokens} image tokens" in arrival) == (row.image_tokens > 0)
    told = 0
    for event in range(1, len(whole.tape) + 1):
        begun = [record.request_id for record in whole.records_of(event) if isinstance(record, AnswerBegun)]
        said_so = [sentence for sentence in sentences(whole, event) if sentence.startswith("First token of the answer")]
        assert len(said_so) == bool(begun)
        assert all(name in said_so[0] for name in begun[:5])
        told += len(begun)
    assert told == sum(row.first_answer_us is not None and row.reasoning_tokens > 0 for row in rows)


def test_while_it_reasons_it_is_said_how_far_it_is(rows: list[RequestRow]) -> None:
    row = max(rows, key=lambda row: row.reasoning_tokens)
    debugger = debugged()
    run_to_stop(debugger.run())
    answer = next(
        event
        for event in range(1, len(debugger.tape) + 1)
        if any(
            isinstance(record, AnswerBegun) and record.request_id == row.request_id
            for record in debugger.records_of(event)
        )
    )
    run_to_stop(debugger.seek(answer - 1))
    live = debugger.request(row.request_id)
    assert live is not None
    done = live.generated_tokens
    assert 0 < done <= row.reasoning_tokens == live.reasoning_tokens
    assert f"reasoning {done} of {row.reasoning_tokens}" in pane(debugger, row.request_id, answer - 1)
    why = told(debugger, row.request_id, "Reasoning")
    assert f"It has {done} of the {row.reasoning_tokens} reasoning tokens" in why
