"""Quick fixes: what the help of a problem says to write, as edits of the text."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import NamedTuple
from blis_tui.spec.authoring.edits import inserted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from blis_tui.base.source import DataPath

_QUOTED: Final = re.compile(r"`([^`]+)`")
_MEANT: Final = re.compile(r"did you mean (`[^`]+`(?: or `[^`]+`)*)\?")
_WRITTEN: Final = re.compile(
    r"write (?:the number in full, such as )?(?:`([^`:]+|[{\[][^`]+)`|(-?\d[\d.e+-]*)|(true|false))(?=$|[:,;])"
)
_UNQUOTED: Final = "remove the quotes"
_LACKING: Final = re.compile(r"lacks the key `([^`]+)`")
_ADDED: Final = re.compile(r"add (?:it, such as )?`([^`]+: [^`]+)`")
_ONE_OF: Final = "add it with one of "


class Fix(NamedTuple):
    """An edit that may remove a problem."""

    title: str
    text: str
    """What is written there."""
    at: int = -1
    """Where it is inserted, from the beginning of the text; -1 = it replaces what the problem is about."""


def fixes(text: str, message: str, help_text: str, written: str, path: DataPath) -> Iterator[Fix]:
    """Yield the edits that a problem's help names.

    Args:
        text: the document.
        message: what is wrong.
        help_text: the advice.
        written: what stands at the problem's place.
        path: the value that it is about; of a missing key, the map that lacks it.
    """
    if (lacking := _LACKING.search(message)) is not None:
        yield from _added(text, lacking[1], help_text, path)
    elif (meant := _MEANT.match(help_text)) is not None:
        for word in _QUOTED.findall(meant[1]):
            yield Fix(f"Change to `{word}`", word)
    elif help_text == _UNQUOTED:
        yield Fix("Remove the quotes", written.strip("\"'"))
    elif (match := _WRITTEN.match(help_text)) is not None:
        word = match[1] or match[2] or match[3]
        yield Fix(f"Change to `{word}`", word)


def _added(text: str, key: str, help_text: str, path: DataPath) -> Iterator[Fix]:
    """Yield insertions of a missing key: with the value or the words that the help names, otherwise without."""
    if (match := _ADDED.match(help_text)) is not None:
        entries = [match[1]]
    elif help_text.startswith(_ONE_OF):
        entries = [f"{key}: {word}" for word in _QUOTED.findall(help_text)]
    else:  # advice on what stands there instead is no entry
        entries = [] if help_text.startswith(("write ", "`")) else [f"{key}: "]
    for entry in entries:
        place = inserted(text, path, entry)
        if place is not None:
            yield Fix(f"Add `{entry.strip()}`", place[1], place[0])
