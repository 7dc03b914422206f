"""Strict parser from YAML text to plain data with source positions.

The reader processes the parser's event stream itself instead of letting PyYAML compose nodes. It does not recurse, so
no nesting depth can exhaust the stack, and limits are enforced during reading instead of afterwards.
"""

from __future__ import annotations

import re
from dataclasses import field
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Protocol

import yaml
from yaml import events

from blis_tui.base.classes import dataclass
from blis_tui.base.diagnostics import Diagnostic, in_order, located
from blis_tui.base.errors import InputError, SpecError
from blis_tui.base.input_files import MAX_DEPTH, TooLargeError, read_input, unmerged_line
from blis_tui.base.scalars import ScalarError, is_text, plain_scalar
from blis_tui.base.source import DataPath, Document, Json, Location, Source, Span

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

MAX_BYTES: Final = 8 * 1024 * 1024
MAX_VALUES: Final = 200_000
"""Maximum number of values in a document, after alias expansion."""

_REMEMBERED_BYTES: Final = 64 * 1024
"""Texts up to this size are cached with their parsed documents."""
_REMEMBERED: Final = 64

_TOO_DEEP: Final = "exceeded max"
"""What libyaml's message says of nesting beyond its own limit, which is higher than ours."""
_PARSER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml if PyYAML was built with it, otherwise the pure Python parser."""

_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f]|[\ud800-\udfff]|[\ufffe\uffff]")
"""Characters that YAML forbids; this compiles 14 times faster than a set of those that it allows."""
_SURROGATE = re.compile("[\ud800-\udfff]")
_CORE = "tag:yaml.org,2002:"
_PLACEHOLDER = "?"
"""Path element for an invalid key, so that values below it have a path."""


class ForeignFileError(InputError):
    """A file shows no sign of being what the reference says; nothing of its content is disclosed."""


def read_document(path: Path, name: str | None = None, signs: re.Pattern[bytes] | None = None) -> Document:
    """Read and parse a file.

    Args:
        path: the file.
        name: its name in messages (default: the path).
        signs: a pattern that the file must contain. Messages quote source lines, and a document from elsewhere may name
            any file, so other files are refused.

    Raises:
        InputError: the file cannot be read.
        ForeignFileError: it does not contain the pattern.
        SpecError: it is not one strict YAML document.
    """
    return parse(read_source(path, name, signs))


def read_source(path: Path, name: str | None = None, signs: re.Pattern[bytes] | None = None) -> Source:
    """Read a file's text, as :func:`read_document` does.

    Raises:
        InputError: the file cannot be read.
        ForeignFileError: it does not contain the pattern.
        SpecError: it is too large or not UTF-8.
    """
    shown = str(path) if name is None else name
    try:
        raw = read_input(path, shown, limit=MAX_BYTES)
    except TooLargeError as error:
        message = f"file is larger than {MAX_BYTES // 1024 // 1024} MiB"
        raise SpecError(
            [Diagnostic(code="BLIS0011", message=message, file=shown, help="move bulk data into a trace file")]
        ) from error
    if signs is not None and not signs.search(raw):
        raise ForeignFileError(f"{shown} is not what it is named for")
    return decode(raw, shown, path.parent)


def decode(raw: bytes, name: str, directory: Path | None) -> Source:
    """Decode bytes as a source text, without a byte-order mark.

    Raises:
        SpecError: the bytes are not UTF-8.
    """
    return _known_source(raw, name, directory) if len(raw) <= _REMEMBERED_BYTES else _decoded(raw, name, directory)


@lru_cache(maxsize=_REMEMBERED)
def _known_source(raw: bytes, name: str, directory: Path | None) -> Source:
    return _decoded(raw, name, directory)


def _decoded(raw: bytes, name: str, directory: Path | None) -> Source:
    try:
        return Source(name, raw.decode("utf-8-sig"), directory)
    except UnicodeDecodeError as error:
        before = raw[: error.start].decode("utf-8-sig", errors="replace")
        lines = Source(name, before).lines
        place = Location(Source(name, before), Span(len(lines), len(lines[-1]) + 1, len(lines[-1]) + 2))
        message = f"byte 0x{raw[error.start]:02x} is not UTF-8 text"
        raise SpecError([located("BLIS0012", message, place, hint="save the file as UTF-8")]) from error


def parse(source: Source) -> Document:
    """Parse one YAML document.

    Raises:
        SpecError: with every problem found; a grammar error ends the search.
    """
    return _known(source).copy() if len(source.text) <= _REMEMBERED_BYTES else _parsed(source)


@lru_cache(maxsize=_REMEMBERED)
def _known(source: Source) -> Document:
    """Return the cached document of a text, because studies load the same documents over and over.

    Callers must hand out copies only.
    """
    return _parsed(source)


def _parsed(source: Source) -> Document:
    reader = _Reader(source)
    document = reader.read()
    if reader.problems or document is None:
        raise SpecError(in_order(reader.problems))
    return document


class _Mark(Protocol):
    """A position, as reported by both of PyYAML's parsers."""

    @property
    def line(self) -> int: ...
    @property
    def column(self) -> int: ...


