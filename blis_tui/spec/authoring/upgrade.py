"""Converts documents of an older format, or with former spellings, to the current ones.

``blis_tui/spec/hints.py`` lists the changes. Keys are edited in the text, so that comments and layout stay; the
result is parsed again: what did not become as intended is left to the author.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import dataclass
from blis_tui.base.diagnostics import about
from blis_tui.base.errors import SpecError
from blis_tui.base.scalars import flow
from blis_tui.base.source import Source, as_map, copied
from blis_tui.spec.authoring.edits import cut, holder_of
from blis_tui.spec.hints import FORMATS, FORMER_KEYS, former_key
from blis_tui.spec.read import parse

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from blis_tui.base.source import DataPath, Document, Json, Span
    from blis_tui.spec.hints import FormerKey

_MOVES_WITHIN: Final = "Experiment"
"""The only kind of document in which a key can move to another part."""


@dataclass(frozen=True, slots=True)
class Upgraded:
    """A text in the current form."""

    text: str
    changes: tuple[str, ...]
    """What was rewritten, each with its line in the original text."""
    left: tuple[str, ...]
    """What must be rewritten by hand, each with its line and instructions."""


@dataclass(frozen=True, slots=True)
class _Found:
    """A former key in a document."""

    path: DataPath
    """Path of the key; the last step may itself be a dotted path."""
    row: FormerKey

    @property
    def name(self) -> str:
        return ".".join(map(str, self.path))


def upgrade(source: Source, formats: Sequence[str] = FORMATS, older: tuple[FormerKey, ...] = FORMER_KEYS) -> Upgraded:
    """Convert a document to the current format and spelling.

    Raises:
        SpecError: the text is not strict YAML, or its ``apiVersion`` is missing or unknown.
    """
    document = parse(source)
    version = _known(document, document.get("apiVersion"), formats)
    changes: list[tuple[int, str]] = []
    unchanged: list[tuple[int, str]] = []
    text = source.text
    for at in range(formats.index(version), len(formats)):
        rows = tuple(key for key in older if key.format == formats[at])
        text = _without_former_keys(Source(source.name, text, source.directory), rows, changes, unchanged)
        if formats[at] != formats[-1]:
            text = _replaced(text, parse(Source(source.name, text)).place(("apiVersion",)).span, formats[at + 1])
            changes.append((document.place(("apiVersion",)).span.line, f"`apiVersion` is `{formats[at + 1]}` now"))
    return Upgraded(text, *(tuple(f"line {line}: {what}" for line, what in lines) for lines in (changes, unchanged)))


def _without_former_keys(
    source: Source, rows: tuple[FormerKey, ...], changes: list[tuple[int, str]], unchanged: list[tuple[int, str]]
) -> str:
    """Return a text without the former keys of these rows; what cannot be rewritten stays."""
    first = document = parse(source)
    text = source.text
    for former in tuple(_former_keys_in(document.data, (), rows, document)):
        line = first.place(former.path, key=True).span.line
        sentence = f"`{former.name}`: {former.row.sentence()}"
        changed = _without(document, text, former)
        if changed is None:
            unchanged.append((line, _manual_instruction(former, sentence, document)))
            continue
        changes.append((line, sentence))
        text, document = changed
    return text


def _former_keys_in(node: Json, path: DataPath, rows: tuple[FormerKey, ...], document: Document) -> Iterator[_Found]:
    """Yield the former keys of a document, in order."""
    if isinstance(node, list):
        for at, item in enumerate(node):
            yield from _former_keys_in(item, (*path, at), rows, document)
    for key, value in as_map(node).items():
        *above, _ = key.split(".")
        row = former_key(path, key, _kind_of(document.get(*above) if above else node), rows)
        if row is not None:
            yield _Found((*path, key), row)
        else:
            yield from _former_keys_in(value, (*path, key), rows, document)


def _kind_of(node: Json) -> str:
    """Return the ``kind`` that a part of a document states, or is; empty = none."""
    kind = node.get("kind") if isinstance(node, dict) else node
    return kind if isinstance(kind, str) else ""


def _manual_instruction(former: _Found, sentence: str, document: Document) -> str:
    if "." not in former.row.now or document.get("kind") == _MOVES_WITHIN:
        return f"{sentence}; rewrite it by hand"
    part, _, key = former.row.now.rpartition(".")
    return (
        f"{sentence}, of the experiments that use this document: say `{part}: {{{key}: …}}` there, and take it out here"
    )


def _without(document: Document, text: str, former: _Found) -> tuple[str, Document] | None:
    """Return the text with a key in its current spelling, and its document; None if it must be done by hand."""
    wanted = _wanted(document, former)
    if wanted is None:
        return None
    *above, _ = str(former.path[-1]).split(".")
    span = document.place(former.path, key=True).span
    now = former.row.now
    if now and "." not in now:
        text = _replaced(text, span, ".".join([*above, now]))
    elif now and above:
        text = _replaced(text, span, now)
    else:
        text = cut(text, former.path)
        if now:
            text = _with_key(Source(document.source.name, text), now.split("."), document.get(*former.path))
    try:
        changed = parse(Source(document.source.name, text, document.source.directory))
    except SpecError:
        return None
    return (text, changed) if changed.data == wanted else None


def _wanted(document: Document, former: _Found) -> Json:
    """Return the intended content of the document; None if that is impossible."""
    data = copied(document.data)
    entries, key, now = holder_of(data, former.path), str(former.path[-1]), former.row.now
    *above, _ = key.split(".")
    value = entries.pop(key)
    if now and ("." not in now or above):
        new = now if "." in now else ".".join([*above, now])
        if new in entries:
            return None
        entries[new] = value
    elif now:
        if document.get("kind") != _MOVES_WITHIN:
            return None
        part, _, last = now.partition(".")
        target = as_map(data).setdefault(part, {})
        if not isinstance(target, dict) or last in target:
            return None
        target[last] = value
    return data


def _with_key(source: Source, path: Sequence[str], value: Json) -> str:
    """Return the text with an additional key in a part of the experiment."""
    document, (part, key) = parse(source), path
    entry = f"{key}: {flow(value)}"
    lines = source.text.split("\n")
    if document.get(part) is None:
        return f"{source.text.rstrip()}\n{part}: {{{entry}}}\n"
    inner = next((known for known in document.keys if known[:-1] == (part,)), None)
    span = document.place((part,)).span if inner is None else document.keys[inner].span
    line = lines[span.line - 1]
    head = line[: span.column - 1]
    if inner is None:
        return _replaced(source.text, span, f"{{{entry}}}")
    lines[span.line - 1] = f"{head}{entry}, {line[len(head) :]}" if head.strip() else f"{head}{entry}\n{line}"
    return "\n".join(lines)


def _replaced(text: str, span: Span, new: str) -> str:
    """Return the text with a span replaced."""
    lines = text.split("\n")
    line = lines[span.line - 1]
    lines[span.line - 1] = line[: span.column - 1] + new + line[span.end_column - 1 :]
    return "\n".join(lines)


def _known(document: Document, version: object, formats: Sequence[str]) -> str:
    if isinstance(version, str) and version in formats:
        return version
    listed = ", ".join(f"`{known}`" for known in formats)
    if version is None:
        hint = f"add `apiVersion: {formats[-1]}`"
        raise SpecError([about(document, (), "BLIS1002", "the document lacks the key `apiVersion`", hint=hint)])
    message = f"unknown version `{str(version)[:40]}`"
    hint = f"this version of blis-tui knows {listed}; a newer document needs a newer blis-tui"
    raise SpecError([about(document, ("apiVersion",), "BLIS1004", message, hint=hint)])
