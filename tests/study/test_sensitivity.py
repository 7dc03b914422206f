"""What each key does to the tightest bound, computed once more from plain runs."""

from __future__ import annotations

import json
from dataclasses import replace
from math import sqrt
from random import Random
from statistics import mean, stdev
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import pytest
from click.testing import CliRunner

import blis_tui
from blis_tui.base.errors import InputError
from blis_tui.cli.main import cli
from blis_tui.spec.schema import properties_of
from blis_tui.study.api import study_from
from blis_tui.study.runners import InProcessRunner
from blis_tui.study.sensitivity import KNOBS, PROCESSES, Sensitivity, mean_and_interval, sensitivity, sensitivity_text
from blis_tui.study.store import MemoryStore
from tests.results.test_lints import ids
from tests.study.test_short_runs import GROWING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SEEDS: Final = [3, 4, 5]
ANSWERS: Final = "workload.clients.0.output_tokens"
SMALL: Final[dict[str, object]] = {
    "workload.requests": 80,
    "workload.rate_per_s": 80,
    ANSWERS: {"kind": "gaussian", "mean": 100, "std_dev": 30, "min": 16, "max": 300},
}
"""Shorter answers, and as little memory for them: some changes help, and some harm."""
SLOS: Final = ["latency.ttft_ms.p99<=200", "requests.completed>=10"]


def found(
    slos: Sequence[str] = SLOS, seeds: Sequence[int] = SEEDS, settings: Mapping[str, object] = MappingProxyType({})
) -> Sensitivity:
    study = study_from("kv-pressure", {}, seeds, {**SMALL, **settings}, slos, (), (), {})
    with InProcessRunner() as runner:
        return sensitivity(study, runner, MemoryStore())


@pytest.fixture(scope="module")
def pressure() -> Sensitivity:
    return found()


def figure(seed: int, **settings: object) -> float:
    return blis_tui.run("kv-pressure", set={**SMALL, **settings}, seed=seed).latency.ttft_ms.p99 or 0.0


def test_figures_are_those_of_plain_runs(pressure: Sensitivity) -> None:
    assert (pressure.metric, pressure.bound, pressure.upper) == ("latency.ttft_ms.p99", 200.0, True)
    before = [figure(seed) for seed in SEEDS]
    assert pressure.figure == pytest.approx(mean(before))
    assert pressure.holds == len([one for one in before if one <= 200])
    for path, value in (("engine.kv_blocks", 1200), ("policy.scheduling", "sjf"), ("engine.kv_blocks", 300)):
        (effect,) = (one for one in pressure.effects if (one.path, one.value) == (path, value))
        after = [figure(seed, **{path: value}) for seed in SEEDS]
        differences = [two - one for one, two in zip(before, after, strict=True)]
        assert effect.figure == pytest.approx(mean(after))
        assert effect.change == pytest.approx(mean(differences))
        assert effect.interval == pytest.approx(4.303 * stdev(differences) / sqrt(3))
        assert effect.counts == (abs(mean(differences)) > 4.303 * stdev(differences) / sqrt(3))
        assert effect.holds == len([one for one in after if one <= 200])


def test_what_helps_most_comes_first(pressure: Sensitivity) -> None:
    gains = [pressure.gain(effect) for effect in pressure.effects if effect.counts]
    assert gains == sorted(gains, reverse=True)
    assert gains[0] > 0 > gains[-1]
    first = [effect.counts for effect in pressure.effects]
    assert first == sorted(first, reverse=True)


def test_each_key_is_tried_that_the_experiment_says(pressure: Sensitivity) -> None:
    tried = {effect.path for effect in pressure.effects}
    assert tried == KNOBS.keys() - {PROCESSES}  # its step times know no API server
    assert {effect.value for effect in pressure.effects if effect.path == "engine.kv_blocks"} == {300, 1200}
    assert {effect.value for effect in pressure.effects if effect.path == "cluster.instances"} == {2}
    assert {effect.now for effect in pressure.effects if effect.path == "policy.scheduling"} == {"fcfs"}


