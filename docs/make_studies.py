"""Run the commands in these pages and insert their output: ``python docs/make_studies.py``.

A ``console`` block begins with a line ``$ blis-tui …``; the rest of it is the output. The text between
``<!-- NAME -->`` and ``<!-- end of NAME -->`` is the shipped study of that name.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Final

from click.testing import CliRunner

from blis_tui.cli.main import cli
from blis_tui.spec.library import FOLDERS, suffix
from blis_tui.spec.shipped import shipped_specs

PAGES: Final = tuple(Path(__file__).parent / name for name in ("studies.md", "planning.md", "schedulers.md"))
_BLOCK: Final = re.compile(r"(```console\n\$ blis-tui )([^\n]*(?:\\\n[^\n]*)*)\n.*?(?=^```)", re.DOTALL | re.MULTILINE)
_STUDY: Final = re.compile(r"<!-- ([a-z-]+) -->\n.*?<!-- end of \1 -->", re.DOTALL)
_QUIET: Final = ["--store", "none", "--jobs", "1", "--no-progress"]


def page(path: Path) -> str:
    """The page with the current output of its commands."""
    return _BLOCK.sub(_with_output, _STUDY.sub(_with_study, path.read_text(encoding="utf-8")))


def _with_study(mark: re.Match[str]) -> str:
    path = shipped_specs() / FOLDERS["Study"] / f"{mark[1]}{suffix('Study')}"
    lines = path.read_text(encoding="utf-8").splitlines()[1:]  # without the modeline
    return "\n".join([f"<!-- {mark[1]} -->", "```yaml", *lines, "```", f"<!-- end of {mark[1]} -->"])


def _with_output(block: re.Match[str]) -> str:
    arguments = shlex.split(block[2])
    done = CliRunner().invoke(cli, arguments + (_QUIET if arguments[0] in {"sweep", "plan", "sensitivity"} else []))
    return f"{block[1]}{block[2]}\n{done.output.rstrip()}\n"


if __name__ == "__main__":
    for one in PAGES:
        one.write_text(page(one), encoding="utf-8", newline="\n")
