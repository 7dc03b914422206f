"""``blis-tui calibrate`` as a user meets it."""

from __future__ import annotations

import csv
import json
import sys
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner, Result

from blis_tui import load
from blis_tui.base.errors import install_command
from blis_tui.cli.main import cli
from blis_tui.cli.options import cases_by_name
from blis_tui.cli.standard_streams import ExitCode
from blis_tui.live.calibration import other_loads
from blis_tui.live.calibration.fitting import collect

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_regressions.file_regression import FileRegressionFixture

SPEC = """\
apiVersion: blis/v1
kind: Experiment
metadata: {name: served}
model: llama-3.1-8b-instruct
hardware: h100
latency: LATENCY
policy: vllm-v1
workload:
  requests: 60
  rate_per_s: 3
  clients:
    - {id: c, input_tokens: {kind: uniform, min: 100, max: 1500}, output_tokens: {kind: uniform, min: 20, max: 100}}
"""
BAD: dict[str, str] = {
    "empty.csv": "",
    "unknown-columns.csv": "a,b\n1,2\n",
    "not-json.json": '{"ttfts": [',
    "not-detailed.json": '{"input_lens": [1], "output_lens": [1]}',
    "no-starts.json": '{"ttfts": [0.1], "itls": [[0.1]], "input_lens": [5], "output_lens": [2]}',
    "words.json": '{"ttfts": ["x"], "itls": [[]], "input_lens": [5], "output_lens": [1], "start_times": [0]}',
    "two-benchmarks.json": '{"benchmarks": [{}, {}]}',
    "empty-benchmarks.json": '{"benchmarks": []}',
    "too-few.csv": "arrival_us,input_tokens,output_tokens,ttft_us,e2e_us\n0,10,5,1000,2000\n",
    "no-number.csv": "arrival_us,input_tokens,output_tokens,ttft_us,e2e_us\n0,ten,5,1000,2000\n",
    "backwards.csv": "arrival_us,input_tokens,output_tokens,ttft_us,e2e_us\n" + "0,10,5,3000,2000\n" * 20,
    "steps-without-contexts.csv": "duration_us,decode_requests,prefill_tokens\n" + "9000,8,0\n" * 20,
    "steps-that-last-no-time.csv": "duration_us,decode_requests,prefill_tokens,context_tokens\n" + "0,8,0,80\n" * 20,
    "few-steps.csv": "duration_us,decode_requests,prefill_tokens,context_tokens\n9000,8,0,80\n",
    "no-info.json": '[{"start_time": 1.0}]',
    "milliseconds.csv": "arrival_us,input_tokens,output_tokens,ttft_ms,e2e_ms\n0,10,5,1,2\n",
    "no-benchmark.json": '{"benchmarks": [5]}',
    "no-request.json": '[{"start_time": 1, "info": {}}, 5]',
    "cut-off.csv": "arrival_us,input_tokens,output_tokens,ttft_us,e2e_us\n" + "0,10,5,1000,2000\n" * 20 + "0,10",
    "two-runs.csv": "request_id,arrival_us,input_tokens,output_tokens,ttft_us,e2e_us\n" + "a,0,10,5,1000,2000\n" * 20,
    "huge.csv": "arrival_us,input_tokens,output_tokens,ttft_us,e2e_us\n" + "0,10,5,1e300,2e300\n" * 20,
    "unequal.json": '{"ttfts": [0.1], "itls": [[0.1]], "input_lens": [5], "output_lens": [2], "start_times": [0, 1]}',
}


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for module in (collect, other_loads):  # loads that are tried to advise one of them: tested beside the fit
        monkeypatch.setattr(module, "REQUESTS", 30)
    (tmp_path / "served.blis.yaml").write_text(SPEC.replace("LATENCY", "{kind: fitted, flops: 2.4}"))
    (tmp_path / "base.blis.yaml").write_text(SPEC.replace("LATENCY", "fitted"))


def run(*args: str) -> Result:
    return CliRunner().invoke(cli, [*args])


