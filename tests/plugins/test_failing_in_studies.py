"""Where a plug-in raises an exception in one run of many, that is no answer to what was asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from tests.golden.projects import blis_in

if TYPE_CHECKING:
    from pathlib import Path

SCRIPT: Final = """\
from blis_tui.plugins import ROUTING, NoSettings

@ROUTING.plugin("mine", "For tests.")
class Mine:
    rule = "One after the other."
    def __init__(self, settings: NoSettings) -> None: ...
    def choose(self, request, fleet, context):
        assert len(fleet) != {size}, "not with so many"
        return int(request.request_id.split("_")[1]) % len(fleet), "the next"
    def state(self): return ()
"""
SHORT: Final = ("--set", "workload.requests=30", "--set", "workload.clients.0.output_tokens=8")
MINE: Final = ("--plugins", "own.py", "--set", "policy.routing=mine", *SHORT)
SLO: Final = ("--slo", "latency.ttft_ms.p99<=200", "--store", "none")
PLAN: Final = ("plan", "quickstart", *MINE, *SLO, "--duration", "5")


@pytest.mark.parametrize("jobs", ["1", "2"])
@pytest.mark.parametrize(
    ("size", "command"),
    [
        (1, (*PLAN, "--rate", "5", "--sizes", "cluster.instances=1..3")),
        (2, (*PLAN, "--rate", "70", "--sizes", "cluster.instances=2..4")),
        (2, ("sensitivity", "quickstart", *MINE, *SLO, "--seeds", "2")),
    ],
    ids=["plan, the smallest", "plan, one of them", "sensitivity"],
)
def test_it_is_one_error_with_its_line(size: int, command: tuple[str, ...], jobs: str, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(SCRIPT.format(size=size), encoding="utf-8")
    done = blis_in(tmp_path, *command, "--jobs", jobs)
    assert done.returncode == 4, done.stderr
    assert "AssertionError at event" in done.stderr
    assert "not with so many" in done.stderr
    assert "own.py:8 in `Mine.choose`" in done.stderr
    assert "Traceback" not in done.stderr
    assert not done.stdout
