"""Signals as a user sends them: a run ends soon, whatever it computes, and leaves nothing half-written behind."""

import asyncio
import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import blis_tui
from blis_tui.cli import signals
from blis_tui.cli.standard_streams import ExitCode

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
IMPATIENT = "from blis_tui.cli import signals; signals._PATIENCE_S = 0.05"
"""For what goes on for ever, whatever time it is given."""


class Child:
    """A process of ours that tells on standard error when it is ready to be interrupted."""

    def __init__(self, *arguments: str, before: str = "", ready: bytes = b"ready", site: Path | None = None) -> None:
        """With ``site``, as ``python -m`` does, after what stands in ``sitecustomize.py`` there."""
        start = ["-c", DEFAULTS + before + "\n" + COMMAND] if site is None else ["-m", "blis_tui"]
        found = {} if site is None else {"PYTHONPATH": os.pathsep.join([str(site), *filter(None, sys.path)])}
        self.process = subprocess.Popen(
            [sys.executable, *start, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **found},
        )
        assert self.process.stderr is not None
        printed = b""
        while ready not in printed:
            more = os.read(self.process.stderr.fileno(), 4096)
            assert more, printed
            printed += more

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
    assert f"interrupted; what happened until then was written to {rows}, {records}\n" in err
    assert report["meta"]["complete"] is False
    assert set(report["invariants"].values()) == {"not checked"}
    assert len(rows.read_text().splitlines()) == report["requests"]["total"] + 1
    arrived = sum('"kind":"arrived"' in line for line in records.read_text().splitlines())
    assert arrived == report["requests"]["total"]


def test_a_signal_ends_a_run_that_processes_share_without_a_report(tmp_path: Path) -> None:
    rows = tmp_path / "rows.csv"
    code, out, err = Child(*ENDLESS, "--jobs", "2", "--requests", str(rows), ready=b"requests done").end(signal.SIGINT)
    assert (code, out) == (ExitCode.INTERRUPTED, "")
    assert err.endswith("interrupted: no report, because several processes share the run\n")
    assert list(tmp_path.iterdir()) == []


def test_a_check_that_takes_long_is_left_and_the_events_so_far_are_reported(tmp_path: Path) -> None:
    slow = f"""
{IMPATIENT}
from blis_tui.runs.simulation import Simulation
def verify(simulation):
    if simulation.events == 7:
        {SAY}
        while True: pass
Simulation.verify = verify
"""
    code, out, err = Child("run", "quickstart", "--check", "all", before=slow).end(signal.SIGINT)
    assert (code, err) == (ExitCode.INTERRUPTED, "")
    assert json.loads(out)["requests"]["total"] > 0


def test_a_call_of_a_plug_in_that_takes_long_is_broken_off_with_its_place(tmp_path: Path) -> None:
    script = tmp_path / "own.py"
    script.write_text(f"""\
{IMPATIENT}
from blis_tui.plugins import ROUTING
@ROUTING.plugin("own", "For tests.")
class Own:
    rule = ""
    def __init__(self, settings): pass
    def choose(self, request, fleet, context):
        {SAY}
        while True: pass
    def state(self): return ()
""")
    given = ("run", "quickstart", "--plugins", str(script), "--set", "policy.routing=own")
    code, out, err = Child(*given).end(signal.SIGTERM)
    assert (code, out) == (ExitCode.INTERRUPTED, "")
    message = "interrupted in the middle of a long event: no report"
    assert err == f"{message}; it happens at {script}:9 in `Own.choose`\n"


