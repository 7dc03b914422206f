import pytest

import blis_tui
from blis_tui.debugger.conditions.predicate import PredicateError
from blis_tui.debugger.conditions.watches import parse_watch


@pytest.fixture(scope="module")
def simulation() -> blis_tui.Simulation:
    simulation = blis_tui.Simulation(blis_tui.load("kv-pressure"))
    simulation.run(max_events=1000)
    return simulation


def test_values_have_units(simulation: blis_tui.Simulation) -> None:
    experiment = simulation.experiment
    snapshot = simulation.snapshot()
    instance = snapshot.instances[0]

    def value(text: str) -> str:
        return parse_watch(text, experiment).value(simulation, ())

    assert value("running") == f"{instance.running_count} requests"
    assert value("instance[0].kv.used") == f"{instance.kv.used_blocks:,} blocks"
    assert value("kv.utilization") == f"{100 * instance.kv.used_blocks / instance.kv.total_blocks:.1f} %"
    assert value("running >= 0 and waiting >= 0") == "yes"
    assert value("running < 0") == "no"
    assert value("step.duration_ms") in ("-", "0 ms")
    assert value("running / 0") == "-"


@pytest.mark.parametrize(("text", "word"), [("runing", "running"), ("running >", ""), ("", ""), ("kind", "")])
def test_mistakes_are_located(simulation: blis_tui.Simulation, text: str, word: str) -> None:
    with pytest.raises(PredicateError) as caught:
        parse_watch(text, simulation.experiment)
    assert 0 <= caught.value.column <= len(text)
    assert word in str(caught.value)
