"""What plug-ins print is no result: it goes to standard error."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.golden.projects import blis_in

if TYPE_CHECKING:
    from pathlib import Path

SCRIPT = """\
import os, sys
from blis_tui.plugins import ROUTING, NoSettings

SAYS

@ROUTING.plugin("chatty", "For tests.")
class Chatty:
    rule = "Says what it does."

    def __init__(self, settings: NoSettings) -> None:
        SAYS

    def choose(self, request, fleet, context):
        SAYS
        return 0, "the first"

    def state(self):
        return ()
"""
WAYS = {
    "print": "print('chatter')",
    "write": "sys.stdout.write('chatter\\n')",
    "bytes": "sys.stdout.buffer.write(b'chatter\\n')",
    "flush": "print('chatter', flush=True)",
}
FEW = ("--set", "workload.requests=4", "--set", "policy.routing=chatty", "--plugins", "own.py")
COMMANDS = (
    ("run", "quickstart", *FEW),
    ("run", "quickstart", *FEW, "--format", "table"),
    ("sweep", "quickstart", *FEW, "--axis", "cluster.instances=1..2", "--jobs", "1", "--store", "none"),
    ("sweep", "quickstart", *FEW, "--axis", "cluster.instances=1..2", "--jobs", "2", "--store", "none"),
    ("whatif", "quickstart", *FEW, "--request", "request_0", "--route-to", "1"),
    ("plugins", "check", "own.py", "--set", "workload.requests=20"),
)


def printed(folder: Path, says: str, command: tuple[str, ...]) -> tuple[int, str, str]:
    (folder / "own.py").write_text(SCRIPT.replace("SAYS", says), encoding="utf-8")
    done = blis_in(folder, *command)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: " ".join(command[:1] + command[-2:]))
def test_results_are_the_same_whatever_is_printed(tmp_path: Path, command: tuple[str, ...]) -> None:
    code, quiet, _ = printed(tmp_path, "pass", command)
    loud = printed(tmp_path, WAYS["print"], command)
    assert (code, quiet) == loud[:2]
    assert quiet
    assert "chatter" in loud[2]


@pytest.mark.parametrize("way", WAYS)
def test_however_it_is_printed(tmp_path: Path, way: str) -> None:
    code, quiet, _ = printed(tmp_path, "pass", COMMANDS[0])
    loud = printed(tmp_path, WAYS[way], COMMANDS[0])
    assert (code, quiet) == loud[:2]
    assert len(re.findall("chatter", loud[2])) >= 1 + 1 + 4
