"""The window that answers "why?": what it shows, and how one gets about in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from textual.app import App
from textual.containers import VerticalScroll
from textual.widgets import Static

from blis_tui.debugger.debugger import Debugger
from blis_tui.debugger.history import run_to_stop
from blis_tui.debugger.why.explain import explain_event, explain_request
from blis_tui.debugger.why.explanation import Explanation, ExplanationRow, Part, Subject, event_ref, request_ref, say
from blis_tui.tui.drawing.why import explanation_page
from blis_tui.tui.screens.why import WhyScreen
from blis_tui.tui.settings import DARK
from tests.debugger.pressed_runs import refs
from tests.nightly import every
from tests.tui.debugging import NARROW, NORMAL, debugging, experiment
from tests.tui.screens import check_screen, press, screen_text, settle

if TYPE_CHECKING:
    from pytest_regressions.file_regression import FileRegressionFixture

SIMPLE = Explanation(
    request_ref("request_1"),
    "request_1",
    "It waited, and that took long.",
    (
        Part("Sentences", (say("It stands behind ", request_ref("request_2"), " since ", event_ref(1234), "."),)),
        Part(
            "A table",
            (),
            (
                ExplanationRow(
                    "waiting", "1.20 s", "98 %", say("behind ", request_ref("request_2"), " for a very long time")
                ),
                ExplanationRow("batch full (6)", "20.0 ms", "<1 %", say("3 steps"), inner=True),
                ExplanationRow("in all", "1.22 s"),
            ),
        ),
    ),
)


# ---- the text ----


@pytest.mark.parametrize("width", [36, 50, 70, 100])
def test_lines_fit_and_nothing_is_lost(width: int) -> None:
    page = explanation_page(SIMPLE, width)
    assert all(line.cell_length <= width for line in page.lines)
    flat = " ".join(page.content.plain.split())
    for word in SIMPLE.to_text().removeprefix(SIMPLE.title).split():
        assert word in flat


def test_mentions_know_where_they_stand() -> None:
    page = explanation_page(SIMPLE, 30)
    assert [mention.ref.text for mention in page.mentions] == ["request_2", "event 1,234", "request_2"]
    for mention in page.mentions:
        assert mention.ref.text.split()[0] in page.lines[mention.line].plain
    # A mark changes colours only: nothing moves when one goes from mention to mention.
    marked = explanation_page(SIMPLE, 30, 1)
    assert [line.plain for line in marked.lines] == [line.plain for line in page.lines]
    assert marked.content.spans != page.content.spans


def test_tables_are_aligned() -> None:
    lines = [line.plain for line in explanation_page(SIMPLE, 80).lines]
    rows = [line for line in lines if " ms" in line or " s " in line or line.endswith(" s")]
    ends = {
        line.index(figure) + len(figure) for line, figure in zip(rows, ("1.20 s", "20.0 ms", "1.22 s"), strict=True)
    }
    assert len(ends) == 1


# ---- the window ----


class OneWindow(App[None], inherit_bindings=False):
    """The window above an empty screen."""

    CSS_PATH = "../../blis_tui/tui/app.tcss"

    def __init__(self, debugger: Debugger, explanation: Explanation) -> None:
        super().__init__()
        self.register_theme(DARK)
        self.theme = DARK.name
        self.debugger = debugger
        self.first = explanation
        self.results: list[Subject | None] = []

    def on_mount(self) -> None:
        self.push_screen(WhyScreen(self.debugger, self.first), self.results.append)

    @property
    def window(self) -> WhyScreen:
        assert isinstance(self.screen, WhyScreen)
        return self.screen

    @property
    def title_shown(self) -> str:
        return str(self.window.query_one("Vertical").border_title)


@pytest.fixture(scope="module")
def pressed() -> Debugger:
    debugger = Debugger(experiment("kv-pressure"))
    run_to_stop(debugger.run())
    return debugger


@pytest.fixture
def slow(pressed: Debugger) -> Explanation:
    return explain_request(pressed, pressed.tape.slowest(pressed.frontier, 1)[0][0])


@pytest.mark.parametrize("size", [NARROW, NORMAL])
async def test_a_slow_request(
    size: tuple[int, int], pressed: Debugger, slow: Explanation, file_regression: FileRegressionFixture
) -> None:
    app = OneWindow(pressed, slow)
    async with app.run_test(size=size) as pilot:
        await settle(pilot)
        await check_screen(pilot, file_regression, "why-slow-request")


@pytest.mark.parametrize("size", [NARROW, NORMAL])
async def test_a_waiting_request(size: tuple[int, int], file_regression: FileRegressionFixture) -> None:
    debugger = Debugger(experiment("kv-pressure"))
    run_to_stop(debugger.seek(2500))
    waiting = debugger.simulation.snapshot().instances[0].waiting
    app = OneWindow(debugger, explain_request(debugger, waiting[2].request_id))
    async with app.run_test(size=size) as pilot:
        await settle(pilot)
        await check_screen(pilot, file_regression, "why-waiting-request")


async def test_a_step(pressed: Debugger, file_regression: FileRegressionFixture) -> None:
    event = next(
        event
        for event in range(2400, pressed.frontier)
        if pressed.tape.is_step(event) and pressed.tape.step(pressed.tape.row(event).step).preempted
    )
    app = OneWindow(pressed, explain_event(pressed, event))
    async with app.run_test(size=NARROW) as pilot:
        await settle(pilot)
        await check_screen(pilot, file_regression, "why-step")


async def test_following_mentions_and_back(pressed: Debugger, slow: Explanation) -> None:
    app = OneWindow(pressed, slow)
    async with app.run_test(size=NARROW) as pilot:
        await settle(pilot)
        first = app.title_shown
        mentioned = refs(slow)
        await press(pilot, "enter")  # nothing is marked yet
        assert app.title_shown == first
        await press(pilot, "tab", "tab", "shift+tab", "enter")
        assert app.title_shown.startswith(mentioned[0].text)
        await press(pilot, "tab", "right", "left", "enter", "backspace")
        assert app.title_shown.startswith(mentioned[0].text)
        await press(pilot, "backspace")
        assert app.title_shown == first
        await press(pilot, "backspace")  # there is nothing before
        assert app.title_shown == first
        assert app.results == []


async def test_marks_go_round_and_stay_in_sight(pressed: Debugger, slow: Explanation) -> None:
    app = OneWindow(pressed, slow)
    async with app.run_test(size=NARROW) as pilot:
        await settle(pilot)
        scroll = app.window.query_one(VerticalScroll)
        assert scroll.max_scroll_y > 10
        mentions = refs(slow)
        for ref in (*mentions, mentions[0]):
            await press(pilot, "tab")
            assert app.window._chosen_ref() == ref
            assert ref.text.split()[0] in screen_text(app)
        await press(pilot, "shift+tab")
        assert app.window._chosen_ref() == mentions[-1]


async def test_going_there(pressed: Debugger, slow: Explanation) -> None:
    app = OneWindow(pressed, slow)
    async with app.run_test(size=NARROW) as pilot:
        await settle(pilot)
        await press(pilot, "g")
        assert app.results == [slow.about]
    app = OneWindow(pressed, slow)
    async with app.run_test(size=NARROW) as pilot:
        await settle(pilot)
        await press(pilot, "tab", "g")
        assert app.results == [refs(slow)[0]]


@pytest.mark.parametrize("key", ["escape", "q", "question_mark"])
async def test_closing(key: str, pressed: Debugger, slow: Explanation) -> None:
    app = OneWindow(pressed, slow)
    async with app.run_test(size=NARROW) as pilot:
        await settle(pilot)
        await press(pilot, key)
        assert app.results == [None]


async def test_copying(pressed: Debugger, slow: Explanation) -> None:
    app = OneWindow(pressed, slow)
    async with app.run_test(size=NARROW) as pilot:
        await settle(pilot)
        await press(pilot, "y")
        assert app.clipboard == slow.to_text()


async def test_scrolling(pressed: Debugger, slow: Explanation) -> None:
    app = OneWindow(pressed, slow)
    async with app.run_test(size=NARROW) as pilot:
        await settle(pilot)
        scroll = app.window.query_one(VerticalScroll)
        for keys, where in (
            (("down", "down"), 2),
            (("up",), 1),
            (("end",), scroll.max_scroll_y),
            (("home",), 0),
            (("pagedown",), scroll.size.height - 2),
            (("pageup",), 0),
        ):
            await press(pilot, *keys)
            assert scroll.scroll_y == where


async def test_the_mouse(pressed: Debugger, slow: Explanation) -> None:
    app = OneWindow(pressed, slow)
    async with app.run_test(size=NORMAL) as pilot:
        await settle(pilot)
        await press(pilot, "tab")  # that brings it into sight
        target = refs(slow)[0].text
        row, line = next((y, line) for y, line in enumerate(screen_text(app).splitlines()) if target in line)
        await pilot.click(offset=(line.index(target) + 2, row))
        await settle(pilot)
        assert app.title_shown.startswith(target)
        await pilot.click(offset=(2, 2))  # beside the window
        await settle(pilot)
        assert app.results == [None]


async def test_an_instance_has_no_explanation_but_can_be_gone_to() -> None:
    debugger = Debugger(experiment("kv-pressure"))
    run_to_stop(debugger.seek(2500))
    waiting = debugger.simulation.snapshot().instances[0].waiting
    explanation = explain_request(debugger, waiting[1].request_id)
    app = OneWindow(debugger, explanation)
    async with app.run_test(size=NARROW) as pilot:
        await settle(pilot)
        while app.window._chosen_ref() != Subject("instance", "0"):
            await press(pilot, "tab")
        await press(pilot, "enter")
        assert app.results == [Subject("instance", "0")]


async def test_a_narrower_terminal_wraps_again(pressed: Debugger, slow: Explanation) -> None:
    app = OneWindow(pressed, slow)
    async with app.run_test(size=NORMAL) as pilot:
        await settle(pilot)
        wide = screen_text(app)
        await pilot.resize_terminal(62, 20)
        await settle(pilot)
        narrow = screen_text(app)
        assert narrow != wide
        assert "request_94" in narrow


@pytest.mark.parametrize("width", every(4, range(62, 96)))
async def test_no_line_is_wrapped_twice(width: int, pressed: Debugger) -> None:
    """The scrollbar takes room from the text that made it necessary."""
    app = OneWindow(pressed, SIMPLE)
    async with app.run_test(size=(width, 24)) as pilot:
        await settle(pilot)
        await press(pilot, "tab", "enter")
        assert app.title_shown.startswith("request_2:")
        page = app.window._page
        assert page is not None
        width = app.window.query_one(Static).content_size.width
        assert all(line.cell_length <= width for line in page.lines)
        assert app.window.query_one(Static).size.height == len(page.lines)


async def test_from_the_debugger() -> None:
    """`?` explains the selected request; `g` on an event goes there."""
    async with debugging("kv-pressure", requests=None, at="2500") as open_:
        await open_.press("question_mark")
        assert isinstance(open_.app.screen, WhyScreen)
        await open_.press("tab", "g")
        assert open_.on_top
