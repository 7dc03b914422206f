"""Sessions in a trace; each kind becomes a client of a fitted workload that holds sessions."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from blis_tui.classes import dataclass
from blis_tui.engine.request import NO_MEDIA, Media
from blis_tui.spec.model import Prefix

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.traffic.ledger import Ledger

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
