"""Coefficients found again from steps, as engines log them."""

from __future__ import annotations

import json
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

import blis_tui
from blis_tui.base.errors import InputError
from blis_tui.base.streams import Streams
from blis_tui.cli.main import cli
from blis_tui.cli.standard_streams import ExitCode
from blis_tui.engine.latency.wrappers import launches
from blis_tui.engine.records import StepFinished
from blis_tui.live.calibration.fitting.calibrate import fit
from blis_tui.live.calibration.measured import Data, Step, StepLog, read_recording
from blis_tui.live.calibration.run import calibrated
from blis_tui.live.calibration.simulated_load import stepped
from blis_tui.runs.simulation import Simulation
from tests.live.calibration.servers import TRUTH, served, with_coefficients

if TYPE_CHECKING:
    from blis_tui.model import Experiment


def steps_of(experiment: Experiment, noise: float, seed: int = 1) -> tuple[Step, ...]:
    records: list[StepFinished] = []
    simulation = Simulation(with_coefficients(experiment, TRUTH), check="off")
    simulation.subscribe(StepFinished, records.append)
    simulation.run()
    stream = Streams(seed).stream("noise")
    return tuple(
        Step(
            record.duration_us * (1.0 + noise * stream.normal()),
            record.decode_requests,
            record.decode_context_tokens,
            tuple((chunk.computed_tokens, chunk.new_tokens) for chunk in record.chunks),
        )
        for record in records
    )


def logged(experiment: Experiment, noise: float, seed: int = 1) -> Data:
    return Data(StepLog(Path("steps.csv"), "steps", "0" * 64, steps_of(experiment, noise, seed)), experiment)


def test_known_coefficients_are_found_again() -> None:
    models = [("llama-3.1-8b-instruct", 6.0), ("llama-2-7b-hf", 4.0), ("qwen3-14b", 3.0)]
    found = fit([logged(served(model, rate, 3000, requests=40), 0.005) for model, rate in models], "fitted")
    measured = {one.name for one in found.found if one.told == "measured"}
    assert {"weights", "kv_read", "layer_us", "flops"} <= measured
    held = [one.low <= getattr(TRUTH, one.name) <= one.high for one in found.found]
    assert sum(held) >= 0.8 * len(held)
    for one in found.found:
        if one.told == "measured":
            assert one.value == pytest.approx(getattr(TRUTH, one.name), rel=0.1), one.name
    left_out = {one.name: one.why for one in found.left_out}
    assert {"all_reduce", "layer_tp_us", "expert_weights", "first_token_us"} <= left_out.keys()
    assert "steps say nothing of what requests wait for outside of them" in left_out.values()
    assert left_out["expert_weights"] == "the model has no experts"
    assert left_out["fp8_uneven"] == "no weights of 8 bits are multiplied as such"
    names = {one.name for one in found.found} | left_out.keys()
    assert names == set(found.latency.settings), "whatever is written is found, or said to be as it was"


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param((Step(17_000.0, 64, 256_000.0, ()),) * 50, id="all-equal"),
        pytest.param(tuple(Step(9000.0 * (1 + 30 * (at % 3)), 8, 8000.0, ()) for at in range(50)), id="contradictory"),
    ],
)
def test_steps_that_tell_nothing_are_refused(steps: tuple[Step, ...]) -> None:
    one = served("llama-3.1-8b-instruct", 2.0, 1500)
    with pytest.raises(InputError, match="determine no coefficient"):
        calibrated([Data(StepLog(Path("steps.csv"), "steps", "0" * 64, steps), one)])


def vllm_log(first: int = 1, process: int = 1) -> str:
    """20 steps, each followed by a dummy step."""
    prefix = f"(EngineCore_DP0 pid={process}) INFO 07-08 00:00:02 [loggers.py:182] Engine 000: "
    work = "2 context requests, 101 context tokens, 43 generation requests, 43 generation tokens"
    ends = ("25.94 ms, GPU KV cache usage: 50.0%", "0.10 ms (dummy)")
    numbers = range(first, first + 40)
    lines = [f"{prefix}Iteration({n}): {work}, iteration elapsed time: {ends[(n - first) % 2]}" for n in numbers]
    return "\n".join(["INFO starting", *lines, ""])


