"""Optional dependencies ("extras"), and how to install them."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from shlex import quote


def install_command(extra: str) -> str:
    """Return the command that adds an extra to this installation.

    The command names the interpreter, because the shell's ``pip`` may belong to another one. The installer keeps the
    installed blis-tui, so no package index needs to have it; only the packages of the extra are downloaded.
    """
    python = quote(sys.executable or "python3")
    installer = f"{python} -m pip install" if find_spec("pip") else f"uv pip install --python {python}"
    return f"{installer} 'blis-tui[{extra}]'"
