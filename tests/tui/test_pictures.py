"""The pictures of the guides show what is on the screen."""

from __future__ import annotations

import asyncio
import html
import importlib.util
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, cast

import pytest

from tests.tui.screens import finish, settle

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping

    from textual.pilot import Pilot

DOCS: Final = Path(__file__).parents[2] / "docs"


class Studio(Protocol):
    """Its running program."""

    pilot: Pilot[None]

    def _busy(self) -> bool: ...


class Maker(Protocol):
    """``docs/make_pictures.py``."""

    SCENES: Mapping[str, object]
    Studio: type

    def furnished(self, name: str, home: Path) -> Path: ...
    def screenshot(self, name: str) -> Awaitable[str]: ...


def maker() -> Maker:
    found = importlib.util.spec_from_file_location("make_pictures", DOCS / "make_pictures.py")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return cast("Maker", module)


MAKER: Final = maker()


def words(svg: str) -> list[str]:
    """What a picture says, without the frame around it and whatever else of it depends on who draws."""
    return [html.unescape(text) for text in re.findall(r"<text [^>]*clip-path[^>]*>(.*?)</text>", svg, re.DOTALL)]


async def calm(studio: Studio) -> None:
    """Wait as other tests do, which takes less time than in front of a reader."""
    await finish(studio.pilot)
    while studio._busy():  # noqa: ASYNC110  (the product has no event to tell)
        await asyncio.sleep(0.005)
    await settle(studio.pilot)


def test_pictures_of_screens_on_the_first_pages_are_among_these() -> None:
    """So that none of them can be stale."""
    for page in (DOCS.parent / "README.md", DOCS / "index.md"):
        shown = re.findall(r"!\[[^]]*\]\((?:docs/)?img/([\w-]+)\.(\w+)\)", page.read_text(encoding="utf-8"))
        assert shown, page
        assert [name for name, kind in shown if name not in MAKER.SCENES or kind != "svg"] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", MAKER.SCENES)
async def test_a_picture_is_what_is_on_the_screen(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If not, `make pictures` draws it again."""
    monkeypatch.setattr(MAKER.Studio, "calm", calm)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(MAKER.furnished(name, tmp_path))
    shown = words((DOCS / "img" / f"{name}.svg").read_text(encoding="utf-8"))
    assert len(shown) > 50
    assert words(await MAKER.screenshot(name)) == shown
