"""A load generator's results beside a simulation: the server is a simulation whose settings are known."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from blis_tui.cli import tui
from blis_tui.cli.main import cli
from blis_tui.cli.standard_streams import ExitCode
from blis_tui.live.twin.twin import Twin, compare_results, read_results
from blis_tui.runs.simulation import Simulation
from blis_tui.spec.load import load

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from blis_tui.model import Experiment
    from blis_tui.results.request_log import RequestRow
    from blis_tui.tui.app import TwinStart

ASKED = ("cluster.instances=1", "latency=roofline", "expect=[]", "workload.requests=60", "workload.rate_per_s=30")


def server(*more: str) -> Experiment:
    return load("quickstart", overrides=[*ASKED, *more])


def compared(file: Path, *more: str) -> Twin:
    experiment = server(*more)
    return compare_results(read_results(file, experiment), experiment, "quickstart")


def gaps(row: RequestRow) -> list[float]:
    """Equal gaps between the tokens of an answer, in seconds."""
    count = row.output_tokens - 1
    return [((row.e2e_us or 0) - (row.ttft_us or 0)) / 1e6 / count] * count if count else []


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `vllm bench serve --save-detailed` writes, of a server that runs eight requests at once."""
    simulation = Simulation(server("engine.max_num_seqs=8"))
    simulation.run()
    rows = simulation.report().rows
    document: dict[str, Any] = {
        "start_times": [row.arrival_us / 1e6 + 1000 for row in rows] + [1000.5],
        "input_lens": [row.input_tokens for row in rows] + [7],
        "output_lens": [row.output_tokens for row in rows] + [0],
        "ttfts": [(row.ttft_us or 0) / 1e6 for row in rows] + [0.0],
        "itls": [gaps(row) for row in rows] + [[]],
    }
    path = tmp_path_factory.mktemp("bench") / "bench.json"
    path.write_text(json.dumps(document))
    return path


