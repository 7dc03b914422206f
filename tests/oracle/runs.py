"""What both kinds of comparison need."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from hypothesis import HealthCheck, settings

from blis_tui.metrics.request_log import Row
from blis_tui.workload.closed_loop import ClosedLoop, ClosedLoopSettings
from blis_tui.workload.interactive import InteractiveSource

from .instance import Books

if TYPE_CHECKING:
    from blis_tui.engine.request import Request
    from blis_tui.simulation import Simulation
    from blis_tui.workload.sessions import SessionRun

_EXPLORE: Final = int(os.environ.get("BLIS_TUI_ORACLE_EXAMPLES", "0"))


def examples(count: int) -> settings:
    """The same ``count`` examples every time, or the random ones somebody asked for."""
    return settings(
        max_examples=_EXPLORE or count,
        derandomize=not _EXPLORE,
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
    )


class Source:
    """Hands the scenario's requests to a cluster."""

    def __init__(self, requests: list[Request]) -> None:
        self._requests = requests
        self._given = 0

    def next_request(self) -> Request | None:
        if self._given == len(self._requests):
            return None
        self._given += 1
        return self._requests[self._given - 1]

    def state(self) -> tuple[object, ...]:
        return (self._given,)


class Patient:
    """A client in a closed loop whose prompts are the scenario's."""

    def __init__(self, requests: list[Request], users: int) -> None:
        self.gaps = ClosedLoop(ClosedLoopSettings(users=users), 0.0)
        self.sessions = None
        self._requests = requests

    def next_gap_us(self) -> int:
        return 0

    def call(self, index: int, arrival_us: int, session: SessionRun, number: int) -> Request:
        raise AssertionError((index, arrival_us, session, number))

    def request(self, index: int, arrival_us: int, user: int) -> Request:
        assert user >= 0
        request = self._requests[index]
        if request.deadline_us:
            request.deadline_us = max(1, request.deadline_us + arrival_us - request.arrival_us)
        request.arrival_us = arrival_us
        return request

    def state(self) -> tuple[object, ...]:
        return ()


def source_of(requests: list[Request], users: int) -> Source | InteractiveSource:
    """The requests at their times, or from so many users who wait for their answers."""
    return InteractiveSource([Patient(requests, users)], len(requests)) if users else Source(requests)


def books(row: Row) -> Books:
    """The ledger's row in the oracle's words."""
    group = Row._fields.index("group")
    return Books._make((*row[:group], *row[group + 1 :]))


def books_of(simulation: Simulation) -> list[Books]:
    """Those of all requests that have arrived, by their number."""
    table = simulation._log.table(simulation._cluster)
    return [books(row) for row in sorted(table.plain())]
