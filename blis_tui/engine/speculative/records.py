"""Records about drafts."""

from __future__ import annotations

from blis_tui.classes import dataclass
from blis_tui.engine.records import Description, Record


@dataclass(frozen=True, slots=True)
class DraftDone:
    """The drafts of one request in a step; ``output_tokens`` is what its answer gained."""

    request_id: str
    """The request's name."""
    draft_tokens: int
    """Draft tokens that the step verified."""
    accepted_tokens: int
    """Draft tokens that were accepted."""
    output_tokens: int
    """Output tokens that its answer gained."""


@dataclass(frozen=True, slots=True)
class DraftsVerified(Record):
    """A step verified draft tokens; emitted for each step with decodes under speculative decoding.

    ``verified`` lists the decodes of the step in batch order; the other figures are their sums.
    """

    shown = Description(
        "drafts-verified",
        sign="≈",
        colour="success",
        meaning="a step verified drafted tokens",
        sentence="{accepted_tokens:,} of {draft_tokens:drafted token} accepted",
        line="{accepted_tokens:,} of {draft_tokens:drafted token} accepted",
        figures=("draft_tokens", "accepted_tokens"),
        own_event=False,
        result=True,
    )

    instance: int
    """Index of the instance."""
    draft_tokens: int
    """Draft tokens that the step verified, over all requests."""
    accepted_tokens: int
    """Draft tokens that were accepted, over all requests."""
    output_tokens: int
    """Output tokens that answers gained, over all requests."""
    verified: tuple[DraftDone, ...]
    """The decodes of the step, in batch order."""
