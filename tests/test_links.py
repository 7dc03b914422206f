"""Each link in a page leads to an existing file and heading."""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[1]
PAGES: Final = (*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md")))
LINK: Final = re.compile(r"!?\[(?:[^\]\[]|\[[^\]]*\])*\]\(([^)\s]+)\)")
CODE: Final = re.compile(r"^(?P<fence> *`{3,}).*?^(?P=fence) *$|`[^`\n]+`", re.MULTILINE | re.DOTALL)


def links(page: Path) -> list[str]:
    """Links of a page within the checkout."""
    text = CODE.sub("", page.read_text(encoding="utf-8"))
    return [target for target in LINK.findall(text) if not re.match(r"[a-z]+:", target)]


@cache
def anchors(page: Path) -> frozenset[str]:
    """The anchors of a page: GitHub's for its headings, and those it sets itself."""
    text = re.sub(r"^( *`{3,}).*?^\1 *$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    found: list[str] = re.findall(r'<a (?:id|name)="([^"]+)"', text)
    for heading in re.findall(r"^#+ +(.+?) *#*$", text, re.MULTILINE):
        name = "".join(
            character
            for character in heading.lower().replace(" ", "-")
            if character in "-_" or unicodedata.category(character)[0] in "LN"
        )
        count = len([one for one in found if re.fullmatch(rf"{re.escape(name)}(-\d+)?", one)])
        found.append(f"{name}-{count}" if count else name)
    return frozenset(found)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    for link in links(page):
        file, _, heading = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        assert target.exists(), link
        if heading and target.suffix == ".md":
            assert heading in anchors(target), link
        if page.is_relative_to(ROOT / "docs"):
            assert target.is_relative_to(ROOT / "docs"), f"{link}: the site has nothing else"
