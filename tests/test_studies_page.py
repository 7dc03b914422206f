"""docs/studies.md, docs/planning.md and docs/schedulers.md show what really happens."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from docs.make_studies import PAGES, page

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_its_commands_print_what_it_shows(path: Path) -> None:
    assert page(path) == path.read_text(encoding="utf-8"), "`python docs/make_studies.py` writes the page"
