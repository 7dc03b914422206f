"""Which drafted tokens are right."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Final

from blis_tui.engine.streams import Stream, stream_key

if TYPE_CHECKING:
    from blis_tui.engine.request import Request

_KEPT: Final = 4096
"""Requests whose guesses are kept; those of others are drawn again."""


class Luck:
    """Whether the drafter guesses a token of an answer, drawn for each request and each place in its answer.

    The stream ``speculative/<request id>`` has a number for each place. So a request has the same luck under any
    policy, on any instance, with any number of drafts, and when its answer is generated again.

    Args:
        seed: of the run.
        draft_tokens: tokens drafted at a time.
        acceptance: probability that a drafted token is accepted, if all before it are.
    """

    __slots__ = ("_acceptance", "_runs", "_seed", "draft_tokens")

    def __init__(self, seed: int, draft_tokens: int, acceptance: float) -> None:
        self._seed = seed
        self.draft_tokens = draft_tokens
        self._acceptance = acceptance
        self._runs: dict[int, bytes] = {}

    def __reduce__(self) -> tuple[type[Luck], tuple[int, int, float]]:
        return Luck, (self._seed, self.draft_tokens, self._acceptance)

    def runs(self, request: Request) -> bytes:
        """By the tokens generated so far: how many drafts are accepted, of as many as are ever drafted."""
        runs = self._runs.get(request.index)
        if runs is None:
            if len(self._runs) == _KEPT:
                del self._runs[next(iter(self._runs))]
            self._runs[request.index] = runs = self._drawn(request)
        return runs

    def _drawn(self, request: Request) -> bytes:
        most = self.draft_tokens
        stream = Stream(stream_key(self._seed, f"speculative/{request.request_id}"))
        below = ceil(self._acceptance * 2.0**53) << 11  # what ``uniform() < acceptance`` says of a word
        runs = bytearray()
        run = 0
        for word in reversed(stream.words(request.output_tokens + most)):
            run = run + 1 if word < below else 0
            runs.append(run if run < most else most)  # noqa: FURB136  (min() would cost more than all else here)
        runs.reverse()
        return bytes(runs)
