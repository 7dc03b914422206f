"""What repeats a run finds a policy that breaks the promise of equal bytes; the other process ends with its test."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

import blis_tui
from blis_tui.golden import other_process as module
from blis_tui.golden.other_process import OtherProcess
from blis_tui.golden.produce import CHECKS, produce_checked

if TYPE_CHECKING:
    from pathlib import Path

    from blis_tui.model import Experiment

POLICY = """\
from blis_tui.plugins import ROUTING
CALLS = [0]

@ROUTING.plugin("own", "For tests.")
class Own:
    rule = ""
    def __init__(self, settings):
        self.turn = 0
    def choose(self, request, fleet, context):
        CALLS[0] += 1
        self.turn += 1
        return {choose}, ""
    def state(self):
        return (self.turn,)
    def __getstate__(self):
        return {{"turn": {saved}}}
"""
SIZE = {"workload.requests": 20, "workload.rate_per_s": 1, "cluster.instances": 4, "policy.routing": "own"}


def trouble(folder: Path, choose: str, saved: str = "self.turn") -> str:
    """Why the result of a routing policy cannot be relied on."""
    path = folder / "own.py"
    path.write_text(POLICY.format(choose=choose, saved=saved), encoding="utf-8")
    experiment = blis_tui.load("quickstart", set=SIZE, plugins=[path])
    return produce_checked(experiment, spec="x", case="default", checks=CHECKS)[1]


@pytest.mark.parametrize(
    ("choose", "saved", "message"),
    [
        ("self.turn % 4", "self.turn", ""),
        ("CALLS[0] // 3 % 4", "self.turn", "a second run, without observers, gives a different report"),
        ("self.turn % 4", "self.turn + 1", "continuing from a checkpoint gives a different report"),
        (
            # Another order each turn, so that two seeds never agree on all of them.
            "int(next(iter({f'{self.turn} {one}' for one in range(4)}))[-1])",
            "self.turn",
            "another process, with another hash seed, gives a different result",
        ),
    ],
)
def test_each_check_finds_what_it_is_for(choose: str, saved: str, message: str, tmp_path: Path) -> None:
    assert trouble(tmp_path, choose, saved) == message


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[subprocess.Popen[str]]:
    """The processes that were started."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: Any, **named: Any) -> subprocess.Popen[str]:
        started.append(subprocess.Popen(*arguments, **named))
        return started[-1]

    monkeypatch.setattr(module, "subprocess", _With(start))
    return started


def checked(experiment: Experiment, **named: Any) -> str:
    return produce_checked(experiment, spec="x", case="default", checks=("hash-seed",), **named)[1]


def test_what_stops_a_run_ends_the_other_process(
    started: list[subprocess.Popen[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(process: subprocess.Popen[str], job: str) -> str:
        assert process.poll() is None
        assert job
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "_answer_line", stopped)
    with pytest.raises(KeyboardInterrupt):
        checked(blis_tui.load("quickstart", set={"workload.requests": 4}))
    (process,) = started
    assert process.returncode is not None


def test_one_process_does_for_many_and_goes_on_after_what_fails(
    started: list[subprocess.Popen[str]], tmp_path: Path
) -> None:
    """A policy that fails there, one that prints, one that ends the process: the others are not concerned."""
    here = f"__import__('os').getpid() == {os.getpid()}"
    policies = {
        "fails": (f"0 if {here} else 1 / 0", "in another process, with another hash seed: ZeroDivisionError at event"),
        "prints": ("print('turn', self.turn) or 0", ""),
        "ends": (f"0 if {here} else __import__('os')._exit(7)", "another process ends with exit code 7: "),
        "is good": ("self.turn % 4", ""),
    }
    with OtherProcess() as other:
        for name, (choose, message) in policies.items():
            path = tmp_path / f"{name.replace(' ', '_')}.py"
            path.write_text(POLICY.format(choose=choose, saved="self.turn"), encoding="utf-8")
            found = checked(blis_tui.load("quickstart", set=SIZE, plugins=[path]), other=other)
            assert found.startswith(message)
            assert bool(found) == bool(message)
    assert len(started) == 2
    assert all(process.returncode is not None for process in started)


def test_a_result_that_another_process_gave_needs_no_third(
    started: list[subprocess.Popen[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless the environment says which hash seed all have."""
    experiment = blis_tui.load("quickstart", set={"workload.requests": 4})
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    assert checked(experiment, is_known=lambda _: True) == ""
    assert started == []
    monkeypatch.setenv("PYTHONHASHSEED", "0")
    assert checked(experiment, is_known=lambda _: True) == ""
    assert len(started) == 1


class _With:
    """The module ``subprocess`` with another way to start."""

    PIPE = subprocess.PIPE

    def __init__(self, start: Any) -> None:
        self.Popen = start
