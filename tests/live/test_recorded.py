"""Workloads described and fitted, twins and calibrations by the command line, as recorded."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Final

from tests.recorded import Digests, commands
from tests.wheels import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    import pytest
    from pytest_regressions.file_regression import FileRegressionFixture

_RECORDING: Final = ROOT / "docs" / "recordings" / "monday"
_ONE: Final = "--set cluster.instances=1"
_LINES: Final = (
    *(f"workload describe {name}" for name in ("chatbot", "bursty", "prefix-heavy", "mixed-slo")),
    "workload describe chatbot --format json --requests 200 --html chatbot.html",
    "workload convert mixed-slo --seed 7 --requests 300 -o requests.csv",
    "workload describe requests.csv --block-size 16 --html requests.html",
    "workload compose chatbot bursty -o both.yaml",
    "workload describe both.yaml --requests 300 --format json",
    "workload fit requests.csv -o mine.workload.yaml",
    "workload fit requests.csv --stage 5 --format json --name staged",
    "workload fit requests.csv --requests 5",
    f"run quickstart {_ONE} --set workload.requests=250 --requests served.csv --trace-output bench -o run.json",
    "workload fit served.csv --format json -o served.workload.yaml",
    f"run quickstart {_ONE} --set workload.requests=40 --set expect=[] --requests few.csv -o few.json",
    f"calibrate served.csv --spec quickstart {_ONE} --compare --format json",
    f"calibrate few.csv --spec quickstart {_ONE} --base blackbox -o mine.yaml --html mine.html",
    f"calibrate bench.csv --spec quickstart --compare {_ONE}",
    f"calibrate --collect loads.blis.yaml --spec quickstart {_ONE} --loads 4",
    f"twin monday quickstart {_ONE} --requests twin.csv",
    f"twin monday quickstart {_ONE} --set engine.max_num_seqs=4 --format json",
    f"twin monday quickstart {_ONE} --steps fitted",
    "twin monday monday --within 5",
)


def test_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file_regression: FileRegressionFixture) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(_RECORDING, "monday")
    digests = Digests()
    for number, line in enumerate(_LINES):
        commands(digests, tmp_path, line, kind=f"{number} {' '.join(line.split()[:2])}")
    digests.check(file_regression)
