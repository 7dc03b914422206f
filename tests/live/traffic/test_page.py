"""The page: one file that needs nothing else, with the figures of the description."""

from dataclasses import replace
from html.parser import HTMLParser

import pytest

from blis_tui.live.traffic.describe import page
from blis_tui.live.traffic.ledger import Ledger
from blis_tui.live.traffic.opening import Choice, open_traffic
from blis_tui.live.traffic.traffic_figures import Description, describe

_VOID = ("meta",)


class Checked(HTMLParser):
    """Tags that open must close; nothing may come from elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.points = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        assert not {"src", "href", "onclick"} & given.keys()
        assert tag != "script"
        if tag not in _VOID:
            self.open.append(tag)
        if tag == "polygon":
            self.points = len(str(given["points"]).split())

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def found() -> Description:
    traffic = open_traffic("trace-replay", Choice())
    return describe(traffic, Ledger(traffic.requests, 16))


def test_it_is_well_formed_and_stands_alone(found: Description) -> None:
    text = page(found)
    checked = Checked()
    checked.feed(text.removeprefix("<!doctype html>"))
    assert checked.open == []
    assert checked.points == 2 * len(found.arrivals.requests) + 2
    assert "http" not in text


def test_it_shows_every_figure_of_the_tables(found: Description) -> None:
    text = page(found)
    for cell in ("120 in 48.3 s", "46.7 % of prompt tokens", "612.6", "support", "60.8 %", "512 to 1,023"):
        assert cell in text


def test_names_are_text(found: Description) -> None:
    group = found.tenants["support"]
    text = page(replace(found, name="<b>", tenants={"<script>": group}))
    assert "<script>" not in text
    assert "&lt;script&gt;" in text
