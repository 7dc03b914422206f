"""Lets one long way at a time be gone in small pieces, so that keys are answered in between."""

from __future__ import annotations

from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from blis_tui.debugger.moves import Progress

_T = TypeVar("_T")


class Pump:
    """At most one move under way, and what to do when it is over.

    Attributes:
        label: what the move is, in a word or two; empty when none is under way.
        progress: where it last was.
    """

    def __init__(self, *, clock: Callable[[], float] = perf_counter) -> None:
        self.label = ""
        self.progress: Progress | None = None
        self._clock = clock
        self._move: Generator[Progress | None, None, Callable[[], None]] | None = None

    @property
    def busy(self) -> bool:
        """Whether a move is under way."""
        return self._move is not None

    def start(self, move: Generator[Progress | None, None, _T], label: str, then: Callable[[_T], None]) -> None:
        """Set out; another move is given up. ``then`` is called with how it ended.

        A move that yields None has nothing to do until it is driven the next time.
        """
        self.stop()
        self._move = _followed(move, then)
        self.label = label

    def stop(self) -> bool:
        """Give up the move, which stays where it has got to; returns whether there was one."""
        move = self._move
        self._move = None
        self.label = ""
        self.progress = None
        if move is not None:
            move.close()
        return move is not None

    def drive(self, seconds: float) -> None:
        """Go on for a while, until there is nothing to do at present, or to the end."""
        until = self._clock() + seconds
        while self._move is not None and self._clock() < until:
            try:
                progress = next(self._move)
                if progress is None:
                    return
                self.progress = progress
            except StopIteration as stop:
                self.stop()
                stop.value()
            except BaseException:
                self.stop()
                raise


def _followed(
    move: Generator[Progress | None, None, _T], then: Callable[[_T], None]
) -> Generator[Progress | None, None, Callable[[], None]]:
    return partial(then, (yield from move))
