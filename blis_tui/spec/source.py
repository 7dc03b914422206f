"""Documents as plain data that remember where each value was written."""

from __future__ import annotations

import re
from dataclasses import field
from typing import TYPE_CHECKING, TypeAlias

from blis_tui.classes import NamedTuple, dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
"""What a document is made of; every number is finite."""

DataPath: TypeAlias = "tuple[str | int, ...]"
"""Keys and list positions from a document's root to a value."""

_LINE_BREAK = re.compile("\r\n|[\n\r\x85\u2028\u2029]")


@dataclass(frozen=True, slots=True)
class Source:
    """A text that was read: a file, standard input, or one ``--set`` argument."""

    name: str
    """What to call it in messages."""
    text: str = field(repr=False)
    directory: Path | None = None
    """What relative paths in it start from; ``None`` = the working directory."""
    lines: tuple[str, ...] = field(init=False, repr=False, compare=False)
    """The text's lines, broken where YAML breaks them."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "lines", tuple(_LINE_BREAK.split(self.text)))

    @property
    def is_argument(self) -> bool:
        """Whether it is a command-line argument, which shows its own path."""
        return self.name.startswith("--")


class Span(NamedTuple):
    """A stretch of one line; everything counts from 1 and ``end_column`` is the first column after it."""

    line: int
    column: int
    end_column: int


class Location(NamedTuple):
    """Where something was written."""

    source: Source
    span: Span


@dataclass(slots=True)
class Document:
    """Plain data with the places of its keys and values.

    Parts of one document may come from several sources: a parent's keys, an override, a referenced file.
    """

    data: Json
    source: Source
    keys: dict[DataPath, Location] = field(default_factory=dict)
    values: dict[DataPath, Location] = field(default_factory=dict)

    def copy(self) -> Document:
        """The same, to be changed: nothing of it is shared but the places themselves."""
        return Document(copied(self.data), self.source, dict(self.keys), dict(self.values))

    def number(self, *path: str | int) -> float | None:
        """The number at a path; None = there is something else, or nothing."""
        value = self.get(*path)
        return value if isinstance(value, int | float) and not isinstance(value, bool) else None

    def whole(self, *path: str | int) -> int | None:
        """The whole number at a path; None = there is something else, or nothing."""
        value = self.get(*path)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def place(self, path: DataPath, *, key: bool = False) -> Location:
        """Where the value (or key) at ``path`` was written; for what was left out, what encloses it."""
        if key and path in self.keys:
            return self.keys[path]
        if path in self.values:
            return self.values[path]
        for length in range(len(path) - 1, -1, -1):
            enclosing = path[:length]
            found = self.keys.get(enclosing) or self.values.get(enclosing)
            if found is not None:
                return found
        return Location(self.source, Span(1, 1, 2))

    def get(self, *path: str | int) -> Json:
        """The value at ``path``, or ``None`` where there is nothing."""
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
        """Put ``branch`` at ``path`` (whose container exists), replacing what was there, with its places."""
        _assign(self.get(*path[:-1]), path[-1], branch.data)
        self.forget(path)
        self.values.update((path + sub, place) for sub, place in branch.values.items())
        self.keys.update((path + sub, place) for sub, place in branch.keys.items() if sub)
        if () in branch.keys:
            self.keys[path] = branch.keys[()]

    def forget(self, path: DataPath) -> None:
        """Drop the places of everything below ``path`` and of its value; its key stays known."""
        size = len(path)
        for table in (self.keys, self.values):
            stale = [known for known in table if known[:size] == path and (len(known) > size or table is self.values)]
            for known in stale:
                del table[known]

    def branch(self, path: DataPath) -> Document:
        """The part below ``path`` as a document of its own (the data is shared, not copied)."""
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
    """Plain data of its own, faster than ``copy.deepcopy``, which allows for more."""
    if isinstance(value, dict):
        return {key: copied(part) if isinstance(part, dict | list) else part for key, part in value.items()}
    if isinstance(value, list):
        return [copied(part) if isinstance(part, dict | list) else part for part in value]
    return value


def as_map(value: Json) -> dict[str, Json]:
    """A map as it is; anything else as an empty one."""
    return value if isinstance(value, dict) else {}


def as_list(value: Json) -> list[Json]:
    """A list as it is; anything else as an empty one."""
    return value if isinstance(value, list) else []


def dotted(path: Iterable[str | int]) -> str:
    """A path as ``--set`` takes it: ``workload.clients.0.share``."""
    return ".".join(str(step) for step in path)