class _StopReadingError(Exception):
    """The rest of the text cannot be read; the reason is already among the problems."""


@dataclass(slots=True)
class _Open:
    """A map or list that has begun but not ended."""

    value: dict[str, Json] | list[Json]
    path: DataPath
    anchor: str | None
    count_before: int
    start: events.CollectionStartEvent
    key: str | None = None
    """The key of the next value; None = a key comes next (maps only)."""
    skip: bool = False
    """Whether to drop the next value, because its key is invalid, after reading it for its own errors."""
    first_lines: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Anchor:
    value: Json
    path: DataPath
    size: int


class _Reader:
    """Builds a document from parser events and collects problems."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.lines = source.lines
        self.problems: list[Diagnostic] = []
        self.count = 0
        self.stack: list[_Open] = []
        self.anchors: dict[str, _Anchor] = {}
        self.document = Document(None, source)
        self.documents = 0

    def read(self) -> Document | None:
        """Return the document, or None after an error that ends the reading."""
        bad = _UNPRINTABLE.search(self.source.text)
        if bad is not None:
            line, column = self._position(bad.start())
            message = f"control character U+{ord(bad.group()):04X}"
            self._problem("BLIS0014", message, Span(line, column, column + 1), hint="delete it")
            return None
        handlers: dict[type, Callable[..., None]] = {
            events.ScalarEvent: self._scalar,
            events.MappingStartEvent: self._begin,
            events.SequenceStartEvent: self._begin,
            events.MappingEndEvent: self._end,
            events.SequenceEndEvent: self._end,
            events.AliasEvent: self._alias,
            events.DocumentStartEvent: self._document,
        }
        try:
            parser = _PARSER(self.source.text)
            while (event := parser.get_event()) is not None:
                if (handle := handlers.get(type(event))) is not None:
                    handle(event)
        except _StopReadingError:
            return None
        except yaml.MarkedYAMLError as error:
            if _TOO_DEEP in (error.problem or ""):
                self._too_deep()
            else:
                self._syntax(error)
            return None
        except yaml.YAMLError as error:
            self._problem("BLIS0001", f"not valid YAML: {error}", Span(1, 1, 2))
            return None
        if self.documents == 0 or self._is_blank():
            self._problem("BLIS0007", "the document is empty", Span(1, 1, 2))
        return self.document

    def _too_deep(self) -> None:
        """Report nesting beyond our limit; libyaml from 0.2.6 on stops at its own limit without reporting ours."""
        depth = 0
        for event in yaml.parse(self.source.text, Loader=yaml.SafeLoader):  # the Python parser has no limit
            depth += isinstance(event, events.CollectionStartEvent)
            if depth > MAX_DEPTH:
                self._problem("BLIS0010", f"nested deeper than {MAX_DEPTH} levels", self._span(event))
                return
            depth -= isinstance(event, events.CollectionEndEvent)

    def _is_blank(self) -> bool:
        """Return whether the document's only value is absent (``---`` alone)."""
        place = self.document.values.get(())
        return self.document.data is None and (place is None or place.span.end_column <= place.span.column + 1)

    def _document(self, event: events.DocumentStartEvent) -> None:
        self.documents += 1
        if self.documents > 1:
            self._stop("BLIS0006", "a second document begins here", self._span(event), "a file holds one document")

    def _scalar(self, event: events.ScalarEvent) -> None:
        span = self._span(event)
        if not event.value.isascii() and _SURROGATE.search(event.value):  # libyaml refuses these escapes itself
            self._stop("BLIS0014", "escape of a lone surrogate (half a character)", span, "write the character itself")
        top = self.stack[-1] if self.stack else None
        if top is not None and top.key is None and isinstance(top.value, dict):
            self._key(event, top, span)
            return
        self._count_value(span)
        path = self._next_path()
        value = self._value(event, span, path)
        self.document.values[path] = Location(self.source, span)
        if event.anchor:
            self.anchors[event.anchor] = _Anchor(value, path, 1)
        self._add(value)

    def _key(self, event: events.ScalarEvent, top: _Open, span: Span) -> None:
        text = event.value
        path = (*top.path, text)
        plain = bool(event.implicit[0]) and event.tag != "!"
        top.key, top.skip = text, True
        if plain and text == "<<":
            self._problem("BLIS0005", "merge keys are not supported", span, path, "repeat the keys instead of `<<`")
        elif plain and not is_text(text):
            self._problem("BLIS0003", f"key `{text}` is not text", span, path, f'quote it: "{text}"')
        elif event.tag is not None and event.tag not in {"!", _CORE + "str"}:
            self._problem("BLIS0013", f"unknown tag `{_short(event.tag)}`", span, path, "remove the tag")
        elif text in top.first_lines:
            self._problem(
                "BLIS0002",
                f"key `{text}` appears twice",
                span,
                path,
                f"first defined on line {top.first_lines[text]}",
            )
        else:
            top.skip = False
            top.first_lines[text] = span.line
            self.document.keys[path] = Location(self.source, span)

    def _begin(self, event: events.CollectionStartEvent) -> None:
        span = self._span(event)
        if len(self.stack) >= MAX_DEPTH:
            self._stop("BLIS0010", f"nested deeper than {MAX_DEPTH} levels", span)
        self._count_value(span)
        kind = "map" if isinstance(event, events.MappingStartEvent) else "seq"
        top = self.stack[-1] if self.stack else None
        if top is not None and isinstance(top.value, dict) and top.key is None:
            self._problem("BLIS0003", f"a {'map' if kind == 'map' else 'list'} cannot be a key", span, top.path)
            path: DataPath = (*top.path, _PLACEHOLDER)
        else:
            path = self._next_path()
        if event.tag not in {None, "!", _CORE + kind}:
            self._problem("BLIS0013", f"unknown tag `{_short(event.tag)}`", span, path, "remove the tag")
        value: dict[str, Json] | list[Json] = {} if kind == "map" else []
        self.stack.append(_Open(value, path, event.anchor, self.count - 1, event))
        self.document.values[path] = Location(self.source, span)
        if event.anchor:
            self.anchors.pop(event.anchor, None)

    def _end(self, event: events.CollectionEndEvent) -> None:
        done = self.stack.pop()
        start, end = done.start.start_mark, event.end_mark
        if done.start.flow_style and start is not None and end is not None and start.line == end.line:
            span = Span(start.line + 1, start.column + 1, end.column + 1)
            self.document.values[done.path] = Location(self.source, span)
        if done.anchor:
            self.anchors[done.anchor] = _Anchor(done.value, done.path, self.count - done.count_before)
        self._add(done.value)

    def _alias(self, event: events.AliasEvent) -> None:
        span, name = self._span(event), event.anchor
        top = self.stack[-1] if self.stack else None
        if top is not None and isinstance(top.value, dict) and top.key is None:
            self._problem("BLIS0003", f"alias `*{name}` cannot be a key", span, top.path, "write the key out")
            top.key, top.skip = _PLACEHOLDER, True
            return
        path = self._next_path()
        if any(open_.anchor == name for open_ in self.stack) and name not in self.anchors:
            self._stop("BLIS0008", f"alias `*{name}` is part of the value it refers to", span)
        anchor = self.anchors.get(name or "")
        if anchor is None:
            self._problem("BLIS0016", f"no anchor `&{name}` above", span, path)
            self._add(None)
            return
        self.count += anchor.size - 1
        self._count_value(span)
        value = self._copy(anchor.value, anchor.path, path, len(self.stack), span)
        self.document.values[path] = Location(self.source, span)
        self._add(value)

    def _copy(self, value: Json, old: DataPath, new: DataPath, depth: int, span: Span) -> Json:
        """Return a deep copy of an anchored value, with the positions of its parts; the depth limit ends recursion."""
        if depth > MAX_DEPTH:
            self._stop("BLIS0010", f"nested deeper than {MAX_DEPTH} levels", span)
        for table in (self.document.values, self.document.keys):
            if old in table:
                table[new] = table[old]
        if isinstance(value, dict):
            return {key: self._copy(item, (*old, key), (*new, key), depth + 1, span) for key, item in value.items()}
        if isinstance(value, list):
            return [self._copy(item, (*old, at), (*new, at), depth + 1, span) for at, item in enumerate(value)]
        return value

    def _add(self, value: Json) -> None:
        """Attach a finished value to its container."""
        if not self.stack:
            self.document.data = value
            return
        top = self.stack[-1]
        if isinstance(top.value, list):
            top.value.append(value)
        elif top.key is None:  # a collection where a key was expected
            top.key, top.skip = _PLACEHOLDER, True
        else:
            if not top.skip:
                top.value[top.key] = value
            top.key, top.skip = None, False

    def _next_path(self) -> DataPath:
        if not self.stack:
            return ()
        top = self.stack[-1]
        if isinstance(top.value, list):
            return (*top.path, len(top.value))
        return (*top.path, _PLACEHOLDER if top.skip or top.key is None else top.key)

    def _value(self, event: events.ScalarEvent, span: Span, path: DataPath) -> Json:
        """Return a scalar's value: by its tag, else by the plain scalar rules, else text."""
        if event.tag is None or event.tag == "!":
            return self._plain(event.value, span, path) if event.implicit[0] and event.tag is None else event.value
        name = event.tag.removeprefix(_CORE)
        if name == "str":
            return event.value
        if name not in {"int", "float", "bool", "null"} or name == event.tag:
            self._problem("BLIS0013", f"unknown tag `{_short(event.tag)}`", span, path, "remove the tag")
            return None
        value = self._plain(event.value, span, path)
        fits = {"int": type(value) is int, "float": type(value) in {int, float}, "bool": type(value) is bool}
        if not fits.get(name, value is None):
            self._problem("BLIS0013", f"`{event.value}` does not fit its tag `!!{name}`", span, path, "remove the tag")
        return value

    def _plain(self, text: str, span: Span, path: DataPath) -> Json:
        """Return a plain scalar's value; an unusable number is reported and read as zero."""
        try:
            return plain_scalar(text)
        except ScalarError as error:
            self._problem(error.code, error.message, span, path)
            return 0

    def _count_value(self, span: Span) -> None:
        self.count += 1
        if self.count > MAX_VALUES:
            self._stop("BLIS0009", f"more than {MAX_VALUES} values (aliases expanded)", span)

    def _span(self, event: events.Event) -> Span:
        """Return the span of an event on its first line; a block map or list is marked to the end of that line."""
        start, end = event.start_mark, event.end_mark
        if start is None or end is None:
            raise TypeError("events, unlike errors, always carry marks")
        line, column, end_column = start.line, start.column, end.column
        if end.line > line or isinstance(event, events.CollectionStartEvent):
            end_column = len(self.lines[line].rstrip()) if line < len(self.lines) else column
        return Span(line + 1, column + 1, (end_column if end_column > column else column + 1) + 1)

    def _position(self, offset: int) -> tuple[int, int]:
        before = Source("", self.source.text[:offset]).lines
        return len(before), len(before[-1]) + 1

    def _syntax(self, error: yaml.MarkedYAMLError) -> None:
        if (conflict := unmerged_line(self.lines)) is not None:
            message = "not valid YAML: a merge has left a conflict here"
            place = Span(conflict + 1, 1, 8)
            self._problem("BLIS0001", message, place, hint="keep one side, and remove git's marks")
            return
        mark = error.problem_mark or error.context_mark
        if "could not find expected ':'" in (error.problem or ""):  # noticed only after the key without one
            mark = error.context_mark or mark
        line, column = _position_of(mark)
        text = self.lines[line] if line < len(self.lines) else ""
        if not text.strip():  # at the end of the text, mark where the construct begins, or the last character
            line, column = min(_position_of(error.context_mark or mark), self._last())
            hint = _syntax_hint(error.problem or "", "", 0)
        elif text[column : column + 1] == "\t":
            hint = "indent with spaces, not with tabs"
        else:
            hint = _syntax_hint(error.problem or "", text, column)
        context = f" {error.context}" if error.context else ""
        message = f"not valid YAML: {error.problem or 'malformed'}{context}"
        self._problem("BLIS0001", message, Span(line + 1, column + 1, column + 2), hint=hint)

    def _last(self) -> tuple[int, int]:
        """Return the position after the last non-blank character, from 0."""
        lines = Source("", self.source.text.rstrip()).lines
        return len(lines) - 1, len(lines[-1])

    def _problem(self, code: str, message: str, span: Span, path: DataPath = (), hint: str | None = None) -> None:
        self.problems.append(located(code, message, Location(self.source, span), path=path, hint=hint))

    def _stop(self, code: str, message: str, span: Span, hint: str | None = None) -> None:
        self._problem(code, message, span, hint=hint)
        raise _StopReadingError


