"""Plain data that remembers the source position of each value."""

from __future__ import annotations

import re
from dataclasses import field
from typing import TYPE_CHECKING, TypeAlias

from blis_tui.base.classes import NamedTuple, dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
"""A JSON value; every number is finite."""

DataPath: TypeAlias = "tuple[str | int, ...]"
"""Keys and list positions from a document's root to a value."""

_LINE_BREAK = re.compile("\r\n|[\n\r\x85\u2028\u2029]")


@dataclass(frozen=True, slots=True)
class Source:
    """A text that was read: a file, standard input, or a ``--set`` argument."""

    name: str
    """Its name in messages."""
    text: str = field(repr=False)
    directory: Path | None = None
    """Base of relative paths in it; None = the working directory."""
    lines: tuple[str, ...] = field(init=False, repr=False, compare=False)
    """The text's lines, broken where YAML breaks them."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "lines", tuple(_LINE_BREAK.split(self.text)))

    @property
    def is_argument(self) -> bool:
        """Whether it is a command-line argument, which contains its own path."""
        return self.name.startswith("--")


class Span(NamedTuple):
    """A part of one line; numbers count from 1, and ``end_column`` is exclusive."""

    line: int
    column: int
    end_column: int


class Location(NamedTuple):
    """A position in a source."""

    source: Source
    span: Span


@dataclass(slots=True)
class Document:
    """Plain data with the positions of its keys and values.

    Parts of one document may come from several sources: a parent's keys, an override, a referenced file.
    """

    data: Json
    source: Source
    keys: dict[DataPath, Location] = field(default_factory=dict)
    values: dict[DataPath, Location] = field(default_factory=dict)

    def copy(self) -> Document:
        """Return an independent copy, which shares only the immutable positions."""
        return Document(copied(self.data), self.source, dict(self.keys), dict(self.values))

    def number(self, *path: str | int) -> float | None:
        """Return the number at a path; None if there is no number."""
        value = self.get(*path)
        return value if isinstance(value, int | float) and not isinstance(value, bool) else None

    def whole(self, *path: str | int) -> int | None:
        """Return the integer at a path; None if there is no integer."""
        value = self.get(*path)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def place(self, path: DataPath, *, key: bool = False) -> Location:
        """Return the position of the value (or key) at ``path``; of an omitted one, that of its container."""
        if key and path in self.keys:
            return self.keys[path]
        if path in self.values:
            return self.values[path]
        for length in range(len(path) - 1, -1, -1):
            enclosing = path[:length]
            location = self.keys.get(enclosing) or self.values.get(enclosing)
            if location is not None:
                return location
        return Location(self.source, Span(1, 1, 2))

    def get(self, *path: str | int) -> Json:
        """Return the value at ``path``, or None if there is none."""
        value = self.data
        for step in path:
            if isinstance(value, dict) and isinstance(step, str):
                value = value.get(step)
            elif isinstance(value, list) and isinstance(step, int) and 0 <= step < len(value):
                value = value[step]
            else:
                return None
        return value

    def graft(self, path: DataPath, branch: Document) -> None:
        """Put ``branch`` with its positions at ``path``, whose container must exist, replacing the value there."""
        _assign(self.get(*path[:-1]), path[-1], branch.data)
        self.forget(path)
        self.values.update((path + sub, place) for sub, place in branch.values.items())
        self.keys.update((path + sub, place) for sub, place in branch.keys.items() if sub)
        if () in branch.keys:
            self.keys[path] = branch.keys[()]

    def forget(self, path: DataPath) -> None:
        """Drop the positions of the value at ``path`` and of everything below; keep that of its key."""
        size = len(path)
        for table in (self.keys, self.values):
            stale = [known for known in table if known[:size] == path and (len(known) > size or table is self.values)]
            for known in stale:
                del table[known]

    def branch(self, path: DataPath) -> Document:
        """Return the part below ``path`` as a separate document (the data is shared, not copied)."""
        size = len(path)
        place = self.place(path)
        return Document(
            data=self.get(*path),
            source=place.source,
            keys={known[size:]: where for known, where in self.keys.items() if known[:size] == path},
            values={known[size:]: where for known, where in self.values.items() if known[:size] == path},
        )


def _assign(container: Json, step: str | int, value: Json) -> None:
    if isinstance(container, dict):
        container[str(step)] = value
    elif isinstance(container, list) and isinstance(step, int):
        container[step] = value
    else:
        raise TypeError(f"nothing can be put at {step!r}")


def copied(value: Json) -> Json:
    """Return a deep copy of plain data, faster than ``copy.deepcopy``, which handles more types."""
    if isinstance(value, dict):
        return {key: copied(part) if isinstance(part, dict | list) else part for key, part in value.items()}
    if isinstance(value, list):
        return [copied(part) if isinstance(part, dict | list) else part for part in value]
    return value


def equal(json: Json, other: Json) -> bool:
    """Return whether two plain values are equal; a bool never equals a number."""
    return isinstance(json, bool) is isinstance(other, bool) and json == other


def as_map(value: Json) -> dict[str, Json]:
    """Return a map unchanged; for anything else, an empty map."""
    return value if isinstance(value, dict) else {}


def as_list(value: Json) -> list[Json]:
    """Return a list unchanged; for anything else, an empty list."""
    return value if isinstance(value, list) else []


def dotted(path: Iterable[str | int]) -> str:
    """Return a path in the form of ``--set``: ``workload.clients.0.share``."""
    return ".".join(str(step) for step in path)
