"""The Python interface as the README shows it."""

import json
import pickle
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import blis_tui
from blis_tui.engine.records import Completed, Preempted
from blis_tui.results.sections.types import Sections
from blis_tui.runs.simulation import Simulation


@pytest.fixture(scope="module")
def experiment() -> blis_tui.Experiment:
    return blis_tui.load("kv-pressure", set={"workload.requests": 40})


def test_every_public_name_is_there_and_nothing_else_is_promised() -> None:
    for name in blis_tui.__all__:
        assert getattr(blis_tui, name) is not None
    assert dir(blis_tui) == sorted(blis_tui.__all__)
    with pytest.raises(AttributeError, match="no attribute `simulate`"):
        _ = blis_tui.simulate


def test_load_checks_overrides_like_the_file() -> None:
    assert blis_tui.load("quickstart", set={"cluster.instances": 4}, seed=7).instances == 4
    with pytest.raises(blis_tui.SpecError, match="must be at least 1"):
        blis_tui.load("quickstart", set={"cluster.instances": 0})
    with pytest.raises(blis_tui.InputError):
        blis_tui.load(Path("nowhere.blis.yaml"))


def test_an_experiment_may_be_plain_data() -> None:
    document = {
        "apiVersion": "blis/v1",
        "kind": "Experiment",
        "metadata": {"name": "inline"},
        "model": "qwen3-14b",
        "hardware": "h100",
        "workload": "chatbot",
        "seed": 3,
    }
    assert blis_tui.load(document, set={"workload.requests": 5}).workload.requests == 5
    with pytest.raises(blis_tui.SpecError, match="did you mean `hardware`"):
        blis_tui.load({**document, "hardwear": "h100"})
    with pytest.raises(TypeError, match="a name, a path or a mapping"):
        blis_tui.load(5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"load one with blis_tui.load\(\)"):
        Simulation("quickstart")  # type: ignore[arg-type]


def test_run_takes_what_load_takes(tmp_path: Path) -> None:
    few = {"workload.requests": 20, "expect": []}
    loaded = blis_tui.load("quickstart", set=few, seed=9)
    expected = blis_tui.run(loaded).to_json()
    path = tmp_path / "copy.blis.yaml"
    path.write_text(json.dumps(loaded.document), encoding="utf-8")
    assert blis_tui.run("quickstart", set=few, seed=9).to_json() == expected
    for same in (path, str(path), json.loads(path.read_text())):
        assert blis_tui.run(same).to_json() == expected
    for more in ({"set": few}, {"seed": 3}, {"plugins": ["mine.py"]}):
        with pytest.raises(TypeError, match="is loaded already"):
            blis_tui.run(loaded, **more)
    with pytest.raises(blis_tui.SpecError, match="must be at least 1"):
        blis_tui.run("quickstart", set={"cluster.instances": 0})


def test_results_show_themselves_in_one_short_line() -> None:
    few = {"workload.requests": 20, "cluster.instances": 2, "expect": []}
    experiment = blis_tui.load("quickstart", set=few)
    study = blis_tui.sweep("quickstart", axes={"cluster.instances": [1, 2]}, set={"workload.requests": 20})
    bounds = ["latency.ttft_ms.p90<=5000"]
    short: Any = {"seeds": 1, "duration_s": 1, "sizes": ("cluster.instances", 1, 2)}
    answer = blis_tui.plan("quickstart", slos=bounds, axes={"hardware": ["h100", "l40s"]}, **short)
    none = blis_tui.plan("quickstart", slos=["latency.ttft_ms.p90<=0.001"], **short)
    assert answer.best is not None
    shown = [
        repr(one)
        for one in (
            experiment,
            blis_tui.run(experiment),
            study,
            study[1],
            answer,
            answer.best,
            none,
            none.candidates[0],
            blis_tui.whatif(experiment, "request_3", 0),
        )
    ]
    assert [one.split()[0].removeprefix("<") for one in shown] == [
        *("Experiment", "Report", "StudyResult", "Row", "Plan", "Candidate", "Plan", "Candidate", "WhatIf")
    ]
    assert all(len(one) <= 200 and "\n" not in one for one in shown), shown
    assert "20 of 20 requests completed" in shown[1]
    assert "2 points, 2 of 2 runs" in shown[2]
    assert "{'cluster.instances': 2}, seed" in shown[3]
    assert "'hardware': '" in shown[4]
    assert "nothing holds" in shown[6]
    assert "even on an idle cluster" in shown[7]
    assert "request_3 to instance 0" in shown[8]


