"""Where in a document a place of its text is, also while the text is no valid YAML yet.

An editor asks in the middle of a word, so lines are read by their indentation instead of by a parser. Flow style
(``{kind: gaussian, mean: 8}``) is understood within a line.
"""

from __future__ import annotations

import re
from dataclasses import field
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import NamedTuple, dataclass
from blis_tui.spec.authoring.key_tree import DISCRIMINATORS, Key, root
from blis_tui.spec.schema import KINDS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from blis_tui.model.plug_ins import Registry

_NAME: Final = r"[A-Za-z_][\w.-]*|\"[^\"]*\"|'[^']*'"
_LINE: Final = re.compile(rf"(?P<dashes> *(?:- +)*)(?:(?P<key>{_NAME}) *:(?: +(?:&\S+ +)?(?P<value>.*))?$)?")
_BEGUN: Final = re.compile(r"(?P<dashes> *(?:- +)*)(?P<word>[\w./-]*)$")
_BLOCK: Final = re.compile(r"[|>][+-]?\d*\s*(#.*)?$")
_COMMENT: Final = re.compile(r"(^|\s)#")
_TOKEN: Final = re.compile(r"\"[^\"]*\"|'[^']*'|[{}\[\],]|:(?=\s|$)|[^{}\[\],:\s\"']+(?::[^\s{}\[\],]+)*|\s+|.")
_DEFAULT_KIND: Final = "Experiment"


class Row(NamedTuple):
    """A line with a key, or with an entry of a list."""

    line: int
    column: int
    """Where the key begins."""
    key: str
    """Empty = the line is an entry of a list without a key."""
    value: str
    value_column: int
    entry: bool
    """Whether an entry of a list begins here."""
    last: int
    """The last line of its value, if that is in flow style; otherwise the line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cursor:
    """What is being written at a place."""

    kind: str
    """The kind of document."""
    path: tuple[str, ...]
    """Keys from the document's root to the map around the place, without list positions."""
    chosen: tuple[tuple[tuple[str, ...], str], ...]
    """For maps on that path: the value of the key that decides which others exist (``kind``)."""
    key: str
    """The key whose value is being written; empty = a key is."""
    word: str
    """What has been written of it up to the place."""
    column: int
    """Where that begins, from 0."""
    present: tuple[str, ...]
    """Other keys of the map."""

    def names(self, plugins: Registry | None = None) -> dict[str, Key]:
        """Return the keys that may be written into the map, by name."""
        children: dict[str, Key] = {}
        for key in self._containers(plugins):
            for name, child in _children(key, self._value_of(self.path)):
                if name not in self.present:
                    children.setdefault(name, child)
        return children

    def keys(self, name: str, plugins: Registry | None = None) -> list[Key]:
        """Return what a key of the map may be: several, if that depends on a ``kind`` that is not written yet."""
        value = self._value_of(self.path)
        return [
            child
            for key in self._containers(plugins)
            for child_name, child in _children(key, value)
            if child_name == name
        ]

    def _value_of(self, path: tuple[str, ...]) -> str:
        return dict(self.chosen).get(path, "")

    def _containers(self, plugins: Registry | None) -> list[Key]:
        keys = [root(self.kind, plugins)]
        for at, step in enumerate(self.path):
            value = self._value_of(self.path[:at])
            keys = [child for key in keys for name, child in _children(key, value) if name == step]
        return keys


def _children(key: Key, value: str) -> Iterator[tuple[str, Key]]:
    yield from key.children.items()
    for variant in key.variants:
        if value in ("", variant.value):
            yield from variant.keys.items()


def rows_of(lines: Sequence[str]) -> list[Row]:
    """Return the lines that have a key or begin an entry of a list, but not those inside of a value."""
    rows, inside = list[Row](), -1  # lines that are indented by more belong to a text in block style
    for number, line in enumerate(lines):
        text = line.rstrip()
        indent = len(text) - len(text.lstrip(" "))
        continued = bool(rows) and number <= rows[-1].last
        if not text or text.lstrip().startswith("#") or (inside >= 0 and indent > inside) or continued:
            continue
        inside = -1
        match = _LINE.match(text)
        if match is None or not (match["key"] or "-" in match["dashes"]):
            continue
        column, key = len(match["dashes"]), (match["key"] or "").strip("\"'")
        where = (match.start("value") if match["value"] else len(text)) if key else column
        value = text[where:]
        if _BLOCK.match(value):
            inside = column
        last = _end_of_flow(lines, number, where, column) if value[:1] in ("{", "[") else number
        rows.append(Row(number, column, key, _without_comment(value), where, "-" in match["dashes"], last))
    return rows


def _end_of_flow(lines: Sequence[str], line: int, start: int, column: int) -> int:
    """Return the line on which a value in flow style ends, or as far as it may go if it does not."""
    depth, text, number = 0, lines[line][start:], line
    while True:
        for char in _without_quoted(text):
            depth += (char in "{[") - (char in "}]")
        following = number + 1
        if depth <= 0 or following >= len(lines):
            return number
        text = lines[following]
        if text.strip() and len(text) - len(text.lstrip(" ")) <= column - 2:
            return number
        number = following


def kind_of(rows: Sequence[Row]) -> str:
    """Return the kind of document that the rows are of; an experiment if they do not say it."""
    kind = next((row.value.strip("\"'") for row in rows if (row.column, row.key) == (0, "kind")), "")
    return kind if kind in KINDS else _DEFAULT_KIND


