"""Tools of other people that documents have to work with, fetched once into pytest's cache."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.wheels import uv

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

TIMEOUT_S = 120
LANGUAGE_SERVER = "1.25.0"
CHECK_JSONSCHEMA = "0.39.0"


def fetched(
    config: pytest.Config, factory: pytest.TempPathFactory, name: str, command: Callable[[Path], list[str]]
) -> Path:
    """The folder that an installer filled: whole or not at all, kept where pytest has a cache.

    ``command`` gives the installer's command line for a folder. The test is skipped, with the reason, where it fails.
    """
    root = config.cache.mkdir("tools") if config.pluginmanager.has_plugin("cacheprovider") else factory.mktemp("tools")
    folder = root / name
    if not folder.is_dir():
        unfinished = root / f"{name}.{os.getpid()}"
        try:
            done = subprocess.run(command(unfinished), capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            pytest.skip(f"cannot fetch {name}: {error}")
        if done.returncode:
            pytest.skip(f"cannot fetch {name}: {done.stderr.strip()[-300:]}")
        try:
            unfinished.rename(folder)
        except OSError:
            if not folder.is_dir():  # or another process was faster
                raise
    return folder


def language_server(config: pytest.Config, factory: pytest.TempPathFactory) -> list[str]:
    """The command that starts yaml-language-server."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        pytest.skip("no Node.js with npm")
    options = ["--no-save", "--ignore-scripts", "--no-audit", "--no-fund"]
    package = f"yaml-language-server@{LANGUAGE_SERVER}"
    folder = fetched(
        config,
        factory,
        f"yaml-language-server-{LANGUAGE_SERVER}",
        lambda at: [npm, "install", "--prefix", str(at), *options, package],
    )
    return [node, str(folder / "node_modules" / "yaml-language-server" / "bin" / "yaml-language-server")]


def check_jsonschema(config: pytest.Config, factory: pytest.TempPathFactory) -> Path:
    """The folder with check-jsonschema and what it needs."""
    package = f"check-jsonschema=={CHECK_JSONSCHEMA}"
    return fetched(
        config,
        factory,
        f"check-jsonschema-{CHECK_JSONSCHEMA}",
        lambda at: [uv(), "pip", "install", "--quiet", "--python", sys.executable, "--target", str(at), package],
    )
