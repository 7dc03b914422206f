"""Worker processes: how they start, and how their end is told."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from blis_tui.base.processes import how_it_ended


@pytest.mark.parametrize("code", [(3, "exit code 3"), (-15, "SIGTERM"), (-99, "signal 99"), (None, "exit code None")])
def test_how_a_process_ended_in_words(code: tuple[int | None, str]) -> None:
    assert how_it_ended(code[0]) == code[1]


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="there is no /proc")
def test_ctrl_c_cannot_reach_a_process_even_while_it_starts() -> None:
    """A terminal sends it to all processes, and in the middle of its imports one would end with a traceback."""
    script = """
from pathlib import Path
from time import sleep
from blis_tui.base.processes import start_process
if __name__ == "__main__":
    process, _ = start_process(sleep, 0)
    print(Path(f"/proc/{process.pid}/status").read_text())
    print("own", Path("/proc/self/status").read_text())
    process.kill()
"""
    output = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    worker, own = (int(part.split("SigBlk:")[1].split()[0], 16) for part in output.split("own"))
    assert worker & (1 << (signal.SIGINT - 1))
    assert not own & (1 << (signal.SIGINT - 1))
