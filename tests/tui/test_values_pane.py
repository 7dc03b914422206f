"""Values printed after the fact: a table that is sorted, filtered, gone through and written."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING

import pytest

from blis_tui.base.errors import InputError
from blis_tui.debugger.traces import Printed, Printout, parse_print, parse_wanted
from blis_tui.engine.records import Preempted
from blis_tui.runs.simulation import Simulation
from tests.tui.debugging import NARROW, debugging, experiment
from tests.tui.screens import check_screen

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_regressions.file_regression import FileRegressionFixture


async def test_a_table_of_values(empty: Path, file_regression: FileRegressionFixture) -> None:
    async with debugging(size=NARROW, at="200", at_once=True) as open_:
        await open_.press("V", "dollar_sign", ":kv.used at preempted")
        printout = open_.session.printout
        assert printout is not None
        assert (open_.event, open_.screen.arrangement.active) == (200, "values")
        stops: list[int] = []
        simulation = Simulation(open_.session.experiment)
        simulation.subscribe(Preempted, lambda one: stops.append(one.event))
        simulation.run()
        assert [row.event for row in printout.rows] == list(dict.fromkeys(stops))
        await open_.press("right", "right", "space")
        values = [row.value for row in printout.rows]
        assert [row.value for row in _shown(open_.session.printout)] == sorted(values, reverse=True)
        await open_.press("slash", ":< 590 request_5")
        assert {row.value < 590 and "request_5" in row.request for row in _shown(open_.session.printout)} == {True}
        await check_screen(open_.pilot, file_regression, "values")
        await open_.press("down", "enter")
        assert open_.event == _shown(open_.session.printout)[0].event
        await open_.press("x")
        await open_.press(*["down"] * 4, "enter")
        assert _written(empty) == [row.event for row in _shown(open_.session.printout)]


def _written(folder: Path) -> list[int]:
    """The events in the file."""
    (file,) = folder.glob("*.values.csv")
    return [int(row["event"]) for row in csv.DictReader(file.read_text(encoding="utf-8").splitlines())]


def _shown(printout: Printout | None) -> list[Printed]:
    assert printout is not None
    return list(printout.shown)


async def test_a_breakpoint_that_is_there_is_offered() -> None:
    async with debugging(size=NARROW, at="20", breaks=("preempted",), at_once=True) as open_:
        await open_.press("dollar_sign", "enter")
        assert open_.session.printout is not None
        assert str(open_.session.printout.wish) == "kv.utilization at preempted"


@pytest.mark.parametrize("text", ["> x", ">", "<= 1.2.3"])
def test_what_is_no_filter_is_explained(text: str) -> None:
    with pytest.raises(InputError):
        parse_wanted(text)


def test_undefined_values_come_last() -> None:
    wish = parse_print("ttft_ms at step", experiment("kv-pressure", 60))
    rows = tuple(Printed(event, 0, value, "") for event, value in ((1, float("nan")), (2, 3.0), (3, 1.0)))
    assert [row.event for row in Printout(wish=wish, rows=rows, order="value").shown] == [3, 2, 1]