def test_of_several_pools_the_instances_of_each_are_tried() -> None:
    study = study_from("mixed-fleet", {}, 2, {"workload.requests": 20}, SLOS, (), (), {})
    with InProcessRunner() as runner:
        effects = sensitivity(study, runner, MemoryStore()).effects
    sizes = {(effect.path, effect.value): effect.figure for effect in effects if effect.path.endswith(".instances")}
    assert {*sizes} == {(f"cluster.pools.{pool}.instances", size) for pool in (0, 1) for size in (1, 3)}
    assert None not in sizes.values()
    assert "cluster.instances" not in {effect.path for effect in effects}


def test_of_a_cluster_that_is_split_the_instances_of_both_halves_are_tried() -> None:
    """With as many fewer or more in all: one of the cluster alone would belong to neither half."""
    study = study_from("disaggregation", {}, 2, {"workload.requests": 20}, SLOS, (), (), {})
    with InProcessRunner() as runner:
        effects = sensitivity(study, runner, MemoryStore()).effects
        more: dict[str, object] = {"cluster.instances": 5, "cluster.disaggregation.decode_instances": 3}
        wider = study_from("disaggregation", {}, 2, {"workload.requests": 20, **more}, SLOS, (), (), {})
        unchanged = sensitivity(wider, runner, MemoryStore()).figure
    sizes = {(effect.path, effect.value): effect.figure for effect in effects if effect.path.endswith("instances")}
    halves = [f"cluster.disaggregation.{half}_instances" for half in ("prefill", "decode")]
    assert {*sizes} == {(path, size) for path in halves for size in (1, 3)}
    assert None not in sizes.values()
    assert sizes[halves[1], 3] == unchanged


def test_the_budget_of_a_rule_of_its_own_is_tried_in_the_place_of_one_that_it_does_not_read() -> None:
    few: dict[str, object] = {ANSWERS: 16, "policy": "sglang", "workload.requests": 20}
    tried = {effect.path: effect.now for effect in found(seeds=[3, 4], settings=few).effects}
    assert tried["policy.batching.chunked_prefill_size"] == 8192
    assert tried["policy.batching.enable_mixed_chunk"] is False
    assert not {"engine.max_num_batched_tokens", "engine.long_prefill_token_threshold"} & tried.keys()


def test_every_knob_is_a_key() -> None:
    for path in KNOBS:
        part, key, *_ = path.split(".")
        kind = ("Policy", "document") if part == "policy" else ("Experiment", part)
        assert key in properties_of(*kind), path


def test_a_lower_bound_is_better_for_more() -> None:
    more = found(["throughput.requests_per_s>=200"], [1, 2])
    assert not more.upper
    best = more.effects[0]
    assert best.counts
    assert best.change is not None
    assert best.change > 0


def test_what_cannot_be_run_says_why() -> None:
    settings: dict[str, object] = {ANSWERS: 16, "cluster.tensor_parallel": 8}
    wide = found(SLOS, [1, 2], settings={**settings, "model": "qwen3-14b"})
    (odd,) = (effect for effect in wide.effects if (effect.path, effect.value) == ("cluster.tensor_parallel", 16))
    assert odd.figure is None
    assert "40" in odd.why
    assert f"cluster.tensor_parallel: 16: {odd.why}" in sensitivity_text(wide)


def test_the_interval_holds_as_often_as_it_says() -> None:
    """Of normal differences, whose mean is known."""
    drawn = Random(7)  # noqa: S311  (no secret)
    for count in (2, 3, 5, 12, 30):
        held = 0
        for _ in range(2000):
            centre, half = mean_and_interval([drawn.gauss(3.0, 2.0) for _ in range(count)])
            held += abs(centre - 3.0) <= half
        assert 0.935 <= held / 2000 <= 0.97