def test_a_report_has_attributes_plain_data_and_rows(experiment: blis_tui.Experiment) -> None:
    report = blis_tui.run(experiment)
    assert report.requests.completed == 40
    assert report.latency.ttft_ms.p99 is not None
    sections = [field.name for field in fields(Sections)]
    assert list(report.to_dict()) == [
        field.name
        for field in fields(report)
        if field.name not in (*sections, "lifecycle", "experiment", "step_models", "rows", "left_out")
    ]
    assert len(report.rows) == 40
    assert report.rows[0].request_id == "request_0"
    assert report.rows[-1]._fields[:3] == ("request_id", "state", "instance")
    assert [row.arrival_us for row in report.rows] == sorted(row.arrival_us for row in report.rows)
    assert report.rows[3:5] == [report.rows[3], report.rows[4]]
    assert sum(row.output_tokens for row in report.rows) == report.tokens.output
    assert not report.ok  # it expects 200 requests
    assert blis_tui.run(blis_tui.load("kv-pressure", set={"workload.requests": 40, "expect": []})).ok


def test_stepping_is_running(experiment: blis_tui.Experiment) -> None:
    straight = Simulation(experiment)
    assert straight.run()
    stepped = Simulation(experiment)
    while (upcoming := stepped.peek()) is not None:
        assert stepped.step() == upcoming
        assert stepped.now_us == upcoming.time_us
    assert stepped.step() is None
    assert stepped.done
    assert stepped.digest() == straight.digest()
    assert stepped.report().to_json() == straight.report().to_json()


def test_run_stops_where_it_is_told(experiment: blis_tui.Experiment) -> None:
    simulation = Simulation(experiment)
    assert simulation.run(until_us=1_000_000)
    assert simulation.now_us <= 1_000_000
    upcoming = simulation.peek()
    assert upcoming is not None
    assert upcoming.time_us > 1_000_000
    assert simulation.report().meta.complete is False
    assert simulation.run()
    assert simulation.report().meta.complete is True


def test_a_time_that_is_no_whole_number_is_refused_before_it_does_harm(experiment: blis_tui.Experiment) -> None:
    simulation = blis_tui.Simulation(experiment)
    with pytest.raises(TypeError, match=r"until_us is a whole number, not 1000000\.0"):
        simulation.run(until_us=1e6)  # type: ignore[arg-type]
    assert simulation.run()


@pytest.mark.parametrize("attempt", ["step", "run", "checkpoint", "mark", "restore", "return_to", "verify", "report"])
def test_a_subscriber_can_neither_advance_nor_save_nor_check_the_simulation(
    experiment: blis_tui.Experiment, attempt: str
) -> None:
    """In the middle of an event its state is none to go on from, and invariants need not hold."""
    simulation = Simulation(experiment)
    saved = {"restore": (simulation.checkpoint(),), "return_to": (simulation.mark(),)}
    simulation.subscribe("routed", lambda _: getattr(simulation, attempt)(*saved.get(attempt, ())))
    with pytest.raises(blis_tui.SimulationError, match="no subscriber or other thread can advance"):
        simulation.run()


def test_a_subscriber_stops_a_run_to_save_it(experiment: blis_tui.Experiment) -> None:
    simulation = Simulation(experiment)
    end = simulation.subscribe("preempted", lambda _: simulation.stop())
    assert not simulation.run()
    end()
    saved = simulation.checkpoint()
    assert simulation.run()
    again = Simulation(experiment)
    again.restore(saved)
    assert again.run()
    assert again.report().to_json() == simulation.report().to_json() == blis_tui.run(experiment).to_json()