_GLUED: Final = re.compile(r"[A-Za-z_][\w.-]*:[^\s:]")
"""A key whose colon has no space behind it."""


def _syntax_hint(problem: str, text: str, column: int) -> str | None:
    """Return what is probably wrong with a line of which the parser complains at a column."""
    colons = ": " in text[:column]
    if "could not find expected ':'" in problem:
        glued = _GLUED.match(text, column)
        return "write a space after the colon" if glued else "write `:` and a space after the key"
    if "cannot start any token" in problem:
        return f"quote text that begins with `{text[column : column + 1]}`"
    if "unexpected end of stream" in problem:
        return "close the quotes"
    if "did not find expected ',' or" in problem:
        bracket = problem.split("'")[-2]
        if colons and (text[column : column + 1] == ":" or text[:column].rstrip().endswith(":")):
            return "quote text that contains `: `"
        return f"close the bracket with `{bracket}`, or separate what is in it with commas"
    if "did not find expected key" in problem and text.lstrip().startswith("- "):
        return "an entry of a list cannot stand beside keys"
    if "mapping values are not allowed" in problem and colons:
        return "quote text that contains `: `"
    if "mapping values are not allowed" in problem or "did not find expected key" in problem:
        return "its indentation differs from that of the lines around it"
    return None


def _position_of(mark: _Mark | None) -> tuple[int, int]:
    """Return line and column from 0; only errors may lack a mark."""
    return (0, 0) if mark is None else (mark.line, mark.column)


def _short(tag: str) -> str:
    return tag.replace(_CORE, "!!")[:60]
