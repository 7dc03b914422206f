"""A closed loop: users who send their next prompt when the answer to the last one is complete.

So the load follows the cluster: slower answers, fewer requests. This is how ``vllm bench serve --max-concurrency`` and
GuideLLM's concurrent profile load a server. Clients with other arrivals may stand beside such users.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.classes import dataclass
from blis_tui.registry import setting
from blis_tui.workload.arrivals import ARRIVALS, CLOSED_LOOP

if TYPE_CHECKING:
    from blis_tui.engine.streams import Stream


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedLoopSettings:
    """Of a closed loop."""

    users: int = setting(
        "Users; all send their first prompt at the start, and the next one when the answer is complete.",
        default=1,
        minimum=1,
        maximum=1_000_000,
        examples=(64,),
    )


@ARRIVALS.plugin(
    CLOSED_LOOP, "Users who each send the next prompt when the answer to the last is complete.", ClosedLoopSettings
)
class ClosedLoop:
    """So many users.

    Attributes:
        users: how many.
    """

    __slots__ = ("users",)

    def __init__(self, settings: ClosedLoopSettings, mean_us: float) -> None:
        del mean_us  # the rate is what the cluster makes it
        self.users = settings.users

    def sample(self, stream: Stream) -> int:  # noqa: ARG002  (one signature for all)
        """From the end of an answer to the user's next prompt, in microseconds: nothing."""
        return 0
