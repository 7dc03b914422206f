"""A ranking that is read a few lives at a time is the one that is read at once."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

import pytest

import blis_tui
from blis_tui.debugger.debugger import Debugger
from blis_tui.debugger.history import run_to_stop
from blis_tui.debugger.why import ranked_group
from blis_tui.debugger.why.common import common
from blis_tui.debugger.why.ranked_group import RankedGroup, Wanted
from blis_tui.debugger.why.ranking import ORDERS, Position, ranking
from tests.debugger.pressed_runs import finished

if TYPE_CHECKING:
    from collections.abc import Sequence

LIMIT = 7


@pytest.fixture(autouse=True)
def few_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look at the clock is a tick, and five ticks are what is read at once."""
    ticks = count()
    monkeypatch.setattr(ranked_group, "AT_ONCE_S", 5)
    monkeypatch.setattr(ranked_group, "perf_counter", lambda: float(next(ticks)))


def read(group: RankedGroup) -> None:
    """Read everything, as often interrupted as a screen interrupts it."""
    while group.reading:
        for lives, _ in enumerate(group.follow(), 1):
            if lives == 3:
                break
    group.look()


def wanted(debugger: Debugger, order: str, event: int | None = None, marked: Sequence[str] = ()) -> Wanted:
    here = Position(debugger.event, debugger.settled) if event is None else Position(event, event)
    return Wanted(here, order, LIMIT, tuple(marked))


def agrees(debugger: Debugger, group: RankedGroup, want: Wanted) -> None:
    """Compare with what is read anew."""
    group.show(want)
    read(group)
    names = [ranked.name for ranked in group.ranked]
    assert group.ranked == ranking(debugger.tape, want.order, want.here, LIMIT)
    assert group.common == common(debugger.tape, want.marked or names, want.here)


@pytest.mark.parametrize("name", ["kv-pressure", "vllm-preemption", "priority victims"])
def test_it_is_the_ranking_wherever_the_reader_goes(name: str) -> None:
    debugger = finished(name)
    group = RankedGroup(debugger.tape)
    last = debugger.frontier
    for event in (last, last - 1, last // 2, last // 2 + 1, last // 3, 1, last // 2, last, 0):
        for order in ORDERS:
            agrees(debugger, group, wanted(debugger, order, event))


def test_it_follows_a_run_that_goes_on() -> None:
    debugger = Debugger(blis_tui.load("kv-pressure"))
    group = RankedGroup(debugger.tape)
    for _ in range(12):
        run_to_stop(debugger.seek(debugger.event + 400))
        for order in ORDERS:
            agrees(debugger, group, wanted(debugger, order))
        debugger.step_phase()  # in the middle of a step, its results do not count yet
        agrees(debugger, group, wanted(debugger, "ttft"))


def test_what_is_read_is_ranked_meanwhile() -> None:
    debugger = finished("kv-pressure")
    group = RankedGroup(debugger.tape)
    want = wanted(debugger, "ttft", debugger.frontier)
    group.show(want)
    requests = debugger.tape.requests
    assert (group.reading, group.unread, group.common) == (True, requests - 5, ())
    values = {ranked.name: ranked.value for ranked in ranking(debugger.tape, "ttft", want.here)}
    first = debugger.tape.names()[:5]
    assert {ranked.name: ranked.value for ranked in group.ranked} == {name: values[name] for name in first}
    assert not group.look()
    next(iter(group.follow()))
    assert (group.look(), group.unread) == (True, requests - 6)
    assert len(group.ranked) == 6
    group.show(want)
    assert group.unread == requests - 6  # what is wanted already goes on
    read(group)
    assert not group.unread
    assert group.common


def test_marked_requests_are_compared_instead_of_the_first() -> None:
    debugger = finished("kv-pressure")
    marked = debugger.tape.names()[:4]
    agrees(debugger, RankedGroup(debugger.tape), wanted(debugger, "e2e", debugger.frontier, marked))
