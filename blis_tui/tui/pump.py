"""Lets one long way at a time be gone in small pieces, so that keys are answered in between."""

from __future__ import annotations

from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from blis_tui.debugger.travel import Progress

_T = TypeVar("_T")


class Pump:
    """At most one travel under way, and what to do when it is over.

    Attributes:
        label: what the travel is, in a word or two; empty when none is under way.
        progress: where it last was.
    """

    def __init__(self, *, clock: Callable[[], float] = perf_counter) -> None:
        self.label = ""
        self.progress: Progress | None = None
        self._clock = clock
        self._travel: Generator[Progress | None, None, Callable[[], None]] | None = None

    @property
    def busy(self) -> bool:
        """Whether a travel is under way."""
        return self._travel is not None

    def start(self, travel: Generator[Progress | None, None, _T], label: str, then: Callable[[_T], None]) -> None:
        """Set out; another travel is given up. ``then`` is called with how it ended.

        A travel that yields None has nothing to do until it is driven the next time.
        """
        self.stop()
        self._travel = _followed(travel, then)
        self.label = label

    def stop(self) -> bool:
        """Give up the travel, which stays where it has got to; returns whether there was one."""
        travel = self._travel
        self._travel = None
        self.label = ""
        self.progress = None
        if travel is not None:
            travel.close()
        return travel is not None

    def drive(self, seconds: float) -> None:
        """Go on for a while, until there is nothing to do at present, or to the end."""
        until = self._clock() + seconds
        while self._travel is not None and self._clock() < until:
            try:
                progress = next(self._travel)
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
    travel: Generator[Progress | None, None, _T], then: Callable[[_T], None]
) -> Generator[Progress | None, None, Callable[[], None]]:
    return partial(then, (yield from travel))
