"""Kinds of requests in a trace; each becomes a client of a fitted workload."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.classes import dataclass
from blis_tui.spec.model import Prefix

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from blis_tui.traffic.ledger import Ledger

_MOST: Final = 40
"""Maximum number of kinds in a document."""
_WIDEST: Final = 1.5
"""If prompts have hits of various lengths, one prefix stands for lengths within this factor …"""
_LEAST: Final = 100
"""… or beyond, while its band has fewer than one in this many of the requests with hits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """Requests with the same non-numeric attributes."""

    name: str
    rows: Sequence[int]
    tenant: str
    slo_class: str
    model: str
    prefix: Prefix | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Kinds:
    """All requests of a trace, by kind."""

    found: tuple[Kind, ...]
    notes: tuple[str, ...]
    """Attributes that are ignored although requests differ in them."""


_Key = tuple[str, str, str, Prefix | None]


def kinds_of(ledger: Ledger, left_out: Collection[int] = ()) -> Kinds:
    """Group requests by SLO class and model, and by tenant and prefix if there are not too many.

    Rows that are left out belong to no kind.
    """
    notes: list[str] = []
    by_head = _with_heads(ledger)
    by_band = _with_bands(ledger)
    tenants = [ledger.names["tenant"].values[code] for code in ledger.names["tenant"].rows]
    no_tenants = [""] * len(ledger)
    exact = all(len(head) <= 1 for head in ledger.heads.values)
    tries: list[tuple[Sequence[str], Callable[[int], Prefix | None], tuple[str, ...]]] = []
    by_tenant = "tenants are not distinguished: there are too many"
    by_length = "what prompts share is stood for by prefixes of some lengths, each the same for all its requests"
    if exact:
        tries += [(tenants, by_head, ()), (no_tenants, by_head, (by_tenant,))]
    tries += [(tenants, by_band, (by_length,)), (no_tenants, by_band, (by_tenant, by_length))]
    for names, prefix_of, told in tries:
        groups = _grouped(ledger, names, prefix_of, left_out)
        if len(groups) <= _MOST or names is no_tenants:
            notes += [one for one in told if one != by_length or any(key[3] for key in groups)]
            break
    return Kinds(found=tuple(_named(groups)), notes=tuple(notes))


def _grouped(
    ledger: Ledger, tenants: Sequence[str], prefix_of: Callable[[int], Prefix | None], left_out: Collection[int]
) -> dict[_Key, list[int]]:
    classes, models = ledger.names["slo_class"], ledger.names["model"]
    groups: dict[_Key, list[int]] = {}
    for row, tenant in enumerate(tenants):
        if row in left_out:
            continue
        key = (tenant, classes.values[classes.rows[row]], models.values[models.rows[row]], prefix_of(row))
        groups.setdefault(key, []).append(row)
    return groups


def _with_heads(ledger: Ledger) -> Callable[[int], Prefix | None]:
    """Assign prefixes as they are."""
    known = [Prefix(group=head[0][0], tokens=head[0][1]) if head else None for head in ledger.heads.values]
    return lambda row: known[ledger.heads.rows[row]]


def _with_bands(ledger: Ledger) -> Callable[[int], Prefix | None]:
    """Group requests by the length of their prefix hit, in bands; each band gets a prefix of its mean length."""
    found = ledger.found_tokens
    hits = sorted((row for row in range(len(ledger)) if found[row]), key=found.__getitem__)
    bands: list[list[int]] = []
    for row in hits:
        if not bands or (found[row] > _WIDEST * found[bands[-1][0]] and len(bands[-1]) * _LEAST >= len(hits)):
            bands.append([])
        bands[-1].append(row)
    prefixes: dict[int, Prefix] = {}
    size = ledger.block_size_tokens
    for number, rows in enumerate(bands, 1):
        total = 0
        for row in rows:
            total += found[row]
        blocks = (2 * total + size * len(rows)) // (2 * size * len(rows))
        prefixes.update(dict.fromkeys(rows, Prefix(group=f"shared-{number}", tokens=blocks * size)))
    return prefixes.get


def _named(groups: dict[_Key, list[int]]) -> list[Kind]:
    """Name the kinds descriptively, the largest first."""
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