def cursor_at(lines: Sequence[str], line: int, column: int) -> Cursor | None:
    """Return what is being written at a place (both from 0); None = a comment, or nothing that is understood."""
    before = lines[line][:column] if line < len(lines) else ""
    if _COMMENT.search(_without_quoted(before)):
        return None
    rows = rows_of(lines)
    row = next((row for row in reversed(rows) if row.line <= line), None)
    if (
        row is not None
        and row.value[:1] in ("{", "[")
        and (row.line, row.value_column) < (line, column) <= (row.last, 10**9)
    ):
        first = lines[row.line][row.value_column :] if row.line < line else before[row.value_column :]
        text = " ".join([first, *lines[row.line + 1 : line], *([before] if row.line < line else [])])
        return _in_flow(_cursor(rows, row.line, row.column, entry=row.entry, key=row.key), text, column)
    if begun := _BEGUN.match(before):
        indent, entry = len(begun["dashes"]), "-" in begun["dashes"]
        return _cursor(rows, line, indent, entry=entry, word=begun["word"], start=indent)
    match = _LINE.match(before)
    if match is None or not match["key"]:
        return None
    indent, entry, value = len(match["dashes"]), "-" in match["dashes"], match["value"] or ""
    key = match["key"].strip("\"'")
    return _cursor(rows, line, indent, entry=entry, key=key, word=value, start=column - len(value))


def on_row(lines: Sequence[str], line: int, column: int) -> tuple[Cursor, str, str] | None:
    """Return the cursor of the row at a place, its key, and the word of its value there (empty: the place is the key).

    Returns:
        None where there is neither.
    """
    if line >= len(lines):
        return None
    text = lines[line]
    end = column
    while end < len(text) and re.match(r"[\w./:-]", text[end]):
        end += 1
    cursor = cursor_at(lines, line, end)
    if cursor is None:
        return None
    if cursor.key:
        return cursor, cursor.key, cursor.word.strip("\"'")
    return (cursor, cursor.word, "") if cursor.word else None


def _cursor(
    rows: Sequence[Row], line: int, column: int, *, entry: bool, key: str = "", word: str = "", start: int = 0
) -> Cursor:
    """Return the cursor of a line whose key begins at a column."""
    above = [row for row in rows if row.line < line]
    here = _around(rows, line, column, entry=entry)
    path, values = list[str](), [here]
    while above:
        row = above.pop()
        if row.column < column and row.key:
            path.insert(0, row.key)
            values.insert(0, _around(rows, row.line, row.column, entry=row.entry))
            column = row.column
        elif row.entry and row.column - 2 < column <= row.column:
            column = min(column, row.column)
    chosen = []
    for depth, pairs in enumerate(values):
        value = next((pairs[name].strip("\"'") for name in DISCRIMINATORS if pairs.get(name)), "")
        if value and depth:
            chosen.append((tuple(path[:depth]), value))
    present = tuple(name for name in here if name != key)
    return Cursor(
        kind=kind_of(rows),
        path=tuple(path),
        chosen=tuple(chosen),
        key=key,
        word=word,
        column=start,
        present=present,
    )


def _around(rows: Sequence[Row], line: int, column: int, *, entry: bool) -> dict[str, str]:
    """Return the keys of the map that the row of a line belongs to, with their values, without its own."""
    values: dict[str, str] = {}
    above, below = [row for row in rows if row.line < line], [row for row in rows if row.line >= line]
    if not entry:
        for row in reversed(above):
            if row.column < column:
                break
            if row.column == column and row.key:
                values[row.key] = row.value
            if row.column == column and row.entry:
                break
    for row in below:
        if row.column < column or (row.line > line and row.entry and row.column <= column):
            break
        if row.column == column and row.key and row.line > line:
            values[row.key] = row.value
    return values


@dataclass(slots=True)
class _Frame:
    """A map or list in flow style that has begun."""

    opens: str
    key: str = ""
    after_colon: bool = False
    pairs: dict[str, str] = field(default_factory=dict)


def _in_flow(outer: Cursor, text: str, column: int) -> Cursor | None:
    """Return the cursor at the end of a text in flow style, which is the value of the outer cursor's key."""
    frames, word = list[_Frame](), ""
    path = (*outer.path, *([outer.key] if outer.key else []))
    for match in _TOKEN.finditer(text):
        part = match[0]
        if part in "{[":
            frames.append(_Frame(part))
        elif part in "}]":
            if not frames:
                return None
            frames.pop()
        elif part == ",":
            _end_pair(frames, word)
        elif part == ":" and frames:
            frames[-1].key, frames[-1].after_colon = word.strip("\"'"), True
        word = part if not part.isspace() and part not in ("{", "[", "}", "]", ",", ":") else ""
    if not frames:
        return None
    inner, chosen = frames[-1], list(outer.chosen)
    for frame in frames:
        value = next((value for name in DISCRIMINATORS if (value := frame.pairs.get(name))), "")
        chosen += [(path, value)] if value else []
        path += (frame.key,) if frame.key and frame is not inner else ()
    listed = inner.opens == "["
    return Cursor(
        kind=outer.kind,
        path=path[:-1] if listed else path,
        chosen=tuple(chosen),
        key=path[-1] if listed and path else inner.key if inner.after_colon else "",
        word=word,
        column=column - len(word),
        present=tuple(name for name in inner.pairs if name != inner.key),
    )


def _end_pair(frames: list[_Frame], word: str) -> None:
    if frames:
        frame = frames[-1]
        if frame.key:
            frame.pairs[frame.key] = word.strip("\"'")
        frame.key, frame.after_colon = "", False


def _without_quoted(text: str) -> str:
    return re.sub(r"\"[^\"]*\"|'[^']*'", lambda match: "_" * len(match[0]), text)


def _without_comment(value: str) -> str:
    match = _COMMENT.search(_without_quoted(value))
    return value if match is None else value[: match.start()].rstrip()
