"""What differs between two resolved experiments, in words a person would use for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from blis_tui.compare.walk import ABSENT, walk

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
    for change in walk(left, right):
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
