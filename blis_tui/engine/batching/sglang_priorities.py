"""SGLang's priority scheduling: waiting requests may preempt running requests that are less urgent.

Source: SGLang 0.5.23, ``managers/schedule_policy.py`` (``PrefillAdder.preempt_to_schedule``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.engine.batching.sglang_prefill import MOST_NEW_TOKENS

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable

    from blis_tui.engine.request import Request


class Priorities:
    """What SGLang knows of an instance's requests when it chooses which ones a waiting request may preempt.

    Args:
        threshold: a running request is preempted only if the priorities differ by more than this.
        sign: 1: the smallest priority goes first; -1: the largest.
    """

    def __init__(self, threshold: int, sign: int) -> None:
        self.threshold = threshold
        self._sign = sign
        self._turns: dict[int, int] = {}
        self._needs: dict[int, int] = {}
        self._counted: dict[int, int] = {}

    def refuse(self, request: Request, tokens: int) -> None:
        """Record a request that was examined but stays in the queue; ``tokens`` of it had to be computed."""
        self._needs[request.index] = tokens

    def admit(self, request: Request, turn: int) -> None:
        """Record that a request has left the queue, which it entered at ``turn``."""
        self._turns[request.index] = turn
        self._needs.pop(request.index, None)

    def note_mixed(self, request: Request, tokens: int) -> None:
        """Record the tokens that a request decoding in a prefill step has by then, which SGLang counts."""
        self._counted[request.index] = tokens

    def put_back(self, request: Request) -> None:
        """Record that a request goes back to the queue; tokens generated since SGLang's last count are left out."""
        self._turns.pop(request.index, None)
        self._needs[request.index] = self._counted.pop(request.index, request.target_tokens)

    def forget(self, request: Request) -> None:
        """Forget a request that has left."""
        self._turns.pop(request.index, None)
        self._needs.pop(request.index, None)
        self._counted.pop(request.index, None)

    def keep(self, running: Container[int], waiting: Container[object]) -> None:
        """Forget all requests but these, given by index."""
        self._turns = {index: turn for index, turn in self._turns.items() if index in running}
        self._counted = {index: tokens for index, tokens in self._counted.items() if index in running}
        self._needs = {index: tokens for index, tokens in self._needs.items() if index in waiting}

    def outranked(
        self, request: Request, running: Iterable[Request], total: float, expected: Callable[[Request], float]
    ) -> set[int]:
        """Return which requests a waiting one preempts, by index: the least urgent first, then those queued last.

        The result is empty unless they can free all that the waiting request needs: the tokens it had to compute when
        it was last examined (0 if it never was), and its whole declared output.

        Args:
            request: the waiting request.
            running: possible victims.
            total: number of tokens for which there is room, now and later.
            expected: returns the tokens that a running request is still expected to generate.
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
        """Return everything it remembers, as plain values (for digests)."""
        return (list(self._turns.items()), list(self._needs.items()), list(self._counted.items()))
