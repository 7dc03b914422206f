"""What an instance counts about its drafts."""

from __future__ import annotations

from dataclasses import field

from blis_tui.classes import dataclass


@dataclass(slots=True)
class DraftTallies:
    """What the drafts of an instance add up to; the names are vLLM's."""

    num_draft_tokens: int = 0
    decodes: int = 0
    """Once for each request and step, drafts or not."""
    output_tokens: int = 0
    """That came of those."""
    accepted_runs: list[int] = field(default_factory=list)
    """By the number of tokens accepted, how often that was so: once for each request and step with any draft."""

    @property
    def num_drafts(self) -> int:
        """Verifications: once for each request and step with any drafted token."""
        return self.accepted_at(0)

    @property
    def num_accepted_tokens(self) -> int:
        """Bonus tokens do not count; a token counts that was accepted beyond the end of its answer."""
        total = 0
        for accepted, times in enumerate(self.accepted_runs):
            total += accepted * times
        return total

    def accepted_at(self, position: int) -> int:
        """How often the drafted token of that position was accepted, counted from 1."""
        total = 0
        for times in self.accepted_runs[position:]:
            total += times
        return total

    def add(self, other: DraftTallies) -> None:
        """What another instance's add up to, too."""
        self.num_draft_tokens += other.num_draft_tokens
        self.decodes += other.decodes
        self.output_tokens += other.output_tokens
        for accepted, times in enumerate(other.accepted_runs):
            self.accepted_runs[accepted] += times

    def state(self) -> tuple[object, ...]:
        """All of it, as plain values (for digests)."""
        return (self.num_draft_tokens, self.decodes, self.output_tokens, *self.accepted_runs)