def test_what_is_no_subscription_is_refused_before_it_does_harm(experiment: blis_tui.Experiment) -> None:
    simulation = Simulation(experiment)
    for kind, callback in (("preempted", None), (int, print), (["preempted"], print)):
        with pytest.raises(TypeError, match=r"a subscriber is called|a kind of record is"):
            simulation.subscribe(kind, callback)  # type: ignore[type-var, arg-type]
    with pytest.raises(TypeError, match="max_events is a whole number, not '3'"):
        simulation.run(max_events="3")  # type: ignore[arg-type]
    assert simulation.run()


@pytest.mark.parametrize("given", ["0", 0.5, None])
def test_a_route_that_is_none_is_refused_before_it_does_harm(experiment: blis_tui.Experiment, given: object) -> None:
    with pytest.raises(TypeError, match="the route of request_3 is the index of an instance or a Reroute"):
        Simulation(experiment, routes={"request_3": given})  # type: ignore[dict-item]


def test_numbers_of_other_libraries_are_numbers() -> None:
    """Wherever values are given: those to set, and documents."""
    numpy = pytest.importorskip("numpy")
    few = {"workload.requests": numpy.int64(20), "workload.rate_per_s": numpy.float32(0.5)}
    loaded = blis_tui.load("quickstart", set={**few, "engine.enable_prefix_caching": numpy.bool_(False)})
    assert (loaded.workload.requests, loaded.workload.rate_per_s) == (20, 0.5)
    document = {**loaded.document, "seed": numpy.int64(7)}
    assert blis_tui.load(document).seed == 7
    with pytest.raises(TypeError, match="set is a mapping"):
        blis_tui.load("quickstart", set="seed=7")  # type: ignore[arg-type]


def test_going_back_and_forward_again_ends_in_the_same_state(experiment: blis_tui.Experiment) -> None:
    simulation = Simulation(experiment)
    simulation.run(until_us=1_500_000)
    early, early_digest = simulation.checkpoint(), simulation.digest()
    simulation.run(until_us=2_500_000)
    late, late_digest = simulation.checkpoint(), simulation.digest()
    simulation.run()
    end = simulation.report().to_json()
    for checkpoint, digest in ((early, early_digest), (late, late_digest), (early, early_digest)):
        simulation.restore(checkpoint)
        assert simulation.digest() == digest
    simulation.run()
    assert simulation.report().to_json() == end
    fresh = Simulation(experiment)
    fresh.restore(late)
    fresh.run()
    assert fresh.report().to_json() == end


def test_what_is_no_checkpoint_is_refused(experiment: blis_tui.Experiment) -> None:
    simulation = Simulation(experiment)
    simulation.run(until_us=1_000_000)
    good = simulation.checkpoint()
    other = Simulation(blis_tui.load("quickstart")).checkpoint()
    damaged = good[:-9] + bytes([good[-9] ^ 1]) + good[-8:]
    for wrong in (b"", b"nonsense", pickle.dumps(5), good[:-1], damaged, other):
        with pytest.raises(blis_tui.InputError, match="not a checkpoint of this experiment"):
            simulation.restore(wrong)
    simulation.restore(good)


def test_an_exception_in_the_middle_of_an_event_is_not_glossed_over(experiment: blis_tui.Experiment) -> None:
    simulation = Simulation(experiment)
    simulation.run(until_us=500_000)
    sound, digest = simulation.checkpoint(), simulation.digest()

    def fail(record: Completed) -> None:
        raise KeyboardInterrupt

    stop = simulation.subscribe("first-token", fail)
    with pytest.raises(KeyboardInterrupt):
        simulation.run()
    for attempt in (simulation.run, simulation.step, simulation.report, simulation.digest, simulation.checkpoint):
        with pytest.raises(blis_tui.SimulationError, match="in the middle of an event"):
            attempt()
    stop()
    simulation.restore(sound)
    assert simulation.digest() == digest
    simulation.run()
    assert simulation.report().to_json() == blis_tui.run(experiment).to_json()


