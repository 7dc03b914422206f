"""The example script, and the example package as an installer would leave it."""

from __future__ import annotations

import shutil
import sys
import tomllib
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.fixture
def script() -> str:
    """A policy in a file."""
    return str(HERE / "my_policies.py")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of installed packages with the example in it."""
    project = tomllib.loads((HERE / "example_package/pyproject.toml").read_text(encoding="utf-8"))["project"]
    folder = tmp_path / "site"
    shutil.copytree(HERE / "example_package/blis_example", folder / "blis_example")
    about = folder / f"blis_example-{project['version']}.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    lines = [
        line
        for group, entries in project["entry-points"].items()
        for line in (f"[{group}]", *(f"{name} = {module}" for name, module in entries.items()))
    ]
    (about / "entry_points.txt").write_text("\n".join(lines) + "\n")
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("PYTHONPATH", str(folder))
    for name in [name for name in sys.modules if name.startswith("blis_example")]:
        monkeypatch.delitem(sys.modules, name)
    return folder
