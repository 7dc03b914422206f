"""All bytecode of a clean checkout, made before the workers start.

Each of them would compile every module, and rewrite every test's assertions, at the same time as the others do.
"""

from __future__ import annotations

import os
import py_compile
import sys
from contextlib import suppress
from importlib.util import cache_from_source
from pathlib import Path
from typing import TYPE_CHECKING

from _pytest.assertion import rewrite

from tests.wheels import ROOT

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest


def compile_all(config: pytest.Config, processes: int) -> None:
    """Compile what has no bytecode yet, in this many processes; what fails here fails where it is imported."""
    if sys.dont_write_bytecode or not hasattr(os, "fork"):
        return
    files = [file for name in ("blis_tui", "tests") for file in sorted((ROOT / name).rglob("*.py"))]
    missing = [file for file in files if not _target(file).exists()]
    children = []
    for number in range(processes if missing else 0):
        child = os.fork()
        if not child:
            try:
                _compile(missing[number::processes], config)
            finally:
                os._exit(0)
        children.append(child)
    for child in children:
        os.waitpid(child, 0)


def _is_rewritten(file: Path) -> bool:
    """Whether pytest rewrites its assertions: by the patterns that it has unless told otherwise."""
    return file.name == "conftest.py" or (file.name.startswith("test_") and ROOT / "tests" in file.parents)


def _target(file: Path) -> Path:
    """Where the bytecode is looked for."""
    if _is_rewritten(file):
        return rewrite.get_cache_dir(file) / f"{file.stem}{rewrite.PYC_TAIL}"
    return Path(cache_from_source(file))


def _compile(files: Sequence[Path], config: pytest.Config) -> None:
    state = config.stash[rewrite.assertstate_key]
    for file in files:
        with suppress(Exception):
            if _is_rewritten(file):
                target = _target(file)
                target.parent.mkdir(parents=True, exist_ok=True)
                stat, code = rewrite._rewrite_test(file, config)
                rewrite._write_pyc(state, code, stat, target)
            else:
                py_compile.compile(str(file), doraise=True)
