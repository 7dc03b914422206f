"""One request's life."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from blis_tui.base.units import percent_text
from blis_tui.debugger.why import ranked_group
from blis_tui.debugger.why.explanation import request_ref
from blis_tui.debugger.why.lifespans import read_life
from blis_tui.debugger.why.ranking import Position, ranking
from blis_tui.debugger.why.relations import relations
from blis_tui.tui.boxes import RowsBox
from blis_tui.tui.drawing.life_line import life_bar, life_intervals, past_and_later, position_mark, shares, totals
from blis_tui.tui.panes.request import PANE, inspector_lines, subject
from tests.tui.debugging import debugging
from tests.tui.pane_harness import OnePane, debugger, ranking_of, text_of, view_at
from tests.tui.screens import press, settle

if TYPE_CHECKING:
    from blis_tui.debugger.debugger import Debugger
    from blis_tui.tui.screens.debugger import DebuggerScreen
    from blis_tui.tui.view import View


@pytest.fixture(scope="module")
def pressed() -> Debugger:
    return debugger("kv-pressure", 1300)


@pytest.fixture(scope="module")
def chunked() -> Debugger:
    return debugger("chunked-prefill", 2500, policy="blis", latency="roofline")


def _text(view: View, width: int = 78) -> str:
    return text_of(inspector_lines(view, width, {}))


def test_the_stretches_of_a_whole_life_add_up_to_it(pressed: Debugger) -> None:
    checked = 0
    for name in pressed.tape.names():
        life = read_life(pressed.tape, name, 1300)
        assert life is not None
        if life.end is None:
            continue
        parts = life_intervals(life, pressed.tape)
        assert sum(totals(parts).values()) == life.end.time_us - life.arrival_us
        assert all(interval.end_us == other.start_us for interval, other in itertools.pairwise(parts))
        checked += 1
    assert checked > 10


def test_a_ranked_request_was_preempted_as_often_as_its_own_page_says() -> None:
    """Not when its last token was being computed already, as that of request_32 was: it completes all the same."""
    run = debugger("kv-overload", 1500, engine__max_num_seqs=256, engine__max_num_batched_tokens=2048)
    view = view_at(run, 1500)
    assert any(event.what == "preempted" for event in run.tape.life("request_32", 1500))
    rows = text_of(inspector_lines(view, 78, {}, ranking_of(view))).splitlines()
    told = {
        row.split()[0].lstrip("▸"): row.partition("\N{MULTIPLICATION SIGN} ")[2].partition(" ")[0] or "0"
        for row in rows[1:]
        if "_" in row
    }
    assert {"request_26": "1", "request_32": "0", "request_34": "3"}.items() <= told.items()
    for name, count in told.items():
        life = read_life(run.tape, name, 1500)
        assert life is not None
        assert len(life.preemptions) == int(count), name


def test_a_request_leads_to_those_that_it_has_had_to_do_with(pressed: Debugger) -> None:
    view = view_at(pressed, 1300, request="request_43")
    lines = inspector_lines(view, 60, {})
    others = [one.subject for one in lines if one.subject is not None and one.subject.kind == "request"]
    life = read_life(pressed.tape, "request_43", 1300)
    assert life is not None
    expected = [other.request for relation in relations(pressed.tape, life) for other in relation.requests[-5:]]
    assert [other.value for other in others] == expected
    assert expected
    for other in others:
        assert PANE.picks(view, other, go=False) is None
        picked = PANE.picks(view, other, go=True)
        assert picked is not None
        assert picked.request == other.value
        assert PANE.points(view, other) == other
    assert PANE.points(view, None) == request_ref("request_43")


@pytest.mark.parametrize("event", [660, 672, 900])
def test_what_is_known_of_the_future_is_marked(pressed: Debugger, event: int) -> None:
    life = read_life(pressed.tape, "request_24", 1300)
    assert life is not None
    now = read_life(pressed.tape, "request_24", event)
    assert now is not None
    now_us = now.now_us
    parts = past_and_later(now, life, pressed.tape)
    assert sum(part.duration_us for part in parts) == life.spans[-1].end_us - life.arrival_us
    later = [part.later for part in parts]
    assert later == sorted(later)
    assert 0 < sum(later) < len(later)
    assert all(part.start_us >= now_us for part in parts if part.later)


def test_a_life_tells_what_ended_each_stretch(pressed: Debugger) -> None:
    text = _text(view_at(pressed, 1300, request="request_24"), 130)
    assert "✓ completed" in text
    assert "161 tokens  → first token, lost later" in text
    assert "time to first token 211 ms" in text
    assert "the last first token counts; the 2 before were lost to preemption" in text
    assert "→ preempted for request_22, 178 computed tokens lost" in text
    assert "→ scheduled, 32 cached tokens" in text
    assert "→ completed, 394 output tokens" in text
    assert "end to end 1.62 s" in text
    assert "lost work" in text
    assert "(later)" not in text


def test_a_first_token_that_was_taken_back_is_none(pressed: Debugger) -> None:
    taken = _text(view_at(pressed, 662, request="request_24"))
    assert "no first token now: preemption discarded it at event 662" in taken
    assert "time to first token" not in taken
    narrow = _text(view_at(pressed, 662, request="request_24"), 36).splitlines()
    assert max(map(len, narrow)) <= 36
    for event, value in ((660, "7.63 ms"), (1300, "211 ms")):
        text = _text(view_at(pressed, event, request="request_24"))
        assert f"time to first token {value}" in text
        assert "took it back" not in text


def test_chunks_of_a_prefill_are_counted_together(chunked: Debugger) -> None:
    text = _text(view_at(chunked, 2500, request="request_0"))
    assert "9 chunks, 4,463 tokens" in text


def test_a_request_that_comes_later_says_when(pressed: Debugger) -> None:
    text = _text(view_at(pressed, 100, request="request_24"))
    assert "arrives later, at 1.836 663 s (event 636)" in text
    assert "(later)" in text


def test_who_gets_a_last_token_in_the_step_at_hand_does_not_wait(pressed: Debugger) -> None:
    """The instance has let it go already; its end is recorded when the step ends."""
    seen = 0
    for event in range(1, 1300):
        number = pressed.tape.row(event).step
        if number < 0 or not pressed.tape.step(number).completed:
            continue
        view = view_at(pressed, event)
        assert view.moment.step is not None
        for name in view.moment.step.completed:
            text = _text(view_at(pressed, event, request=name))
            assert ("completes when its step ends" in text, "waiting" in text) == (True, False)
            seen += 1
        if seen > 20:
            break
    assert seen > 20


def test_without_a_selection_the_present_event_decides(pressed: Debugger) -> None:
    assert subject(view_at(pressed, 636)) == "request_24"
    assert subject(view_at(pressed, 640)) == "request_24"  # a step that let it in
    assert subject(view_at(pressed, 641)) is None  # a step that only decoded
    assert subject(view_at(pressed, 640, playing=True)) is None
    assert subject(view_at(pressed, 0)) is None
    assert "No request is selected." in _text(view_at(pressed, 0))
    slowest = pressed.tape.slowest(641, 1)[0][0]
    view = view_at(pressed, 641)
    ranked = text_of(inspector_lines(view, 78, {}, ranking_of(view)))
    first = next(row for row in ranked.splitlines() if row.startswith("request_"))
    assert first.split()[0] == slowest
    assert "No request named nobody has arrived" in _text(view_at(pressed, 640, request="nobody"))


def test_a_wait_is_explained_below_it(pressed: Debugger) -> None:
    view = view_at(pressed, 1300, request="request_24")
    queued = next(h.event for h in pressed.tape.life("request_24") if h.what == "queued")
    lines = text_of(inspector_lines(view, 78, {queued: "the step was under way"})).splitlines()
    at = next(number for number, line in enumerate(lines) if "░ queue  " in line and "ms" in line)
    assert lines[at + 1].strip() == "the step was under way"


@pytest.mark.parametrize("sizes", [[1, 1, 1], [0, 5, 1000], [7], [3, 0, 0, 9], [1] * 30])
def test_a_bar_is_exactly_as_wide_as_it_may_be(sizes: list[int]) -> None:
    cells = shares(sizes, 20)
    assert sum(cells) == 20
    assert all(cells) == (len(sizes) <= 20)


def test_the_bar_shows_where_the_position_is(pressed: Debugger) -> None:
    life = read_life(pressed.tape, "request_24", 1300)
    assert life is not None
    now = read_life(pressed.tape, "request_24", 1000)
    parts = past_and_later(now, life, pressed.tape)
    bar, mark = life_bar(parts, 60), position_mark(parts, 60)
    assert bar.cell_length == 60
    assert mark is not None
    assert abs(mark.plain.index("▲") - 60 * (pressed.tape.time_us(1000) - life.arrival_us) // 1_617_006) <= 3
    assert position_mark(life_intervals(life, pressed.tape), 60) is None


async def test_enter_goes_to_where_a_stretch_began(pressed: Debugger) -> None:
    pane = RowsBox.of(PANE)
    app = OnePane(pane, view_at(pressed, 1300, request="request_24"))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("down", "down", "enter")
        await pilot.pause()
        assert [(message.event, message.go) for message in app.picked] == [(639, False), (640, False), (640, True)]
        assert pane.at_cursor() == request_ref("request_24")


def _marks(screen: DebuggerScreen) -> tuple[str, ...]:
    return screen.session.selection.marked


async def test_what_the_marked_have_in_common_is_shown_instead() -> None:
    """Marked by key, several at once; counted from the lives of all requests."""
    async with debugging("kv-pressure", at="end", size=(100, 40)) as open_:
        pilot, screen = open_.pilot, open_.screen
        await press(pilot, "l")
        names = [one.name for one in screen.session.view().ranking().ranked]
        await press(pilot, "space", "down", "shift+down", "shift+down")
        assert _marks(screen) == tuple(names[:4])
        await press(pilot, "space")
        assert _marks(screen) == tuple(names[:3])
        box = screen.query_one("#request", RowsBox)
        text = text_of(box._rows.lines)
        view = screen.session.view()
        lives = [read_life(view.tape, name, view.moment.event) for name in view.tape.names()]
        arrivals = {life.name: life.arrival_us for life in lives if life is not None}
        own = sorted(arrivals[name] for name in names[:3])
        among = sum(own[0] <= us <= own[-1] for us in arrivals.values())
        assert f"{percent_text(among, len(arrivals))} of all" in " ".join(text.split())
        assert "3 of the 3 marked" in " ".join(text.split())
        assert [row.startswith("●") for row in text.splitlines() if "request_" in row][:4] == [True] * 3 + [False]
        await press(pilot, "asterisk", "delete")
        assert _marks(screen) == ()
        assert "marked" not in text_of(box._rows.lines)


async def test_fewer_marked_than_are_compared_say_so() -> None:
    async with debugging("kv-pressure", at="end", size=(100, 40)) as open_:
        pilot, screen = open_.pilot, open_.screen
        await press(pilot, "l", "asterisk")
        box = screen.query_one("#request", RowsBox)
        assert "1 marked: what 3 or more" in text_of(box._rows.lines)
        assert screen.session.view().ranking().common == ()


async def test_space_plays_where_no_ranking_is_shown() -> None:
    async with debugging("kv-pressure", at="request_20", size=(100, 40)) as open_:
        pilot, screen = open_.pilot, open_.screen
        event = screen.session.debugger.event
        await open_.press("3")
        await pilot.press("space")
        assert screen.session.driver.playing or screen.session.debugger.event > event
        assert _marks(screen) == ()


async def test_a_ranking_that_takes_long_is_shown_as_far_as_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until it is known no line is marked, so that no key is about a request that is first by chance."""
    monkeypatch.setattr(ranked_group, "AT_ONCE_S", 0)
    async with debugging("kv-pressure", at="end", size=(100, 40)) as open_:
        screen, box = open_.screen, open_.screen.query_one("#request", RowsBox)
        await press(open_.pilot, "l")
        screen.session.rank()
        screen.show_view()
        requests = screen.session.debugger.tape.requests
        assert f"{requests - 1} requests are still to be read." in text_of(box._rows.lines)
        assert box.at_cursor() is None
        await settle(open_.pilot)
        here = Position(screen.session.debugger.event, screen.session.debugger.settled)
        (first,) = ranking(screen.session.debugger.tape, screen.session.selection.order, here, 1)
        assert "still to be read" not in text_of(box._rows.lines)
        assert box.at_cursor() == request_ref(first.name)
