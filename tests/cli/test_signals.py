"""Signals as a user sends them: a run ends soon, whatever it computes, and leaves nothing half-written behind."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from blis_tui.cli.failures import ExitCode

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there are no such signals")

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
ENDLESS = ("run", "quickstart", "--set", "workload.requests=100000000", "--progress")
LIMIT_S = 60

DEFAULTS = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGTERM, signal.SIG_DFL)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
"""
"""Whoever runs the tests may ignore signals, and a child inherits that."""
COMMAND = "from blis_tui.__main__ import main; main()"
SAY = "import os; os.write(2, b'ready');"


class Child:
    """A process of ours that tells on standard error when it is ready to be interrupted."""

    def __init__(self, *arguments: str, before: str = "", ready: bytes = b"ready") -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", DEFAULTS + before + "\n" + COMMAND, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        assert self.process.stderr is not None
        told = b""
        while ready not in told:
            more = os.read(self.process.stderr.fileno(), 4096)
            assert more, told
            told += more

    def end(self, *numbers: int) -> tuple[int, str, str]:
        """Exit code, output and the rest of the errors after these signals."""
        for number in numbers:
            self.process.send_signal(number)
        out, err = self.process.communicate(timeout=LIMIT_S)
        return self.process.returncode, out.decode(), err.decode()


@pytest.mark.parametrize("number", ENDING)
def test_a_signal_stops_a_run_between_two_events_and_what_has_happened_is_reported(number: int, tmp_path: Path) -> None:
    rows, records = tmp_path / "rows.csv", tmp_path / "records.jsonl"
    child = Child(*ENDLESS, "--requests", str(rows), "--records", str(records), ready=b"simulated")
    code, out, err = child.end(number)
    report = json.loads(out)
    assert code == ExitCode.INTERRUPTED
    assert "Traceback" not in err
    assert report["meta"]["complete"] is False
    assert set(report["invariants"].values()) == {"not checked"}
    assert len(rows.read_text().splitlines()) == report["requests"]["total"] + 1
    arrived = sum('"kind":"arrived"' in line for line in records.read_text().splitlines())
    assert arrived == report["requests"]["total"]


def test_a_check_that_takes_long_is_left_and_the_events_so_far_are_reported(tmp_path: Path) -> None:
    slow = f"""
from blis_tui.simulation import Simulation
def verify(simulation):
    if simulation.events == 7:
        {SAY}
        while True: pass
Simulation.verify = verify
"""
    code, out, err = Child("run", "quickstart", "--check", "all", before=slow).end(signal.SIGINT)
    assert (code, err) == (ExitCode.INTERRUPTED, "")
    assert json.loads(out)["requests"]["total"] > 0


def test_an_event_that_takes_long_is_broken_off_without_a_report(tmp_path: Path) -> None:
    slow = f"""
from blis_tui.engine.flow import OneAtATime
def step(flow, now):
    {SAY}
    while True: pass
OneAtATime.step = step
"""
    outputs = ("-o", str(tmp_path / "a"), "--requests", str(tmp_path / "b"), "--records", str(tmp_path / "c"))
    code, out, err = Child("run", "quickstart", *outputs, before=slow).end(signal.SIGTERM)
    assert (code, out) == (ExitCode.INTERRUPTED, "")
    assert err == "interrupted in the middle of a long event: there is no report\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("place", "number"),
    [
        ("spec.load.resolve_source", signal.SIGINT),
        ("simulation.create_source", signal.SIGTERM),
        ("records.tables.requests_csv", signal.SIGHUP),
    ],
)
def test_before_and_after_the_simulation_a_signal_ends_at_once(place: str, number: int, tmp_path: Path) -> None:
    module, name = place.rsplit(".", 1)
    slow = f"""
import blis_tui.{module}
def wait(*_, **__):
    {SAY}
    while True: pass
blis_tui.{module}.{name} = wait
"""
    outputs = ("-o", str(tmp_path / "a"), "--requests", str(tmp_path / "b"), "--records", str(tmp_path / "c"))
    code, out, err = Child("run", "quickstart", *outputs, before=slow).end(number)
    assert (code, out, err.strip()) == (ExitCode.INTERRUPTED, "", "")
    assert list(tmp_path.iterdir()) == []


def test_a_second_signal_does_not_wait(tmp_path: Path) -> None:
    slow = f"""
from blis_tui.cli import signals
from blis_tui.engine.flow import OneAtATime
signals._ECHO_S = 0.0
signals._PATIENCE_S = 3600.0
def step(flow, now):
    {SAY}
    while True: pass
OneAtATime.step = step
"""
    child = Child("run", "quickstart", "--records", str(tmp_path / "records"), before=slow)
    code, out, _ = child.end(signal.SIGINT, signal.SIGTERM)
    assert (code, out) == (ExitCode.INTERRUPTED, "")
    assert list(tmp_path.iterdir()) == []


def test_a_signal_that_is_ignored_stays_ignored() -> None:
    ignoring = "signal.signal(signal.SIGHUP, signal.SIG_IGN)"
    ending = ("run", "quickstart", "--set", "workload.requests=2000", "--set", "expect=[]", "--progress")
    code, out, _ = Child(*ending, before=ignoring, ready=b"simulated").end(signal.SIGHUP)
    assert code == ExitCode.OK
    assert json.loads(out)["meta"]["complete"] is True


def test_ctrl_c_while_the_command_line_is_imported_is_no_traceback() -> None:
    slow = f"""
import sys
class Slow:
    def find_spec(self, name, path=None, target=None):
        if name == "click":
            {SAY}
            while True: pass
sys.meta_path.insert(0, Slow())
"""
    assert Child("--version", before=slow).end(signal.SIGINT) == (ExitCode.INTERRUPTED, "", "")
