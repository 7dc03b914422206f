"""Runs functions in another process with another hash seed, and interrupts users' code that does not return.

A policy decision takes microseconds; one that computes for half a minute is in an endless loop.

The process lives as long as its owner, because starting Python with all imports takes as long as a small run.
"""

from __future__ import annotations

import inspect
import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import redirect_stdout, suppress
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Final

from blis_tui.base.errors import BlisError, SimulationError
from blis_tui.spec.build import build_experiment
from blis_tui.spec.user_plugins import load_plugins

if TYPE_CHECKING:
    from types import FrameType, TracebackType
    from typing import Self

    from blis_tui.model import Experiment


LIMIT_S: Final = 30.0
"""Maximum duration of one call of a user's code, in seconds."""
_LOOKS: Final = 3
"""A call is interrupted if it is seen this many times, evenly over that time."""
_PACKAGE: Final = str(Path(__file__).resolve().parents[1])


class TimeLimit:
    """Within its context, a call of foreign code that takes ``limit_s`` raises ``TimeoutError`` at its current line.

    Nothing is watched outside of the main thread, on systems without interval timers (Windows), or when another timer
    is running already, such as that of pytest-timeout.
    """

    def __init__(self, limit_s: float = LIMIT_S) -> None:
        self._limit_s = limit_s
        self._owner: FrameType | None = None
        self._call: FrameType | None = None
        self._seen = 0

    def __enter__(self) -> Self:
        free = hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread()
        if free and signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0):
            here = inspect.currentframe()
            self._owner = here and here.f_back
            self._before = signal.signal(signal.SIGALRM, self._look)
            signal.setitimer(signal.ITIMER_REAL, self._limit_s / _LOOKS, self._limit_s / _LOOKS)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._owner is not None:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            signal.signal(signal.SIGALRM, self._before)
        self._owner = self._call = None

    def _look(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002  (a handler's signature)
        """Check, on each timer signal, whether the same call is still running."""
        call = self._foreign(frame)
        self._seen = self._seen + 1 if call is not None and call is self._call else 0
        self._call = call
        if call is not None and self._seen >= _LOOKS:
            raise TimeoutError(f"`{call.f_code.co_name}` has not returned for {self._limit_s:g} s")

    def _foreign(self, frame: FrameType | None) -> FrameType | None:
        """Return the outermost call of foreign code that this package waits for."""
        foreign = None
        while frame is not None and frame is not self._owner:
            # Ignore generators: they keep one frame across values, so a frame seen again proves nothing.
            code = frame.f_code
            if not code.co_flags & inspect.CO_GENERATOR and not code.co_filename.startswith((_PACKAGE, "<frozen")):
                foreign = frame
            frame = frame.f_back
        return foreign


_PROGRAM: Final = "from blis_tui.golden.other_process import serve; serve()"


class OtherProcess:
    """Calls functions with an experiment in another process, which starts with the first call.

    Leaving its context ends the process.
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._errors = TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115  (closed with the process)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()
        self._errors.close()

    def call(self, function: str, experiment: Experiment) -> object:
        """Return what a function returns in the other process.

        Args:
            function: ``module:name`` of a function that takes an experiment and returns JSON data.
            experiment: the experiment.

        Raises:
            SimulationError: the function fails there.
        """
        trace = experiment.workload.trace
        job = {
            "function": function,
            "document": experiment.document,
            "trace_path": None if trace is None else trace.path,
            "plugins": [origin.asked for origin in experiment.plugins.origins],
        }
        if self._process is None:
            self._process = self._started()
        try:
            line = _answer_line(self._process, json.dumps(job))
        except BaseException:
            self._end()  # a late answer must not be taken for that of the next call
            raise
        if not line:
            raise SimulationError(self._how_it_ended(self._process))
        answer = json.loads(line)
        if "error" in answer:
            raise SimulationError(f"in another process, with another hash seed: {answer['error']}")
        if "failed" in answer:
            raise SimulationError(f"another process fails: {answer['failed']}")
        return answer["result"]

    def _how_it_ended(self, process: subprocess.Popen[str]) -> str:
        code = process.wait()
        self._errors.seek(0)
        why = self._errors.read().strip().rpartition("\n")[2]  # a traceback ends with the exception
        self._end()
        return f"another process ends with exit code {code}: {why}"

    def _started(self) -> subprocess.Popen[str]:
        seed = "1" if os.environ.get("PYTHONHASHSEED") == "2" else "2"
        self._errors.truncate(0)
        return subprocess.Popen(
            [sys.executable, "-c", _PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            encoding="utf-8",
            env={
                **os.environ,
                "PYTHONHASHSEED": seed,
                "PYTHONIOENCODING": "utf-8",
                "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            },
        )

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()  # has no effect if it has ended
            self._process.communicate()
        self._process = None


def _answer_line(process: subprocess.Popen[str], job: str) -> str:
    """Return the answer line; empty if the process ends instead."""
    if process.stdin is None or process.stdout is None:
        return ""
    with suppress(BrokenPipeError):
        process.stdin.write(f"{job}\n")
        process.stdin.flush()
    return process.stdout.readline()


def serve() -> None:
    """In the other process: answer each line of standard input until it ends."""
    answers = sys.stdout
    with redirect_stdout(sys.stderr):  # output of plug-ins must not be taken for an answer
        for line in sys.stdin:
            answers.write(json.dumps(_answer(line)) + "\n")
            answers.flush()


def _answer(line: str) -> dict[str, object]:
    job = json.loads(line)
    module, _, name = job["function"].partition(":")
    try:
        plugins = load_plugins(job["plugins"])
        experiment = build_experiment(job["document"], trace_path=job["trace_path"], plugins=plugins)
        with TimeLimit():
            return {"result": getattr(import_module(module), name)(experiment)}
    except BlisError as error:
        return {"error": " ".join(str(error).split())}
    except Exception as error:  # noqa: BLE001  (reported as the answer; the process goes on)
        return {"failed": f"{type(error).__name__}: {error}"}
