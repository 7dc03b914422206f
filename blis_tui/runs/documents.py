"""Finds the differences between two plain JSON documents (experiments, reports, records) with DeepDiff.

Values are equal if their JSON is equal: ``1``, ``1.0`` and ``true`` are three values. The order of a map's keys does
not matter.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeAlias

from blis_tui.base.classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

Path: TypeAlias = "tuple[str | int, ...]"

_IDENTITIES: Final[Mapping[tuple[str, ...], str]] = {
    ("workload", "clients"): "id",
    ("policy", "routing", "scorers"): "kind",
    ("policy", "routing", "filters"): "kind",
    ("expect",): "metric",
}
"""Lists with named entries -> the key that holds the name. A change of their order is reported as one difference."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One difference between two documents."""

    path: str
    """Its path: dotted in experiments and records, a JSON pointer in reports."""
    kind: str
    """``changed``, ``added``, ``removed`` or ``reordered``."""
    old: object
    """The old value; None if it was added."""
    new: object
    """The new value; None if it was removed."""

    def to_dict(self) -> dict[str, object]:
        """Return the difference as plain data."""
        return {"path": self.path, "kind": self.kind, "old": self.old, "new": self.new}


def experiment_differences(old: Mapping[str, object], new: Mapping[str, object]) -> list[Difference]:
    """Return every difference between two resolved experiments, in the order of the documents.

    A list entry with a name is identified by it: ``workload.clients[chat].share``.
    """
    left, right = dict(old), dict(new)
    orders: dict[Path, tuple[list[str], list[str]]] = {}
    for listed, key in _IDENTITIES.items():
        _name_entries(left, right, listed, key, orders)

    def unnamed(value: object, steps: Path) -> object:
        """Turn a named list back into a list if only one side has it."""
        return list(value.values()) if steps in _IDENTITIES and isinstance(value, dict) else value

    changes = [
        replace(difference, old=unnamed(difference.old, steps), new=unnamed(difference.new, steps))
        for steps, difference in _differences(left, right, lambda steps: dotted(steps, orders))
    ]
    for path, (before_names, after_names) in orders.items():
        common = [name for name in before_names if name in set(after_names)]
        if common != [name for name in after_names if name in set(before_names)]:
            changes.append(Difference(path=dotted(path), kind="reordered", old=before_names, new=after_names))
    return changes


def differences(old: object, new: object, path_text: Callable[[Path], str]) -> list[Difference]:
    """Return every difference between two documents, in the order of ``old``; additions come last.

    A map or list that only one side has is one difference. Lists are compared by position.

    Args:
        old: the old document.
        new: the new document.
        path_text: formats a path: :func:`dotted` or :func:`pointer`.
    """
    return [difference for _, difference in _differences(old, new, path_text)]


def _differences(old: object, new: object, path_text: Callable[[Path], str]) -> list[tuple[Path, Difference]]:
    """Return the differences with their paths."""
    from deepdiff import DeepDiff  # noqa: PLC0415  (100 ms, and only needed if there is a difference)

    # Compare even maps with few common keys by key, compare lists by position, and treat no name as private.
    tree = DeepDiff(
        old,
        new,
        view="tree",
        zip_ordered_iterables=True,
        threshold_to_diff_deeper=0,
        ignore_private_variables=False,
    )
    listed: list[tuple[Path, Difference]] = []
    for category, levels in tree.items():
        kind = category.rpartition("_")[2].replace("changes", "changed")
        for level in levels:
            steps: Path = tuple(level.path(output_format="list"))
            before = None if kind == "added" else level.t1
            after = None if kind == "removed" else level.t2
            listed.append((steps, Difference(path=path_text(steps), kind=kind, old=before, new=after)))
    places: dict[Path, dict[object, int]] = {}
    listed.sort(key=lambda pair: _order(pair[0], old, new, places))
    return listed


def pointer(steps: Path) -> str:
    """Return a path as a JSON pointer (RFC 6901), such as ``/workload/clients/0/share``; empty = the whole document."""
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in steps)


def dotted(steps: Path, named: Collection[Path] = ()) -> str:
    """Return a dotted path, with brackets around steps directly below one of ``named``."""
    text = ""
    for at, step in enumerate(steps):
        if steps[:at] in named:
            text += f"[{step}]"
        else:
            text += f".{step}" if text else str(step)
    return text


def _order(steps: Path, left: object, right: object, places: dict[Path, dict[object, int]]) -> list[int]:
    """Return the position of a path in the documents, level by level; ``places`` caches positions of keys."""
    order: list[int] = []
    for at, step in enumerate(steps):
        if isinstance(step, int):
            order.append(step)
        else:
            if steps[:at] not in places:
                keys = dict.fromkeys([*_keys(left), *_keys(right)])
                places[steps[:at]] = {key: place for place, key in enumerate(keys)}
            order.append(places[steps[:at]][step])
        left, right = _inner(left, step), _inner(right, step)
    return order


def _keys(value: object) -> list[object]:
    return [*value] if isinstance(value, dict) else []


def _inner(value: object, step: str | int) -> object:
    if isinstance(value, dict):
        return value.get(step)
    return value[step] if isinstance(value, list) and isinstance(step, int) and step < len(value) else None


def _name_entries(
    left: dict[str, object],
    right: dict[str, object],
    path: tuple[str, ...],
    key: str,
    orders: dict[Path, tuple[list[str], list[str]]],
) -> None:
    """Turn the list at ``path`` of both documents into maps by name if the names are unambiguous."""
    lists = [_at(document, path) for document in (left, right)]
    if not all(isinstance(entries, list) for entries in lists):
        return
    named = [_by_name(entries, key) for entries in lists]
    if None in named:
        return
    orders[path] = ([*(named[0] or {})], [*(named[1] or {})])
    for document, entries in zip((left, right), named, strict=True):
        _put(document, path, entries)


def _by_name(entries: object, key: str) -> dict[str, object] | None:
    names = [entry.get(key) if isinstance(entry, dict) else None for entry in _list(entries)]
    if len(set(names)) < len(names) or not all(isinstance(name, str) for name in names):
        return None
    return {str(name): entry for name, entry in zip(names, _list(entries), strict=True)}


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _at(document: object, path: Sequence[str]) -> object:
    for step in path:
        document = document.get(step) if isinstance(document, dict) else None
    return document


def _put(document: dict[str, object], path: Sequence[str], value: object) -> None:
    """Replace a value; maps on its path are copied, so that the caller's maps do not change."""
    here = document
    for step in path[:-1]:
        inner = here[step]
        here[step] = here = dict(inner) if isinstance(inner, dict) else {}
    here[path[-1]] = value
