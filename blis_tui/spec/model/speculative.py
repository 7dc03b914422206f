"""Speculative decoding, as experiments describe it."""

from __future__ import annotations

from blis_tui.classes import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Speculative:
    """How many tokens are drafted, and how good they are."""

    draft_tokens: int
    """At a time: vLLM's ``num_speculative_tokens``."""
    acceptance: float
    """Probability that a drafted token is accepted, if all before it are."""
    draft_token_us: int = 0
    """Drafting one token for all decodes of a step, in microseconds."""
