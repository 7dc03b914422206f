"""What the debugger knows at every event of many runs, as recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING

import blis_tui
from blis_tui.debugger.debugger import Debugger
from blis_tui.debugger.history import run_to_stop
from blis_tui.debugger.state import differences
from blis_tui.debugger.why.explain import explain_event, explain_request
from tests.recorded import SHIPPED, Digests

if TYPE_CHECKING:
    from pytest_regressions.file_regression import FileRegressionFixture

_PLACES = 2
"""Events of each run at which everything is asked."""


def _take(digests: Digests, debugger: Debugger) -> None:
    names = debugger.tape.names()
    for event in range(1, debugger.frontier + 1):
        digests.add("events", debugger.tape.row(event), *debugger.records_of(event))
    for place in range(1, _PLACES + 1):
        event = debugger.frontier * place // _PLACES
        run_to_stop(debugger.seek(event))
        digests.add("event explained", explain_event(debugger, event).to_text())
        for name in names[place % 3 :: 9]:
            digests.add("request explained", explain_request(debugger, name).to_text())
        digests.add("differences", *differences(debugger.moment()))
        digests.add("buckets", debugger.tape.between(max(1, event - 50), event))


def test_shipped_experiments(file_regression: FileRegressionFixture) -> None:
    digests = Digests()
    for name in SHIPPED[::2]:
        debugger = Debugger(blis_tui.load(name, set={"workload.requests": 18, "expect": []}))
        run_to_stop(debugger.run())
        _take(digests, debugger)
        digests.add("ways", *(move(debugger) for move in (back, forth)))
    digests.check(file_regression)


def back(debugger: Debugger) -> tuple[int, ...]:
    """Where going back by phase and by batch leads."""
    found = []
    for _ in range(6):
        run_to_stop(debugger.back_phase())
        found.append(debugger.event)
        run_to_stop(debugger.back_batch())
        found.append(debugger.event)
    return tuple(found)


def forth(debugger: Debugger) -> tuple[int, ...]:
    """Where going on by phase, by batch and by event leads."""
    found = []
    for _ in range(3):
        debugger.step_phase()
        found.append(debugger.event)
        run_to_stop(debugger.finish_batch())
        found.append(debugger.event)
        debugger.step()
        found.append(debugger.event)
    return tuple(found)
