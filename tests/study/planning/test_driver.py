"""Searches that get their runs from a runner that fails."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from blis_tui.base.errors import SimulationError
from blis_tui.study.planning.driver import Driver, Run
from blis_tui.study.runners import InProcessRunner
from blis_tui.study.store import MemoryStore
from tests.study.studies import study_of

if TYPE_CHECKING:
    from collections.abc import Generator

    from blis_tui.study.study_rows import Row
    from blis_tui.study.task import Outcome, Task


class GivesUp(InProcessRunner):
    """It takes a task, and cannot make it."""

    def collect(self, *, block: bool) -> list[tuple[Task, Outcome]]:
        if not block:
            return []
        raise SimulationError("no more runs")


def search(wanted: list[Run]) -> Generator[list[Run], list[Row], list[Row]]:
    return (yield wanted)


def test_what_is_under_way_is_cancelled_when_a_search_fails() -> None:
    study = study_of({"cluster.instances": [1]})
    runs = [Run(point=study.points[0], values={}, seed=1)]
    runner = GivesUp()
    with pytest.raises(SimulationError, match="no more runs"):
        Driver(study, MemoryStore()).answer([search(runs)], runner)
    assert not runner.busy
    [rows] = Driver(study, MemoryStore()).answer([search(runs)], InProcessRunner())
    assert [row.status for row in rows] == ["done"]
