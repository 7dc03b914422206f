"""Long ways through a run, a little at a time: the caller sets the pace."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Final

from blis_tui.classes import dataclass

if TYPE_CHECKING:
    from blis_tui.conditions.breakpoints import Hit

SLICE: Final = 64
"""Events between two looks at whether to go on: a tenth of a millisecond, a few under memory pressure."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a move is. ``goal``: the event it goes to, None when it is not known how far that is."""

    event: int
    time_us: int
    goal: int | None


@dataclass(frozen=True, slots=True)
class Stop:
    """How a move ended.

    ``reason``: ``there`` (where it was meant to go), ``breakpoint`` (with ``hits``), ``end`` (of the run), ``start``,
    ``failed`` (the simulation cannot go on), ``unknown`` (the run ended without what was looked for).
    """

    reason: str
    hits: tuple[Hit, ...] = ()


Move = Generator[Progress, None, Stop]
"""A long way: each ``next`` goes a little further, and the caller may stop at any time."""


def run_to_stop(move: Move) -> Stop:
    """Drive a move to its end at once."""
    while True:
        try:
            next(move)
        except StopIteration as end:
            stop = end.value
            if not isinstance(stop, Stop):
                raise TypeError(f"a move ends in a stop, not in {stop!r}") from None
            return stop
