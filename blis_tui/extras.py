"""Packages that only some commands need, and how they come into the installation that runs."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from shlex import quote


def install_command(extra: str) -> str:
    """What adds an extra to this installation.

    It names the interpreter: the ``pip`` of a shell may be that of another one. An installer takes the blis-tui that is
    there already, so no package index needs to have it; the packages of the extra come from there.
    """
    python = quote(sys.executable or "python3")
    installer = f"{python} -m pip install" if find_spec("pip") else f"uv pip install --python {python}"
    return f"{installer} 'blis-tui[{extra}]'"
