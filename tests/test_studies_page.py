"""What docs/studies.md shows is what happens."""

from __future__ import annotations

from docs.make_studies import PAGE, page


def test_its_commands_print_what_it_shows() -> None:
    assert page() == PAGE.read_text(encoding="utf-8"), "`python docs/make_studies.py` writes the page"