def test_the_terminal_shows_them_beside_the_simulation(result: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[TwinStart] = []
    monkeypatch.setattr(tui, "has_terminal", lambda: True)
    monkeypatch.setattr(tui, "_run", lambda app: shown.append(app.start))
    settings = [word for setting in (*ASKED, "engine.max_num_seqs=8") for word in ("--set", setting)]
    done = CliRunner().invoke(cli, ["tui", "quickstart", *settings, "--twin", str(result)])
    assert done.exit_code == 0, done.output
    (start,) = shown
    assert len(start.recording.requests) == len(start.twin.pairs) == 60


def test_the_same_settings_give_the_same_latencies(result: Path) -> None:
    """But for the lengths that requests share, which a result does not have: there the simulation computes more."""
    twin = compared(result, "engine.max_num_seqs=8")
    assert len(twin.pairs) == 60
    assert abs(twin.errors["e2e"].bias) < 0.005
    assert twin.notes == ("1 request without a complete answer: what they added to the load is not simulated",)


def test_other_settings_part(result: Path) -> None:
    twin = compared(result, "engine.max_num_seqs=3")
    assert twin.errors["ttft"].bias > 0.5
    assert twin.parting is not None


def test_the_command_says_where_they_part(result: Path) -> None:
    words = ["twin", str(result), "quickstart", *(word for one in ASKED for word in ("--set", one))]
    done = CliRunner().invoke(cli, [*words, "--set", "engine.max_num_seqs=3", "--within", "20"])
    assert done.exit_code == ExitCode.CHECK_FAILED
    assert "bench.json" in done.stdout
    assert "FAIL  mean ttft differs by +" in done.stderr
    wrong = CliRunner().invoke(cli, [*words, "--steps", "fitted"])
    assert (wrong.exit_code, "have no steps" in wrong.stderr) == (ExitCode.USAGE, True)


def aiperf(rows: Sequence[RequestRow]) -> str:
    """What AIPerf writes of each request: `profile_export.jsonl`, with a warm-up request and a failed one."""

    def metric(value: float, unit: str) -> dict[str, object]:
        return {"value": value, "unit": unit}

    def line(start_us: int, phase: str, metrics: dict[str, object], error: object = None) -> str:
        metadata = {"session_num": 0, "request_start_ns": 10**18 + start_us * 1000, "benchmark_phase": phase}
        return json.dumps({"metadata": metadata, "metrics": metrics, "error": error}) + "\n"

    lines = [line(0, "warmup", {}), line(500, "profiling", {"error_isl": metric(5, "tokens")}, {"code": 499})]
    for row in rows:
        found: dict[str, object] = {
            "input_sequence_length": metric(row.input_tokens, "tokens"),
            "output_sequence_length": metric(row.output_tokens, "tokens"),
            "time_to_first_token": metric((row.ttft_us or 0) / 1e3, "ms"),
            "request_latency": metric((row.e2e_us or 0) / 1e6, "sec"),
        }
        lines.append(line(row.arrival_us, "profiling", found))
    return "".join(lines)


def inference_perf(rows: Sequence[RequestRow]) -> str:
    """What newer versions of inference-perf write of each request, on a clock of their own."""
    found: list[dict[str, object]] = [{"start_time": 7.5, "end_time": 8.0, "info": None, "error": {"error_type": "x"}}]
    for row in rows:
        start = 7.0 + row.arrival_us / 1e6
        first, end = start + (row.ttft_us or 0) / 1e6, start + (row.e2e_us or 0) / 1e6
        answer = {"output_tokens": row.output_tokens, "output_token_times": [first, end]}
        info = {"request_metrics": {"text": {"input_tokens": row.input_tokens}}, "response_metrics": answer}
        found.append({"start_time": start, "end_time": end, "info": info, "error": None})
    return json.dumps(found)


@pytest.mark.parametrize("write", [aiperf, inference_perf])
def test_other_tools_say_the_same_of_each_request(write: Callable[[Sequence[RequestRow]], str], tmp_path: Path) -> None:
    simulation = Simulation(server("engine.max_num_seqs=8"))
    simulation.run()
    path = tmp_path / "result"
    path.write_text(write(simulation.report().rows))
    twin = compared(path, "engine.max_num_seqs=8")
    assert len(twin.pairs) == 60
    assert abs(twin.errors["e2e"].bias) < 0.005
    assert twin.notes == ("1 request without a complete answer: what they added to the load is not simulated",)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"unit": "sec"', '"unit": "min"', "`request_latency` has no unit of"),
        ('"request_latency"', '"latency"', "there is no 'request_latency'"),
        ('"error": null}', '"error"', "Expecting ':' delimiter"),
    ],
)
def test_a_broken_line_of_aiperf_is_one_error(old: str, new: str, message: str, tmp_path: Path) -> None:
    simulation = Simulation(server("engine.max_num_seqs=8"))
    simulation.run()
    lines = aiperf(simulation.report().rows).splitlines(keepends=True)
    assert old in lines[9]
    path = tmp_path / "profile_export.jsonl"
    path.write_text("".join([*lines[:9], lines[9].replace(old, new), *lines[10:]]))
    done = CliRunner().invoke(cli, ["twin", str(path), "quickstart"])
    assert (done.exit_code, done.stdout) == (2, "")
    assert message in done.stderr
    assert f"{path}:10:" in done.stderr


def test_one_of_several_benchmarks_is_chosen(result: Path, tmp_path: Path) -> None:
    document = json.loads(result.read_text())
    rows = zip(
        *(document[name][:60] for name in ("start_times", "input_lens", "output_lens", "ttfts", "itls")), strict=True
    )
    requests = [
        {
            "start_time": start,
            "prompt_tokens": prompt,
            "output_tokens": output,
            "time_to_first_token_ms": first * 1e3,
            "request_latency": first + sum(gaps),
        }
        for start, prompt, output, first, gaps in rows
    ]
    path = tmp_path / "benchmarks.json"
    path.write_text(
        json.dumps({"benchmarks": [{"requests": {"successful": []}}, {"requests": {"successful": requests}}]})
    )
    words = ["twin", str(path), "quickstart", *(word for one in ASKED for word in ("--set", one))]
    several = CliRunner().invoke(cli, words)
    assert (several.exit_code, "twin --run N" in several.stderr) == (ExitCode.IO, True)
    chosen = CliRunner().invoke(cli, [*words, "--run", "2"])
    assert (chosen.exit_code, "60 answered on both sides" in chosen.stdout) == (0, True)
