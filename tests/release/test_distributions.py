"""What is released: a source distribution, the wheel of it, and what an index and an installer read in them."""

from __future__ import annotations

import re
import tarfile
import tomllib
import zipfile
from email.parser import Parser
from typing import TYPE_CHECKING, Final

import pytest
from markdown_it import MarkdownIt

from blis_tui._version import __version__
from tests.wheels import ROOT, build, checked

if TYPE_CHECKING:
    from email.message import Message
    from pathlib import Path

pytestmark = [pytest.mark.slow, pytest.mark.nightly]

PROJECT: Final = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
HOME: Final = str(PROJECT["urls"]["Homepage"])


def members(wheel: Path) -> dict[str, bytes]:
    """Each file of a wheel with its bytes."""
    with zipfile.ZipFile(wheel) as opened:
        return {name: opened.read(name) for name in opened.namelist()}


@pytest.fixture(scope="module")
def metadata(wheel: Path) -> Message:
    (text,) = [text for name, text in members(wheel).items() if name.endswith(".dist-info/METADATA")]
    return Parser().parsestr(text.decode())


def test_a_wheel_of_the_source_distribution_is_that_of_the_checkout(
    distributions: tuple[Path, Path], tmp_path: Path
) -> None:
    (direct,) = build(tmp_path, ROOT, "--wheel")
    assert members(distributions[1]) == members(direct)


def test_the_source_distribution_is_the_checkout(distributions: tuple[Path, Path]) -> None:
    """All that is kept under version control, so that it can be built, tested and documented from there."""
    with tarfile.open(distributions[0]) as opened:
        carried = {name.partition("/")[2] for name in opened.getnames()}
    if not (ROOT / ".git").exists():
        pytest.skip("not a checkout of git")
    kept = set(checked("git", "ls-files", "--cached", "--others", "--exclude-standard", cwd=ROOT).splitlines())
    assert {one for one in kept if (ROOT / one).exists()} == carried - {"PKG-INFO"}


def test_an_index_shows_the_readme_with_pictures_and_links_that_lead_somewhere(metadata: Message) -> None:
    text = str(metadata.get_payload())
    assert metadata["Description-Content-Type"] == "text/markdown"
    page = MarkdownIt("commonmark").render(text)
    leads = {
        "raw": re.findall(r'<img src="([^"]+)"', page),
        "blob": re.findall(r'<a href="([^"]+)"', page),
    }
    for way, addresses in leads.items():
        here = f"{HOME}/{way}/v{__version__}/"
        ours = [address.removeprefix(here) for address in addresses if address.startswith(here)]
        assert len(ours) >= (2 if way == "raw" else 20)
        assert [one for one in ours if not (ROOT / one.partition("#")[0]).exists()] == []
        assert [address for address in addresses if not re.match(r"https?://", address)] == []
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert text.replace(f"{HOME}/raw/v{__version__}/", "").replace(f"{HOME}/blob/v{__version__}/", "") == readme


def test_an_index_knows_where_the_project_is_at_home(metadata: Message) -> None:
    urls = dict(str(one).split(", ") for one in metadata.get_all("Project-URL", []))
    assert urls.keys() == {"Homepage", "Documentation", "Changelog", "Issues"}
    assert [url for url in urls.values() if not url.startswith(HOME)] == []
    files = [url.removeprefix(f"{HOME}/blob/HEAD/") for url in urls.values() if "/blob/" in url]
    assert len(files) == 2
    assert [file for file in files if not (ROOT / file).is_file()] == []


def test_it_needs_what_its_parts_need(metadata: Message) -> None:
    """Each extra that an error or a page names is one."""
    extras = set(metadata.get_all("Provides-Extra", []))
    assert extras == set(PROJECT["optional-dependencies"])
    assert metadata["Requires-Python"] == ">=3.11"
    assert metadata["License-Expression"] == "Apache-2.0"
