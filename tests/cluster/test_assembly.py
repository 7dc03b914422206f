"""A cluster is put together from what its experiment configures, and of the rest nothing is imported."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

OPTIONAL = {path.stem for path in Path("blis_tui/cluster/options").glob("[a-z]*.py")} | {"gateway_queue"}
PROGRAM = """
import json, sys
import blis_tui
blis_tui.run(blis_tui.load("quickstart", set={"workload.requests": 5, **json.loads(sys.argv[1])}))
print(json.dumps([name for name in sys.modules if name.startswith("blis_tui.cluster.")]))
"""


def imported(changes: dict[str, object]) -> set[str]:
    """The optional modules that a run of a changed quickstart imports."""
    command = [sys.executable, "-c", PROGRAM, json.dumps(changes)]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    return {name.rpartition(".")[2] for name in json.loads(run.stdout)} & OPTIONAL


@pytest.mark.parametrize(
    ("changes", "needed"),
    [
        ({}, set()),
        (
            {
                "policy.gateway": {"saturation": {"kind": "utilization"}},
                "cluster.disaggregation": {"prefill_instances": 1, "decode_instances": 1},
            },
            {"gateway", "gateway_queue", "disaggregation"},
        ),
    ],
    ids=["plain", "gateway and disaggregation"],
)
def test_what_is_not_configured_is_not_imported(changes: dict[str, object], needed: set[str]) -> None:
    assert imported(changes) == needed