def test_an_event_that_takes_long_is_broken_off_without_a_report(tmp_path: Path) -> None:
    slow = f"""
{IMPATIENT}
from blis_tui.engine.step_loop import Ahead
def step(flow, now):
    {SAY}
    while True: pass
Ahead.step = step
"""
    outputs = ("-o", str(tmp_path / "a"), "--requests", str(tmp_path / "b"), "--records", str(tmp_path / "c"))
    code, out, err = Child("run", "quickstart", *outputs, before=slow).end(signal.SIGTERM)
    assert (code, out) == (ExitCode.INTERRUPTED, "")
    names = ", ".join(outputs[1::2])
    assert err == f"interrupted in the middle of a long event: no report, and these files were not written: {names}\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("place", "number"),
    [
        ("spec.load.resolve_source", signal.SIGINT),
        ("runs.simulation.create_source", signal.SIGTERM),
        ("output.tables.requests_csv", signal.SIGHUP),
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
    assert (code, out) == (ExitCode.INTERRUPTED, "")
    if module == "spec.load":  # before files are opened
        assert err.strip() == "interrupted"
    else:
        left = [f"{tmp_path / name} was not written" for name in "cba"]
        assert err.strip() == f"interrupted: {'; '.join(left)}"
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_was_there_stays_and_that_is_said(tmp_path: Path) -> None:
    slow = f"""
import blis_tui.study.planning.plan
def wait(*_, **__):
    {SAY}
    while True: pass
blis_tui.study.planning.plan.plan = wait
"""
    there = tmp_path / "plan.json"
    there.write_text("what was there")
    asked = ("plan", "quickstart", "--slo", "latency.ttft_ms.p99<=300", "--store", "none", "-o", str(there))
    code, out, err = Child(*asked, before=slow).end(signal.SIGINT)
    assert (code, out, err.strip()) == (ExitCode.INTERRUPTED, "", f"interrupted: {there} stays as it was")
    assert there.read_text() == "what was there"


def test_a_result_that_is_printed_in_part_is_said_to_be_cut_short() -> None:
    """Nobody reads the pipe, which takes 64 KiB."""
    large = f"""
import blis_tui.study.study_rows
def rows_csv(result):
    {SAY}
    yield "x" * 1_000_000
blis_tui.study.study_rows.rows_csv = rows_csv
"""
    asked = ("sweep", "quickstart", "--set", "workload.requests=2", "--store", "none", "-j", "1", "--format", "csv")
    child = Child(*asked, before=large)
    assert child.process.stdout is not None
    assert select.select([child.process.stdout], [], [], LIMIT_S)[0]
    code, out, err = child.end(signal.SIGINT)
    assert code == ExitCode.INTERRUPTED
    assert 0 < len(out) < 1_000_000
    assert err.strip() == "interrupted: standard output is cut short"


def test_a_second_signal_does_not_wait(tmp_path: Path) -> None:
    slow = f"""
from blis_tui.cli import signals
from blis_tui.engine.step_loop import Ahead
signals._ECHO_S = 0.0
signals._PATIENCE_S = 3600.0
def step(flow, now):
    {SAY}
    while True: pass
Ahead.step = step
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


IMPORTING = f"""
import sys
class Slow:
    def find_spec(self, name, path=None, target=None):
        if name == "click":
            {SAY}
            while True: pass
sys.meta_path.insert(0, Slow())
"""
ENDLESS_TEXT = f"{SAY}\nwhile True: pass"
READING = f"""
import blis_tui.base.input_files
def wait(*_, **__):
    {SAY}
    while True: pass
blis_tui.base.input_files.read_input = blis_tui.base.input_files.open_input = wait
"""


@pytest.mark.parametrize("number", ENDING)
def test_a_signal_while_the_command_line_is_imported_is_its_exit_code(number: int) -> None:
    assert Child("--version", before=IMPORTING).end(number) == (ExitCode.INTERRUPTED, "", "")


@pytest.mark.parametrize("number", ENDING)
def test_a_signal_within_code_made_of_a_text_is_an_exit_code_too(number: int, tmp_path: Path) -> None:
    """As data classes are made, in most imports: of `python -m`, Python would make an end by SIGINT."""
    slow = IMPORTING.replace(SAY, f"exec({ENDLESS_TEXT!r})")
    (tmp_path / "sitecustomize.py").write_text(DEFAULTS + slow)
    assert Child("--version", site=tmp_path).end(number) == (ExitCode.INTERRUPTED, "", "")


CALLED_BY_PYTHON = {
    "while a class is made": f"""
class Named:
    def __set_name__(self, owner, name):
        {SAY}
        while True: pass
type("Owner", (), {{"named": Named()}})
""",
    "while an object is thrown away": f"""
class Gone:
    def __del__(self):
        {SAY}
        end = time.monotonic() + 10
        while time.monotonic() < end: pass
Gone()
""",
}
"""Python makes another error of one that is raised there, or none."""


def _at_import_of(module: str, text: str) -> str:
    found = IMPORTING.replace("import sys", "import sys, time").replace('"click"', repr(module))
    return found.replace(f"{SAY}\n            while True: pass", f"exec({text!r}, globals())")


@pytest.mark.parametrize(
    ("module", "text"),
    [
        ("click", "while a class is made"),
        ("click", "while an object is thrown away"),
        ("blis_tui.cli.run", "while an object is thrown away"),
        ("blis_tui.runs.simulation", "while an object is thrown away"),
        ("blis_tui.runs.simulation", "while a class is made"),
    ],
)
def test_a_signal_that_comes_where_python_keeps_errors_to_itself_is_an_exit_code_too(module: str, text: str) -> None:
    child = Child("run", "quickstart", before=_at_import_of(module, CALLED_BY_PYTHON[text]))
    code, out, err = child.end(signal.SIGTERM)
    assert (code, out, err.strip()) == (ExitCode.INTERRUPTED, "", "")


def test_an_interrupted_plan_says_what_is_not_enough() -> None:
    """Here it is interrupted when the size is known, and others are asked about."""
    slow = f"""
import blis_tui.study.planning.plan
def wait(*_, **__):
    {SAY}
    while True: pass
blis_tui.study.planning.plan.other_estimates = wait
"""
    asked = ("--slo", "latency.ttft_ms.p99<=300", "--rate", "60", "--store", "none", "-j", "1")
    code, out, err = Child("plan", "quickstart", *asked, before=slow).end(signal.SIGINT)
    assert (code, out) == (ExitCode.INTERRUPTED, "")
    said = re.fullmatch(r"interrupted: (\d+) runs so far, cluster\.instances (\d+) is not enough", err.strip())
    assert said is not None, err
    best = blis_tui.plan("quickstart", slos=["latency.ttft_ms.p99<=300"], rate_per_s=60).best
    assert best is not None
    assert best.size == int(said[2]) + 1
    assert int(said[1]) > 1


@pytest.mark.parametrize("place", ["cli.run.Outputs", "spec.load.build"])
def test_a_signal_whose_exception_is_dropped_ends_the_command_before_it_simulates(place: str) -> None:
    """As C does that looks whether an object has an attribute, in the few lines before a command heeds signals too."""
    module, name = place.rsplit(".", 1)
    dropping = f"""
import blis_tui.{module} as module
known = module.{name}
def dropping(*arguments):
    try:
        {SAY}
        while True: pass
    except BaseException:
        return known(*arguments)
module.{name} = dropping
"""
    code, out, err = Child(*ENDLESS[:-1], before=dropping).end(signal.SIGTERM)
    assert (code, out, err.strip()) == (ExitCode.INTERRUPTED, "", "interrupted")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("delay_s", [0, 0.02, 0.05, 0.1, 0.2, 0.35])
def test_whenever_a_signal_comes_it_is_the_same_exit_code(delay_s: float, number: int, tmp_path: Path) -> None:
    """From the first line of ours on: `blis_tui.cli` is what is imported after signals have been taken over."""
    first = f"""
import sys
class First:
    def find_spec(self, name, path=None, target=None):
        if name == "blis_tui.cli":
            {SAY}
sys.meta_path.insert(0, First())
"""
    (tmp_path / "sitecustomize.py").write_text(DEFAULTS + first)
    child = Child(*ENDLESS[:-1], site=tmp_path)
    time.sleep(delay_s)
    code, out, err = child.end(number)
    assert code == ExitCode.INTERRUPTED
    assert err.strip() in ("", "interrupted")
    assert out == "" or json.loads(out)["meta"]["complete"] is False


def test_a_signal_after_the_last_line_does_not_change_the_exit_code() -> None:
    late = f"""
import atexit, time
@atexit.register
def wait():
    {SAY}
    time.sleep(0.3)
"""
    code, out, err = Child("--version", before=late).end(signal.SIGTERM)
    assert (code, err) == (ExitCode.OK, "")
    assert out.startswith("blis-tui")


def test_a_signal_that_is_sent_twice_is_no_traceback() -> None:
    """`timeout` sends it to the process, and then to its group."""
    assert Child("--version", before=IMPORTING).end(signal.SIGTERM, signal.SIGTERM) == (ExitCode.INTERRUPTED, "", "")


@pytest.mark.parametrize(
    ("command", "number"),
    [
        ("validate trace-replay", signal.SIGTERM),
        ("workload convert trace-replay -o out.csv", signal.SIGTERM),
        ("calibrate measured.csv --spec quickstart", signal.SIGHUP),
        ("diff quickstart kv-pressure", signal.SIGHUP),
        ("whatif quickstart --request request_1 --route-to 0", signal.SIGTERM),
        ("spec list", signal.SIGINT),
        ("import model config.json -o out.yaml", signal.SIGTERM),
        ("golden status", signal.SIGHUP),
    ],
)
def test_every_command_ends_with_the_exit_code_of_an_interruption(
    command: str, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "golden").mkdir()
    inputs = ["measured.csv", "config.json", "golden/x.golden.json"]
    for name in inputs:
        (tmp_path / name).write_text("{}")
    code, out, err = Child(*command.split(), before=READING).end(number)
    assert (code, out, err.strip()) == (ExitCode.INTERRUPTED, "", "interrupted")
    assert sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.*")) == sorted(inputs)


def test_what_ends_a_server_does_not_take_its_results(monkeypatch: pytest.MonkeyPatch) -> None:
    # The echo that `timeout` and terminals send comes when the loop has ended, and what was served is being written.
    before = [signal.getsignal(number) for number in ENDING]
    calls: list[None] = []

    async def served(stop_signal: signals.GracefulStop) -> None:
        stop, loop = asyncio.Event(), asyncio.get_running_loop()

        def tell() -> None:
            calls.append(None)
            loop.call_soon_threadsafe(stop.set)

        stop_signal.tell = tell
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(stop.wait(), LIMIT_S)

    monkeypatch.setattr(signals, "_ECHO_S", LIMIT_S)
    with signals.graceful_stop() as stop_signal:
        asyncio.run(served(stop_signal))
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGINT)
        assert len(calls) == 1
        monkeypatch.setattr(signals, "_ECHO_S", 0)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)
    assert [signal.getsignal(number) for number in ENDING] == before