def measured(*, requests: int = 60) -> list[dict[str, str]]:
    fewer = ("--set", f"workload.requests={requests}")
    assert run("run", "served.blis.yaml", *fewer, "--requests", "measured.csv").exit_code == ExitCode.OK
    with open("measured.csv") as file:  # noqa: PTH123  (the test's own folder)
        return list(csv.DictReader(file))


def test_from_measurements_to_an_experiment(tmp_path: Path) -> None:
    measured()
    args = ("calibrate", "measured.csv", "--spec", "base.blis.yaml", "--html", "page.html", "--format", "json")
    result = run(*args, "-o", "mine.yaml")
    assert (result.exit_code, result.stderr) == (ExitCode.OK, "")
    found = json.loads(result.stdout)
    assert found["latency"]["flops"] == pytest.approx(2.4, rel=0.03)
    (flops,) = (one for one in found["found"] if one["name"] == "flops")
    assert flops["low"] <= 2.4 <= flops["high"]
    assert found["before"]["measured.csv"]["ttft"]["bias"] < -0.2
    assert abs(found["runs"]["measured.csv"]["all"]["ttft"]["bias"]) < 0.01
    assert found["left_out"]["expert_flops"] == "the model has no experts"
    assert found["runs"]["measured.csv"]["all"]["tpot"]["grade"] == "excellent"
    text = (tmp_path / "mine.yaml").read_text()
    assert "measured.csv: 60 requests (requests), llama-3.1-8b-instruct, 1 x h100, sha256 " in text
    assert "<svg" in (tmp_path / "page.html").read_text()
    (tmp_path / "uses.blis.yaml").write_text("extends: mine.yaml\n" + SPEC.replace("latency: LATENCY\n", ""))
    (pool,) = load(tmp_path / "uses.blis.yaml").pools
    assert pool.latency.settings["flops"] == found["latency"]["flops"]
    assert f"flops: {found['latency']['flops']}  # 90 % interval " in text
    assert all(f"# {one}" in text for one in found["statements"])


def test_never_worse_than_the_start() -> None:
    """An experiment that is the server keeps its own coefficients, or gets some that agree as well."""
    measured()
    result = run("calibrate", "measured.csv", "--spec", "served.blis.yaml", "--format", "json")
    found = json.loads(result.stdout)
    for metric, after in found["runs"]["measured.csv"]["all"].items():
        before = found["before"]["measured.csv"][metric]
        assert abs(after["bias"]) <= abs(before["bias"])
        assert after["mape"] <= before["mape"]
    assert found["kept"] == any("own coefficients are kept" in one for one in found["statements"])


def test_hardware_of_which_nothing_is_known(tmp_path: Path) -> None:
    measured(requests=20)
    args = ("calibrate", "measured.csv", "--spec", "base.blis.yaml", "--base", "blackbox", "-o", "mine.yaml")
    result = run(*args)
    assert (result.exit_code, result.stderr) == (ExitCode.OK, "")
    assert "beta0" in result.stdout
    (tmp_path / "uses.blis.yaml").write_text("extends: mine.yaml\n" + SPEC.replace("latency: LATENCY\n", ""))
    (pool,) = load(tmp_path / "uses.blis.yaml").pools
    assert pool.latency.kind == "blackbox"


def test_the_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    measured()
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    result = run("calibrate", "measured.csv", "--spec", "base.blis.yaml")
    assert result.exit_code == ExitCode.IO
    assert install_command("calibrate") in result.stderr


def test_two_runs_judge_each_other() -> None:
    measured(requests=20)
    result = run("calibrate", "measured.csv", "measured.csv", "--spec", "base.blis.yaml")
    assert result.exit_code == ExitCode.OK
    assert "each run with coefficients fitted to the others" in result.stdout


def test_compare(file_regression: FileRegressionFixture) -> None:
    measured()
    result = run("calibrate", "measured.csv", "--spec", "base.blis.yaml", "--compare", "--stages", "10,10")
    assert (result.exit_code, result.stderr) == (ExitCode.OK, "")
    file_regression.check(result.stdout)


