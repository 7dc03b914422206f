"""Speculative decoding, as experiments describe it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_READ_HIDDEN_STATES: Final = ("eagle", "mtp")
"""Drafters that go on from the model's hidden states, and keep KV entries of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Speculative:
    """How many tokens are drafted, and how good they are."""

    draft_tokens: int
    """At a time: vLLM's ``num_speculative_tokens``."""
    acceptance: float
    """Probability that a drafted token is accepted, if all before it are."""
    draft_token_us: int = 0
    """Drafting one token for all decodes of a step, in microseconds."""
    method: str = "ngram"
    """What drafts: ``ngram``, ``ngram_gpu``, ``eagle`` or ``mtp``."""

    @property
    def lookahead_tokens(self) -> int:
        """KV slots that the drafter needs beyond those of the tokens that are verified."""
        return self.draft_tokens if self.method in _READ_HIDDEN_STATES else 0

    @property
    def drops_last_hit(self) -> bool:
        """Whether the last block of a prompt that the prefix cache has is computed again for the drafter."""
        return self.method in _READ_HIDDEN_STATES
