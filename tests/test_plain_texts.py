"""Texts in columns, and pages without scripts."""

from __future__ import annotations

from html.parser import HTMLParser

from blis_tui.base.html import plain_page, plain_table
from blis_tui.base.text import aligned


def test_columns_are_as_wide_as_their_widest_cell() -> None:
    rows = [("name", "count", "note"), ("a", "1,000,000", ""), ("longer", "2", "x")]
    lines = list(aligned(rows, right=range(1, 2)))
    assert lines == ["name        count  note", "a       1,000,000", "longer          2  x"]


def test_of_no_rows_there_are_no_lines() -> None:
    assert list(aligned([], right=range(1, 2))) == []


class _Read(HTMLParser):
    """The cells of a page, and its open elements."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.cells: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag != "meta":
            self.open.append(tag)
        if tag in ("td", "th"):
            self.cells.append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("td", "th"):
            self.cells[-1] += data


def test_a_page_is_well_formed_and_escapes_names() -> None:
    table = plain_table(("", "p50"), [("<script>", "1"), ("a & b", "2")])
    page = plain_page("<b>", [table], "rect { fill: red; }")
    read = _Read()
    read.feed(page)
    assert read.open == []
    assert read.cells == ["", "p50", "<script>", "1", "a & b", "2"]
    assert "<h1>&lt;b&gt;</h1>" in page
    assert page.count("class='n'") == 3
    assert "<thead" not in plain_table((), [("a", "b")], numbers=False)
