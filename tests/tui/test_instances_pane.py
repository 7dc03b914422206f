"""The instances: figures, the phases of a step, queue and batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from blis_tui.base.units import span_text, time_text
from blis_tui.debugger.state import LAST_PHASE, PHASES
from blis_tui.debugger.why.explanation import request_ref
from blis_tui.tui.boxes import RowsBox
from blis_tui.tui.panes.instances import ALL_INSTANCES, PANE, instances_lines, step_card, step_tokens
from tests.tui.pane_harness import OnePane, debugger, text_of, view_at

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.debugger.debugger import Debugger
    from blis_tui.tui.drawing.lines import Line


def rows_of(lines: Sequence[Line]) -> dict[str, list[str]]:
    """The words of the lines about requests, by name."""
    return {line.subject.value: line.draw().plain.split() for line in lines if line.subject is not None}


@pytest.fixture(scope="module")
def pressed() -> Debugger:
    return debugger("kv-pressure", 1300)


@pytest.fixture(scope="module")
def crowded() -> Debugger:
    return debugger("unfair-tenants", 1500, policy="blis", latency="roofline")


@pytest.fixture(scope="module")
def pair() -> Debugger:
    return debugger("quickstart", 800)


def _last_step_of(made: Debugger, name: str) -> int:
    """The step that computes a request's last token."""
    end = made.tape.life(name)[-1].event
    event = end
    while True:
        event = made.tape.next_step(event, back=True)
        step = view_at(made, event).moment.step
        assert step is not None
        if name in step.completed:
            return event


def test_before_complete_the_batch_still_holds_who_ends_in_the_step(pressed: Debugger) -> None:
    event = _last_step_of(pressed, "request_0")
    names = {}
    for phase in range(LAST_PHASE + 1):
        instance = view_at(pressed, event, phase=phase).moment.instance(0)
        names[PHASES[phase]] = [request.request_id for request in instance.running]
        assert instance.running_count == len(instance.running)
    assert names["schedule"] == names["execute"]
    assert names["complete"] == names["next"] == [name for name in names["schedule"] if name != "request_0"]


def test_before_complete_no_token_of_the_step_counts(pressed: Debugger) -> None:
    event = next(h.event for h in pressed.tape.life("request_24") if h.what == "scheduled")
    now = {request.request_id: request for request in view_at(pressed, event, phase=1).moment.instance(0).running}
    then = {
        request.request_id: request for request in view_at(pressed, event, phase=LAST_PHASE).moment.instance(0).running
    }
    assert (now["request_24"].phase, now["request_24"].computed_tokens) == ("prefill", 0)
    assert (then["request_24"].phase, then["request_24"].computed_tokens) == ("decode", 161)
    assert now["request_0"].generated_tokens + 1 == then["request_0"].generated_tokens


def test_who_is_preempted_leaves_the_batch_with_schedule(pressed: Debugger) -> None:
    event = next(h.event for h in pressed.tape.life("request_24") if h.what == "preempted")
    instance = view_at(pressed, event, phase=0).moment.instance(0)
    assert "request_24" not in {request.request_id for request in instance.running}
    assert instance.waiting[0].request_id == "request_24"


@pytest.mark.parametrize("phase", range(LAST_PHASE + 1))
def test_tokens_of_the_batch_add_up_to_those_of_the_step(pressed: Debugger, phase: int) -> None:
    checked = 0
    for event in range(630, 720):
        view = view_at(pressed, event, phase=phase)
        step = view.moment.step
        if step is None or step.completed or step.preempted:
            continue
        tokens = step_tokens(step, view.moment.instance(0))
        assert sum(tokens.values()) == step.decode_requests + sum(chunk.new_tokens for chunk in step.chunks), event
        checked += 1
    assert checked > 20


def test_the_card_marks_the_phase_and_dims_what_follows(pressed: Debugger) -> None:
    step = view_at(pressed, 640).moment.step
    assert step is not None
    lines = step_card(step, 1, 2048, 78)
    assert [line.draw().plain[:11].strip() for line in lines] == ["schedule", "▶ execute", "· complete", "· next"]
    dimmed = [any("dim" in str(span.style) for span in line.draw().spans) for line in lines]
    assert dimmed == [False, False, True, True]
    assert "161 prefill + 17 decode tokens of 2,048" in lines[0].draw().plain


def test_a_long_queue_leaves_room_for_the_batch_and_follows_the_selection(crowded: Debugger) -> None:
    lines = text_of(instances_lines(view_at(crowded), 78, 5))
    assert "○ WAITING 29" in lines
    assert "… and 24 more" in lines
    assert "● RUNNING 63" in lines
    assert "request_170" not in lines
    selected = text_of(instances_lines(view_at(crowded, request="request_170"), 78, 5))
    assert "request_170" in selected


