"""Kinds of requests in a trace: each becomes a client of a fitted workload."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from blis_tui.spec.model import Prefix

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from blis_tui.traffic.ledger import Ledger

_MOST: Final = 40
"""Kinds that a document may have."""
_BANDS: Final = 4
"""Where prompts share more than one beginning, so many prefixes of different length stand for them all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """Requests that are alike in what is no number."""

    name: str
    rows: Sequence[int]
    tenant: str
    slo_class: str
    model: str
    prefix: Prefix | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Kinds:
    """All requests of a trace, told apart."""

    found: tuple[Kind, ...]
    notes: tuple[str, ...]
    """What they are not told apart by, though they differ in it."""


_Key = tuple[str, str, str, Prefix | None]


def kinds_of(ledger: Ledger) -> Kinds:
    """Tell requests apart: by SLO class and model, and by tenant and prefix where there are not too many."""
    notes: list[str] = []
    by_head = _with_heads(ledger)
    by_band = _with_bands(ledger)
    tenants = [ledger.names["tenant"].values[code] for code in ledger.names["tenant"].rows]
    nobody = [""] * len(ledger)
    exact = all(len(head) <= 1 for head in ledger.heads.values)
    tries: list[tuple[Sequence[str], Callable[[int], Prefix | None], tuple[str, ...]]] = []
    by_tenant = "tenants are not told apart: there are too many"
    by_length = f"what prompts share is stood for by prefixes of up to {_BANDS} lengths"
    if exact:
        tries += [(tenants, by_head, ()), (nobody, by_head, (by_tenant,))]
    tries += [(tenants, by_band, (by_length,)), (nobody, by_band, (by_tenant, by_length))]
    for names, prefix_of, told in tries:
        groups = _grouped(ledger, names, prefix_of)
        if len(groups) <= _MOST or names is nobody:
            notes += [one for one in told if one != by_length or any(key[3] for key in groups)]
            break
    return Kinds(found=tuple(_named(groups)), notes=tuple(notes))


def _grouped(
    ledger: Ledger, tenants: Sequence[str], prefix_of: Callable[[int], Prefix | None]
) -> dict[_Key, list[int]]:
    classes, models = ledger.names["slo_class"], ledger.names["model"]
    groups: dict[_Key, list[int]] = {}
    for row, tenant in enumerate(tenants):
        key = (tenant, classes.values[classes.rows[row]], models.values[models.rows[row]], prefix_of(row))
        groups.setdefault(key, []).append(row)
    return groups


def _with_heads(ledger: Ledger) -> Callable[[int], Prefix | None]:
    """Prefixes as they are."""
    known = [Prefix(group=head[0][0], tokens=head[0][1]) if head else None for head in ledger.heads.values]
    return lambda row: known[ledger.heads.rows[row]]


def _with_bands(ledger: Ledger) -> Callable[[int], Prefix | None]:
    """Requests whose prompts were found in part, in bands by how much: a prefix of the mean length for each."""
    found = ledger.found_tokens
    hits = sorted((row for row in range(len(ledger)) if found[row]), key=found.__getitem__)
    bands: dict[int, Prefix] = {}
    for band in range(_BANDS):
        rows = hits[len(hits) * band // _BANDS : len(hits) * (band + 1) // _BANDS]
        total = 0
        for row in rows:
            total += found[row]
        size = ledger.block_size_tokens
        blocks = (2 * total + size * len(rows)) // (2 * size * len(rows)) if rows else 0
        if blocks:
            bands.update(dict.fromkeys(rows, Prefix(group=f"shared-{band + 1}", tokens=blocks * size)))
    return bands.get


def _named(groups: dict[_Key, list[int]]) -> list[Kind]:
    """The largest first, each with a name that says what it is."""
    ordered = sorted(groups, key=lambda key: (-len(groups[key]), groups[key][0]))
    taken: dict[str, None] = {}
    found: list[Kind] = []
    for tenant, slo_class, model, prefix in ordered:
        parts = (tenant, slo_class if slo_class != "standard" else "", model, prefix.group if prefix else "")
        base = "-".join(part for part in parts if part)[:150] or "requests"
        name, number = base, 1
        while name in taken:
            number += 1
            name = f"{base}-{number}"
        taken[name] = None
        rows = groups[tenant, slo_class, model, prefix]
        found.append(Kind(name=name, rows=rows, tenant=tenant, slo_class=slo_class, model=model, prefix=prefix))
    return found
