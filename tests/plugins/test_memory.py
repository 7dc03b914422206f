"""What plug-ins remember shows in digests at every plug point, and who only looks leaves it as it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

import blis_tui
from blis_tui.base.errors import SimulationError
from blis_tui.cluster.records import GatewayTick
from tests.plugins.probing import left_as_found

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HEAD: Final = """
from blis_tui import plugins
from blis_tui.plugins import FcfsQueue, Overheads
class Remembers:
    rule, serves_behind_preempted, uses_host = "As this script says", False, True
    remembered = 0
    def __init__(self, settings, *more): super().__init__()
    def state(self): return (self.remembered,)
"""
VICTIM: Final = "def choose(self, seats): return next(reversed((seats.running or seats.finishing).values()))"
LATENCY: Final = """def __init__(self, settings, pool):
        Overheads.__init__(self, queue_us=0, queue_per_token_us=0, output_token_us=0, post_decode_us=0)
    def step_time_us(self, load): return 1000"""
LEVELS: Final = """def level(self, fleet):
        self.remembered += 1
        return [{levels}][self.remembered % 3]"""


@pytest.fixture(autouse=True)
def _as_found() -> Iterator[None]:
    with left_as_found():
        yield


def loaded(folder: Path, point: str, body: str, key: str, name: str, *, base: str = "") -> blis_tui.Experiment:
    path = folder / "own.py"
    mark = f'@plugins.{point}.plugin("own", "For tests.")\nclass Own(Remembers{base}):\n    {body}\n'
    path.write_text(HEAD + mark, encoding="utf-8")
    value: object = {"kind": "own"} if point == "LENGTHS" else "own"  # a bare text would be no number of tokens
    more = {"policy.gateway.dispatch": "tick"} if name == "gateway-queue" else {}
    return blis_tui.load(name, set={"workload.requests": 30, key: value, **more}, plugins=[path])


@pytest.mark.parametrize(
    ("point", "body", "key", "base"),
    [
        ("VICTIM", VICTIM, "policy.preemption.victim", ""),
        ("RESTORE", "def swaps(self, costs): return True", "policy.preemption.restore", ""),
        ("SCHEDULING", "pass", "policy.scheduling", ", FcfsQueue"),
        ("LATENCY", LATENCY, "latency", ", Overheads"),
        ("LENGTHS", "def sample(self, stream): return 9", "workload.clients.0.output_tokens", ""),
        ("ARRIVALS", "def sample(self, stream): return 9", "workload.clients.0.arrivals", ""),
        ("SATURATION", "def level(self, fleet): return 0.0", "policy.gateway.saturation", ""),
    ],
    ids=["victim", "restore", "queue", "step times", "lengths", "gaps", "saturation"],
)
def test_two_states_with_other_memories_have_other_digests(
    point: str, body: str, key: str, base: str, tmp_path: Path
) -> None:
    name = "gateway-queue" if point == "SATURATION" else "quickstart"
    simulation = blis_tui.Simulation(loaded(tmp_path, point, body, key, name, base=base))
    found = simulation.parts_from({plugin.module for plugin in simulation.experiment.plugins_used()})
    before = simulation.digest()
    for part in found:
        part.remembered = 1  # type: ignore[attr-defined]
    assert found
    assert simulation.digest() != before


def saturated(folder: Path, levels: str) -> blis_tui.Experiment:
    body = LEVELS.format(levels=levels)
    return loaded(folder, "SATURATION", body, "policy.gateway.saturation", "gateway-queue")


def test_looking_at_the_saturation_changes_nothing_of_what_its_detector_remembers(tmp_path: Path) -> None:
    experiment = saturated(tmp_path, "0.0, 2.0, float('inf')")
    alone, watched = blis_tui.Simulation(experiment), blis_tui.Simulation(experiment)
    alone.run()
    levels: list[int] = []
    watched.subscribe(GatewayTick, lambda record: levels.append(record.saturation_ppm))
    for _ in range(alone.events):
        watched.step()
        watched.snapshot()
    assert levels
    assert watched.digest() == alone.digest()
    assert watched.report().to_json() == alone.report().to_json()


def test_a_saturation_that_is_no_number_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SimulationError, match="the saturation detector `own` answers nan"):
        blis_tui.run(saturated(tmp_path, "0.0, 0.0, float('nan')"))


KEEPS: Final = """
from blis_tui.plugins import ROUTING
@ROUTING.plugin("own", "For tests.")
class Own:
    rule = ""
    def __init__(self, settings): self.kept = None
    def state(self): return ()
    def choose(self, request, fleet, context):
        self.kept = self.kept or (request, fleet, fleet[0], context)
        return min(range(len(fleet)), key=lambda place: self.kept[1][place].in_flight), "as it was shown"
Alias = Own
"""


def test_a_policy_may_keep_what_it_is_shown(tmp_path: Path) -> None:
    """It knows no answer's length by that, whether somebody listens or not."""
    path = tmp_path / "own.py"
    path.write_text(KEEPS, encoding="utf-8")
    changes = {"workload.requests": 30, "cluster.instances": 3, "policy.routing": "own"}
    experiment = blis_tui.load("quickstart", set=changes, plugins=[path])
    alone, watched = blis_tui.Simulation(experiment), blis_tui.Simulation(experiment)
    watched.subscribe("all", lambda record: None)
    for simulation in (alone, watched):
        simulation.run()
        simulation.verify()
    assert watched.report().to_json() == alone.report().to_json()
