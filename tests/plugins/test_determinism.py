"""Policies that break the promise of equal bytes are found, each by what it does."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

import blis_tui
from blis_tui.cli.main import cli
from blis_tui.errors import PolicyError
from blis_tui.golden.determinism import find_nondeterminism

if TYPE_CHECKING:
    from pathlib import Path

POLICY = """\
import random, time
from blis_tui.plugins import ROUTING
CALLS = [0]

@ROUTING.plugin("own", "For tests.")
class Own:
    rule = ""
    def __init__(self, settings):
        self.turn = 0
        {init}
    def choose(self, request, fleet, context):
        {choose}
    def state(self):
        return ({state})
"""
SIZE = {"workload.requests": 20, "cluster.instances": 4, "policy.routing": "own"}


def found(folder: Path, choose: str, state: str = "", init: str = "") -> str:
    path = folder / "own.py"
    path.write_text(POLICY.format(choose=choose, state=state, init=init), encoding="utf-8")
    return find_nondeterminism(blis_tui.load("quickstart", set=SIZE, plugins=[path]))


@pytest.mark.parametrize(
    ("choose", "state"),
    [
        ("return 0, ''", ""),
        ("self.turn += 1; return self.turn % 4, ''", "self.turn,"),
        ("return int(context.stream.uniform() * 4), ''", ""),
        ("return min(range(4), key=lambda at: fleet[at].in_flight), ''", ""),
    ],
)
def test_good_policies_pass(choose: str, state: str, tmp_path: Path) -> None:
    assert found(tmp_path, choose, state) == ""


@pytest.mark.parametrize(
    ("choose", "message"),
    [
        ("return random.randrange(4), ''", "a second run differs at this record:"),
        ("return time.perf_counter_ns() // 7 % 4, ''", "a second run differs at this record:"),
        ("CALLS[0] += 1; return CALLS[0] // 3 % 4, ''", "a second run differs at this record:"),
        (
            "return ['abcd'.index(one) for one in set('abcd')][0], str(set('abcdefgh'))",
            "a run in another process, with another hash seed, differs at this record:",
        ),
        ("self.turn += 1; return self.turn % 4, ''", "Own changes `turn` by event"),
    ],
)
def test_bad_ones_are_found(choose: str, message: str, tmp_path: Path) -> None:
    text = found(tmp_path, choose)
    assert text.startswith(message)
    if "record" in message:
        assert text.count('{"kind":"routed","event":') == 2


def test_a_policy_that_cannot_be_saved(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match=r"of own\.py cannot be saved, as checkpoints need it: .*pickle"):
        found(tmp_path, "return 0, ''", init="self.key = lambda: 0")
    later = found(tmp_path, "self.key = lambda: 0; return 0, ''")
    assert later.startswith("no checkpoint can be taken at event")


def test_one_that_forgets_when_it_is_saved(tmp_path: Path) -> None:
    path = tmp_path / "own.py"
    text = POLICY.format(choose="self.turn += 1; return self.turn % 4, ''", state="self.turn,", init="")
    path.write_text(text + "    def __getstate__(self): return {'turn': 0}\n", encoding="utf-8")
    text = find_nondeterminism(blis_tui.load("quickstart", set=SIZE, plugins=[path]))
    assert text.startswith("what a checkpoint restores at event")


def test_the_command_tries_every_policy_of_a_script(script: str, tmp_path: Path) -> None:
    size = ["--set", "workload.requests=20", "--set", "cluster.instances=4"]
    runner = CliRunner()
    good = runner.invoke(cli, ["check", script, *size])
    assert (good.exit_code, good.stdout) == (0, "policy.routing cache-then-least: ok\n")
    path = tmp_path / "own.py"
    path.write_text(POLICY.format(choose="return random.randrange(4), ''", state="", init=""), encoding="utf-8")
    bad = runner.invoke(cli, ["check", str(path), *size, "--set", "policy.routing=own"])
    assert (bad.exit_code, bad.stdout) == (1, "policy.routing own: differs\n")
    assert bad.stderr.startswith("FAIL  a second run differs at this record:\n  first {")
