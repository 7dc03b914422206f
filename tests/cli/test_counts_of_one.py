"""One of a thing is told in the singular, whatever is counted."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import pytest
from click.testing import CliRunner

from blis_tui.cli.main import cli

if TYPE_CHECKING:
    from pathlib import Path

_ONE_OF_MANY: Final = re.compile(
    r"(?<![\d.,/x=:^-])1 (?:[a-z-]+ )?(?!is\b|was\b|does\b|holds\b|meets\b)[a-zA-Z]{3,}[^s\W]s\b(?!/)"
)
ONE: Final = ("--set", "workload.requests=1", "--set", "expect=[]")
STUDY: Final = (*ONE, "--seeds", "1", "--store", "none", "-j", "1", "--no-progress")
SLO: Final = ("--slo", "latency.e2e_ms.p90<=30000")


@pytest.mark.parametrize(
    "command",
    [
        *[("run", name, *ONE, "--format", "table") for name in ("quickstart", "photos", "thinking", "lora-adapters")],
        *[("run", name, *ONE, "--format", "table") for name in ("disaggregation", "conversations", "skipping")],
        ("run", "schedulers", "--set", "workload.requests=40", "--format", "table"),
        ("run", "quickstart", *ONE, "--counterfactual", "1", "--format", "table"),
        ("sweep", "quickstart", *STUDY),
        ("sweep", "quickstart", *STUDY, *SLO, "--axis", "cluster.instances=1"),
        ("plan", "quickstart", *STUDY, *SLO, "--duration", "1", "--rate", "1"),
        ("bundle", "quickstart", *ONE, "-o", "run.blis"),
        ("workload", "describe", "quickstart", "--requests", "1"),
        ("shrink", "quickstart", *ONE, "--expect", "latency.ttft_ms.p99<=0.01", "-o", "small", "--no-progress"),
    ],
    ids=" ".join,
)
def test_one_is_no_plural(command: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    output = CliRunner().invoke(cli, command).output
    assert "Traceback" not in output
    assert [match[0] for match in _ONE_OF_MANY.finditer(output)] == []


def test_what_is_one_of_many_is_found() -> None:
    assert _ONE_OF_MANY.search("quickstart: 1 points of quickstart")
    assert _ONE_OF_MANY.search("holds 1 completed requests, too few")
    assert not _ONE_OF_MANY.search("1 instance holds 1 requests/s, 1.1 times as late")
