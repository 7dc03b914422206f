"""Several models behind one router: who asks for one gets it, and who asks for another is told so."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

import blis_tui
from blis_tui.cluster.records import ScalingDecided

if TYPE_CHECKING:
    from pathlib import Path

    from blis_tui.results.report import Report

LLAMA, QWEN = "llama-3.1-8b-instruct", "qwen3-14b"
HEAD = "apiVersion: blis/v1\nkind: Experiment\nmetadata: {name: mine}\nmodel: qwen3-14b\nhardware: h100\n"
TWO = f"[{{name: llamas, instances: 2, model: {LLAMA}}}, {{name: qwens, instances: 3}}]"
SPLIT = (
    f"[{{name: a, role: prefill, instances: 1, model: {LLAMA}}},"
    f"{{name: b, role: decode, instances: 2, model: {LLAMA}}},"
    "{name: c, role: prefill, instances: 1}, {name: d, role: decode, instances: 1}]"
)


def run(folder: Path, models: list[str], pools: str, **changes: object) -> Report:
    """The report on one request a model, two milliseconds apart."""
    rows = [f"{2000 * at},100,5,{model}" for at, model in enumerate(models)]
    (folder / "requests.csv").write_text("\n".join(["arrival_time_us,input_tokens,output_tokens,model", *rows]) + "\n")
    path = folder / "mine.blis.yaml"
    path.write_text(HEAD + f"workload: {{trace: {{file: requests.csv}}}}\ncluster: {{pools: {pools}}}\n")
    return blis_tui.run(blis_tui.load(path, set=changes), check="all")


@pytest.mark.parametrize("routing", ["round-robin", "least-loaded", "weighted", "power-of-two", "always-busiest"])
def test_only_instances_that_serve_the_model_are_chosen(routing: str, tmp_path: Path) -> None:
    report = run(tmp_path, [LLAMA, QWEN, QWEN] * 20, TWO, **{"policy.routing": routing})
    assert report.requests.completed == 60
    for at, row in enumerate(report.rows):
        assert (int(row.request_id.removeprefix("request_")) % 3 == 0) == (row.instance in (0, 1)), at


def test_the_instances_of_each_model_take_turns_on_their_own(tmp_path: Path) -> None:
    """One counter for all would send every other request of a model to the same instance."""
    report = run(tmp_path, [LLAMA, QWEN] * 6, TWO)
    assert Counter(row.instance for row in report.rows) == {0: 3, 1: 3, 2: 2, 3: 2, 4: 2}


def test_who_asks_for_no_model_may_go_anywhere(tmp_path: Path) -> None:
    report = run(tmp_path, [""] * 10, TWO)
    assert Counter(row.instance for row in report.rows) == dict.fromkeys(range(5), 2)


@pytest.mark.parametrize("pools", [TWO, "[{name: one, instances: 2}]", SPLIT])
def test_a_model_that_nobody_serves_is_rejected_by_the_router(pools: str, tmp_path: Path) -> None:
    changes = {"cluster.disaggregation": {"transfer": {"bytes_per_token": 1000}}} if pools == SPLIT else {}
    report = run(tmp_path, [QWEN, "gpt-2", QWEN], pools, **changes)
    assert (report.requests.completed, report.requests.rejected) == (2, 1)
    simulation = blis_tui.Simulation(blis_tui.load(tmp_path / "mine.blis.yaml", set=changes))
    rejections: list[tuple[str, str]] = []
    simulation.subscribe("rejected", lambda record: rejections.append((record.policy, record.reason)))
    simulation.run()
    assert rejections == [("router", "no instance serves gpt-2")]


@pytest.mark.parametrize("order", ["prefill-first", "decode-first"])
@pytest.mark.parametrize("model", [LLAMA, ""])
def test_both_halves_of_a_split_request_run_the_same_model(order: str, model: str, tmp_path: Path) -> None:
    """Also of one that asks for none: the first instance decides."""
    changes = {"cluster.disaggregation": {"order": order, "transfer": {"bytes_per_token": 1000}}}
    experiment_of = {0: LLAMA, 1: LLAMA, 2: LLAMA, 3: QWEN, 4: QWEN}
    run(tmp_path, [model, QWEN] * 8, SPLIT, **changes)
    simulation = blis_tui.Simulation(blis_tui.load(tmp_path / "mine.blis.yaml", set=changes))
    ways: dict[str, list[str]] = {}
    simulation.subscribe(
        "routed",
        lambda record: ways.setdefault(record.request_id, []).append(experiment_of[record.instance]),
    )
    simulation.run()
    assert len(ways) == 16
    assert all(len(way) == 2 and len(set(way)) == 1 for way in ways.values())


SCALED: dict[str, object] = {
    "engine.kv_blocks": 100,
    "cluster.autoscaler": {"interval_us": 20_000, "max_instances": 4, "scale_down_stabilization_window_us": 0},
}


@pytest.mark.parametrize("saturation", ["never", {"kind": "concurrency", "max_concurrency": 2}])
def test_instances_are_added_for_the_model_that_needs_them(saturation: object, tmp_path: Path) -> None:
    report = run(tmp_path, [QWEN] * 60 + [LLAMA], TWO, **SCALED, **{"policy.gateway.saturation": saturation})
    assert report.lifecycle is not None
    added = [one for one in report.lifecycle.scaling if one.change > 0]
    assert {one.pool for one in added} == {"qwens"}
    assert all(one.reason.startswith("qwen3-14b: ") for one in added)


def test_a_request_brings_the_first_instance_of_its_model(tmp_path: Path) -> None:
    """However little the instances of other models have to do."""
    pools = f"[{{name: llamas, instances: 1, model: {LLAMA}}}, {{name: qwens, instances: 1, min_instances: 0}}]"
    report = run(tmp_path, [LLAMA] * 4 + [QWEN], pools, **SCALED, **{"workload.trace.scale_rate": 0.01})
    assert report.requests.completed == 5
    assert report.lifecycle is not None
    assert [(one.pool, one.change) for one in report.lifecycle.scaling] == [("qwens", -1), ("qwens", 1)]


def test_who_asks_for_no_model_is_waited_for_by_all(tmp_path: Path) -> None:
    """None of them can tell which will serve it."""
    pools = f"[{{name: llamas, instances: 1, model: {LLAMA}}}, {{name: qwens, instances: 1}}]"
    dead = {"cluster.failures": [{"at_us": 1000, "repair_us": 900_000}]}
    run(tmp_path, [LLAMA, LLAMA, QWEN, "", ""], pools, **SCALED, **dead)
    simulation = blis_tui.Simulation(blis_tui.load(tmp_path / "mine.blis.yaml", set={**SCALED, **dead}))
    looks: list[ScalingDecided] = []
    simulation.subscribe(ScalingDecided, looks.append)
    simulation.run()
    first = {scaling.reason.partition(":")[0]: scaling.demand_tokens for scaling in looks if scaling.time_us == 20_000}
    assert first == {LLAMA: 4 * 512, QWEN: 3 * 512}


def test_checkpoints_know_the_turns_of_every_model(tmp_path: Path) -> None:
    run(tmp_path, [LLAMA, QWEN] * 6, TWO)
    simulation = blis_tui.Simulation(blis_tui.load(tmp_path / "mine.blis.yaml"))
    simulation.run(until_us=5000)
    here, digest = simulation.checkpoint(), simulation.digest()
    simulation.run()
    end = simulation.digest()
    simulation.restore(here)
    assert simulation.digest() == digest
    simulation.run()
    assert simulation.digest() == end


def test_who_takes_any_model_is_not_prefilled_where_nobody_decodes(tmp_path: Path) -> None:
    """It would start again for ever: another model has instances that decode, but not of these KV blocks."""
    split = {"cluster.disaggregation": {"transfer": {"bytes_per_token": 1000}}}
    dead = {"cluster.failures": [{"pool": "b", "at_us": 5000}]}
    report = run(
        tmp_path, [""] * 12, SPLIT, **split, **dead, **{"policy.routing": "always-busiest", "horizon_us": 9_000_000}
    )
    assert report.requests.completed == 12
