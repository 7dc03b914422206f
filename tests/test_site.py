"""The documentation site has every page and no dead links."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
import yaml

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).parents[1]
SITE: Final = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))


def pages(nav: object) -> Iterator[str]:
    """The files in a part of the navigation."""
    if isinstance(nav, str):
        yield nav
    for part in nav.values() if isinstance(nav, dict) else nav if isinstance(nav, list) else ():
        yield from pages(part)


def test_each_page_is_in_the_navigation_once() -> None:
    docs = ROOT / SITE["docs_dir"]
    there = [path for ending in ("md", "ipynb") for path in docs.rglob(f"*.{ending}")]
    assert sorted(pages(SITE["nav"])) == sorted(path.relative_to(docs).as_posix() for path in there)


def test_each_page_is_named_on_the_first() -> None:
    first = (ROOT / "docs/index.md").read_text(encoding="utf-8")
    parts = {page for page in pages(SITE["nav"]) if not page.startswith("reference/")} - {"index.md"}
    notebook = {page for page in parts if page.startswith("lab/")} - {"lab/README.md"}
    assert {page for page in parts - notebook if f"({page})" not in first} == set()
    about = (ROOT / "docs/lab/README.md").read_text(encoding="utf-8")
    assert {page for page in notebook if f"({page.removeprefix('lab/')})" not in about} == set()


@pytest.mark.skipif(shutil.which("mkdocs") is None, reason="mkdocs is not installed (extra `docs`)")
def test_it_is_built_without_a_warning(tmp_path: Path) -> None:
    done = subprocess.run(
        ["mkdocs", "build", "--strict", "--site-dir", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
