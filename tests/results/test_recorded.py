"""Reports of the shipped experiments and of random clusters, section by section, as recorded."""

from __future__ import annotations

import json
from random import Random
from typing import TYPE_CHECKING, Final
from unittest.mock import patch

import pytest

from blis_tui.base.errors import StalledError
from blis_tui.results.conditions.breakpoints import parse_breakpoint, sentence
from blis_tui.results.conditions.suggestions import suggestions
from blis_tui.results.record_lines import record_line
from blis_tui.runs.simulation import Simulation
from tests.oracle.draws import Draw, at_random
from tests.oracle.fleets import draw_fleet_with_adapters, draw_living_fleet
from tests.oracle.sessions import draw_sessions
from tests.oracle.strategies import Scenario, draw_overload, draw_scenario
from tests.recorded import SHIPPED, Digests, outcome, shipped_run

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_regressions.file_regression import FileRegressionFixture

    from blis_tui.results.report import Report

_SCENARIOS: Final[dict[str, Callable[[Draw], Scenario]]] = {
    "one instance": draw_scenario,
    "overload": draw_overload,
    "adapters": draw_fleet_with_adapters,
    "living": draw_living_fleet,
    "sessions": draw_sessions,
}
_EACH: Final = 30
_CONDITIONS: Final = (
    *("first preemption", "ttft > 1s", "queue > 3", "request_7", "kv > 0.5 on instance 0", "every 100", "at 2s"),
    *("completed and e2e > 2s", "waiting >= 2 or running == 8", "kind == 'step' and duration > 20ms", "nonsense ("),
)


def _take(digests: Digests, report: Report) -> None:
    for section, content in report.to_dict().items():
        if section != "meta":  # which names the version
            digests.add(section, json.dumps(content))
    digests.add("rows", *(repr(row) for row in report.rows))
    for pool, known in report.expected_errors().items():
        digests.add("expected errors", pool, known)


@pytest.mark.parametrize("name", _SCENARIOS)
def test_random_runs(name: str, file_regression: FileRegressionFixture) -> None:
    digests = Digests()
    for seed in range(_EACH):
        scenario = _SCENARIOS[name](at_random(Random(seed)))  # noqa: S311  (no secret)
        with patch("blis_tui.runs.simulation.create_source", return_value=scenario.source()):
            simulation = Simulation(scenario.experiment, check="end")
        try:
            simulation.run(max_events=20_000)
            _take(digests, simulation.report())
        except StalledError as error:
            digests.add("stalled", str(error))
    digests.check(file_regression)


def test_shipped_experiments(file_regression: FileRegressionFixture) -> None:
    digests = Digests()
    for name in SHIPPED:
        simulation, records = shipped_run(name)
        _take(digests, simulation.report())
        digests.add("lines", *map(record_line, records))
        digests.add("sentences", *map(sentence, records))
        known = simulation.report().experiment
        digests.add("breakpoints", *(outcome(parse_breakpoint, text, known) for text in _CONDITIONS))
        digests.add("suggestions", *(suggestions(text, known) for text in ("", "t", "ttft", "ttft >", "kv > 0.5 and ")))
    digests.check(file_regression)