@pytest.mark.parametrize("kind", ["first-token", "scheduled", "step", "queued"])
def test_a_subscription_may_end_itself(experiment: blis_tui.Experiment, kind: str) -> None:
    simulation = Simulation(experiment)
    seen: list[object] = []

    def once(record: object) -> None:
        seen.append(record)
        stop()

    stop = simulation.subscribe(kind, once)
    simulation.run()
    stop()
    assert len(seen) == 1
    assert simulation.report().to_json() == blis_tui.run(experiment).to_json()


def test_a_report_half_way_changes_nothing() -> None:
    experiment = blis_tui.load("service-classes")
    unwatched = Simulation(experiment)
    unwatched.run()
    for events in (1, 5, 20, 60):
        simulation = Simulation(experiment)
        simulation.run(max_events=events)
        simulation.report()
        simulation.run()
        assert simulation.digest() == unwatched.digest()


def test_many_dead_timeouts_do_not_pile_up() -> None:
    override = {
        "workload.requests": 3000,
        "workload.clients": [
            {
                "id": "only",
                "input_tokens": {"kind": "constant", "value": 16},
                "output_tokens": {"kind": "constant", "value": 2},
                "timeout_us": 10_000_000_000,
            }
        ],
    }
    simulation = Simulation(blis_tui.load("quickstart", set={**override, "expect": []}))
    simulation.run()
    longest = len(simulation.checkpoint())
    simulation = Simulation(blis_tui.load("quickstart", set={**override, "workload.requests": 300, "expect": []}))
    simulation.run()
    assert longest < 40 * len(simulation.checkpoint())


def test_subscriptions_end_and_survive_a_restore(experiment: blis_tui.Experiment) -> None:
    simulation = Simulation(experiment)
    start = simulation.checkpoint()
    preempted: list[Preempted] = []
    completed: list[Completed] = []
    stop = simulation.subscribe(Preempted, preempted.append)
    simulation.subscribe("completed", completed.append)
    simulation.run()
    seen = len(preempted)
    assert seen > 0
    assert len(completed) == 40
    stop()
    simulation.restore(start)
    simulation.run()
    assert (len(preempted), len(completed)) == (seen, 80)
    with pytest.raises(ValueError, match="known are arrived, admitted"):
        simulation.subscribe("gossip", completed.append)


def test_a_snapshot_shows_everything_that_lives(experiment: blis_tui.Experiment) -> None:
    simulation = Simulation(experiment, check="all")
    simulation.run(until_us=2_000_000)
    snapshot = simulation.snapshot()
    before = simulation.digest()
    (instance,) = snapshot.instances
    live = len(snapshot.in_transit) + len(instance.waiting) + len(instance.running)
    assert snapshot.arrived == live + snapshot.ended
    assert instance.running
    assert sum(request.held_blocks for request in instance.running) == instance.kv.used_blocks > 0
    kv = instance.kv
    assert kv.used_blocks + kv.cached_free_blocks + kv.blank_blocks == kv.total_blocks
    assert {request.phase for request in instance.running} <= {"prefill", "decode", "stalled"}
    assert simulation.digest() == before


def test_an_unknown_check_is_refused(experiment: blis_tui.Experiment) -> None:
    with pytest.raises(ValueError, match="all, end, off"):
        Simulation(experiment, check="sometimes")


def test_a_run_that_was_stopped_goes_on_as_if_nothing_had_been() -> None:
    experiment = blis_tui.load("quickstart")
    simulation = blis_tui.Simulation(experiment)
    unsubscribe = simulation.subscribe("completed", lambda _: simulation.stop())
    assert not simulation.run()
    assert simulation.ended == 1
    unsubscribe()
    assert simulation.run()
    straight = blis_tui.Simulation(experiment)
    straight.run()
    assert simulation.digest() == straight.digest()
