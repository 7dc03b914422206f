"""Priority scheduling of SGLang: who waits may take the place of running requests that are less urgent.

Source: SGLang 0.5.23, ``managers/schedule_policy.py`` (``PrefillAdder.preempt_to_schedule``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.engine.batching.sglang_prefill import MOST_NEW_TOKENS

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable

    from blis_tui.engine.request import Request


class Priorities:
    """What SGLang knows of the requests of an instance when it asks whom one of them may preempt.

    Args:
        threshold: by how much the priorities have to differ, and by at least one more, for a request to be preempted.
        sign: 1: the smallest priority goes first; -1: the largest.
    """

    def __init__(self, threshold: int, sign: int) -> None:
        self.threshold = threshold
        self._sign = sign
        self._turns: dict[int, int] = {}
        self._needs: dict[int, int] = {}
        self._counted: dict[int, int] = {}

    def refuse(self, request: Request, tokens: int) -> None:
        """It was looked at, and stays in the queue; ``tokens`` of it had to be computed."""
        self._needs[request.index] = tokens

    def admit(self, request: Request, turn: int) -> None:
        """It has left the queue, into which it came at that turn."""
        self._turns[request.index] = turn
        self._needs.pop(request.index, None)

    def mix(self, request: Request, tokens: int) -> None:
        """It generates beside a prefill, and has so many tokens by then: SGLang counts them."""
        self._counted[request.index] = tokens

    def put_back(self, request: Request) -> None:
        """It goes back to the queue; what it has generated since SGLang counted its tokens is not among these."""
        self._turns.pop(request.index, None)
        self._needs[request.index] = self._counted.pop(request.index, request.target_tokens)

    def forget(self, request: Request) -> None:
        """It has left."""
        self._turns.pop(request.index, None)
        self._needs.pop(request.index, None)
        self._counted.pop(request.index, None)

    def keep(self, running: Container[int], waiting: Container[object]) -> None:
        """All others have left, by their index."""
        self._turns = {index: turn for index, turn in self._turns.items() if index in running}
        self._counted = {index: tokens for index, tokens in self._counted.items() if index in running}
        self._needs = {index: tokens for index, tokens in self._needs.items() if index in waiting}

    def outranked(
        self, request: Request, running: Iterable[Request], total: float, expected: Callable[[Request], float]
    ) -> set[int]:
        """Whom a waiting request preempts, by index: the least urgent first, of equals who entered the queue last.

        None, unless all that it needs can be had from them: the tokens it had to compute when it was looked at last (0
        if it never was), and all that it declares.

        Args:
            request: the one that waits.
            running: who may have to go.
            total: tokens for which there is room, now and later.
            expected: tokens that a running request is expected to generate yet.
        """
        missing = self._needs.get(request.index, 0) + min(request.max_output_tokens, MOST_NEW_TOKENS) - total
        chosen: set[int] = set()
        for one in sorted(running, key=self._least_urgent, reverse=True):
            if (one.priority - request.priority) * self._sign <= self.threshold:
                break
            chosen.add(one.index)
            missing -= expected(one)
            if missing <= 0:
                return chosen
        return set()

    def _least_urgent(self, request: Request) -> tuple[int, int]:
        return (request.priority * self._sign, self._turns[request.index])

    def state(self) -> tuple[object, ...]:
        """All it remembers, as plain values (for digests)."""
        return (list(self._turns.items()), list(self._needs.items()), list(self._counted.items()))
