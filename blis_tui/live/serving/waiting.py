"""Clients that wait for answers: what has come of each of their choices."""

from __future__ import annotations

import asyncio
from dataclasses import field
from typing import TYPE_CHECKING, Protocol

from blis_tui.base.classes import dataclass
from blis_tui.base.portable_math import whole_sum
from blis_tui.live.serving.api import Counts, Part

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.engine.request import Request
    from blis_tui.live.serving.core import RequestUpdate


class Spoken(Protocol):
    """What an answer says."""

    def piece(self, start: int, stop: int) -> tuple[str, Sequence[int]]:
        """Return the text and the tokens from ``start`` to ``stop``."""


@dataclass(slots=True)
class Choice:
    """One answer to one prompt, which is a request of its own.

    Attributes:
        number: its number among the choices of its client.
        request: the request.
        answer: what it says.
        finish: why it ends: ``length`` at the most tokens that it may have, otherwise ``stop``.
        news: what has happened since it was last looked at.
        tokens: how many of its tokens had come then.
        over: whether it had ended then.
    """

    number: int
    request: Request
    answer: Spoken
    finish: str
    news: RequestUpdate | None = None
    tokens: int = 0
    over: bool = False
    _finished: bool = False

    def grown(self) -> Part | None:
        """Return what has come since the last call; None = nothing."""
        if self.news is None:
            return None
        start, self.tokens = self.tokens, max(self.news.tokens, self.tokens)
        self.over, self.news = bool(self.news.end), None
        ends = not self._finished and (self.over or self.tokens >= self.request.output_tokens)
        self._finished = self._finished or ends
        return self._part(start, self.finish if ends else "") if ends or self.tokens > start else None

    def whole(self) -> Part:
        """Return all that has come."""
        return self._part(0, self.finish)

    def counts(self) -> Counts:
        """Return the tokens so far."""
        request = self.request
        return Counts(prompt=request.input_tokens, cached=request.cached_tokens, answer=self.tokens)

    def _part(self, start: int, finish: str) -> Part:
        text, ids = self.answer.piece(start, self.tokens)
        return Part(choice=self.number, text=text, ids=ids, counts=self.counts(), finish=finish)


@dataclass(slots=True)
class Client:
    """A client that waits for the choices of all of its prompts.

    Attributes:
        choices: all of them, by the number of their request.
        of_each: how many there are of each prompt.
        heard: set when there is news, or will be none.
    """

    choices: dict[int, Choice]
    of_each: int
    heard: asyncio.Event = field(default_factory=asyncio.Event)
    _told: dict[int, None] = field(default_factory=dict)

    def tell(self, news: RequestUpdate) -> None:
        """Deliver an update; several about a choice are one."""
        self.choices[news.number].news = news
        self._told[news.number] = None
        self.heard.set()

    async def wait(self) -> None:
        """Wait until an update comes, or none will."""
        self.heard.clear()
        if not self._told:
            await self.heard.wait()

    def changed(self) -> list[Choice]:
        """Return the choices with news since the last call, in order of the news."""
        told, self._told = self._told, {}
        return [self.choices[number] for number in told]

    @property
    def over(self) -> bool:
        """Whether all choices have ended."""
        return all(choice.over for choice in self.choices.values())

    def whole(self) -> list[Part]:
        """Return all that has come."""
        return [choice.whole() for choice in self.choices.values()]

    def total(self) -> Counts:
        """Return the tokens of all answers, and those of each prompt once; cached as its first choice found them."""
        counts = [choice.counts() for choice in self.choices.values()]
        return Counts(
            prompt=whole_sum([one.prompt for one in counts[:: self.of_each]]),
            cached=whole_sum([one.cached for one in counts[:: self.of_each]]),
            answer=whole_sum([one.answer for one in counts]),
        )
