"""What differs between two resolved experiments, in words a person would use for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from blis_tui.compare.walk import ABSENT, Change, pointer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from blis_tui.compare.walk import Path

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
    """Dotted, with an entry's name in brackets: ``workload.clients[chat].share``."""
    kind: str
    """``changed``, ``added``, ``removed`` or ``reordered``."""
    old: object
    """None where it was added."""
    new: object
    """None where it was removed."""

    def to_dict(self) -> dict[str, object]:
        """As plain data."""
        return {"path": self.path, "kind": self.kind, "old": self.old, "new": self.new}


def differences(old: Mapping[str, object], new: Mapping[str, object]) -> list[Difference]:
    """Every difference between two resolved documents, in the order of the documents."""
    found: list[Difference] = []
    left, right = dict(old), dict(new)
    orders: dict[Path, tuple[list[str], list[str]]] = {}
    for listed, key in _IDENTITIES.items():
        _name_entries(left, right, listed, key, orders)
    for change in _changes(left, right):
        # A whole list of entries that one side lacks is shown as the list it is.
        before, after = (
            list(value.values()) if change.steps in _IDENTITIES and isinstance(value, dict) else value
            for value in (change.old, change.new)
        )
        found.append(
            Difference(
                path=_dotted(change.steps, orders),
                kind=change.kind,
                old=None if before is ABSENT else before,
                new=None if after is ABSENT else after,
            )
        )
    for path, (before_names, after_names) in orders.items():
        common = [name for name in before_names if name in set(after_names)]
        if common != [name for name in after_names if name in set(before_names)]:
            dotted = _dotted(path, {})
            found.append(Difference(path=dotted, kind="reordered", old=before_names, new=after_names))
    return found


def _changes(left: object, right: object) -> list[Change]:
    """What DeepDiff finds, in the order of the documents; what is new comes after what was there."""
    from deepdiff import DeepDiff  # noqa: PLC0415  (100 ms, and only when there is something to say)

    found: list[Change] = []
    # Maps with few keys in common are still compared key by key, lists by position.
    tree = DeepDiff(left, right, view="tree", zip_ordered_iterables=True, threshold_to_diff_deeper=0)
    for kind, places in tree.items():
        for place in places:
            steps: Path = tuple(place.path(output_format="list"))
            old = ABSENT if kind.endswith("_added") else place.t1
            new = ABSENT if kind.endswith("_removed") else place.t2
            found.append(Change(pointer(steps), old, new, steps))
    found.sort(key=lambda change: _order(change.steps, left, right))
    return found


def _order(steps: Path, left: object, right: object) -> list[int]:
    """Where a path stands in the documents, level by level."""
    order: list[int] = []
    for step in steps:
        if isinstance(step, int):
            order.append(step)
        else:
            keys = list(dict.fromkeys([*_keys(left), *_keys(right)]))
            order.append(keys.index(step))
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


def _dotted(steps: Path, named: Mapping[Path, object]) -> str:
    text = ""
    for at, step in enumerate(steps):
        if steps[:at] in named:
            text += f"[{step}]"
        else:
            text += f".{step}" if text else str(step)
    return text
