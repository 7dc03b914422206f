"""What others see of an instance: its requests in flight and running, and the KV blocks in use.

Others learn the results of a step when it ends or, if the cluster shows results early, when it starts. Until then,
requests that have left the batch still count.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from blis_tui.classes import mypyc_attr
from blis_tui.pickling import Picklable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.engine.batch import Batch
    from blis_tui.engine.request import Request


@mypyc_attr(allow_interpreted_subclasses=True)
class ObservedInstance(Picklable):
    """An instance as seen from outside.

    Attributes:
        in_flight: requests that the router sent here and that have not ended.
        present: those of them in its queue and batch.
        stays_us: sum of departure times minus sum of arrival times. Adding ``present * now`` gives the number present,
            integrated over time.
        watch: receives what happens to requests here; None = nobody does.
    """

    __slots__ = ("_batch", "_leaving", "in_flight", "present", "stays_us", "watch")

    def __init__(self, batch: Batch) -> None:
        self.in_flight = 0
        self.present = 0
        self.stays_us = 0
        self.watch: Watch | None = None
        self._batch = batch
        self._leaving: dict[tuple[int, bool], int] = {}
        """Blocks that are free but still count as in use: by request, and whether its prompt was handed over."""

    @property
    def running(self) -> int:
        """Number of requests in its batch; without early results, requests count until the end of their last step."""
        batch = self._batch
        early = self.watch is not None and self.watch.early
        return len(batch.running) if early else self.present - len(batch.waiting.items)

    @property
    def served(self) -> int:
        """Number of requests in its queue and batch whose clients have not given up."""
        early = self.watch is not None and self.watch.early
        return self._batch.live if early else self.present - len(self._batch.given_up)

    @property
    def kv_used(self) -> int:
        """Number of blocks in use, at most the total: blocks that still count may have been allocated again."""
        pool = self._batch.pool
        total = pool.total
        used = total - pool.free
        if self._leaving:
            for blocks in self._leaving.values():
                used += blocks
            if used > total:
                used = total
        return used

    def present_us(self, now: int) -> int:
        """The number of requests in queue and batch, integrated over time until ``now``."""
        return self.stays_us + self.present * now

    def depart(self, request: Request) -> None:
        """Stop counting a request as in flight."""
        self.in_flight -= 1
        if self.watch is not None:
            self.watch.departed.append(request)

    def note_slot_freed(self, request: Request, blocks: int, *, handed_over: bool = False) -> None:
        """Record that a request left the batch and its blocks are free; others see it now, or at the step's end."""
        watch = self.watch
        if watch is None:
            return
        if watch.early:
            self.depart(request)
        else:
            self._leaving[request.index, handed_over] = blocks

    def note_place_free(self, now: int) -> None:
        """Record that a request left queue or batch without a result."""
        self.present -= 1
        self.stays_us += now

    def leave(self, request: Request, now: int, handed_over: bool = False) -> None:
        """Record the end of the step in which a request left the batch."""
        self.present -= 1
        self.stays_us += now
        watch = self.watch
        if watch is None:
            self.in_flight -= 1
        elif not watch.early:
            del self._leaving[request.index, handed_over]
            self.depart(request)


# What instances report to the control plane about their requests.


@mypyc_attr(allow_interpreted_subclasses=True)
class Watch(Picklable):
    """Where instances report to the control plane; without it they report nothing.

    Attributes:
        early: whether a step's results are seen from its start on.
        early_transfers: whether the transfer of KV blocks starts with the step that completes the prefill.
        departed: requests that no longer count, until the control plane takes note of them.
        prefilled: requests whose prompt has been computed for another instance, until the control plane takes note.
        touched: the board's list of instances to which something has happened.
    """

    __slots__ = ("departed", "early", "early_transfers", "prefilled", "touched")

    def __init__(self, *, early: bool, early_transfers: bool = False, touched: dict[int, None] | None = None) -> None:
        self.touched: dict[int, None] = {} if touched is None else touched
        self.early = early
        self.early_transfers = early_transfers
        self.departed: list[Request] = []
        self.prefilled: list[Request] = []


# The engine reports each request to a ledger once, at the end of its life.


class Ledger(Protocol):
    """Keeps what is known about requests after the engine has discarded them."""

    def close(self, request: Request, ttft_us: int = -1, e2e_us: int = -1) -> None:
        """Record ``request``, which has reached a terminal state: all its fields are final.

        ``ttft_us`` and ``e2e_us`` are what its client measured; -1 if there was no first or last token.
        """

    @property
    def contradictions(self) -> Sequence[str]:
        """Describe requests whose times contradict each other."""

    def __len__(self) -> int:
        """Number of requests that have ended."""

    def fingerprint(self) -> str:
        """Return a digest of all books; two ledgers with the same digest agree on everything."""
