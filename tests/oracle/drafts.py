"""Speculative decoding, as plainly as its rules can be said."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.engine.streams import Stream, stream_key

if TYPE_CHECKING:
    from blis_tui.spec.model import Engine, Speculative

    from .instance import Job, Plan


class Drafter:
    """How many tokens decodes ask for, and how many of them are right."""

    def __init__(self, settings: Speculative, engine: Engine, seed: int) -> None:
        self.most = settings.draft_tokens
        self.longest = engine.max_model_len
        self.acceptance = settings.acceptance
        self.token_us = settings.draft_token_us
        self.seed = seed
        self.drafted: list[tuple[int, int]] = []
        """Drafted and accepted tokens of each decode."""
        self.latest: list[tuple[Job, int, int, int]] = []
        """Of the latest step: who drafted, had accepted and gained how many."""
        self.gained = 0

    def wanted(self, job: Job) -> int:
        """The token that is due, and its drafts."""
        if self.longest is None:
            return 1 + self.most
        return min(1 + self.most, self.longest - job.computed - 1)

    def is_guessed(self, job: Job, place: int) -> bool:
        """Whether the drafter knows that token of the answer."""
        stream = Stream(stream_key(self.seed, f"speculative/{job.name}"), counter=place)
        return stream.uniform() < self.acceptance

    def verify(self, job: Job, tokens: int) -> int:
        """How much further a decode gets that computes so many tokens."""
        accepted = 0
        while accepted < tokens - 1 and self.is_guessed(job, job.generated + accepted):
            accepted += 1
        self.drafted.append((tokens - 1, accepted))
        gained = min(accepted + 1, job.wanted - job.generated)
        self.gained += gained
        self.latest.append((job, tokens - 1, accepted, gained))
        return gained

    def drafting_us(self, plan: Plan) -> int:
        """What drafting adds to a step."""
        drafts = [job for job, tokens in plan.tokens.items() if not job.prefilling and tokens > 1]
        return self.most * self.token_us if drafts else 0

    def books(self) -> tuple[int, ...]:
        """What the engine counts, too."""
        runs = [accepted for drafted, accepted in self.drafted if drafted]
        drafted = sum(drafted for drafted, _ in self.drafted)
        return (drafted, len(self.drafted), self.gained, *(runs.count(length) for length in range(self.most + 1)))
