"""What a step works on, the answer of a batch-formation rule; what belongs to it beside that, and what comes of it."""

from __future__ import annotations

from collections.abc import Sequence  # noqa: TC003  (compiled, named tuples are made of what annotations say)
from typing import TYPE_CHECKING, Final

from blis_tui.classes import NamedTuple, mypyc_attr
from blis_tui.engine.request import Request  # noqa: TC001  (as above)
from blis_tui.engine.stopped import PREEMPTED, TOKENS, Stopped
from blis_tui.kept import Kept

if TYPE_CHECKING:
    from blis_tui.engine.latency.model import Chunk
    from blis_tui.engine.preemption.restore import Costs


class Preemption(NamedTuple):
    """A request that lost its KV blocks; a running one returns to the queue."""

    victim: Request
    beneficiary: Request
    lost_tokens: int
    lost_blocks: int


class Outranked(NamedTuple):
    """A running request that is put back for a more urgent one."""

    victim: Request
    beneficiary: Request
    threshold: int
    """By more than this their priorities differ."""


class Retraction(NamedTuple):
    """Why running requests are put back, and what is expected of answers from then on."""

    retracted: int
    kept: int
    needed_blocks: int
    """For the next tokens of all."""
    free_blocks: int
    """That could be had for them."""
    ratio_before: float
    ratio: float
    """Share of their declared answers that running requests are expected to generate."""


class Restored(NamedTuple):
    """What becomes of a victim's KV blocks, where they may be swapped out."""

    victim: Request
    swapped: bool
    """To the host; else it is computed again."""
    blocks: int
    """Its KV blocks with content."""
    costs: Costs


class SwappedIn(NamedTuple):
    """A request whose KV blocks come back from the host."""

    request: Request
    tokens: int
    blocks: int
    """Those moved; it found the others on the GPU."""
    transfer_us: int


class Reloaded(NamedTuple):
    """Blocks of a request's prompt that come back from tiers."""

    request: Request
    blocks: int
    sources: tuple[tuple[str, int], ...]
    """How many from which tier."""
    thrashing: int
    """Those that had only just gone."""
    transfer_us: int


class Ghost(NamedTuple):
    """A decode that a step computes for a request that has left since the step was planned: nothing comes of it."""

    request: Request
    tokens: int
    """That it computes."""
    context_tokens: int
    """Computed before the step."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Plan(Kept):
    """One step, while it is planned. Granted tokens take blocks from the pool at once.

    Attributes:
        threshold: the ``long_prefill_token_threshold`` of this step; 0 = off.
        chunks: prefill chunks, in the order in which they were granted.
        admitted: requests taken from the queue, in order.
        instant: those of them whose whole prompt was cached, so their prefill needs no chunk.
        preempted: requests put back, in order.
        stopped: where and why it stopped admitting; None = it admitted all, or gives no reason.
        decodes: whether the decode cohort takes part.
        reloaded: what comes back from tiers.
        loaded_us: when all of that is there, if it is loaded concurrently with steps.
        restored: how the preempted requests come back, if they may be swapped out.
        swapped_in: those of ``admitted`` whose KV blocks come back from the host.
        transfer_us: duration of the KV transfers that belong to this step.
        outranked: those of ``preempted`` that gave way to a more urgent request, in order.
        retraction: why the others were preempted, if the rule says so; otherwise None.
        ghosts: decodes of requests that have left; chunks of such requests stay in ``chunks``.
    """

    __slots__ = (
        "admitted",
        "chunks",
        "decodes",
        "ghosts",
        "instant",
        "loaded_us",
        "outranked",
        "preempted",
        "reloaded",
        "restored",
        "retraction",
        "stopped",
        "swapped_in",
        "threshold",
        "transfer_us",
    )

    def __init__(self, threshold: int = 0) -> None:
        self.threshold = threshold
        self.chunks: list[Chunk] = []
        self.admitted: list[Request] = []
        self.instant: list[Request] = []
        self.preempted: list[Preemption] = []
        self.reloaded: list[Reloaded] = []
        self.loaded_us = 0
        self.restored: list[Restored] = []
        self.swapped_in: list[SwappedIn] = []
        self.transfer_us = 0
        self.outranked: tuple[Outranked, ...] = ()
        self.retraction: Retraction | None = None
        self.stopped: Stopped | None = None
        self.decodes = True
        self.ghosts: list[Ghost] = []

    def stop_untried(self) -> None:
        """Running requests are served, and the queue is not looked at: one was preempted, or no token is left."""
        self.stopped = Stopped(PREEMPTED) if self.preempted else Stopped(TOKENS, 1)

    def follow(self, idle: Plan) -> None:
        """What a plan before it preempted that is no step of its own belongs to this one."""
        self.preempted[:0] = idle.preempted
        self.outranked = idle.outranked + self.outranked
        self.transfer_us += idle.transfer_us

    @property
    def computes_nothing(self) -> bool:
        """Whether, decodes apart, a step without effect would come of it."""
        return not (self.chunks or self.instant or self.preempted or self.ghosts)


NO_PLAN: Final = Plan()
"""Of no step; it stays as it is."""


class Planned(NamedTuple):
    """A step that has been planned and has not started."""

    plan: Plan | None
    """None = a plain decode."""
    epoch: int
    """Of the block pool, after planning."""

    @property
    def computes_nothing(self) -> bool:
        """Whether there is nothing in it to compute, decodes of the cohort apart."""
        return self.plan is None or not (self.plan.chunks or self.plan.ghosts)

    def after(self, idle: Plan) -> Planned:
        """The same step, with what a plan before it preempted that is no step of its own."""
        plan = Plan() if self.plan is None else self.plan
        plan.follow(idle)
        return self._replace(plan=plan)


class Done(NamedTuple):
    """What came of a step's plan. Times in microseconds."""

    start_us: int
    duration_us: int
    decode_requests: int
    decode_context_tokens: int
    """Their contexts before the step, summed."""
    first_tokens: list[Request]
    """Who had the first token in it, in running order."""
    finishing: list[Request]
    """Who had the last one."""
    answering: Sequence[Request]
    """Whose answer began in it, behind the reasoning if there was any, in running order."""


@mypyc_attr(allow_interpreted_subclasses=True)
class StepPart(Kept):
    """Something that steps wait for, or that has something to tell of them; by default nothing of the kind."""

    __slots__ = ()

    def begin_plan(self, now: int) -> None:
        """A step is to be planned."""

    def lasting_us(self, plan: Plan, now: int, duration_us: int) -> int:  # noqa: ARG002  (what it is by default)
        """How long the step of a plan is under way that starts now and would otherwise take so long."""
        return duration_us

    def tell(self, done: Done) -> None:
        """There are subscribers: tell what there is to tell of a step."""
