"""What if a request went elsewhere: the answer against the tables of two runs, and the ways to it and back."""

from __future__ import annotations

import asyncio
from functools import cache
from typing import TYPE_CHECKING

import pytest

import blis_tui
from blis_tui.engine.records import Routed
from blis_tui.runs.reroute import ask_whatif
from blis_tui.tui.panes.router import decision_of
from blis_tui.tui.screens import compare as compare_screen
from blis_tui.tui.screens.compare import CompareScreen
from blis_tui.tui.screens.debugger import DebuggerScreen
from blis_tui.tui.screens.whatif import WhatIfScreen, whatif_lines
from tests.cluster.fleets import fleet
from tests.tui.debugging import NARROW, Debugging, debugging
from tests.tui.pane_harness import text_of
from tests.tui.screens import draw, idle, screen_text

if TYPE_CHECKING:
    from blis_tui.results.request_log import RequestRow
    from blis_tui.runs.reroute import WhatIf

AT = "1781"
"""A routing decision of WEIGHTED."""
REQUEST = "request_100"
REQUESTS = 120


@cache
def found(instance: int) -> WhatIf:
    return blis_tui.whatif(fleet("WEIGHTED", REQUESTS), REQUEST, instance)


@cache
def rows(instance: int | None) -> dict[str, RequestRow]:
    """The table of the run, perhaps with the request on another instance."""
    routes = {} if instance is None else {REQUEST: instance}
    simulation = blis_tui.Simulation(fleet("WEIGHTED", REQUESTS), routes=routes)
    simulation.run()
    return {row.request_id: row for row in simulation.report().rows}


def shown(us: int) -> str:
    return f"{us / 1000:+,.3f} ms"


@pytest.mark.parametrize("instance", [0, 8])
def test_the_answer_is_the_difference_of_two_tables(instance: int) -> None:
    before, after = rows(None), rows(instance)
    text = text_of(whatif_lines(found(instance), 100))
    request, other = before[REQUEST], after[REQUEST]
    for name, was, became in (
        ("time to first token", request.ttft_us, other.ttft_us),
        ("end to end", request.e2e_us, other.e2e_us),
    ):
        assert was is not None
        assert became is not None
        line = next(line for line in text.splitlines() if line.startswith(name))
        change = shown(became - was) if became != was else "="
        assert line.split("  ")[-1].strip() == change
        assert f"{was / 1000:,.3f} ms" in line
        assert f"{became / 1000:,.3f} ms" in line
    others = [(before[name], after[name]) for name in before if name != REQUEST]
    assert f"{sum(a != b for a, b in others)} of {len(others)} other requests changed" in text
    assert f"on another instance {sum(a.instance != b.instance for a, b in others)}" in text
    changes = [b.e2e_us - a.e2e_us for a, b in others if a.e2e_us is not None and b.e2e_us is not None]
    assert f"slower end to end {sum(change > 0 for change in changes)}" in text
    assert f"faster {sum(change < 0 for change in changes)}" in text
    assert shown(sum(changes)) in text
    assert shown(max(changes)) in text
    assert shown(min(changes)) in text


def test_nothing_changes_where_the_router_chose_it_anyway() -> None:
    chosen = found(8).chosen
    assert "chose instance" in text_of(whatif_lines(found(chosen), 60))


@pytest.mark.parametrize("width", [50, 74, 100])
def test_no_line_is_wider_than_the_window(width: int) -> None:
    for line in whatif_lines(found(8), width):
        assert line.draw().cell_length <= width, line.draw().plain


def test_asking_can_be_given_up() -> None:
    asking = ask_whatif(fleet("WEIGHTED", REQUESTS), REQUEST, 8)
    next(asking)
    asking.close()


async def at_the_decision(here: Debugging) -> int:
    """Point at the second candidate; returns its index."""
    await here.press("R", "down", "down")
    decision = decision_of(here.session.view())
    assert decision is not None
    assert decision.request_id == REQUEST
    return decision.top[1].instance


