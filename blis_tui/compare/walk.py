"""Where two plain JSON documents differ: every path whose value was changed, added or removed.

The walk is linear in the size of the documents, does not recurse, and skips equal documents in one comparison
of their bytes. Values count as equal when JSON would write them alike: ``1``, ``1.0`` and ``true`` are three
values. The order of a map's keys carries no meaning.
"""

from __future__ import annotations

import marshal
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

Path: TypeAlias = "tuple[str | int, ...]"

_MARSHAL_VERSION: Final = 2
"""The last format whose bytes depend on the value alone, not on which objects are shared."""


class _Absent:
    """The type of :data:`ABSENT`."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT: Final = _Absent()
"""Stands for the value of a path that one of the documents does not have (``None`` is JSON's null)."""


@dataclass(frozen=True, slots=True)
class Change:
    """One difference; ``old`` or ``new`` is :data:`ABSENT` where the path was added or removed."""

    path: str
    """JSON pointer (RFC 6901); empty = the whole document."""
    old: object
    new: object
    steps: Path = ()
    """The same path as keys and list positions."""

    @property
    def kind(self) -> str:
        """``added``, ``removed`` or ``changed``."""
        return "added" if self.old is ABSENT else "removed" if self.new is ABSENT else "changed"


def walk(old: object, new: object) -> list[Change]:
    """Every difference between two documents, in the order of ``old``; what is new comes after what was there.

    A container that only one side has is one change, not one for each value in it. Lists are compared by position.
    """
    if _same_bytes(old, new):
        return []
    changes: list[Change] = []
    stack: list[tuple[Path, object, object]] = [((), old, new)]
    while stack:
        path, before, after = stack.pop()
        if isinstance(before, dict) and isinstance(after, dict):
            stack.extend(reversed([*_items(path, before, after)]))
        elif isinstance(before, list) and isinstance(after, list):
            stack.extend(reversed([*_entries(path, before, after)]))
        elif type(before) is not type(after) or before != after:
            changes.append(Change(pointer(path), before, after, path))
    return changes


def pointer(path: Sequence[str | int]) -> str:
    """A path as a JSON pointer, such as ``/workload/clients/0/share``."""
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in path)


def _items(
    path: Path, before: Mapping[str, object], after: Mapping[str, object]
) -> Iterator[tuple[Path, object, object]]:
    for key, value in before.items():
        other = after.get(key, ABSENT)
        if value is not other:
            yield (*path, key), value, other
    for key, value in after.items():
        if key not in before:
            yield (*path, key), ABSENT, value


def _entries(path: Path, before: Sequence[object], after: Sequence[object]) -> Iterator[tuple[Path, object, object]]:
    for at in range(max(len(before), len(after))):
        value = before[at] if at < len(before) else ABSENT
        other = after[at] if at < len(after) else ABSENT
        if value is not other:
            yield (*path, at), value, other


def _same_bytes(old: object, new: object) -> bool:
    """Whether two documents are certainly equal; False = look closer."""
    try:
        # The stub wants to know beforehand that the data is plain.
        return marshal.dumps(old, _MARSHAL_VERSION) == marshal.dumps(new, _MARSHAL_VERSION)  # type: ignore[arg-type]
    except ValueError:  # nested deeper than marshal goes, or not plain data
        return False
