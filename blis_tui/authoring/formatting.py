"""The normal form of a document's text, which ``spec fmt`` writes. Comments and values do not change."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.authoring.layout import UnsupportedLayoutError, comments, has_anchors, lay_out, normal_text
from blis_tui.canonical import to_sorted_json
from blis_tui.classes import dataclass
from blis_tui.spec.loader import parse
from blis_tui.spec.schema import KINDS, properties_of
from blis_tui.spec.source import Source

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.spec.source import Document

_ROUNDS = 3
"""Maximum number of layout passes until nothing changes; usually one suffices."""


@dataclass(frozen=True, slots=True)
class Formatted:
    """A text in its normal form; ``left_alone`` says why it was not changed, if so."""

    text: str
    left_alone: str = ""


def format_source(source: Source) -> Formatted:
    """Return the normal form of a document.

    Two spaces of indentation, one space between tokens, no unnecessary quotes, at most one blank line, top-level keys
    in the schema's order. A text that cannot be laid out safely is returned unchanged.

    Raises:
        SpecError: the text is not one strict YAML document.
    """
    document = parse(source)
    try:
        text = _settled(source)
        _verify(document, source, text)
    except UnsupportedLayoutError as error:
        return Formatted(source.text, str(error))
    return Formatted(text)


def _settled(source: Source) -> str:
    """Lay out a text repeatedly until nothing changes."""
    text = normal_text(source.text)
    for _ in range(_ROUNDS):
        before, text = text, _once(text, source)
        if text == before:
            return text
    raise UnsupportedLayoutError("no stable layout")


def _once(text: str, source: Source) -> str:
    laid_out = lay_out(text)
    document = parse(Source(source.name, laid_out, source.directory))
    return lay_out(_in_order(laid_out, document))


def _verify(document: Document, source: Source, text: str) -> None:
    """Verify that only the layout has changed, independently of the code above."""
    after = parse(Source(source.name, text, source.directory))
    if to_sorted_json(after.data) != to_sorted_json(document.data):
        raise UnsupportedLayoutError("a layout that would change its meaning")
    if comments(text) != comments(source.text):
        raise UnsupportedLayoutError("a layout that would lose a comment")


def _in_order(text: str, document: Document) -> str:
    """Return the top-level keys of a block map in the schema's order, each with the comment directly above it."""
    data = document.data
    kind = document.get("kind")
    if not isinstance(data, dict) or kind not in KINDS or has_anchors(text):
        return text
    lines = text.split("\n")[:-1]
    starts = [document.keys[(key,)].span.line - 1 for key in data]
    known = properties_of(str(kind))
    wanted = sorted(data, key=lambda key: known.index(key) if key in known else len(known))
    marked = any(line in ("---", "...") or line.startswith(("--- ", "... ")) for line in lines[starts[0] :])
    if wanted == list(data) or marked or any(document.keys[(key,)].span.column != 1 for key in data):
        return text
    header, chunks, footer = _chunks(lines, starts)
    by_key = dict(zip(data, chunks, strict=True))
    body = [line for key in wanted for line in by_key[key]]
    return "\n".join([*header, *body, *footer, ""])


def _chunks(lines: Sequence[str], starts: Sequence[int]) -> tuple[list[str], list[list[str]], list[str]]:
    """Return the text above the first key, each key with its comment and preceding blank line, and the rest."""
    begins = [starts[0]]
    for start in starts[1:]:
        begin = start
        while lines[begin - 1].startswith("#"):
            begin -= 1
        while not lines[begin - 1]:
            begin -= 1
        begins.append(begin)
    end = len(lines)
    while not lines[end - 1] or lines[end - 1].startswith("#"):
        end -= 1
    chunks = [list(lines[begin:stop]) for begin, stop in zip(begins, [*begins[1:], end], strict=True)]
    return list(lines[: starts[0]]), chunks, list(lines[end:])
