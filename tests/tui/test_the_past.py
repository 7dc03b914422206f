"""No pane shows the future as the past: what it says does not depend on how much of the run is known.

What is known and lies later may be shown, but marked so; it is taken out before panes are compared.
"""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import cycle
from typing import TYPE_CHECKING

import pytest

import blis_tui
from blis_tui.debugger.debugger import Debugger
from blis_tui.debugger.history import run_to_stop
from blis_tui.debugger.state import LAST_PHASE, live
from blis_tui.debugger.why.breakdown import decode_lines, wait_lines
from blis_tui.debugger.why.explain import explain_event, explain_request
from blis_tui.debugger.why.lifespans import read_life
from blis_tui.debugger.why.ranking import ORDERS
from blis_tui.tui.drawing.series import SERIES, value_text
from blis_tui.tui.panes.changes import diff_lines
from blis_tui.tui.panes.events import event_line
from blis_tui.tui.panes.instances import instances_lines
from blis_tui.tui.panes.kv import kv_map
from blis_tui.tui.panes.metrics import arrange, percentile_lines, strip_line
from blis_tui.tui.panes.request import inspector_lines, ranking_lines
from tests.tui.pane_harness import ranking_of, text_of, view_at

if TYPE_CHECKING:
    from collections.abc import Iterator

    from blis_tui.tui.drawing.lines import Line
    from blis_tui.tui.view import View

WIDTH = 100
PLACES = 1


def _said(made: Debugger, names: list[str], order: str) -> Iterator[str]:
    """Everything that the panes say of the present position, the requests in one of their orders."""
    view = view_at(made)
    moment = view.moment
    assert moment.phase == made.phase
    yield text_of(instances_lines(view, WIDTH))
    yield text_of(kv_map(view, WIDTH, 20))
    yield text_of(diff_lines(moment, WIDTH, playing=False))
    ranked = replace(view, selection=replace(view.selection, order=order))
    yield text_of(ranking_lines(ranked, ranking_of(ranked), WIDTH))
    yield "\n".join(percentile_line.plain for percentile_line in percentile_lines(view.latencies(), WIDTH))
    yield "\n".join(f"{series.name} {value_text(series, series.now(view), view)}" for series in SERIES)
    yield "\n".join(_figures(view))
    if moment.event:
        yield repr(event_line(made.tape, moment.event, moment.phase))
        yield explain_event(made, moment.event).to_text()
    for name in names:
        yield explain_request(made, name).to_text()
        yield _past_of_the_inspector(view, name)


def _figures(view: View) -> Iterator[str]:
    """The figures beside the strips; the strips themselves are as long as what is known."""
    places = arrange(120, 40, 0, large=False)
    for series in SERIES:
        yield strip_line(view, series, places, chosen=False, focused=False).plain[-22:]


def _past_of_the_inspector(view: View, name: str) -> str:
    life = read_life(view.tape, name, view.moment.event, view.moment.settled)
    assert life is not None
    notes = {**wait_lines(view.tape, life), **decode_lines(view.tape, life)}
    selected = replace(view, selection=replace(view.selection, request=name))
    lines = inspector_lines(selected, WIDTH, notes)
    texts = [line.draw().plain.rstrip() for line in lines]
    heading = next((at for at, text in enumerate(texts) if text.startswith("Life")), len(lines))
    # Then come the bar and its marks, as long as what is known, a blank line, and the list.
    listed = len(lines) - texts[::-1].index("") if heading < len(lines) else heading
    past = [text for line, text in zip(lines[listed:], texts[listed:], strict=True) if not _is_later(line)]
    return "\n".join([*texts[:heading], *past])


def _is_later(line: Line) -> bool:
    return any("dim" in str(span.style) for span in line.draw().spans)


@pytest.mark.parametrize(
    "name",
    [
        *("kv-pressure", "vllm-preemption", "shared-prefixes", "unfair-tenants"),
        *(pytest.param(name, marks=pytest.mark.nightly) for name in ("chunked-prefill", "quickstart")),
    ],
)
def test_what_is_later_changes_nothing_of_what_is_past(name: str) -> None:
    experiment = blis_tui.load(name)
    known = Debugger(experiment)
    run_to_stop(known.run(until=2500))
    fresh = Debugger(experiment)
    places = random.Random(name)  # noqa: S311
    events = sorted(places.sample(range(1, min(known.frontier, 1500)), PLACES))
    orders = cycle(ORDERS)
    steps = [known.tape.next_step(event) for event in events]
    for event in sorted({*events, *steps, *(step + 1 for step in steps)}):
        for made in (known, fresh):
            run_to_stop(made.seek(event - 1))
            made.step_phase()
        while True:
            assert fresh.frontier == event
            alive = [request.request_id for request in live(fresh.moment().state)]
            # Each experiment is looked at in dozens of phases: each time in another order, and other requests.
            names, order = places.sample(alive, min(len(alive), 2)), next(orders)
            for now, then in zip(_said(fresh, names, order), _said(known, names, order), strict=True):
                assert now == then, (event, fresh.phase)
            if fresh.phase is None or fresh.phase == LAST_PHASE:
                break
            fresh.step_phase()
            known.step_phase()