def test_one_seed_is_not_enough() -> None:
    with pytest.raises(InputError, match="one seed says nothing about what seeds do"):
        found(seeds=[1])


SETTINGS: Final = [word for path, value in SMALL.items() for word in ("--set", f"{path}={json.dumps(value)}")]
COMMAND: Final = ["sensitivity", "kv-pressure", *SETTINGS, "--store", "none", "--jobs", "1"]


def test_the_command_prints_a_table_and_the_same_bytes_each_time(pressure: Sensitivity) -> None:
    """It asks once more what was asked for ``pressure``, of runs of its own."""
    slos = [word for slo in SLOS for word in ("--slo", slo)]
    done = CliRunner().invoke(cli, [*COMMAND, *slos, "--seeds", ",".join(map(str, SEEDS))])
    assert done.exit_code == 0, done.stderr
    assert done.stdout == sensitivity_text(pressure)
    assert done.stdout.startswith("latency.ttft_ms.p99 is ")
    assert "engine.kv_blocks" in done.stdout
    assert "± is half of a 95 % interval over the seeds" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "no bound given"),
        (["--slo", "latency.ttft_ms.p99<=900", "--seeds", "1"], "one seed says nothing"),
        (["--slo", "latency.ttft<=900"], "latency.ttft"),
        (["--slo", "latency.ttft_ms.p99<=900", "--set", "engine.kv_blocks=1"], "exceeds the KV cache"),
    ],
)
def test_bad_input_is_one_error(arguments: list[str], says: str) -> None:
    done = CliRunner().invoke(cli, [*COMMAND, *arguments])
    assert done.exit_code in (2, 3)
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_a_bound_that_nothing_can_come_closer_to_is_refused_as_such() -> None:
    with pytest.raises(InputError, match="no bound that a figure could come closer to"):
        found(["requests.completed==80"])


def test_a_change_that_only_holds_for_now_is_marked_and_so_is_what_it_is_compared_with(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two instances meet the bound for half a minute, while batches fill; one does not, and three do for good."""
    monkeypatch.setattr("blis_tui.study.sensitivity.KNOBS", {"cluster.instances": "one", "engine.max_num_seqs": (400,)})
    load = {**GROWING, "workload.requests": 600}
    study = study_from("quickstart", {}, 2, load, ["latency.ttft_ms.p99<=200"], (), (), {})
    with InProcessRunner() as runner:
        result = sensitivity(study, runner, MemoryStore())

    def counted(**settings: object) -> tuple[int, int]:
        reports = [blis_tui.run("quickstart", set={**load, **settings}, seed=seed) for seed in study.seeds]
        passing = [report for report in reports if (report.latency.ttft_ms.p99 or 0) <= 200]
        return len(passing), len([report for report in passing if "unsettled" in ids(report)])

    assert (result.holds, result.growing) == counted() == (2, 2)
    found = {(effect.path, effect.value): (effect.holds, effect.growing) for effect in result.effects}
    tried: list[tuple[str, int]] = [("cluster.instances", 1), ("cluster.instances", 3), ("engine.max_num_seqs", 400)]
    assert found == {(path, value): counted(**{path: value}) for path, value in tried}
    assert found["cluster.instances", 3] == (2, 0)
    text = sensitivity_text(result)
    assert text.splitlines()[0].endswith("(<= 200; ? 2 of 2 seeds pass).")
    assert "? in some of these runs ever more requests were in the system" in text
    settled = sensitivity_text(replace(result, growing=0, effects=()))
    assert "?" not in settled


def test_where_no_change_counts_none_is_said_to_have_no_effect_at_all() -> None:
    text = sensitivity_text(found(["requests.completed>=10"]))
    assert text.startswith("requests.completed is 80 now (>= 10; ? 3 of 3 seeds pass).")
    assert "No change has a clear effect on it.\n\nNo effect beyond the variation between 3 seeds:" in text
