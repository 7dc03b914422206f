"""What a trace's format leaves out is told once by every command that simulates the trace, and never by the figures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from click.testing import CliRunner, Result

from blis_tui.api import load
from blis_tui.cli.main import cli
from blis_tui.runs.simulation import Simulation
from blis_tui.study.store import STORE_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Sequence

ROWS: Final = 30
SILENT: Final = 7
"""Every so many rows have no answer."""
BURST: Final = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n" + "".join(
    f"{second}.5,GPT-4,90,{(second % SILENT != 0) * 12},100,API log\n" for second in range(ROWS)
)
WITHOUT: Final = len(range(0, ROWS, SILENT))
LEFT_OUT: Final = f"left out of the trace%s: {WITHOUT} requests without an answer\n"


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(STORE_VARIABLE, str(tmp_path / "store"))
    monkeypatch.chdir(tmp_path)
    Path("burst.csv").write_text(BURST)
    bursts: dict[str, object] = {
        "apiVersion": "blis/v1",
        "kind": "Experiment",
        "metadata": {"name": "bursts"},
        "model": "qwen3-14b",
        "hardware": "h100",
        "workload": {"trace": {"file": "burst.csv", "format": "burstgpt"}},
        "cluster": {"instances": 2},
    }
    axes = {"cluster.instances": [1, 2, 3]}
    many = {"apiVersion": "blis/v1", "kind": "Study", "metadata": {"name": "many"}, "experiment": "./bursts.blis.yaml"}
    Path("bursts.blis.yaml").write_text(json.dumps(bursts))
    Path("many.blis.yaml").write_text(json.dumps({**many, "axes": axes, "seeds": 2}))


def invoke(*args: str) -> Result:
    return CliRunner().invoke(cli, args)


NOTE: Final = "note: " + LEFT_OUT % ""
WARNING: Final = "warning: " + LEFT_OUT % " burst.csv"
SIZES: Final = ("--slo", "latency.ttft_ms.p99<=100000", "--sizes", "cluster.instances=1..3")


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (("run", "bursts.blis.yaml"), NOTE),
        (("whatif", "bursts.blis.yaml", "--request", "request_3", "--route-to", "1"), NOTE),
        (("whatif", "bursts.blis.yaml", "--every", "20"), NOTE),
        (("diff", "bursts.blis.yaml", "--set-b", "cluster.instances=3"), NOTE),
        (
            ("sweep", "bursts.blis.yaml", "--axis", "cluster.instances=1..3", "-j", "1"),
            "warning: " + LEFT_OUT % " burst.csv",
        ),
        (("sweep", "many.blis.yaml", "-j", "2"), WARNING),
        (
            ("plan", "bursts.blis.yaml", *SIZES, "-j", "1"),
            "warning: " + LEFT_OUT % " burst.csv",
        ),
    ],
)
def test_a_command_says_once_what_a_trace_leaves_out(command: Sequence[str], message: str) -> None:
    for _ in range(2):  # results that are known already say it, too
        ended = invoke(*command)
        assert ended.exit_code == 0, ended.output
        assert ended.stderr.count("left out") == 1
        assert message in ended.stderr
        assert "left out" not in ended.stdout


def test_a_report_has_it_beside_its_document() -> None:
    simulation = Simulation(load("bursts.blis.yaml"))
    twin = simulation.twin(simulation.mark())
    simulation.run()
    twin.run()
    report = simulation.report()
    assert [(one.count, one.why) for one in report.left_out] == [(WITHOUT, "without an answer")]
    assert twin.report().left_out == report.left_out
    assert report.requests.total == ROWS - WITHOUT
    assert "left_out" not in report.to_dict()
