"""Speculative decoding, as plainly as its rules can be said."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.engine.streams import Stream, stream_key

if TYPE_CHECKING:
    from blis_tui.spec.model import Engine, Speculative

    from .instance import Job, Plan


class Drafter:
    """How many tokens decodes ask for, and how many of them are right."""

    def __init__(self, settings: Speculative, engine: Engine, seed: int, *, pads: bool) -> None:
        self.most = settings.draft_tokens
        self.longest = engine.max_model_len
        reads_hidden_states = settings.method in {"eagle", "mtp"}
        self.ahead = self.most if reads_hidden_states else 0
        """KV slots that the drafter needs behind those of a step's tokens."""
        self.drops = 1 if reads_hidden_states else 0
        """Of the blocks that the cache has of a prompt, those at the end that are computed again."""
        self.pads = pads
        """Whether requests that enter for one token ask for as many as decodes do."""
        self.acceptance = settings.acceptance
        self.rates = settings.acceptance_rates
        """Instead of it: of how many drafts the first token is accepted, the first two, ..."""
        self.token_us = settings.draft_token_us
        self.seed = seed
        self.drafted: list[tuple[int, int]] = []
        """Drafted and accepted tokens of each decode."""
        self.latest: list[tuple[Job, int, int, int]] = []
        """Of the latest step: who drafted, had accepted and gained how many."""
        self.gained = 0

    def wanted(self, computed: int) -> int:
        """The token that is due, and its drafts; perhaps none, if as many tokens may be computed already."""
        if self.longest is None:
            return 1 + self.most
        return min(1 + self.most, self.longest - computed - 1)

    def slots(self, tokens: int) -> int:
        """How many KV slots it takes to have computed so many tokens."""
        if self.longest is None or tokens > self.longest:
            return tokens + (self.ahead if self.longest is None else 0)
        return min(tokens + self.ahead, self.longest)

    def is_guessed(self, job: Job, place: int, number: int) -> bool:
        """Whether the drafter knows that token of the answer, as the one of that number among its drafts."""
        chance = self.acceptance
        if chance is None:
            before = self.rates[number - 1] if number else 1.0
            chance = self.rates[number] / before if before else 0.0
        stream = Stream(stream_key(self.seed, f"speculative/{job.name}"), counter=place)
        return stream.uniform() < chance

    def verify(self, job: Job, tokens: int, *, void: bool) -> int:
        """How much further a decode gets that computes so many tokens; ``void``: no real drafts are among them."""
        accepted = 0
        while not void and accepted < tokens - 1 and self.is_guessed(job, job.generated + accepted, accepted):
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