def test_what_is_compared_is_one_instance() -> None:
    measured()
    result = run("calibrate", "measured.csv", "--spec", "disaggregation", "--compare")
    assert result.exit_code == ExitCode.USAGE
    assert result.stderr.startswith("error: measurements can only be compared with one instance")


@pytest.mark.parametrize("tool", ["vllm", "guidellm", "inference-perf", "trace-v2"])
def test_every_tool_says_the_same(tool: str, tmp_path: Path) -> None:
    rows = [{key: float(row[key]) for key in ("arrival_us", "ttft_us", "e2e_us")} | row for row in measured()]
    path = tmp_path / f"{tool}.json"
    times = [(float(row["arrival_us"]), float(row["ttft_us"]), float(row["e2e_us"])) for row in rows]
    counts = [(int(row["input_tokens"]), int(row["output_tokens"])) for row in rows]
    if tool == "vllm":
        path.write_text(
            json.dumps(
                {
                    "start_times": [100 + start / 1e6 for start, _, _ in times],
                    "ttfts": [ttft / 1e6 for _, ttft, _ in times],
                    "itls": [[(e2e - ttft) / 1e6] for _, ttft, e2e in times],
                    "input_lens": [prompt for prompt, _ in counts],
                    "output_lens": [output for _, output in counts],
                }
            )
        )
    elif tool == "guidellm":
        requests = [
            {
                "request_start_time": (start - times[0][0]) / 1e6,  # the first at 0
                "prompt_tokens": prompt,
                "output_tokens": output,
                "time_to_first_token_ms": ttft / 1e3,
                "request_latency": e2e / 1e6,
            }
            for (start, ttft, e2e), (prompt, output) in zip(times, counts, strict=True)
        ]
        path.write_text(json.dumps({"benchmarks": [{"requests": {"successful": requests, "errored": [{}]}}]}))
    elif tool == "inference-perf":
        entries = [
            {
                "start_time": start / 1e6,
                "end_time": (start + e2e) / 1e6,
                "info": {"input_tokens": prompt, "output_tokens": output, "output_token_times": [(start + ttft) / 1e6]},
                "error": None,
            }
            for (start, ttft, e2e), (prompt, output) in zip(times, counts, strict=True)
        ]
        path.write_text(json.dumps(entries))
    else:
        lines = [
            "input_tokens,output_tokens,server_input_tokens,arrival_time_us,first_chunk_time_us,last_chunk_time_us"
        ]
        lines += [
            f"0,{output},{prompt},{start},{start + ttft},{start + e2e}"
            for (start, ttft, e2e), (prompt, output) in zip(times, counts, strict=True)
        ]
        path.write_text("\n".join(lines))
    args = ("--spec", "base.blis.yaml", "--compare", "--format", "json")
    expected = json.loads(run("calibrate", "measured.csv", *args).stdout)["runs"]["measured.csv"]["all"]["e2e"]
    found = json.loads(run("calibrate", path.name, *args).stdout)["runs"][path.name]["all"]["e2e"]
    assert found["measured_ms"] == pytest.approx(expected["measured_ms"])
    assert found["bias"] == pytest.approx(expected["bias"], abs=1e-3)


@pytest.mark.parametrize("name", BAD)
def test_bad_files(name: str, tmp_path: Path, file_regression: FileRegressionFixture) -> None:
    (tmp_path / name).write_text(BAD[name])
    result = run("calibrate", name, "--spec", "base.blis.yaml")
    assert (result.exit_code, result.stdout) == (ExitCode.IO, "")
    file_regression.check(result.stderr)


def test_a_file_that_cannot_be_written_is_told_before_the_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    measured()
    monkeypatch.setattr("blis_tui.live.calibration.run.calibrated", lambda *_: pytest.fail("it was fitted"))
    result = run("calibrate", "measured.csv", "--spec", "base.blis.yaml", "-o", "no/such/mine.yaml")
    assert (result.exit_code, result.stdout) == (ExitCode.IO, "")
    assert result.stderr == "error: cannot write no/such/mine.yaml: No such file or directory\n"


