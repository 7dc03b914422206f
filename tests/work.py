"""Amount of work, independent of the machine: a count instead of a time."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from _typeshed import TraceFunction


def lines(action: Callable[[], object]) -> int:
    """How many lines of Python a call executes, with lines in loops counted each time.

    Loops in C (copying lists, sorting) do not count: they are a hundred times as fast.
    """
    count = 0

    def line(_frame: FrameType, event: str, _argument: object) -> TraceFunction:
        nonlocal count
        count += event == "line"
        return line

    before = sys.gettrace()
    sys.settrace(line)
    try:
        action()
    finally:
        sys.settrace(before)
    return count
