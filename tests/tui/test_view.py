"""What is computed for a view at a pace that leaves time for keys."""

from __future__ import annotations

from time import perf_counter
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from blis_tui.tui import view as view_module
from blis_tui.tui.view import InTime
from tests.tui.pane_harness import debugger, view_at

if TYPE_CHECKING:
    from collections.abc import Callable

    from textual.timer import Timer

    from blis_tui.debugger.debugger import Debugger
    from blis_tui.tui.view import View


@pytest.fixture(scope="module")
def made() -> Debugger:
    return debugger("quickstart", 200)


class Pauses:
    """Stands in for the clock: what was to be called in a pause, unless it was stopped."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], None]] = []
        self.shown = 0

    def later(self, _seconds: float, call: Callable[[], None]) -> Timer:
        self.waiting.append(call)
        return cast("Timer", SimpleNamespace(stop=self.waiting.clear))

    def show(self) -> None:
        self.shown += 1

    def end(self) -> None:
        for call in self.waiting:
            call()
        self.waiting.clear()


def follow(result: InTime[View, int], view: View) -> None:
    result.follow(view, view.place, running=view.playing)


def test_what_is_cheap_is_computed_at_once_and_once_for_a_position(made: Debugger) -> None:
    seen: list[int] = []

    def compute(view: View) -> int:
        seen.append(view.moment.event)
        return view.moment.event

    pauses = Pauses()
    result = InTime(compute, pauses.later, pauses.show)
    for event in (100, 100, 200):
        follow(result, view_at(made, event))
    assert seen == [100, 200]
    assert (result.value, pauses.waiting, pauses.shown) == (200, [], 0)


def test_what_takes_long_waits_for_a_pause(made: Debugger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view_module, "_CHEAP_S", 0.03)
    pauses = Pauses()
    result: InTime[View, int] = InTime(lambda view: view.moment.event, pauses.later, pauses.show)
    follow(result, view_at(made, 100))
    result.took_s = 1e10
    follow(result, view_at(made, 150))
    follow(result, view_at(made, 100))  # the result is that of this position
    assert (result.value, result.pause, pauses.waiting) == (100, None, [])
    follow(result, view_at(made, 150))
    follow(result, view_at(made, 200))
    assert (result.value, len(pauses.waiting)) == (100, 1)
    pauses.end()
    assert (result.value, pauses.shown) == (200, 1)


def test_while_playing_it_is_computed_now_and_then(made: Debugger) -> None:
    pauses = Pauses()
    result: InTime[View, int] = InTime(lambda view: view.moment.event, pauses.later, pauses.show)
    follow(result, view_at(made, 100, playing=True))
    result.done_s = perf_counter() + 60  # it has just looked
    follow(result, view_at(made, 200, playing=True))
    assert result.value == 100
    follow(result, view_at(made))
    assert result.value == 200