def test_requests_without_an_answer_and_beyond_the_stages_are_told(tmp_path: Path) -> None:
    rows = measured()
    head = ["arrival_us", "input_tokens", "output_tokens", "ttft_us", "e2e_us"]
    lines = [[row[key] if number % 4 or "_us" not in key else "" for key in head] for number, row in enumerate(rows)]
    for line, row in zip(lines, rows, strict=True):
        line[0] = row["arrival_us"]
    (tmp_path / "some.csv").write_text("\n".join(",".join(line) for line in [head, *lines]) + "\n")
    last_s = int(rows[-1]["arrival_us"]) / 1e6 - int(rows[1]["arrival_us"]) / 1e6
    result = run("calibrate", "some.csv", "--spec", "base.blis.yaml", "--compare", "--stages", "0.5,0.5")
    assert result.exit_code == ExitCode.OK
    first, second = result.stderr.splitlines()
    assert first.startswith("note: some.csv: 15 requests of 60 have no complete answer: what they added to the load")
    assert second.startswith(f"note: some.csv: requests were sent until {last_s:,.1f} s, the stages last 1.0 s:")


def test_usage() -> None:
    for more, message in (
        (("--compare", "-o", "x.yaml"), "fits nothing"),
        (("--stages", "a,b"), "not a list of seconds"),
        (("--spec", "base.blis.yaml"), "give one, or one for each file"),
    ):
        result = run("calibrate", "m.csv", "--spec", "base.blis.yaml", *more)
        assert (result.exit_code, message in result.stderr) == (ExitCode.USAGE, True)


# ---- what to measure ----

SMALL = ("--set", "engine.max_num_seqs=4", "--set", "engine.max_model_len=256")
"""Two loads fit into such an engine."""


def test_loads_to_collect_are_cases_of_an_experiment(tmp_path: Path) -> None:
    result = CliRunner().invoke(cli, ["calibrate", "--collect", "loads.blis.yaml", "--spec", "base.blis.yaml", *SMALL])
    assert result.exit_code == ExitCode.OK, result.output
    assert result.output.endswith("wrote loads.blis.yaml\n")
    text = (tmp_path / "loads.blis.yaml").read_text()
    assert "blis-tui observe URL --workload loads.blis.yaml --case" in text
    cases = cases_by_name("loads.blis.yaml", None, None)
    assert {*cases} == {"users-1-prompt-64-answer-16", "users-4-prompt-64-answer-16"}
    for name, case in cases.items():
        assert f"{name}: About " in result.output.replace("\n", " ")
        (client,) = load("loads.blis.yaml", set=dict(case.overrides)).workload.clients
        assert client.arrivals.settings["users"] == int(name.split("-")[1])
        assert dict(client.input_tokens.settings) == {"min": 32, "max": 96}
    # What was set of the server is part of it.
    assert load("loads.blis.yaml").pools[0].engine.max_num_seqs == 4
    CliRunner().invoke(cli, ["calibrate", "--collect", "loads.blis.yaml", "--spec", "base.blis.yaml", *SMALL])
    assert (tmp_path / "loads.blis.yaml").read_text() == text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--spec", "base.blis.yaml"], "name files of measured requests or steps"),
        (["--collect", "x.yaml", "--spec", "base.blis.yaml", "--base", "blackbox"], "--collect FILE takes one --spec"),
        (["--collect", "x.yaml", "--spec", "base.blis.yaml", "--compare"], "--collect FILE takes one --spec"),
        (["--collect", "base.blis.yaml", "--spec", "base.blis.yaml"], "base.blis.yaml"),
        (["--collect", "x.yaml", "--spec", "base.blis.yaml", "--set", "cluster.instances=2"], "one instance"),
    ],
)
def test_loads_to_collect_are_refused(tmp_path: Path, arguments: list[str], message: str) -> None:
    before = (tmp_path / "base.blis.yaml").read_text()
    result = CliRunner().invoke(cli, ["calibrate", *arguments])
    assert result.exit_code != ExitCode.OK
    assert message in result.output
    assert "Traceback" not in result.output
    assert not (tmp_path / "x.yaml").exists()
    assert (tmp_path / "base.blis.yaml").read_text() == before
