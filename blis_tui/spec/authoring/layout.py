"""The normal form of a document's text: indentation, spaces, blank lines; comments and values stay.

Lays out a YAML text: indentation, spaces between tokens, blank lines. Comments and line breaks stay.

The scanner's tokens give the structure; only white space and comments lie between two of them. Each line is rewritten
from its tokens, with the indentation of its place in the document.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Final

import yaml
from yaml import tokens as tk

from blis_tui.base.canonical import to_sorted_json
from blis_tui.base.classes import dataclass
from blis_tui.base.scalars import is_bare
from blis_tui.base.source import Source
from blis_tui.spec.read import parse
from blis_tui.spec.schema import KINDS, properties_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.base.source import Document


_SCANNER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_STEP: Final = 2
_COMMENT_GAP: Final = 2
"""Minimum number of spaces between a value and a comment."""

_TEXT: Final = (tk.ScalarToken, tk.AliasToken, tk.AnchorToken, tk.TagToken)
_OPENING: Final = (tk.FlowMappingStartToken, tk.FlowSequenceStartToken)
_CLOSING: Final = (tk.FlowMappingEndToken, tk.FlowSequenceEndToken)
_MARKERS: Final = (tk.DocumentStartToken, tk.DocumentEndToken)
_WRITTEN: Final = (*_TEXT, *_OPENING, *_CLOSING, *_MARKERS, tk.FlowEntryToken, tk.ValueToken, tk.BlockEntryToken)


class UnsupportedLayoutError(Exception):
    """The text uses something that this module does not lay out; it is valid as it is."""


@dataclass(frozen=True, slots=True)
class _Word:
    """A token with its text and place; a text may span lines (plain, quoted and block scalars)."""

    kind: type[yaml.Token]
    text: str
    line: int
    column: int
    end_line: int
    end_column: int
    """Column where the source continues after it; for a block scalar, after its header."""
    opens_key: bool
    """Whether it starts a key of a block map."""
    is_block: bool = False


@dataclass(frozen=True, slots=True)
class _Level:
    """An open block map or list: its original and its new column."""

    is_list: bool
    column: int
    indent: int


def normal_text(text: str) -> str:
    r"""Return the text without a byte-order mark, with every line ended by a newline character."""
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    return text if text.endswith("\n") else text + "\n"


def lay_out(text: str) -> str:
    """Return the text in its normal layout.

    Raises:
        UnsupportedLayoutError: the text contains something that is not laid out.
    """
    text = normal_text(text)
    lines = text.split("\n")
    if any(odd in text for odd in "\x85\u2028\u2029"):
        raise UnsupportedLayoutError("an unusual line break")
    if any("\t" in line[: _indent_of(line, " \t")] for line in lines):
        raise UnsupportedLayoutError("a tab as indentation")
    writer = _Writer(lines, _words(text, lines))
    writer.write()
    while writer.output and not writer.output[-1]:
        writer.output.pop()
    return "\n".join([*writer.output, ""])


def comments(text: str) -> list[str]:
    """Return all comments of a text, sorted."""
    text = normal_text(text)
    lines = text.split("\n")
    remarks: list[str] = []
    line, column = 0, 0
    for word in _words(text, lines):
        remarks += _between(lines, line, column, word.line, word.column)
        if word.is_block:
            remarks += _between(lines, word.line, word.end_column, word.line, len(lines[word.line]))
            line, column = word.end_line + 1, 0
        else:
            line, column = word.end_line, word.end_column
    return sorted([*remarks, *_between(lines, line, column, len(lines) - 1, 0)])


def has_anchors(text: str) -> bool:
    """Return whether parts of the document refer to one another, so that their order matters."""
    return any(isinstance(token, tk.AnchorToken) for token in yaml.scan(text, Loader=_SCANNER))


def _between(lines: Sequence[str], line: int, column: int, end_line: int, end_column: int) -> list[str]:
    """Return the comments between two places that are separated only by white space and comments."""
    if line >= end_line:
        parts = [lines[line][column:end_column]] if line == end_line else []
    else:
        parts = [lines[line][column:], *lines[line + 1 : end_line], lines[end_line][:end_column]]
    return [part.strip() for part in parts if part.strip()]


def _words(text: str, lines: Sequence[str]) -> list[_Word]:
    words: list[_Word] = []
    depth = 0
    key_next = False
    for token in yaml.scan(text, Loader=_SCANNER):
        if isinstance(token, tk.DirectiveToken):
            raise UnsupportedLayoutError("a directive")
        if isinstance(token, tk.KeyToken):
            here = lines[token.start_mark.line][token.start_mark.column :]
            if here.startswith("?") and here[1:2] in ("", " "):
                raise UnsupportedLayoutError("a key marked with `?`")
            key_next = depth == 0
        elif isinstance(token, _WRITTEN):
            depth += isinstance(token, _OPENING) - isinstance(token, _CLOSING)
            words.append(_word(token, lines, key_next))
            key_next = False
    return words


def _word(token: yaml.Token, lines: Sequence[str], opens_key: bool) -> _Word:
    start, end = token.start_mark, token.end_mark
    line, column, end_line, end_column = start.line, start.column, end.line, end.column
    if isinstance(token, tk.ScalarToken) and token.style in ("|", ">"):
        header = lines[line][column:].partition(" #")[0].rstrip()
        if any(char.isdigit() for char in header):
            raise UnsupportedLayoutError("a text with explicit indentation")
        content = list(lines[line + 1 : end_line])
        while content and not content[-1].strip() and "+" not in header:
            content.pop()
        text = "\n".join([header, *content])
        return _Word(
            type(token), text, line, column, line + len(content), column + len(header), opens_key, is_block=True
        )
    if line == end_line:
        text = lines[line][column:end_column]
    else:
        text = "\n".join([lines[line][column:], *lines[line + 1 : end_line], lines[end_line][:end_column]])
    if isinstance(token, tk.ScalarToken) and token.style in ("'", '"') and line == end_line:
        text = _normal_quotes(token.value, text)
    return _Word(type(token), text, line, column, end_line, end_column, opens_key)


def _normal_quotes(value: str, text: str) -> str:
    """Return a word without unnecessary quotes; other texts in double quotes if nothing must be escaped."""
    if is_bare(value):
        return value
    plain = text[0] == "'" and text[1:-1] == value and not set(value) & set('"\\')
    return f'"{value}"' if plain else text


def _indent_of(line: str, blanks: str = " ") -> int:
    return len(line) - len(line.lstrip(blanks))


@dataclass(slots=True)
class _Writer:
    """Rewrites the lines in order."""

    lines: Sequence[str]
    words: Sequence[_Word]
    output: list[str] = field(default_factory=list)
    levels: list[_Level] = field(default_factory=list)
    depth: int = 0
    """Number of open brackets."""
    base: int = 0
    """Indentation of the line of the outermost open bracket."""

    def write(self) -> None:
        """Write comments, blank lines, and the words of each line."""
        at, line = 0, 0
        while at < len(self.words):
            self._write_gap(line, self.words[at].line, self.words[at])
            end, last_line = at, self.words[at].line
            while end < len(self.words) and self.words[end].line <= last_line:
                last_line = max(last_line, self.words[end].end_line)
                end += 1
            self._write_words(self.words[at:end])
            at, line = end, last_line + 1
        self._write_gap(line, len(self.lines), None)

    def _write_gap(self, start: int, stop: int, following: _Word | None) -> None:
        """Write lines without words. A comment is indented like what follows, or like the block that it ends."""
        coming = 0
        if following is not None:
            kept = self.levels.copy()
            coming = self._indent(following)
            self.levels = kept
        for line in self.lines[start:stop]:
            text, column = line.strip(), _indent_of(line)
            if not text:
                if self.output and self.output[-1]:
                    self.output.append("")
                continue
            indent = coming
            if self.depth:
                indent = self.base + _STEP * self.depth
            elif column > (following.column if following is not None else 0):
                inside = [level.indent for level in self.levels if level.column <= column]
                indent = inside[-1] if inside else coming
            self.output.append(" " * indent + text)

    def _indent(self, word: _Word) -> int:
        """Return the indentation of a line that begins with this word, closing and opening blocks accordingly."""
        if word.kind in _MARKERS:
            return 0
        if self.depth:
            return self.base + _STEP * (self.depth - (word.kind in _CLOSING))
        if word.kind is tk.BlockEntryToken or word.opens_key:
            self._enter(word)
            return self.levels[-1].indent
        return self.levels[-1].indent + _STEP if self.levels else 0

    def _enter(self, word: _Word) -> None:
        """Close the blocks that end before an entry or key, and open the one that it begins."""
        is_list = word.kind is tk.BlockEntryToken
        levels = self.levels
        while levels and levels[-1].column > word.column:
            levels.pop()
        # A list may have the same column as its key.
        if levels and levels[-1].column == word.column and levels[-1].is_list and not is_list:
            levels.pop()
        if not levels or levels[-1].column < word.column or levels[-1].is_list != is_list:
            levels.append(_Level(is_list, word.column, levels[-1].indent + _STEP if levels else 0))

    def _write_words(self, words: Sequence[_Word]) -> None:
        """Write a line of words (more if texts span lines) and the comment at its end."""
        indent = self._indent(words[0])
        text = " " * indent
        previous: _Word | None = None
        for word in words:
            if self.depth == 0 and previous is not None and (word.opens_key or word.kind is tk.BlockEntryToken):
                self._enter(word)
            text += self._blank(previous, word) + self._text(word, indent)
            if word.kind in _OPENING:
                self.base = indent if self.depth == 0 else self.base
                self.depth += 1
            self.depth -= word.kind in _CLOSING
            previous = word
        last = words[-1]
        at = last.line if last.is_block else last.end_line
        comment = self.lines[at][last.end_column :].strip()
        if comment:
            head, *rest = text.split("\n") if last.is_block else [text]
            column = len(self.lines[at]) - len(self.lines[at][last.end_column :].lstrip()) + indent
            column -= words[0].column if last.line == words[0].line == at else indent
            head = head.ljust(column) if column >= len(head) + _COMMENT_GAP else head + " " * _COMMENT_GAP
            text = "\n".join([head + comment, *rest])
        self.output += text.split("\n")

    def _blank(self, previous: _Word | None, word: _Word) -> str:
        """Return the separator between two words of a line."""
        if previous is None:
            return ""
        if word.kind is tk.ValueToken:  # without the space in `*alias :`, the colon would belong to the name
            return " " if previous.kind is tk.AliasToken else ""
        if word.kind is tk.FlowEntryToken or (self.depth and (previous.kind in _OPENING or word.kind in _CLOSING)):
            return ""
        return " "

    def _text(self, word: _Word, indent: int) -> str:
        """Return the word's text. Lines of a block scalar move together; in other texts indentation is irrelevant."""
        first, *rest = word.text.split("\n")
        if word.is_block:
            inner = min((_indent_of(line) for line in rest if line.strip()), default=0)
            shift = (self.levels[-1].indent + _STEP if self.levels else 0) - inner
            return "\n".join(
                [
                    first,
                    *(" " * (_indent_of(line) + shift) + line.lstrip(" ") if line.strip(" ") else "" for line in rest),
                ]
            )
        within = " " * (indent + _STEP)
        return "\n".join(
            [
                first.rstrip(" ") if rest else first,
                *(within + line.strip(" ") if line.strip(" ") else "" for line in rest),
            ]
        )


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
