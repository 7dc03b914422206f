"""Programs that start at once: each is forked from a process that has already imported what they all need.

A test that runs a program a few times spends most of its time on imports otherwise. The process is of its own, has one
thread and does nothing but fork: a program gets its own working folder, environment, arguments and exit code.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import runpy
import signal
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_TIMEOUT_S: Final = 120
"""After this it is ended: it waits for something that never comes."""


def run_module(
    module: str, arguments: Sequence[str], *, cwd: Path, env: Mapping[str, str], text: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run ``python -m MODULE ARGUMENTS``, with a text as its standard input."""
    command = [sys.executable, "-m", module, *arguments]
    if not hasattr(os, "fork"):
        return subprocess.run(command, cwd=cwd, capture_output=True, text=True, env=dict(env), input=text, check=False)
    server = _server()
    assert server.stdin is not None
    assert server.stdout is not None
    with tempfile.TemporaryDirectory() as folder:
        streams = [Path(folder) / name for name in ("stdin", "stdout", "stderr")]
        given, output, errors = streams
        given.write_text(text, "utf-8")
        job = [module, *arguments], str(cwd), dict(env), [str(one) for one in streams]
        server.stdin.write(json.dumps(job) + "\n")
        server.stdin.flush()
        code = int(server.stdout.readline())
        return subprocess.CompletedProcess(command, code, output.read_text("utf-8"), errors.read_text("utf-8"))


@cache
def _server() -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    atexit.register(process.__exit__, None, None, None)  # at the end of its input it ends
    return process


def _serve() -> None:
    import pytest  # noqa: F401, PLC0415  (for those that are forked)

    import blis_tui  # noqa: PLC0415
    import blis_tui.cli.golden  # noqa: PLC0415
    import blis_tui.golden.session  # noqa: PLC0415
    import blis_tui.study.sweep  # noqa: PLC0415

    blis_tui.load("quickstart")
    gc.collect()
    gc.freeze()  # who is forked need not look at it
    for line in sys.stdin:
        arguments, folder, environment, streams = json.loads(line)
        child = os.fork()
        if not child:
            break
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    else:
        return
    os.setsid()  # what it does to its group, such as killing it, is its own business
    signal.alarm(_TIMEOUT_S)
    for number, name in enumerate(streams):
        os.dup2(os.open(name, os.O_RDWR | os.O_CREAT), number)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.path[0] = folder
    sys.argv[:] = arguments
    code = 0
    try:
        runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        if isinstance(ended.code, str):
            raise
        code = ended.code or 0
    # As at any exit, but for cleaning up: that would touch, and so copy, all that was imported.
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    _serve()