async def test_the_candidate_pointed_at_and_the_way_to_both_runs_and_back(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_AT_ONCE_S", "_SLICE_S"):
        monkeypatch.setattr(compare_screen, name, 1e9)
    async with debugging("WEIGHTED", at=AT, requests=REQUESTS, at_once=True) as here:
        instance = await at_the_decision(here)
        await here.press("i")
        window = here.app.screen
        assert isinstance(window, WhatIfScreen)
        assert f"What if {REQUEST} went to instance {instance} instead of" in screen_text(here.app)
        change = rows(instance)[REQUEST].e2e_us
        assert change is not None
        assert f"{change / 1000:,.3f} ms" in screen_text(here.app)
        await here.press("enter")
        compare = here.app.screen
        assert isinstance(compare, CompareScreen)
        while compare.busy:
            await idle()
            await asyncio.sleep(0.005)
        await here.idle()
        assert [side.event for side in compare.lockstep.sides] == [int(AT)] * 2
        routed = [
            next(record for record in side.records_of(int(AT)) if isinstance(record, Routed))
            for side in compare.lockstep.sides
        ]
        assert [one.instance for one in routed] == [found(instance).chosen, instance]
        assert "first at event 1,781" in screen_text(here.app)
        await here.press("tab", "enter")  # the other side, in the debugger
        other = here.app.screen
        assert isinstance(other, DebuggerScreen)
        assert other.session.debugger.routes == {REQUEST: blis_tui.Reroute(instance, int(AT))}
        await here.pilot.press("i")
        assert here.app.screen is other
        assert "already been changed" in here.said()
        await here.press("q", "q", "escape")
        assert here.on_top


async def test_any_other_instance_can_be_named() -> None:
    async with debugging("WEIGHTED", at=AT, requests=REQUESTS, size=NARROW, at_once=True) as here:
        await here.press("i")
        await here.type("x")
        assert not here.on_top
        assert "x is no instance" in screen_text(here.app)
        await here.press("backspace")
        await here.type("11")
        assert isinstance(here.app.screen, WhatIfScreen)
        assert f"What if {REQUEST} went to instance 11 instead of" in screen_text(here.app)
        await here.press("y")
        assert here.app.clipboard.startswith(f"what if  {REQUEST} on instance 11 instead of")
        await here.press("q", "i")
        await here.press("enter")
        assert "Nothing is entered: try" in screen_text(here.app)
        await here.type("99")
        assert "there is no instance 99" in screen_text(here.app)
        assert "the cluster has 12 instances: 0 to 11" in screen_text(here.app)
        await here.press("backspace", "backspace")
        await here.type(str(found(0).chosen))
        assert f"{REQUEST} went there already: name another one." in screen_text(here.app)
        await here.press("backspace", "backspace")
        await here.type("11")
        assert f"What if {REQUEST} went to instance 11 instead of" in screen_text(here.app)
        await here.press("escape")
        assert here.on_top


async def test_without_a_decision_there_is_nothing_to_ask() -> None:
    async with debugging("WEIGHTED", at="1", requests=None) as here:
        await here.press("i")
        assert "No request has been routed yet." in here.said()
    async with debugging(at="100") as here:
        await here.press("i")
        assert here.on_top


async def test_closing_the_window_ends_the_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def slowly(*question: object):  # type: ignore[no-untyped-def]
        asked.append(question)
        while True:
            yield

    monkeypatch.setattr("blis_tui.tui.screens.whatif.ask_whatif", slowly)
    async with debugging("WEIGHTED", at=AT, requests=REQUESTS, at_once=True) as here:
        await at_the_decision(here)
        await here.pilot.press("i")
        while not asked:
            await here.pilot.pause()
        await draw(here.pilot)
        assert isinstance(here.app.screen, WhatIfScreen)
        assert "Replaying the run" in screen_text(here.app)
        await here.press("escape")
        assert here.on_top
