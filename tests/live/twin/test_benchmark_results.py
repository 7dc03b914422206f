"""A load generator's results beside a simulation: the server is a simulation whose settings are known."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from blis_tui.cli.main import cli
from blis_tui.cli.standard_streams import ExitCode
from blis_tui.live.twin.benchmark_results import compare_results
from blis_tui.runs.simulation import Simulation
from blis_tui.spec.load import load

if TYPE_CHECKING:
    from pathlib import Path

    from blis_tui.model import Experiment
    from blis_tui.results.request_log import RequestRow

ASKED = ("cluster.instances=1", "latency=roofline", "expect=[]", "workload.requests=60", "workload.rate_per_s=30")


def server(*more: str) -> Experiment:
    return load("quickstart", overrides=[*ASKED, *more])


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


def test_the_same_settings_give_the_same_latencies(result: Path) -> None:
    """But for the lengths that requests share, which a result does not have: there the simulation computes more."""
    found = compare_results(result, server("engine.max_num_seqs=8"), "quickstart")
    assert len(found.pairs) == 60
    assert abs(found.errors["e2e"].bias) < 0.005
    assert found.notes == ("1 request without a complete answer: what they added to the load is not simulated",)


def test_other_settings_part(result: Path) -> None:
    found = compare_results(result, server("engine.max_num_seqs=3"), "quickstart")
    assert found.errors["ttft"].bias > 0.5
    assert found.parting is not None


def test_the_command_says_where_they_part(result: Path) -> None:
    words = ["twin", str(result), "quickstart", *(word for one in ASKED for word in ("--set", one))]
    done = CliRunner().invoke(cli, [*words, "--set", "engine.max_num_seqs=3", "--within", "20"])
    assert done.exit_code == ExitCode.CHECK_FAILED
    assert "bench.json" in done.stdout
    assert "FAIL  mean ttft differs by +" in done.stderr
    wrong = CliRunner().invoke(cli, [*words, "--steps", "fitted"])
    assert (wrong.exit_code, "have no steps" in wrong.stderr) == (ExitCode.USAGE, True)
