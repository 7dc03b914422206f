"""The orders in which an instance's queue is served.

Priorities: lower is more urgent (vLLM's convention).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.engine.scheduling.queue import SCHEDULING, FcfsQueue, SortedQueue

if TYPE_CHECKING:
    from blis_tui.engine.request import Request
    from blis_tui.engine.scheduling.queue import WaitingQueue
    from blis_tui.registry import NoSettings


@SCHEDULING.plugin("fcfs", "First come, first served.")
def fcfs(settings: NoSettings) -> WaitingQueue:
    """First come, first served."""
    del settings
    return FcfsQueue()


@SCHEDULING.plugin("priority-fcfs", "Highest priority first, then first come.")
def priority_fcfs(settings: NoSettings) -> WaitingQueue:
    """Sort by priority, then by arrival."""
    del settings
    return SortedQueue(_by_priority, "The most urgent request goes first, then the oldest")


@SCHEDULING.plugin("sjf", "Shortest prompt first.")
def sjf(settings: NoSettings) -> WaitingQueue:
    """Sort by the length of the prompt, then by arrival."""
    del settings
    return SortedQueue(_by_length, "The shortest prompt goes first")


@SCHEDULING.plugin("reverse-priority", "Lowest priority first: a deliberately bad baseline.", of_blis=True)
def reverse_priority(settings: NoSettings) -> WaitingQueue:
    """Sort by priority, the least urgent first, then by arrival."""
    del settings
    return SortedQueue(_by_reversed_priority, "The least urgent request goes first, then the oldest")


def _by_priority(request: Request) -> int:
    return request.priority


def _by_reversed_priority(request: Request) -> int:
    return -request.priority


def _by_length(request: Request) -> int:
    return request.input_tokens
