"""Arrivals by client and tenant below the time line, against the requests' rows."""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import TYPE_CHECKING

import pytest

import blis_tui
from blis_tui.debugger.debugger import Debugger
from blis_tui.debugger.history import run_to_stop
from blis_tui.tui.panes.timeline import LABEL, Timeline, arrival_lines, counts, groupings, row_text, rows_of, scale_of
from tests.tui.debugging import debugging
from tests.tui.driven_pane import driven
from tests.tui.pane_harness import view_at
from tests.tui.screens import screen_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.results.request_log import RequestRow
    from blis_tui.tui.view import View

WIDTH = 80
TENANTS = ("red", "blue", "red", "", "green")
"""Of the clients, which are told in the requests' rows by their prefix groups."""


@cache
def whole() -> Debugger:
    """Twenty clients, known to the end."""
    clients = [
        {
            "id": f"client-{number}",
            "share": 1 + number % 3,
            "input_tokens": 50,
            "output_tokens": 5,
            "prefix": {"group": f"client-{number}", "tokens": 10},
            "tenant": TENANTS[number % 5],
        }
        for number in range(20)
    ]
    workload = {"requests": 300, "rate_per_s": 40.0, "clients": clients}
    made = Debugger(blis_tui.load("quickstart", set={"workload": workload, "expect": []}))
    run_to_stop(made.seek(10**9))
    return made


@cache
def rows() -> Sequence[RequestRow]:
    simulation = blis_tui.Simulation(whole().experiment)
    simulation.run()
    return list(simulation.report().rows)


def view(parts: int) -> View:
    return view_at(whole(), parts * whole().frontier // 1000)


@pytest.mark.parametrize("parts", [1000, 3, 500, 250])
@pytest.mark.parametrize(("by", "height"), [("client", 24), ("client", 90), ("tenant", 16)])
def test_every_row_counts_the_requests_of_its_own(by: str, height: int, parts: int) -> None:
    here = view(parts)
    scale = scale_of(here, WIDTH - LABEL)
    event, position = here.moment.event, scale.cell(here.moment.time_us)
    number = {row.request_id: at for at, row in enumerate(rows())}
    past = {name for name in number if here.tape.first_event_of(name) <= event}
    seen: Counter[str] = Counter()
    for row in rows_of(here, by, height):
        seen.update(row.names)
        mine = [
            request
            for request in rows()
            if (request.prefix_group if by == "client" else request.tenant_id) in row.names
        ]
        expected = Counter(scale.cell(request.arrival_us) for request in mine)
        expected[position] = len(
            [request for request in mine if scale.cell(request.arrival_us) == position and request.request_id in past]
        )
        assert counts(here, by, row, scale) == [expected[cell] for cell in range(scale.cells)]
        total = len([request for request in mine if request.request_id in past])
        assert any(
            text.plain[:LABEL].split()[-1] == str(total) and text.plain[1:].startswith(row.label[:3])
            for text in arrival_lines(here, by, WIDTH, height)[1:]
        )
        text = row_text(here, by, row, scale, position)
        assert f"{expected[position]} arrival" in text
        assert f" {total} up to" in text
    assert sorted(seen) == sorted({f"client-{n}" for n in range(20)} if by == "client" else {"red", "blue", "green"})
    assert set(seen.values()) == {1}


def test_where_there_is_no_room_for_all_the_largest_are_shown() -> None:
    here = view(1000)
    *own, others = rows_of(here, "client", 24)
    assert len(own) == 3
    assert others.label == f"{len(others.names)} more" == "17 more"
    sent = Counter(row.prefix_group for row in rows())
    assert min(sent[row.label] for row in own) >= max(sent[name] for name in others.names)
    assert [row.label for row in rows_of(here, "client", 90)] == [f"client-{number}" for number in range(20)]


@pytest.mark.parametrize(("width", "height"), [(60, 16), (80, 24), (140, 40), (200, 60)])
def test_lines_fit_the_screen(width: int, height: int) -> None:
    for by in ("client", "tenant"):
        lines = arrival_lines(view(500), by, width, height)
        assert 2 < len(lines) <= 1 + max(height // 3, 2)
        assert all(line.cell_length <= width for line in lines)
        assert len({line.cell_length for line in lines[1:]}) == 1


def test_what_is_not_known_yet_is_blank() -> None:
    made = Debugger(whole().experiment)
    run_to_stop(made.seek(200))
    here = view_at(made)
    scale = scale_of(here, WIDTH - LABEL)
    for row in rows_of(here, "client", 24):
        found = counts(here, "client", row, scale)
        assert found[-1] is None
        assert "not simulated yet" in row_text(here, "client", row, scale, scale.cells - 1)


def test_one_client_without_a_tenant_is_no_grouping() -> None:
    assert groupings(view(1000)) == ("client", "tenant")
    assert groupings(view_at(Debugger(blis_tui.load("kv-pressure")), 0)) == ()


async def test_a_key_shows_them_by_the_next_grouping() -> None:
    async with debugging("kv-tiers", requests=40, at="100", at_once=True) as here:
        line = here.screen.query_one(Timeline)
        await here.press("a")
        assert (line.grouping, line.size.height) == ("client", 12)
        assert "by client, up to here" in screen_text(here.app)
        await here.press("a")
        assert (line.grouping, line.size.height) == ("", 3)
    async with debugging("kv-pressure", requests=10, at_once=True) as here:
        await here.press("a")
        assert "All requests come from the same client" in here.said()


async def test_the_mouse_tells_of_the_row_below_it() -> None:
    pane = Timeline()
    async with driven(pane, whole(), size=(80, 24)) as (app, pilot):
        assert pane.turn()
        await pilot.pause()
        (first, *_) = rows_of(app.shown, "client", 24)
        await pilot.hover(offset=(LABEL + 21, 5))
        await pilot.pause()
        scale = scale_of(app.shown, pane.content_size.width - LABEL)
        assert pane.tooltip == row_text(app.shown, "client", first, scale, 20)
