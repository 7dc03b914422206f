"""The pages made from tables must be what the tables say."""

from __future__ import annotations

import pytest

from blis_tui.tui.actions import ACTIONS
from docs.make_terminal_reference import FOLDER, pages


@pytest.mark.parametrize("name", sorted(pages()))
def test_pages_are_up_to_date(name: str) -> None:
    assert (FOLDER / name).read_text(encoding="utf-8") == pages()[name], "run `make docs`"


def test_every_action_is_told() -> None:
    page = pages()["keys.md"]
    assert all(f"`{action.name}`" in page for action in ACTIONS)
