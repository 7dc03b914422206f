"""Where the admissions of a step stopped, and why: what batching rules report, and the words for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import NamedTuple, dataclass
from blis_tui.engine.records import Description, Record

if TYPE_CHECKING:
    from blis_tui.engine.records import Observers
    from blis_tui.engine.request import Request

PREEMPTED: Final = "preempted"
"""The step preempts a request, and such a step admits none."""
OUTRANKED: Final = "outranked"
"""Requests that were preempted by priority wait for the next step."""
MAX_NUM_SEQS: Final = "seqs"
"""No place is left within ``max_num_seqs``. Amounts are places."""
TOKENS: Final = "tokens"
"""Too little is left of the token budget for the next prompt, or for any token of it. Amounts are tokens."""
PROMPTS: Final = "prompts"
"""Too little is left of the step's prompt budget (SGLang's ``max_prefill_tokens``). Amounts are tokens."""
BLOCKS: Final = "blocks"
"""The request needs more KV blocks than are free, counting cached blocks of its prompt that no other request holds.
Amounts are blocks."""
WATERMARK: Final = "watermark"
"""The request would fit if no KV blocks had to stay free. Amounts are blocks."""
ANSWERS: Final = "answers"
"""The KV blocks of all prompts and whole declared answers, including running requests, do not fit. Amounts are
blocks."""
ROOM: Final = "room"
"""Too little room is left beside the output that running requests are expected to generate. Amounts are tokens."""
ADAPTER: Final = "adapter"
"""Its LoRA adapter is not loaded or has no slot."""
ENCODER: Final = "encoder"
"""Its next media item exceeds the encoder's remaining budget, or the room in its cache. Amounts are tokens."""
LATE: Final = "late"
"""The waiting requests were preempted with a step in flight, and may not be scheduled before that step is over."""
GATHERING: Final = "gathering"
"""Prompts wait for others to batch with. Amounts are steps: the most they wait, and those they have waited."""
CADENCE: Final = "cadence"
"""Prompts are computed every few steps only. Amounts are steps: the interval, and the number of this one in it."""
UNSEEN: Final = "unseen"
"""The scheduler has not looked for new requests yet (SGLang's ``scheduler_recv_interval``)."""
APART: Final = "apart"
"""The step computes prompts, and the next request, whose prompt was computed elsewhere, can only decode."""
CAUSES: Final = (
    PREEMPTED,
    OUTRANKED,
    MAX_NUM_SEQS,
    TOKENS,
    PROMPTS,
    BLOCKS,
    WATERMARK,
    ANSWERS,
    ROOM,
    ADAPTER,
    ENCODER,
    LATE,
    GATHERING,
    CADENCE,
    UNSEEN,
    APART,
)
"""The causes that built-in rules report; another rule may report any of them, or words of its own."""


class Stopped(NamedTuple):
    """Where a plan stopped admitting requests: ``need - had`` more would have let it go on."""

    cause: str
    """One of ``engine.stopped.CAUSES``, such as ``seqs``, ``tokens`` or ``blocks``; or a rule's own words."""
    need: int = 0
    """How much the next request needed of the scarce resource; 0 = the cause has no amount."""
    had: int = 0
    """How much of it was left."""
    request: Request | None = None
    """The request that was not admitted; None = the cause applies to all waiting ones."""
    kept: int = 0
    """Part of ``need``: KV blocks that have to stay free (watermark)."""
    tried_us: int = -1
    """When this was found, if before this plan; since then nothing has changed that would admit the request."""


@dataclass(frozen=True, slots=True)
class SchedulingStopped(Record):
    """The plan of a step left requests in the queue: where it stopped and why, as the batching rule reports.

    There is no record if the rule reports nothing. It belongs to the event in which the step was planned.
    """

    shown = Description(
        "scheduling-stopped",
        sign="⊣",
        colour="warning",
        meaning="a step was planned and left requests in the queue",
        sentence="instance {instance}, step {step:,}: no more requests were scheduled ({cause}: {need:,} needed,"
        " {had:,} left)",
        line="no more requests were scheduled",
        own_event=False,
        on_demand=True,
    )

    instance: int
    """Index of the instance."""
    step: int
    """The number of the step that was planned."""
    cause: str
    """A word of the batching rule; built-in rules use one of `engine.stopped.CAUSES`."""
    request_id: str
    """The request that was not admitted; empty = the cause applies to all waiting ones."""
    need: int
    """How much of the scarce resource was needed: places, tokens, KV blocks; 0 = the cause has no amount."""
    had: int
    """How much of it was left."""
    kept: int
    """Part of ``need``: KV blocks that have to stay free."""
    tried_us: int
    """When this was found: when the step was planned, or earlier if nothing has changed since."""


def emit_stopped(observers: Observers, index: int, step: int, now: int, stopped: Stopped) -> None:
    """Emit a SchedulingStopped record.

    Args:
        observers: receive the record.
        index: of the instance.
        step: number of the step that was planned.
        now: when it was planned.
        stopped: what its rule reported.

    Raises:
        TypeError: the rule, a plug-in, reported something else.
    """
    if not isinstance(stopped, Stopped):
        raise TypeError(f"plan.stopped is {stopped!r}, and not a Stopped")
    cause, need, had, request, kept, tried_us = stopped
    name = "" if request is None else request.request_id
    tried_us = now if tried_us < 0 else tried_us
    observers.emit(SchedulingStopped(observers.event, now, index, step, cause, name, need, had, kept, tried_us))


# Requests that wait for nothing, as they can never be served.

KV_BLOCKS: Final = "kv_blocks"
"""The limit is the size of the KV cache, whatever sets it."""


class Excess(NamedTuple):
    """A limit that a request exceeds, so that its instance can never serve it."""

    limit: str
    """The limit's key in ``engine``, such as ``max_model_len``, or ``KV_BLOCKS``."""
    reason: str
    """What the request asks for, and what the limit is, as the ``Dropped`` record says it."""
