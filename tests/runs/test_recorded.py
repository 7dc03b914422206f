"""Runs compared, rerouted and packed by the command line, as recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.recorded import Digests, commands

if TYPE_CHECKING:
    from pathlib import Path

    import pytest
    from pytest_regressions.file_regression import FileRegressionFixture

_FEW: Final = "--set workload.requests=60"
_LINES: Final = (
    f"diff quickstart kv-pressure {_FEW}",
    f"diff quickstart --set-b engine.max_num_seqs=4 {_FEW} --all",
    f"diff vllm-preemption --set-b policy.preemption.victim=priority {_FEW} --format json",
    f"diff mixed-fleet --set-b policy.routing=round-robin {_FEW} --exit-code",
    f"diff disaggregation autoscaling {_FEW}",
    f"diff thinking --set-b seed=7 {_FEW} --all --format json",
    f"diff recovery instance-dies {_FEW} --all",
    f"whatif prefix-routing --request request_9 --route-to 1 {_FEW}",
    f"whatif prefix-routing --request request_30 --route-to 0 {_FEW} --all --format json",
    f"whatif stale-signals --every 20 --counterfactual 2 {_FEW}",
    f"whatif stale-signals --every 15 --most 3 {_FEW} --format json",
    "whatif quickstart --request request_3 --route-to 7",
)


def test_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file_regression: FileRegressionFixture) -> None:
    monkeypatch.chdir(tmp_path)
    digests = Digests()
    for number, line in enumerate(_LINES):
        commands(digests, tmp_path, line, kind=f"{number} {line.split()[0]}")
    digests.check(file_regression)
