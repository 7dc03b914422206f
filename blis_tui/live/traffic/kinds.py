"""Kinds of requests and of sessions in a trace; each becomes a client of a fitted workload."""

from __future__ import annotations

from dataclasses import field
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import dataclass
from blis_tui.base.portable_math import whole_sum
from blis_tui.engine.request import NO_MEDIA, Media
from blis_tui.live.traffic.lengths import Chosen, choose, table
from blis_tui.model import Prefix

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from blis_tui.base.source import Json
    from blis_tui.live.traffic.ledger import Ledger


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
        total = whole_sum([found[row] for row in rows])
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


_HALF = 2
_NEARLY_ALL = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionGroup:
    """Sessions with the same non-numeric attributes.

    Attributes:
        sessions: the rows of each, in order of arrival.
        history: whether prompts begin with the earlier conversation, judging by their lengths.
        dropped: whether that omits the reasoning, judging by the lengths.
    """

    tenant: str
    slo_class: str
    model: str
    prefix: Prefix | None
    sessions: Sequence[Sequence[int]]
    history: bool
    dropped: bool

    @property
    def name(self) -> str:
        """A descriptive name."""
        prefix = self.prefix.group if self.prefix else ""
        parts = (self.tenant, self.slo_class if self.slo_class != "standard" else "", self.model, prefix, "sessions")
        return "-".join(part for part in parts if part)[-150:]

    def rows(self) -> list[int]:
        """Return the rows of all requests."""
        return [row for session in self.sessions for row in session]

    def new_tokens(self, ledger: Ledger) -> list[int]:
        """Number of new text tokens of each prompt."""
        head = self.prefix.tokens if self.prefix else 0
        found: list[int] = []
        for session in self.sessions:
            found.append(max(1, ledger.text_tokens(session[0]) - head))
            for before, row in pairwise(session):
                new = _new(ledger, before, row, dropped=self.dropped)
                found.append(new if self.history and new > 0 else max(1, ledger.text_tokens(row) - head))
        return found

    def new_media(self, ledger: Ledger) -> list[Media]:
        """Return the new media of each prompt."""
        found: list[Media] = []
        for session in self.sessions:
            before = NO_MEDIA
            for row in session:
                there = ledger.media.get(row, NO_MEDIA)
                found.append(Media(*(max(0, one - other) for one, other in zip(there, before, strict=True))))
                before = there if self.history else NO_MEDIA
        return found

    def gaps_ms(self, ledger: Ledger, *, answered: bool) -> list[int]:
        """Return the times from each request, or from its answer, to the next one of its session; at least 1."""
        found = []
        for before, row in ((one, two) for session in self.sessions for one, two in pairwise(session)):
            since = ledger.arrival_us[before] + (max(0, ledger.e2e_us[before]) if answered else 0)
            found.append(max(1, (ledger.arrival_us[row] - since) // 1000))
        return found

    def answered(self, ledger: Ledger) -> bool:
        """Whether answer times are known, and fewer than half of the answers came after the next request."""
        pairs = [pair for session in self.sessions for pair in pairwise(session)]
        known = [ledger.e2e_us[one] >= 0 for one, _ in pairs]
        late = [ledger.arrival_us[two] < ledger.arrival_us[one] + ledger.e2e_us[one] for one, two in pairs]
        return bool(pairs) and all(known) and _HALF * late.count(True) < len(late)


def group_sessions(ledger: Ledger) -> list[SessionGroup]:
    """Group sessions by tenant, SLO class, model, and a prefix that several of them share; the largest group first."""
    rows: dict[str, list[int]] = {}
    for row, code in enumerate(ledger.sessions.rows):
        if name := ledger.sessions.values[code]:
            rows.setdefault(name, []).append(row)
    sessions = [one for one in rows.values() if len(one) > 1]
    if not sessions:
        return []
    sessions = list(rows.values())
    heads = [ledger.heads.values[ledger.heads.rows[one[0]]][:1] for one in sessions]
    groups: dict[tuple[str, str, str, Prefix | None], list[list[int]]] = {}
    for session, head in zip(sessions, heads, strict=True):
        shared = bool(head) and heads.count(head) > 1
        prefix = Prefix(group=head[0][0], tokens=head[0][1]) if shared else None
        told = [ledger.names[name].values[ledger.names[name].rows[session[0]]] for name in _TOLD]
        groups.setdefault((told[0], told[1], told[2], prefix), []).append(session)
    found = []
    for key, members in groups.items():
        kept = _said(ledger, members, dropped=False)
        dropped = _said(ledger, members, dropped=True)
        # If reasoning is kept, every prompt is long enough for it; if dropped, many are too short.
        drops = kept < _NEARLY_ALL and dropped > kept
        history = (dropped if drops else kept) * _HALF >= 1
        tenant, slo_class, model, prefix = key
        found.append(
            SessionGroup(
                tenant=tenant,
                slo_class=slo_class,
                model=model,
                prefix=prefix,
                sessions=members,
                history=history,
                dropped=drops and history,
            )
        )
    return sorted(found, key=lambda one: -len(one.sessions))


_TOLD = ("tenant", "slo_class", "model")


def _said(ledger: Ledger, sessions: Sequence[Sequence[int]], *, dropped: bool) -> float:
    """Share of later prompts that are long enough for the earlier conversation, with or without reasoning."""
    new = [_new(ledger, before, row, dropped=dropped) > 0 for session in sessions for before, row in pairwise(session)]
    return new.count(True) / len(new) if new else 0.0


def _new(ledger: Ledger, before: int, row: int, *, dropped: bool) -> int:
    thought = ledger.reasoning.get(before, 0) if dropped else 0
    return ledger.text_tokens(row) - ledger.text_tokens(before) - ledger.output_tokens[before] + thought


_MODALITIES: Final = ("images", "audio", "video")
_PARTS: Final = 10_000
"""Resolution of reasoning shares: a ten-thousandth."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasoningAndMedia:
    """Reasoning and media of some requests."""

    ratio: Chosen | None = None
    """Share of an answer that is reasoning; None = there is no reasoning."""
    probability: Mapping[str, float] = field(default_factory=dict)
    """Modality -> share of prompts that have any of it."""
    tokens: Mapping[str, Chosen] = field(default_factory=dict)
    """Modality -> tokens in those prompts. A trace does not give the number of items, so one is assumed."""

    def parts(self) -> list[tuple[str, Chosen]]:
        """Return the chosen distributions by name."""
        return ([("reasoning", self.ratio)] if self.ratio else []) + [*self.tokens.items()]

    def data(self, history: str = "") -> dict[str, Json]:
        """Return the client's keys; ``history``: what sessions keep of the reasoning."""
        found: dict[str, Json] = {}
        if self.ratio is not None:
            found["reasoning"] = {"ratio": self.ratio.data, **({"history": history} if history else {})}
        if self.tokens:
            found["multimodal"] = {
                name: {"probability": self.probability[name], "tokens": chosen.data}
                for name, chosen in self.tokens.items()
            }
        return found


def reasoning_and_media_of(
    ledger: Ledger, rows: Sequence[int], media: Sequence[Media] = ()
) -> ReasoningAndMedia | None:
    """Analyze reasoning and media of the requests in some rows; None = there are none.

    Args:
        ledger: all requests.
        rows: some of them, at least one.
        media: new media of each of these prompts; empty = all media that the ledger has.
    """
    ratio = None
    if any(row in ledger.reasoning for row in rows):
        shares = [
            min(_PARTS, (_PARTS * ledger.reasoning.get(row, 0) + outputs // 2) // outputs)
            for row in rows
            if (outputs := ledger.output_tokens[row])
        ]
        found = table(sorted(shares))
        weights: dict[str, Json] = {}
        for key, weight in _weights(found).items():
            weights[format(int(key) / _PARTS, "g")] = weight
        ratio = Chosen(data={"kind": "empirical", "weights": weights}, ks=found.ks)
    every = media or [ledger.media.get(row, NO_MEDIA) for row in rows]
    probability: dict[str, float] = {}
    tokens: dict[str, Chosen] = {}
    for at, name in enumerate(_MODALITIES):
        there = [one[at] for one in every if one[at] > 0]
        if there:
            probability[name] = round(len(there) / len(rows), 6)
            tokens[name] = choose(there)
    return ReasoningAndMedia(ratio=ratio, probability=probability, tokens=tokens) if ratio or tokens else None


def _weights(found: Chosen) -> Mapping[str, Json]:
    weights = found.data["weights"]
    return weights if isinstance(weights, dict) else {}
