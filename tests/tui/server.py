"""A server of the interface, for tests."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tests.processes import heed_ctrl_c

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BLIS = [sys.executable, "-m", "blis_tui"]


@contextmanager
def serving(folder: Path, *arguments: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """A server on a free port: its address and process."""
    process = subprocess.Popen(
        [*BLIS, "serve", "--port", "0", *arguments],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TEXTUAL_ANIMATIONS": "none"},
        preexec_fn=heed_ctrl_c,  # noqa: PLW1509  (a call, no lock)
    )
    try:
        assert process.stderr is not None
        said = ""
        while "http://" not in said:
            line = process.stderr.readline()
            assert line, said
            said += line
        yield said, process
    finally:
        process.kill()
        process.communicate()
