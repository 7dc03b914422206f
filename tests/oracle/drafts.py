"""Speculative decoding, written as plainly as possible."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.base.streams import Stream, stream_key

if TYPE_CHECKING:
    from blis_tui.model import Engine, Speculative

    from .instance import Job, Plan


class Drafter:
    """How many tokens decodes ask for, and how many drafts are accepted."""

    def __init__(self, settings: Speculative, engine: Engine, seed: int, *, pads: bool) -> None:
        self.most = settings.draft_tokens
        self.longest = engine.max_model_len
        reads_hidden_states = settings.method in {"eagle", "mtp"}
        self.ahead = self.most if reads_hidden_states else 0
        """KV slots that the drafter needs beyond those of a step's tokens."""
        self.drops = 1 if reads_hidden_states else 0
        """Number of cached blocks at the end of a prompt that are recomputed."""
        self.pads = pads
        """Whether requests that are admitted for one token ask for as many as decodes."""
        self.acceptance = settings.acceptance
        self.rates = settings.acceptance_rates
        """Instead of ``acceptance``: the shares of drafts with the first token accepted, the first two, ..."""
        self.token_us = settings.draft_token_us
        self.seed = seed
        self.drafted: list[tuple[int, int]] = []
        """Drafted and accepted tokens of each decode."""
        self.latest: list[tuple[Job, int, int, int]] = []
        """Requests of the latest step with their numbers of drafted, accepted and gained tokens."""
        self.gained = 0

    def wanted(self, computed: int) -> int:
        """The next token and its drafts; 0 if the request has reached the longest length."""
        if self.longest is None:
            return 1 + self.most
        return min(1 + self.most, self.longest - computed - 1)

    def slots(self, tokens: int) -> int:
        """KV slots that a number of computed tokens takes."""
        if self.longest is None or tokens > self.longest:
            return tokens + (self.ahead if self.longest is None else 0)
        return min(tokens + self.ahead, self.longest)

    def is_guessed(self, job: Job, place: int, number: int) -> bool:
        """Whether the drafter predicts a token of the answer, as the draft with that number."""
        chance = self.acceptance
        if chance is None:
            before = self.rates[number - 1] if number else 1.0
            chance = self.rates[number] / before if before else 0.0
        stream = Stream(stream_key(self.seed, f"speculative/{job.name}"), counter=place)
        return stream.uniform() < chance

    def verify(self, job: Job, tokens: int, *, void: bool) -> int:
        """Tokens that a decode gains by computing a number of tokens; ``void``: its drafts are only padding."""
        accepted = 0
        while not void and accepted < tokens - 1 and self.is_guessed(job, job.generated + accepted, accepted):
            accepted += 1
        self.drafted.append((tokens - 1, accepted))
        gained = min(accepted + 1, job.wanted - job.generated)
        self.gained += gained
        self.latest.append((job, tokens - 1, accepted, gained))
        return gained

    def drafting_us(self, plan: Plan) -> int:
        """The time that drafting adds to a step."""
        drafts = [job for job, tokens in plan.tokens.items() if not job.prefilling and tokens > 1]
        return self.most * self.token_us if drafts else 0

    def books(self) -> tuple[int, ...]:
        """The counters that the engine has, too."""
        runs = [accepted for drafted, accepted in self.drafted if drafted]
        drafted = sum(drafted for drafted, _ in self.drafted)
        return (drafted, len(self.drafted), self.gained, *(runs.count(length) for length in range(self.most + 1)))
