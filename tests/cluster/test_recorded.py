"""Random clusters, and the shipped ones, as recorded: every record, and what snapshots say on the way."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Final
from unittest.mock import patch

import pytest

from blis_tui.base.errors import StalledError
from blis_tui.cluster.state import FIGURES
from blis_tui.runs.simulation import Simulation
from blis_tui.spec.load import load
from tests.oracle.draws import Draw, at_random
from tests.oracle.fleets import draw_fleet, draw_fleet_with_adapters, draw_living_fleet, draw_mortal_fleet
from tests.oracle.sessions import draw_sessions
from tests.oracle.wide import draw_wide
from tests.recorded import REQUESTS, SHIPPED, Digests, shipped_run

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_regressions.file_regression import FileRegressionFixture

    from blis_tui.engine.records import Record
    from tests.oracle.strategies import Scenario

_SCENARIOS: Final[dict[str, Callable[[Draw], Scenario]]] = {
    "fleet": draw_fleet,
    "adapters": draw_fleet_with_adapters,
    "living": draw_living_fleet,
    "mortal": draw_mortal_fleet,
    "sessions": draw_sessions,
    "wide": draw_wide,
}
_EACH: Final = 60
_MANY: Final = 20_000
"""More events than any of them has, unless it never ends."""


def _figures(simulation: Simulation) -> list[object]:
    instances = range(len(simulation.cluster.instances))
    return [
        (
            name,
            simulation.figure(name),
            [simulation.figure(name, instance) for instance in instances if known.of_instance],
        )
        for name, known in FIGURES.items()
    ]


def _simulation(scenario: Scenario) -> Simulation:
    with patch("blis_tui.runs.simulation.create_source", return_value=scenario.source()):
        return Simulation(scenario.experiment, check="end")


def _watch(digests: Digests, scenario: Scenario) -> None:
    """Run in parts, with everything recorded."""
    simulation = _simulation(scenario)
    records: list[Record] = []
    simulation.subscribe("all", records.append)
    try:
        for _ in range(3):
            simulation.run(max_events=9 * len(scenario.asked) // 4)
            digests.add("snapshots", simulation.snapshot())
            digests.add("figures", *_figures(simulation))
        simulation.run(max_events=_MANY)
        _end(digests, simulation)
    except StalledError as error:
        digests.add("stalled", str(error))
    for record in records:
        digests.add(record.kind, record)


def _pass(digests: Digests, scenario: Scenario, until_us: int) -> None:
    """Run unseen, so that plain decodes are put off: to a time, and to the end."""
    simulation = _simulation(scenario)
    try:
        simulation.run(until_us)
        digests.add("unseen figures", *_figures(simulation))
        simulation.run(max_events=_MANY)
        _end(digests, simulation)
    except StalledError as error:
        digests.add("stalled unseen", str(error))


def _end(digests: Digests, simulation: Simulation, kind: str = "end") -> None:
    digests.add(kind, simulation.events, simulation.now_us, simulation.digest())
    digests.add(kind, *simulation.report(verify=False).rows)


@pytest.mark.parametrize("name", _SCENARIOS)
def test_random_clusters(name: str, file_regression: FileRegressionFixture) -> None:
    digests = Digests()
    for seed in range(_EACH):
        random = Random(seed)  # noqa: S311  (no secret)
        scenario = _SCENARIOS[name](at_random(random))
        _watch(digests, scenario)
        _pass(digests, scenario, random.randrange(1, 4000))
    digests.check(file_regression)


def test_shipped_experiments(file_regression: FileRegressionFixture) -> None:
    digests = Digests()
    for name in SHIPPED:
        simulation, records = shipped_run(name)
        digests.add(name, *records, *_figures(simulation))
        _end(digests, simulation, f"{name} at its end")
        unseen = Simulation(load(name, overrides={"workload.requests": 4 * REQUESTS}), check="end")
        unseen.run()
        _end(digests, unseen, f"{name} unseen")
    digests.check(file_regression)
