"""Helpers for all comparisons with the oracle."""

from __future__ import annotations

import os
from math import ceil
from random import Random, SystemRandom
from typing import TYPE_CHECKING, Final

import hypothesis
from hypothesis import HealthCheck, settings

from blis_tui.results.request_log import WAYS, RequestNumbers
from blis_tui.workload.interactive import ClosedLoop, ClosedLoopSettings, InteractiveSource

from .draws import at_random
from .instance import Books

if TYPE_CHECKING:
    from collections.abc import Callable

    from blis_tui.engine.request import Request
    from blis_tui.results.request_log import RequestTable
    from blis_tui.runs.simulation import Simulation
    from blis_tui.workload.sessions import SessionRun

    from .draws import Draw
    from .strategies import Scenario

_EXPLORE: Final = int(os.environ.get("BLIS_TUI_ORACLE_EXAMPLES", "0"))
_SHARE: Final = float(os.environ.get("BLIS_TUI_ORACLE_SHARE", "0.5"))
"""Share of the examples to run: half of them on each change, all of them each night, and fewer where others are checked
already, and some once more in another way."""


def examples(count: int) -> settings:
    """The same ``count`` examples every time, or random ones on request."""
    return settings(
        max_examples=_EXPLORE or ceil(count * _SHARE),
        derandomize=not _EXPLORE,
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
    )


def check_many(
    count: int, make: Callable[[Draw], Scenario], check: Callable[[Scenario, Random], None], *, part: int = 0
) -> None:
    """Check ``count`` scenarios, each from a seed: the same ones every time, or random ones on request.

    Counts are based on faults planted at random places of the code under test, at least eleven of which some seed
    detects: about twice the number of seeds that detected the last of them, so that half of them still do. Where that
    took a hundred or more, as in the plain engine and with drafts, the count is what time allows.

    Args:
        count: how many.
        make: draws a scenario.
        check: checks it, with a generator for further draws.
        part: selects the seeds.
    """
    first = SystemRandom().getrandbits(32) if _EXPLORE else part * count
    for seed in range(first, first + (_EXPLORE or ceil(count * _SHARE))):
        random = Random(seed)  # noqa: S311  (no secret)
        scenario = make(at_random(random))
        try:
            check(scenario, random)
        except Exception as error:
            error.add_note(f"with seed {seed}: {scenario}")
            raise


def event(text: str) -> None:
    """Let Hypothesis, if it runs, count how often this happens."""
    if hypothesis.currently_in_test_context():
        hypothesis.event(text)


class Source:
    """Feeds the scenario's requests to a cluster."""

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
    """The requests at their times, or from a number of users who wait for answers."""
    return InteractiveSource([Patient(requests, users)], len(requests)) if users else Source(requests)


def books(row: RequestNumbers, table: RequestTable) -> Books:
    """The ledger's row in the oracle's format."""
    group = RequestNumbers._fields.index("group")
    extras = table.extras(row.number)
    return Books._make((*row[:group], *row[group + 1 : -len(WAYS)], extras.first_answer_us, extras.ttfat_us))


def books_of(simulation: Simulation) -> list[Books]:
    """The rows of all requests that have arrived, by number."""
    table = simulation.log.table(simulation._cluster)
    return [books(row, table) for row in sorted(table.plain())]
