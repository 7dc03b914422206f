"""``--set a.b.c=VALUE``: values from the command line, with positions in the argument."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from blis_tui.base.classes import dataclass
from blis_tui.base.diagnostics import Diagnostic, located
from blis_tui.base.errors import SpecError
from blis_tui.base.source import Document, Json, Location, Source, Span
from blis_tui.spec.read import parse
from blis_tui.spec.schema import default, takes_null

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self


@dataclass(frozen=True, slots=True)
class Override:
    """One assignment. ``steps`` are the parts of the path; ``places`` are their positions."""

    steps: tuple[str, ...]
    places: tuple[Location, ...]
    value: Document

    @property
    def path(self) -> str:
        """The path as written, with dots."""
        return ".".join(self.steps)

    def below(self, count: int) -> Override:
        """Return the same assignment relative to a map ``count`` keys deeper."""
        return Override(self.steps[count:], self.places[count:], self.value)


class WrittenAssignment(str):
    """The text of an assignment that a document contains: its messages and relative paths are the document's."""

    __slots__ = ("override",)

    override: Override

    def __new__(cls, override: Override) -> Self:
        """Return the text that `--set` would take, with the assignment itself."""
        text = super().__new__(cls, as_text(override.path, override.value.data))
        text.override = override
        return text

    def __getnewargs__(self) -> tuple[Override]:  # type: ignore[override]
        return (self.override,)


def parse_overrides(given: Mapping[str, object] | Sequence[str], seed: int | None = None) -> tuple[Override, ...]:
    """Parse ``path=value`` arguments (or a mapping of paths to plain values); ``seed`` comes last.

    Raises:
        SpecError: an argument does not have that form, or its value is not YAML.
    """
    texts = [as_text(path, value) for path, value in given.items()] if isinstance(given, Mapping) else list(given)
    sources = [text.override if isinstance(text, WrittenAssignment) else Source("--set", text) for text in texts]
    if seed is not None:
        sources.append(Source("--seed", f"seed={seed}"))
    problems: list[Diagnostic] = []
    parsed: list[Override] = []
    for source in sources:
        try:
            parsed.append(source if isinstance(source, Override) else _parse_one(source))
        except SpecError as error:
            problems.extend(error.diagnostics)
    if problems:
        raise SpecError(problems)
    return tuple(parsed)


def as_text(path: str, value: object) -> str:
    """Return the argument that assigns a plain value (JSON is YAML)."""
    return f"{path}={as_json(value)}"


def as_json(value: object) -> str:
    """Return plain data as JSON, which is YAML; with lists and numbers of other libraries (ranges, arrays, series)."""
    return json.dumps(value, ensure_ascii=False, default=_plain)


def _plain(value: object) -> object:
    """Return what JSON does not know as something that it knows."""
    if isinstance(value, range):
        return list(value)
    as_list = getattr(value, "tolist", None)  # of numpy's numbers, too
    return as_list() if callable(as_list) else str(value)


def _parse_one(source: Source) -> Override:
    text = source.text
    path, equals, value = text.partition("=")
    whole = Location(source, Span(1, 1, max(2, len(text) + 1)))
    if not equals or not value.strip():
        message = f"`{text[:60]}` is not an assignment" if not equals else f"`{path[:60]}` has no value"
        raise SpecError([located("BLIS1009", message, whole, hint="write it as `cluster.instances=8`")])
    steps = tuple(path.split("."))
    if any(not step.strip() for step in steps):
        message = f"`{path[:60]}` is not a path of keys"
        raise SpecError([located("BLIS1009", message, whole, hint="write it as `cluster.instances=8`")])
    places: list[Location] = []
    column = 1
    for step in steps:
        places.append(Location(source, Span(1, column, column + len(step))))
        column += len(step) + 1
    # Blanks in place of the path make the parser report columns of the whole argument.
    try:
        document = parse(Source(source.name, " " * (len(path) + 1) + value))
    except SpecError as error:
        lines = source.lines
        shown = [
            replace(diagnostic, source_line=lines[max(diagnostic.line, 1) - 1], path="")
            for diagnostic in error.diagnostics
        ]
        raise SpecError(shown) from error
    return Override(steps, tuple(places), _from(document, source))


def _from(document: Document, source: Source) -> Document:
    """Return the parsed value with positions in the whole argument."""
    return Document(
        data=document.data,
        source=source,
        keys={path: Location(source, place.span) for path, place in document.keys.items()},
        values={path: Location(source, place.span) for path, place in document.values.items()},
    )


def apply_override(document: Document, override: Override, kind: str) -> Diagnostic | None:
    """Apply an assignment in place; missing containers are created with their defaults, and null drops a key.

    Returns:
        The problem, if any.
    """
    path: tuple[str | int, ...] = ()
    last = len(override.steps) - 1
    for at, (step, place) in enumerate(zip(override.steps, override.places, strict=True)):
        container = document.get(*path)
        if isinstance(container, list):
            if not (step.isdecimal() and step.isascii() and int(step[:9]) < len(container)):
                many = "1 entry" if len(container) == 1 else f"{len(container)} entries"
                message = f"`{'.'.join(map(str, path))}` has {many}, no entry `{step[:40]}`"
                return located("BLIS1009", message, place, path=path, hint="entries are numbered from 0")
            path = (*path, int(step))
        elif isinstance(container, dict):
            path = (*path, step)
            if at < last and step not in container:
                container[step] = _container(kind, [str(part) for part in path])
            document.keys.setdefault(path, place)
        else:
            message = f"`{'.'.join(map(str, path))}` is not a map or list, so it has no `{step[:40]}`"
            return located("BLIS1009", message, place, path=path)
    value = override.value
    owner = document.get(*path[:-1])
    if value.data is None and isinstance(owner, dict) and path[-1] in owner and not takes_null(kind, path):
        del owner[str(path[-1])]
        document.forget(path)
        document.keys.pop(path, None)
        return None
    branch = Document(copy.deepcopy(value.data), value.source, dict(value.keys), value.values)
    branch.keys[()] = override.places[-1]
    document.graft(path, branch)
    return None


def _container(kind: str, path: list[str]) -> Json:
    value = default(kind, *path)
    return value if isinstance(value, dict | list) else {}
