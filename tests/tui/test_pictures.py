"""The pictures of the guides show what is on the screen."""

from __future__ import annotations

import asyncio
import html
import importlib.util
import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, cast

import pytest
from rich.cells import cell_len

from blis_tui.tui.app import BlisApp, Start
from blis_tui.tui.screens.export import portable
from tests.nightly import every
from tests.tui.debugging import experiment
from tests.tui.screens import finish, screen_rows, settle

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
    spec = importlib.util.spec_from_file_location("make_pictures", DOCS / "make_pictures.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
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
@pytest.mark.parametrize("name", every(3, MAKER.SCENES, start=1))
async def test_a_picture_is_what_is_on_the_screen(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If not, `make pictures` draws it again."""
    monkeypatch.setattr(MAKER.Studio, "calm", calm)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(MAKER.furnished(name, tmp_path))
    shown = words((DOCS / "img" / f"{name}.svg").read_text(encoding="utf-8"))
    assert len(shown) > 50
    assert words(await MAKER.screenshot(name)) == shown


@pytest.mark.parametrize("at", ["", "1500"])
async def test_every_word_of_an_exported_screen_has_its_own_place(at: str) -> None:
    """Spaces are nowhere in it, so no program can collapse them, and wide characters take two cells."""
    app = BlisApp(Start(experiment=experiment("kv-pressure", 60), source="kv-pressure 日本", at=at or None))
    async with app.run_test(size=(140, 40)) as pilot:
        await settle(pilot)
        svg = app.export_screenshot()
        rows = [strip.text for strip in screen_rows(app)]
    assert "http://www.w3.org/2000/svg" in svg
    assert not re.findall(r"url\((?!#)|@font-face|@import|href", svg)
    ET.fromstring(svg)  # noqa: S314  (our own)
    found = re.findall(r'<text [^>]*x="([\d.]+)" y="([\d.]+)" textLength="([\d.]+)"[^>]*>([^<]*)</text>', svg)
    drawn: dict[int, dict[int, str]] = {}
    for x, y, length, text in found:
        word = html.unescape(text)
        assert word == word.strip("\N{NO-BREAK SPACE} ")
        assert round(float(length) / 12.2) == cell_len(word)
        drawn.setdefault(round((float(y) - 20) / 24.4), {})[round(float(x) / 12.2)] = word
    for at_row, row in enumerate(rows):
        cells = {cell_len(row[: match.start()]): match[0] for match in re.finditer(r"\S+", row)}
        words_of_row = drawn.get(at_row, {})
        assert {cell for cell in words_of_row if cell in cells} == set(cells)
        assert "".join(words_of_row[cell] for cell in sorted(words_of_row)) == "".join(cells.values())


def test_wide_characters_move_what_follows_by_two_cells() -> None:
    line = '<text class="a-r1" x="0" y="20" textLength="48.8" clip-path="url(#a)">日&#160;&lt;b</text>'
    places = re.findall(r'x="([\d.]+)".*?textLength="([\d.]+)".*?>([^<]+)</text>', portable(line))
    assert places == [("0", "24.4", "日"), ("36.6", "24.4", "&lt;b")]
