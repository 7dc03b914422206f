"""Tools of other people that documents have to work with, fetched once into pytest's cache."""

from __future__ import annotations

import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

TIMEOUT_S = 120
LANGUAGE_SERVER = "1.25.0"
CHECK_JSONSCHEMA = "0.39.0"


def cache_folder(config: pytest.Config, factory: pytest.TempPathFactory, name: str) -> Path:
    """A folder that outlives the run, where pytest has a cache."""
    if config.pluginmanager.has_plugin("cacheprovider"):
        return config.cache.mkdir(name)
    return factory.mktemp(name)


def fetch(command: list[str], what: str) -> None:
    """Run an installer, or skip the test with the reason why it cannot."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        pytest.skip(f"cannot fetch {what}: {error}")
    if done.returncode:
        pytest.skip(f"cannot fetch {what}: {done.stderr.strip()[-300:]}")


def language_server(config: pytest.Config, factory: pytest.TempPathFactory) -> list[str]:
    """The command that starts yaml-language-server."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        pytest.skip("no Node.js with npm")
    folder = cache_folder(config, factory, f"yaml-language-server-{LANGUAGE_SERVER}")
    program = folder / "node_modules" / "yaml-language-server" / "bin" / "yaml-language-server"
    if not program.is_file():
        options = ["--prefix", str(folder), "--no-save", "--ignore-scripts", "--no-audit", "--no-fund"]
        fetch([npm, "install", *options, f"yaml-language-server@{LANGUAGE_SERVER}"], "yaml-language-server")
    return [node, str(program)]


def check_jsonschema(config: pytest.Config, factory: pytest.TempPathFactory) -> Path:
    """The folder with check-jsonschema and what it needs."""
    folder = cache_folder(config, factory, f"check-jsonschema-{CHECK_JSONSCHEMA}")
    if not (folder / "check_jsonschema").is_dir():
        package = f"check-jsonschema=={CHECK_JSONSCHEMA}"
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(folder), package]
        fetch(command, "check-jsonschema")
    return folder
