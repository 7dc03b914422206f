"""What differs between two plain JSON documents: experiments, reports, records. DeepDiff computes it.

Values count as equal when JSON would write them alike: ``1``, ``1.0`` and ``true`` are three values. The order of a
map's keys carries no meaning.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeAlias

from blis_tui.classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

Path: TypeAlias = "tuple[str | int, ...]"

_IDENTITIES: Final[Mapping[tuple[str, ...], str]] = {
    ("workload", "clients"): "id",
    ("policy", "routing", "scorers"): "kind",
    ("policy", "routing", "filters"): "kind",
    ("expect",): "metric",
}
"""Lists whose entries have a name -> the key that holds it. Their order is reported as one difference of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One difference between two documents."""

    path: str
    """Where it is: dotted in experiments and records, a JSON pointer in reports."""
    kind: str
    """``changed``, ``added``, ``removed`` or ``reordered``."""
    old: object
    """None where it was added."""
    new: object
    """None where it was removed."""

    def to_dict(self) -> dict[str, object]:
        """As plain data."""
        return {"path": self.path, "kind": self.kind, "old": self.old, "new": self.new}


def experiment_differences(old: Mapping[str, object], new: Mapping[str, object]) -> list[Difference]:
    """Every difference between two resolved experiments, in the order of the documents.

    An entry of a list is called by its name, where it has one: ``workload.clients[chat].share``.
    """
    left, right = dict(old), dict(new)
    orders: dict[Path, tuple[list[str], list[str]]] = {}
    for listed, key in _IDENTITIES.items():
        _name_entries(left, right, listed, key, orders)

    def unnamed(value: object, steps: Path) -> object:
        """A whole list of entries that one side lacks is shown as the list it is."""
        return list(value.values()) if steps in _IDENTITIES and isinstance(value, dict) else value

    found = [
        replace(one, old=unnamed(one.old, steps), new=unnamed(one.new, steps))
        for steps, one in _differences(left, right, lambda steps: dotted(steps, orders))
    ]
    for path, (before_names, after_names) in orders.items():
        common = [name for name in before_names if name in set(after_names)]
        if common != [name for name in after_names if name in set(before_names)]:
            found.append(Difference(path=dotted(path), kind="reordered", old=before_names, new=after_names))
    return found


def differences(old: object, new: object, path_text: Callable[[Path], str]) -> list[Difference]:
    """Every difference between two documents, in the order of ``old``; what is new comes after what was there.

    A map or list that only one side has is one difference, not one for each value in it. Lists are compared by
    position.

    Args:
        old: the one document.
        new: the other.
        path_text: how a path is written: :func:`dotted` or :func:`pointer`.
    """
    return [one for _, one in _differences(old, new, path_text)]


def _differences(old: object, new: object, path_text: Callable[[Path], str]) -> list[tuple[Path, Difference]]:
    """The differences with their paths."""
    from deepdiff import DeepDiff  # noqa: PLC0415  (100 ms, and only when there is something to say)

    # Maps with few keys in common are still compared key by key, lists by position, and no name is private.
    tree = DeepDiff(
        old,
        new,
        view="tree",
        zip_ordered_iterables=True,
        threshold_to_diff_deeper=0,
        ignore_private_variables=False,
    )
    found: list[tuple[Path, Difference]] = []
    for category, levels in tree.items():
        kind = category.rpartition("_")[2].replace("changes", "changed")
        for level in levels:
            steps: Path = tuple(level.path(output_format="list"))
            before = None if kind == "added" else level.t1
            after = None if kind == "removed" else level.t2
            found.append((steps, Difference(path=path_text(steps), kind=kind, old=before, new=after)))
    places: dict[Path, dict[object, int]] = {}
    found.sort(key=lambda pair: _order(pair[0], old, new, places))
    return found


def pointer(steps: Path) -> str:
    """A path as a JSON pointer (RFC 6901), such as ``/workload/clients/0/share``; empty = the whole document."""
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in steps)


def dotted(steps: Path, named: Collection[Path] = ()) -> str:
    """A path with dots; the steps below one of ``named`` are names, in brackets."""
    text = ""
    for at, step in enumerate(steps):
        if steps[:at] in named:
            text += f"[{step}]"
        else:
            text += f".{step}" if text else str(step)
    return text


def _order(steps: Path, left: object, right: object, places: dict[Path, dict[object, int]]) -> list[int]:
    """Where a path stands in the documents, level by level; ``places`` remembers where the keys of a map stand."""
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
    """Turn the list at ``path`` of both documents into maps by name, where the names are unambiguous."""
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
    """Replace a value; the maps on the way are copied, so that the caller's stay as they are."""
    here = document
    for step in path[:-1]:
        inner = here[step]
        here[step] = here = dict(inner) if isinstance(inner, dict) else {}
    here[path[-1]] = value