def test_nobody_there_is_a_sentence(pair: Debugger) -> None:
    text = text_of(instances_lines(view_at(pair, 0, instance=1), 78))
    assert "idle: no request is waiting or running. The next request starts a step." in text


def test_a_request_on_the_way_has_a_line(pair: Debugger) -> None:
    text = text_of(instances_lines(view_at(pair, 1), 78))
    assert "→ 1 request in transit" in text
    assert "request_0" in text


def test_who_was_preempted_waits_since_then(pressed: Debugger) -> None:
    event = next(h.event for h in pressed.tape.life("request_24") if h.what == "preempted")
    waits = {
        line.split()[1]: " ".join(line.split()[2:4])
        for line in text_of(instances_lines(view_at(pressed, event + 1), 78)).splitlines()
        if line.endswith("once")
    }
    passed_us = pressed.tape.time_us(event + 1) - pressed.tape.time_us(event)
    assert waits["request_24"] == span_text(passed_us)


def test_where_steps_are_planned_ahead_a_victim_waits_from_the_end_of_the_step() -> None:
    made = debugger("vllm-preemption", 3000)
    seen = 0
    for name in made.tape.names():
        for entry in made.tape.life(name):
            if entry.what != "preempted" or entry.event + 4 > len(made.tape):
                continue
            end_us = entry.time_us + made.tape.step(made.tape.row(entry.event).step).duration_us
            for event in range(entry.event, entry.event + 4):
                view = view_at(made, event)
                rows = rows_of(instances_lines(view, 100))
                if name not in rows or rows[name][1] != name:
                    break
                assert " ".join(rows[name][2:4]) == span_text(max(view.moment.time_us - end_us, 0))
                seen += view.moment.time_us < end_us
    assert seen


@pytest.fixture(scope="module")
def split() -> Debugger:
    return debugger("disaggregation", 4000)


def test_between_two_instances_a_request_comes_from_one_and_is_queued_anew(split: Debugger) -> None:
    life = split.tape.life("request_111")
    left = next(event.event for event in life if event.what == "transfer-started")
    view = view_at(split, left)
    rows = rows_of(instances_lines(view, 100))
    assert rows["request_111"] == ["request_111", "transfer", "not", "routed", "323"]
    moving = {request.request_id: request for request in view.moment.state.in_transit}
    assert (moving["request_111"].instance, moving["request_111"].generated_tokens) == (None, 1)
    queued = next(event for event in reversed(life) if event.what == "queued")
    assert queued.first == next(event.first for event in life if event.what == "transfer-started") in {2, 3}
    rows = rows_of(instances_lines(view_at(split, queued.event, instance=queued.first), 100))
    assert rows["request_111"][:4] == ["1", "request_111", "0", "us"]


def test_an_instance_whose_last_requests_end_with_the_step_under_way_is_not_idle(split: Debugger) -> None:
    step = next(event for event in split.tape.life("request_112") if event.what == "last-token")
    view = view_at(split, step.event, instance=0)
    text = text_of(instances_lines(view, 120))
    assert f"no request is waiting or running; the step under way ends at {time_text(step.first)}." in text
    later = split.tape.at_time(step.first)
    assert "idle: no request is waiting or running" in text_of(instances_lines(view_at(split, later, instance=0), 120))


@pytest.mark.parametrize("width", [34, 50, 78, 130])
def test_no_line_is_wider_than_the_pane(pressed: Debugger, pair: Debugger, crowded: Debugger, width: int) -> None:
    for made in (pressed, pair, crowded):
        for line in instances_lines(view_at(made), width):
            assert line.draw().cell_length <= width


async def test_the_cursor_picks_requests(pressed: Debugger) -> None:
    pane = RowsBox.of(PANE)
    app = OnePane(pane, view_at(pressed, 640))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("down", "down")
        await pilot.pause()
        assert [message.request for message in app.picked] == ["request_0", "request_3"]
        assert pane.at_cursor() == request_ref("request_3")
        await pilot.press("pagedown")
        await pilot.pause()
        assert app.picked[-1].request == "request_24"


async def test_a_click_picks_a_request(pressed: Debugger) -> None:
    app = OnePane(RowsBox.of(PANE), view_at(pressed, 640))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        await pilot.click(offset=(5, 10))
        await pilot.pause()
        assert [message.request for message in app.picked] == ["request_0"]


async def test_left_and_right_go_round_all_instances(pair: Debugger) -> None:
    pane = RowsBox.of(PANE)
    app = OnePane(pane, view_at(pair, 800))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        for _ in range(3):
            await pilot.press("right")
            await pilot.pause()
        assert [message.instance for message in app.picked] == [0, 1, ALL_INSTANCES]
        await pilot.press("left")
        await pilot.pause()
        assert app.picked[-1].instance == 1
        assert "instance 1" in text_of(instances_lines(app.shown, 76))
