"""Programs that start fast: each is forked from a process that has already imported what they all need.

Otherwise a test that runs a program a few times spends most of its time on imports. The server is a separate process
with one thread that does nothing but fork: each program gets its own working folder, environment, arguments, streams
and exit code.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import pkgutil
import runpy
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from contextlib import suppress
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_TIMEOUT_S: Final = 120
"""Seconds after which a program is killed: it waits for something that never comes."""
_CLIENT: Final = """\
#!{python} -IS
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as server:
    server.connect("{address}")
    job = [{module!r}, *sys.argv[1:]], os.getcwd(), dict(os.environ)
    socket.send_fds(server, [json.dumps(job).encode() + b"\\n"], [0, 1, 2])
    sys.exit(int(server.makefile().readline()))
"""
"""Starts a module in a tenth of the time of its imports."""
_NOT_SHARED: Final = ("__main__", "pytest_plugin", "tui", "cli.web_server", "calibration.fitting")
"""What is run or, by pytest, rewritten when it is imported, and what takes long to import for a few programs."""


def run_module(
    module: str, arguments: Sequence[str], *, cwd: Path, env: Mapping[str, str], text: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run ``python -m MODULE ARGUMENTS`` with a text on standard input."""
    command = [sys.executable, "-m", module, *arguments]
    if not hasattr(os, "fork"):
        return subprocess.run(command, cwd=cwd, capture_output=True, text=True, env=dict(env), input=text, check=False)
    address = _server()
    with (
        tempfile.TemporaryFile() as given,
        tempfile.TemporaryFile() as output,
        tempfile.TemporaryFile() as errors,
        socket.socket(socket.AF_UNIX) as server,
    ):
        given.write(text.encode())
        given.seek(0)
        server.connect(address)
        job = [module, *arguments], str(cwd), dict(env)
        streams = [file.fileno() for file in (given, output, errors)]
        socket.send_fds(server, [json.dumps(job).encode() + b"\n"], streams)
        with server.makefile() as reply:
            code = int(reply.readline())
        output.seek(0)
        errors.seek(0)
        return subprocess.CompletedProcess(command, code, output.read().decode(), errors.read().decode())


def write_program(path: Path, module: str) -> None:
    """Write a program that does the same as ``python -m MODULE``, for use in shells.

    It must not wait for another such program: they run one after the other.
    """
    path.write_text(_CLIENT.format(python=sys.executable, address=_server(), module=module), encoding="utf-8")
    path.chmod(0o755)


@cache
def _server() -> str:
    """The address of the server."""
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder)
    address = f"{folder}/socket"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(address)
        server.listen()
        at = server.fileno()
        process = subprocess.Popen([sys.executable, __file__, str(at)], stdin=subprocess.PIPE, pass_fds=[at])
    atexit.register(process.__exit__, None, None, None)  # it exits at the end of its input
    return address


def _import_all() -> None:
    """Import what the forked programs need."""
    import pytest  # noqa: F401, PLC0415
    from _pytest.config import default_plugins  # noqa: PLC0415

    import blis_tui  # noqa: PLC0415
    from blis_tui.golden import produce  # noqa: PLC0415

    ours = {module.name for module in pkgutil.walk_packages(blis_tui.__path__, "blis_tui.")}
    shared = sorted(name for name in ours if not name.removeprefix("blis_tui.").startswith(_NOT_SHARED))
    for name in (*(f"_pytest.{name}" for name in default_plugins), "pdb", "deepdiff", "jsonschema", *shared):
        with suppress(ImportError):  # of an extra that is not installed
            import_module(name)
    produce.produce(blis_tui.load("quickstart", set={"workload.requests": 1}), spec="", case="")


def _serve(server: socket.socket) -> None:
    _import_all()
    gc.collect()
    gc.freeze()  # forked programs need not scan it
    while server in select.select([server, sys.stdin], [], [])[0]:
        asking, _ = server.accept()
        with asking:
            job, streams = _asked(asking)
            child = os.fork()
            if not child:
                break
            for stream in streams:
                os.close(stream)
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            with suppress(BrokenPipeError):  # the client is gone
                asking.sendall(f"{code}\n".encode())
    else:
        return
    os.setsid()  # signals to its group must not reach the server
    signal.alarm(_TIMEOUT_S)
    _become(*job, streams)


def _asked(asking: socket.socket) -> tuple[tuple[list[str], str, dict[str, str]], list[int]]:
    """Arguments, folder and environment of the requested program, and its streams."""
    text, streams, _, _ = socket.recv_fds(asking, 1 << 16, 3)
    with asking.makefile("rb") as rest:
        arguments, folder, environment = json.loads(text if text.endswith(b"\n") else text + rest.readline())
    return (arguments, folder, environment), streams


def _become(arguments: list[str], folder: str, environment: dict[str, str], streams: list[int]) -> None:
    """Become that program, and run it to its end."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
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
    # Like a normal exit, but without cleanup, which would touch, and so copy, all imported modules.
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
