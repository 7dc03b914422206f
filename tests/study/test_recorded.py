"""Studies by the command line: what they print and write, as recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.recorded import Digests, commands

if TYPE_CHECKING:
    from pathlib import Path

    import pytest
    from pytest_regressions.file_regression import FileRegressionFixture

_FEW: Final = "--set workload.requests=60 --set expect=[] --store none -j 1"
_SLO: Final = "--slo latency.ttft_ms.p99<=90"
_RATES: Final = "--axis workload.rate_per_s=4,64,128"
_LINES: Final = (
    f"sweep quickstart {_FEW} {_RATES} --axis cluster.instances=1,2 {_SLO} --seeds 2 --objective cost.gpus",
    f"sweep quickstart {_FEW} {_RATES} --format csv --price h100=2.5 --html sweep.html",
    f"sweep kv-pressure {_FEW} --axis policy.preemption.victim=tail,priority --format jsonl --early-stop {_SLO}",
    f"sweep tenant-budgets {_FEW} --axis policy=default,blis -o rows.csv --slo requests.rejected<=0",
    f"sensitivity kv-pressure {_FEW} --slo latency.e2e_ms.p95<=3000 --seeds 2",
    f"sensitivity fcfs {_FEW} {_SLO} --seeds 2 --format json",
    "shrink kv-pressure --expect kv.preemptions<=0 --set workload.requests=40 -o small --runs 60",
)


def test_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file_regression: FileRegressionFixture) -> None:
    monkeypatch.chdir(tmp_path)
    digests = Digests()
    for number, line in enumerate(_LINES):
        commands(digests, tmp_path, line, kind=f"{number} {line.split()[0]}")
    digests.check(file_regression)
