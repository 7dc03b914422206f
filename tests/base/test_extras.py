"""Errors about missing packages name a working command and existing extras."""

from __future__ import annotations

import re
import shlex
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Final

from blis_tui.base.errors import install_command

if TYPE_CHECKING:
    import pytest

ROOT: Final = Path(__file__).parents[2]
EXTRAS: Final = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
SOURCES: Final = [path.read_text(encoding="utf-8") for path in sorted((ROOT / "blis_tui").rglob("*.py"))]
PAGES: Final = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def test_it_installs_into_the_python_that_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shlex.split(install_command("html")) == [sys.executable, "-m", "pip", "install", "blis-tui[html]"]
    monkeypatch.setattr(sys, "executable", "/opt/my tools/python")
    assert install_command("html").startswith("'/opt/my tools/python' -m pip install ")


def test_an_environment_without_pip_was_made_by_uv(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pip", None)
    assert shlex.split(install_command("zstd"))[:5] == ["uv", "pip", "install", "--python", sys.executable]


def test_the_extras_that_errors_name_are_there() -> None:
    named = {extra for text in SOURCES for extra in re.findall(r"install_command\([\"']([a-z-]+)[\"']\)", text)}
    assert len(named) >= 8
    assert named <= EXTRAS.keys()


def test_no_page_and_no_error_installs_from_an_index_what_none_has() -> None:
    """The command names the package alone, which works for a clone, a wheel or an installation without an index."""
    wrong = re.compile(r"(?<!m )pip install (?:-\S+ )*'?blis-tui\b")
    assert [text for text in SOURCES if wrong.search(text)] == []
    assert [str(page) for page in PAGES if wrong.search(page.read_text(encoding="utf-8"))] == []
    for page in PAGES:
        for extras in re.findall(r"pip install [^`\n]*\[([a-z,-]+)\]", page.read_text(encoding="utf-8")):
            assert set(extras.split(",")) <= EXTRAS.keys(), page


def test_the_guide_to_installing_has_them_all() -> None:
    rows = re.findall(
        r"^\| ((?:`[a-z-]+`(?:, )?)+) \|", (ROOT / "docs" / "install.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert sorted(extra for row in rows for extra in re.findall(r"`([a-z-]+)`", row)) == sorted(EXTRAS)
