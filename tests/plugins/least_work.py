"""An order of the queue in a script: the least work first, as far as clients declared it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from blis_tui.plugins import SCHEDULING, SortedQueue, setting

if TYPE_CHECKING:
    from blis_tui.plugins import Request


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Of this order."""

    output_token_worth: int = setting("Prompt tokens that one output token outweighs.", default=20, minimum=0)


@SCHEDULING.plugin("least-work", "Least work first: prompt, and the declared output tokens.", Settings)
def least_work(settings: Settings) -> SortedQueue:
    """Return the queue; the function that it sorts by must pickle, so it is none inside another."""
    return SortedQueue(partial(_work, settings.output_token_worth), "The request with the least work goes first")


def _work(worth: int, request: Request) -> int:
    """Prompt tokens, and the budget of output tokens; a gateway would not know ``request.output_tokens`` either."""
    return request.input_tokens + worth * request.max_output_tokens
