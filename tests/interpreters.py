"""Other Python interpreters on this machine."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

PYTHONS_VARIABLE: Final = "BLIS_TUI_PYTHONS"
"""Environment variable that lists interpreters to use, separated like PATH."""


@cache
def interpreter(version: str) -> str | None:
    """A working interpreter of that version."""
    return next((path for path in candidates(version) if version_of(path) == version), None)


def candidates(version: str) -> Iterator[str]:
    """Candidate paths for an interpreter of that version."""
    yield sys.executable
    yield from filter(None, os.environ.get(PYTHONS_VARIABLE, "").split(os.pathsep))
    if (found := shutil.which(f"python{version}")) is not None:
        yield found
    roots = [Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"]
    roots.append(Path(os.environ.get("XDG_DATA_HOME", Path.home() / ".local" / "share")) / "uv" / "python")
    for root in roots:
        yield from (str(path) for path in sorted(root.glob(f"*{version}.*/bin/python{version}")))


def version_of(python: str) -> str:
    """Major and minor version of an interpreter; empty if it does not start (such as a dangling shim)."""
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    try:
        done = subprocess.run([python, "-c", code], capture_output=True, text=True, timeout=30, check=False)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
