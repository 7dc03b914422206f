"""Small foreign projects, and pytest run in them as a user would."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tests.prefork import run_module

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

SPEC = """\
apiVersion: blis/v1
kind: Experiment
metadata: {name: demo}
model: llama-3.1-8b-instruct
hardware: h100
latency: {kind: blackbox, alpha: [0, 0, 0], beta: [5000, 20, 30]}
workload:
  requests: 25
  rate_per_s: 20
  clients:
    - id: chat
      input_tokens: {kind: gaussian, mean: 128, std_dev: 64, min: 16, max: 400}
      output_tokens: {kind: gaussian, mean: 40, std_dev: 20, min: 2, max: 100}
policy: blis
engine: {kv_blocks: 60}
"""


def project(folder: Path, spec: str = SPEC, *, checks: str | None = "observers") -> Path:
    """A folder with one experiment and next to no pytest configuration.

    Args:
        folder: where.
        spec: the experiment.
        checks: how runs are repeated; the usual ones (None) start one process more for each.
    """
    settings = "" if checks is None else f"blis_checks = {checks}\n"
    (folder / "pytest.ini").write_text(f"[pytest]\naddopts = -p no:cacheprovider\n{settings}", encoding="utf-8")
    (folder / "demo.blis.yaml").write_text(spec, encoding="utf-8")
    return folder


def pytest_in(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run pytest there, not on CI unless told so, with our plugin alone: others take long to import."""
    alone = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    ours = ["-q", "-p", "blis_tui.pytest_plugin", *arguments]
    return run_module("pytest", ours, cwd=folder, env=_clean() | alone | environment)


def blis_in(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command line there."""
    return run_module("blis_tui", arguments, cwd=folder, env=_clean())


def _clean() -> dict[str, str]:
    ours = ("CI", "GITHUB", "PYTEST", "BLIS")
    return {name: value for name, value in os.environ.items() if not name.startswith(ours)}


def files(folder: Path) -> list[str]:
    """The golden files of a project."""
    return sorted(path.name for path in (folder / "golden").glob("*")) if (folder / "golden").is_dir() else []
