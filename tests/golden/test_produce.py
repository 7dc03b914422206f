"""What repeats a run finds a policy that breaks the promise of equal bytes; the other process ends with its test."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, Any

import pytest

import blis_tui
from blis_tui.golden import produce as module
from blis_tui.golden.produce import CHECKS, produce_checked

if TYPE_CHECKING:
    from pathlib import Path

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
        ("CALLS[0] // 3 % 4", "self.turn", "a second run, without observers, gives another report"),
        ("self.turn % 4", "self.turn + 1", "continuing from a checkpoint gives another report"),
        (
            # Another order each turn, so that two seeds never agree on all of them.
            "int(next(iter({f'{self.turn} {one}' for one in range(4)}))[-1])",
            "self.turn",
            "another process, with another hash seed, gives another result",
        ),
    ],
)
def test_each_check_finds_what_it_is_for(choose: str, saved: str, message: str, tmp_path: Path) -> None:
    assert trouble(tmp_path, choose, saved) == message


def test_what_stops_a_run_ends_the_other_process(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: Any, **named: Any) -> subprocess.Popen[str]:
        started.append(subprocess.Popen(*arguments, **named))
        return started[-1]

    def stop(_: object) -> bool:
        assert started[0].poll() is None, "it runs beside this one"
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "subprocess", _With(start))
    experiment = blis_tui.load("quickstart", set={"workload.requests": 4000})
    with pytest.raises(KeyboardInterrupt):
        produce_checked(experiment, spec="x", case="default", checks=("hash-seed",), go_on=stop)
    (process,) = started
    assert process.returncode is not None


class _With:
    """The module ``subprocess`` with another way to start."""

    PIPE = subprocess.PIPE

    def __init__(self, start: Any) -> None:
        self.Popen = start
