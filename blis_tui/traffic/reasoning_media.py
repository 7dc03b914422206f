"""Reasoning and media of a trace's requests, as a fitted workload's clients declare them."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Final

from blis_tui.classes import dataclass
from blis_tui.engine.request import NO_MEDIA, Media
from blis_tui.traffic.lengths import Chosen, choose, table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from blis_tui.spec.source import Json
    from blis_tui.traffic.ledger import Ledger

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
