"""Pages read back: their figures as data, their text, what a browser would have to fetch."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from typing import Any, Final

from blis_tui.pictures.page import plotly_script

_VOID: Final = ("meta", "br", "input", "link", "img")


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.fetched: list[str] = []
        self.data: dict[str, str] = {}
        self.text: list[str] = []
        self._id = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self._id = found.get("id") or ""
        if self._id:
            self.ids.append(self._id)
        href = found.get("href")
        if tag == "a" and href:
            self.links.append(href)
        elif href or found.get("src"):
            self.fetched.append(str(attrs))
        if tag not in _VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            if self._id:
                self.data[self._id] = self.data.get(self._id, "") + data
        elif self.open and self.open[-1] != "style":
            self.text.append(data)


class Page:
    """A page without the plotting library.

    Attributes:
        text: what can be read in it.
        figures: name of a picture -> its views, as plain data.
    """

    def __init__(self, html: str) -> None:
        assert html.count(plotly_script()) == 1
        self.html = html.replace(plotly_script(), "")
        reader = _Reader()
        reader.feed(self.html)
        reader.close()
        assert reader.open == []
        assert len(set(reader.ids)) == len(reader.ids)
        assert all(link.startswith("#") and link[1:] in reader.ids for link in reader.links)
        assert reader.fetched == []
        assert not re.search(r"https?://|@import|url\(", re.sub(r"<pre>.*?</pre>", "", self.html, flags=re.DOTALL))
        self.text = " ".join(reader.text)
        self.figures: dict[str, list[dict[str, Any]]] = {
            name.removesuffix("-plot-data"): json.loads(text) for name, text in reader.data.items()
        }

    def traces(self, picture: str, view: int = 0) -> dict[tuple[str, str], dict[str, Any]]:
        """The traces of a picture by their name and vertical axis."""
        found = self.figures[picture][view]["data"]
        return {(one.get("name", ""), one.get("yaxis", "y")): one for one in found}

    def markup(self, *names: str) -> list[str]:
        """What is drawn that contains one of these names as markup, which Plotly would interpret."""
        left: list[Any] = list(self.figures.values())
        found = []
        while left:
            one = left.pop()
            if isinstance(one, str):
                found += [one] * any(name in one for name in names)
            else:
                left += one.values() if isinstance(one, dict) else one if isinstance(one, list) else ()
        return found
