"""BLIS's clients and cohorts as ours."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from blis_tui.importers.lengths import arrivals, lengths
from blis_tui.importers.section import Fate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from blis_tui.importers.section import Section
    from blis_tui.spec.source import DataPath, Json

_CLASSES: Final = ("critical", "standard", "sheddable", "batch", "background")
_OLD_CLASSES: Final = {"realtime": "critical", "interactive": "standard"}
"""Classes of version 1 and what BLIS makes of them."""

DEFAULT_PREFIX: Final = 50
"""Tokens of a prefix group whose length was left out."""

_MOST_MEMBERS: Final = 1000
"""Members of a cohort that become clients of their own; beyond, they become one."""

_LOST: Final = {
    "model": "an experiment serves one model, named in the experiment",
    "adapter": "LoRA adapters are not simulated",
    "slo_target_us": "set it as `expect` in the experiment",
    "think_time_us": "closed-loop users are not simulated",
}
_WITHOUT_EFFECT: Final = {
    "streaming": "it changes nothing in a BLIS run",
    "network": "BLIS applies it to measurements only, never in a run",
    "closed_loop": "it matters for conversations only",
}
_PATTERNS: Final = ("diurnal", "spike", "drain")


@dataclass(slots=True)
class Clients:
    """Our clients, and what they share.

    Attributes:
        upgrade: whether the classes of version 1 are known.
        shares: the rate fractions of all clients in the input.
        kept_shares: the same of those that were carried over.
    """

    upgrade: bool
    found: list[dict[str, Json]] = field(default_factory=list)
    origins: dict[DataPath, DataPath] = field(default_factory=dict)
    prefix_tokens: dict[str, int] = field(default_factory=dict)
    shares: list[float] = field(default_factory=list)
    kept_shares: list[float] = field(default_factory=list)
    _ids: set[str] = field(default_factory=set)

    def add_client(self, section: Section) -> None:
        """Carry one client over, if it sends at a rate."""
        concurrency = section.whole("concurrency")
        if concurrency:
            section.lose("concurrency", "closed-loop users are not simulated; the client is left out")
            for key in section.data:
                section.get(key)
            return
        share = section.number("rate_fraction", required=True)
        name = section.text("id") or f"client-{section.path[-1]}"
        lifecycle = section.section("lifecycle")
        if lifecycle is not None:
            text = "clients have no activity windows here: it is always active, at its share of the whole rate"
            section.lose("lifecycle", text)
        body = self._body(section)
        section.finish()
        if share is not None and body is not None:
            self._count(share, kept=True)
            self._append(section, self._unique(section, name), share, body)

    def add_cohort(self, section: Section) -> None:
        """Carry the members of a cohort over, if they are always active."""
        name = section.text("id") or f"cohort-{section.path[-1]}"
        share = section.number("rate_fraction", required=True)
        population = section.whole("population", low=1)
        if "population" not in section.data:
            section.source.problem(section.path, "the cohort lacks the key `population`", code="BLIS1002", key=True)
        patterns = [key for key in _PATTERNS if section.given(key)]
        body = self._body(section)
        per_member = section.choice("prefix_sharing", ("shared", "per_member"), otherwise="shared") == "per_member"
        section.finish()
        for key in patterns:
            section.lose(key, "rates do not change over time here; the cohort is left out, and its share of the rate")
        self._count(share or 0.0, kept=not patterns)
        if share is None or body is None or patterns or population < 1:
            return
        if population > _MOST_MEMBERS:
            text = f"{population} members became one client with all their requests"
            exact = body["arrivals"] == {"kind": "poisson"} and not per_member
            why = "; Poisson arrivals add up to Poisson arrivals" if exact else "; their arrivals are less independent"
            section.note(Fate.NO_EFFECT if exact else Fate.APPROXIMATED, "population", text + why)
            self._append(section, self._unique(section, name), share, body)
            return
        for member, own in enumerate(_members(body, population, per_member=per_member)):
            self._append(section, self._unique(section, f"{name}-{member}"), share / population, own)

    def _count(self, share: float, *, kept: bool) -> None:
        self.shares.append(share)
        if kept:
            self.kept_shares.append(share)

    def _unique(self, section: Section, name: str) -> str:
        """A client's id, changed where another has it already."""
        unique, number = name, 1
        while unique in self._ids:
            number += 1
            unique = f"{name}-{number}"
        if unique != name:
            section.note(Fate.NO_EFFECT, "id", f"two clients are called `{name}`; this one became `{unique}`")
        self._ids.add(unique)
        return unique

    def _append(self, section: Section, name: str, share: float, body: dict[str, Json]) -> None:
        at: DataPath = ("clients", len(self.found))
        self.found.append({"id": name, "share": share, **body})
        self.origins[at] = section.path
        for ours, theirs in (
            ("share", "rate_fraction"),
            ("arrivals", "arrival"),
            ("prefix", "prefix_group"),
            ("slo_class", "slo_class"),
            ("tenant", "tenant_id"),
            ("timeout_us", "timeout"),
        ):
            self.origins[(*at, ours)] = (*section.path, theirs)
        self.origins[(*at, "arrivals", "cv")] = (*section.path, "arrival", "cv")
        for ours, theirs in (("input_tokens", "input_distribution"), ("output_tokens", "output_distribution")):
            self.origins[(*at, ours)] = (*section.path, theirs)
            values = body[ours]
            for key in values if isinstance(values, dict) else ():
                self.origins[(*at, ours, key)] = (*section.path, theirs, "params", key)

    def _body(self, section: Section) -> dict[str, Json] | None:
        """Everything but id and share; None when lengths are missing."""
        body: dict[str, Json] = {"arrivals": arrivals(section.section("arrival"))}
        inputs = section.section("input_distribution")
        outputs = section.section("output_distribution")
        inputs = _multimodal(section, inputs)
        _reasoning(section)
        for ours, theirs, part in (
            ("input_tokens", "input_distribution", inputs),
            ("output_tokens", "output_distribution", outputs),
        ):
            if part is None:
                section.source.problem(section.path, f"this lacks the key `{theirs}`", code="BLIS1002", key=True)
                continue
            body[ours] = lengths(part)
        self._prefix(section, body)
        self._rest(section, body)
        return (
            body if isinstance(body.get("input_tokens"), dict) and isinstance(body.get("output_tokens"), dict) else None
        )

    def _prefix(self, section: Section, body: dict[str, Json]) -> None:
        group = section.text("prefix_group")
        tokens = section.whole("prefix_length")
        if not group:
            section.note(Fate.NO_EFFECT, "prefix_length", "a prefix needs a `prefix_group`")
            return
        first = self.prefix_tokens.setdefault(group, tokens or DEFAULT_PREFIX)
        if tokens and tokens != first:
            text = f"the first client of group `{group}` says {first}; BLIS takes that for all, and so does this"
            section.note(Fate.NO_EFFECT, "prefix_length", text)
        body["prefix"] = {"group": group, "tokens": first}

    def _rest(self, section: Section, body: dict[str, Json]) -> None:
        given = section.text("slo_class")
        old = _OLD_CLASSES.get(given) if self.upgrade else None
        if old is not None:
            section.note(Fate.NO_EFFECT, "slo_class", f"version 1's `{given}` is called `{old}` since version 2")
        elif given:
            section.choice("slo_class", _CLASSES, otherwise="standard")
        if given:
            body["slo_class"] = old or given
        if tenant := section.text("tenant_id"):
            body["tenant"] = tenant
        if timeout := section.whole("timeout"):
            body["timeout_us"] = timeout
        for key, why in _LOST.items():
            section.lose(key, why)
        for key, why in _WITHOUT_EFFECT.items():
            section.note(Fate.NO_EFFECT, key, why)


def _multimodal(section: Section, inputs: Section | None) -> Section | None:
    """The distribution of prompt lengths: BLIS prefers the sum of text, images, audio and video."""
    media = section.section("multimodal")
    text = None if media is None else media.section("text_distribution")
    if media is None:
        return inputs
    kept = "the text's lengths" if text is not None else "`input_distribution`"
    section.note(
        Fate.APPROXIMATED, "multimodal", f"images, audio and video are not simulated; prompts have {kept} only"
    )
    return inputs if text is None else text


def _reasoning(section: Section) -> None:
    part = section.section("reasoning")
    if part is None:
        return
    part.lose("multi_turn", "conversations are not simulated: requests are independent")
    part.note(Fate.NO_EFFECT, "reason_ratio_distribution", "BLIS reports it; it has no cost")
    part.finish()


def _members(body: dict[str, Json], population: int, *, per_member: bool) -> Iterator[dict[str, Json]]:
    """What each member of a cohort sends."""
    prefix = body.get("prefix")
    for member in range(population):
        if per_member and isinstance(prefix, dict):
            yield {**body, "prefix": {**prefix, "group": f"{prefix['group']}-{member}"}}
        else:
            yield body
