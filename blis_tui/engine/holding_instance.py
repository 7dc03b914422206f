"""An instance whose requests keep their slot and their blocks until the step that computes their last token is over."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.engine.instance import Instance

if TYPE_CHECKING:
    from blis_tui.engine.request import Request


class HoldingInstance(Instance):
    """One that plans further steps before that one is over."""

    __slots__ = ()

    def leave(self, request: Request, now: int) -> None:
        """The client of a completed request has its whole answer."""
        self._release(request)
        super().leave(request, now)

    def hand_over(self, request: Request, now: int) -> None:
        """The step is over that computed a prompt for another instance."""
        self._release(request)
        super().hand_over(request, now)

    def abandon(self) -> None:
        """Stop in the middle of everything: its requests have been taken out."""
        self._release_all()
        super().abandon()

    def _vacate(self, request: Request, end: int) -> None:
        """It keeps its slot and its blocks until the step is over."""
        watch, handover = self.seen.watch, request.handover
        if watch is not None and watch.early_transfers and handover is not None and not handover.prefilled:
            super()._vacate(request, end)  # it is on its way to another instance already
        else:
            self.batch.ending[request.batch_slot] = request

    def _release(self, request: Request) -> None:
        if self.batch.ending.get(request.batch_slot) is request:
            self.batch.release_ending(request)

    def _release_all(self) -> None:
        for request in list(self.batch.ending.values()):
            self.batch.release_ending(request)