@pytest.mark.parametrize(
    ("second", "message"),
    [
        pytest.param(vllm_log(), r"line 43 is iteration 1, after iteration 40: a log of another server", id="restart"),
        pytest.param(vllm_log(41, 2), r"line 43 is of EngineCore_DP0 pid=2 engine 000, those", id="other-process"),
    ],
)
def test_logs_of_two_servers_are_refused(second: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "serve.log"
    path.write_text(vllm_log() + second)
    with pytest.raises(InputError, match=message) as caught:
        read_recording(path, served("llama-3.1-8b-instruct", 2.0, 1500).pools[0])
    assert "give each a file of its own" in str(caught.value)


def test_a_log_of_vllm_is_read(tmp_path: Path) -> None:
    one = served("llama-3.1-8b-instruct", 2.0, 1500)
    (pool,) = one.pools
    pool = replace(pool, engine=replace(pool.engine, kv_blocks=1000, block_size_tokens=16))
    path = tmp_path / "serve.log"
    path.write_text(vllm_log())
    log = read_recording(path, pool)
    assert isinstance(log, StepLog)
    # Half of 16,000 tokens, less those of the prompts.
    assert log.steps == (Step(25940.0, 43, 8000.0 - 101.0, ((0, 50), (0, 51))),) * 20
    path.write_text(vllm_log().replace("GPU KV", "CPU KV"))
    assert read_recording(path, pool) == replace(log, sha256=sha256(path.read_bytes()).hexdigest())
    path.write_text(vllm_log().replace(", GPU KV cache usage: 50.0%", ""))
    with pytest.raises(InputError, match=r"step 1: it has neither contexts nor the KV cache in use"):
        read_recording(path, pool)
    path.write_text("Iteration(1): 2 requests\n")
    with pytest.raises(InputError, match="not as vLLM writes iterations"):
        read_recording(path, pool)


def test_a_table_of_steps_is_fitted_and_judged(tmp_path: Path) -> None:
    one = served("llama-3.1-8b-instruct", 6.0, 3000, requests=40)
    rows = ["duration_us,decode_requests,context_tokens,prefill_requests,prefill_tokens,prefill_computed_tokens"]
    for step in steps_of(one, 0.002):
        before, new = (sum(part) for part in zip(*step.chunks, strict=True)) if step.chunks else (0, 0)
        figures = (step.duration_us, step.decode_requests, step.context_tokens, len(step.chunks), new, before)
        rows.append(",".join(map(str, figures)))
    path, spec, mine = tmp_path / "steps.csv", tmp_path / "served.blis.yaml", tmp_path / "mine.yaml"
    path.write_text("\n".join(rows))
    spec.write_text(
        "apiVersion: blis/v1\nkind: Experiment\nmetadata: {name: served}\nmodel: llama-3.1-8b-instruct\n"
        "hardware: h100\nlatency: fitted\npolicy: vllm-v1\n"
        "workload: {requests: 9, rate_per_s: 1, clients: [{id: c, input_tokens: 9, output_tokens: 9}]}\n"
    )
    call = ("calibrate", str(path), "--spec", str(spec), "--format", "json")
    result = CliRunner().invoke(cli, [*call, "-o", str(mine), "--html", str(tmp_path / "page.html")])
    assert (result.exit_code, result.stderr) == (ExitCode.OK, "")
    run = json.loads(result.stdout)["runs"]["steps.csv"]
    assert run["all"]["step"]["mape"] < 0.01
    assert len(run["by_batch"]) == 8
    assert f"steps.csv: {len(rows) - 1:,} steps (steps), llama-3.1-8b-instruct, 1 x h100, sha256 " in mine.read_text()
    page = (tmp_path / "page.html").read_text()
    assert "<circle" in page
    assert ">tokens</th>" in page
    table = CliRunner().invoke(cli, [*call[:-1], "table"]).stdout
    assert "\n  tokens 1.0 to " in table
    assert "\n  batch " not in table
    judged = CliRunner().invoke(cli, [*call, "--compare"])
    assert json.loads(judged.stdout)["runs"]["steps.csv"]["all"]["step"]["mape"] > 0.02
    # Steps have no waits that could be off.
    auto = CliRunner().invoke(cli, [*call, "--compare", "--set", "latency=operators"])
    errors = json.loads(auto.stdout)["step_time"]["steps.csv"]["expected_error_percent"]
    assert errors["itl"]["servers"] > 5
    assert (errors["ttft"], errors["e2e"]) == (None, None)


def test_more_prefills_than_any_step_has_are_refused(tmp_path: Path) -> None:
    (pool,) = served("llama-3.1-8b-instruct", 6.0, 3000, requests=1).pools
    file = tmp_path / "steps.csv"
    file.write_text(
        "duration_us,decode_requests,context_tokens,prefill_requests,prefill_tokens\n9000,4,99,1e12,1000000000000\n"
    )
    with pytest.raises(InputError, match="1,000,000,000,000 prefills in one step"):
        read_recording(file, pool)


def test_predictions_are_those_of_the_step_time_model() -> None:
    one = with_coefficients(served("llama-3.1-8b-instruct", 6.0, 3000, requests=20), TRUTH)
    log = logged(one, 0.0).recording
    assert isinstance(log, StepLog)
    for pair in stepped(one, log):
        assert pair.step_us == pytest.approx(pair.measured.duration_us, abs=1.0)


def test_steps_of_sglang_are_predicted_with_its_launches() -> None:
    """What its graphs do not hold takes no less: as the simulation's own steps do."""
    keys = {"cluster.tensor_parallel": 8, "engine.cudagraph_mode": "FULL_DECODE_ONLY", "policy": "sglang"}
    asked = {"model": "qwen3.5-397b-a17b", "hardware": "h200", "latency": "operators", "workload.requests": 10}
    experiment = blis_tui.load("steady-chat", set={**asked, **keys, "expect": []})
    prompt = Step(1.0, 0, 0.0, ((0, 100),))
    (pair,) = stepped(experiment, StepLog(Path("steps.csv"), "steps", "0" * 64, (prompt,)))
    (pool,) = experiment.pools
    assert pair.step_us == int(1.5 * launches(pool.model, 8, prompts=True) * 38)
