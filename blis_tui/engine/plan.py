"""The plan of a step, which a batch-formation rule returns; what belongs to a plan, and its outcome."""

from __future__ import annotations

from collections.abc import Sequence  # noqa: TC003  (mypyc evaluates annotations of named tuples)
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import NamedTuple, mypyc_attr
from blis_tui.base.pickling import Picklable
from blis_tui.engine.request import Request  # noqa: TC001  (as above)
from blis_tui.engine.stopped import PREEMPTED, TOKENS, Stopped

if TYPE_CHECKING:
    from blis_tui.engine.latency.model import Chunk
    from blis_tui.engine.restore import Costs


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
    """The difference in priority must exceed this."""


class Retraction(NamedTuple):
    """Why running requests are put back, and the output that is expected of requests from then on."""

    retracted: int
    kept: int
    needed_blocks: int
    """KV blocks for the next tokens of all running requests."""
    free_blocks: int
    """KV blocks that could be had for them."""
    ratio_before: float
    ratio: float
    """Share of their declared answers that running requests are expected to generate."""


class Restored(NamedTuple):
    """How a victim comes back, where KV blocks may be swapped out."""

    victim: Request
    swapped: bool
    """Whether its blocks are swapped to the host; otherwise it is recomputed."""
    blocks: int
    """Its KV blocks with content."""
    costs: Costs


class SwappedIn(NamedTuple):
    """A request whose KV blocks come back from the host."""

    request: Request
    tokens: int
    blocks: int
    """Blocks that were moved; the others were still on the GPU."""
    transfer_us: int


class Reloaded(NamedTuple):
    """Blocks of a request's prompt that come back from tiers."""

    request: Request
    blocks: int
    sources: tuple[tuple[str, int], ...]
    """Number of blocks by tier; those of a shared one that others have stored are counted apart."""
    thrashing: int
    """Blocks that had been evicted only recently."""
    transfer_us: int


class DiscardedTokens(NamedTuple):
    """A decode for a request that has left since the step was planned; its result is discarded."""

    request: Request
    tokens: int
    """Tokens that it computes."""
    context_tokens: int
    """Tokens computed before the step."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Plan(Picklable):
    """One step, while it is planned. Granted tokens take blocks from the pool at once.

    Attributes:
        threshold: the ``long_prefill_token_threshold`` of this step; 0 = off.
        chunks: prefill chunks, in the order in which they were granted.
        admitted: requests taken from the queue, in order.
        instant: those of them whose whole prompt was cached, so their prefill needs no chunk.
        preempted: requests put back, in order.
        stopped: where and why it stopped admitting; None = it admitted all, or the rule gives no reason.
        decodes: whether the decode cohort takes part.
        reloaded: content that comes back from tiers.
        loaded_us: when all of that is there, if it is loaded concurrently with steps.
        restored: how the preempted requests come back, if they may be swapped out.
        swapped_in: those of ``admitted`` whose KV blocks come back from the host.
        transfer_us: duration of the KV transfers that belong to this step.
        outranked: those of ``preempted`` that gave way to a more urgent request, in order.
        retraction: why the other requests were preempted, if the rule says so; otherwise None.
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
        self.reloaded: tuple[Reloaded, ...] = ()
        self.loaded_us = 0
        self.restored: tuple[Restored, ...] = ()
        self.swapped_in: tuple[SwappedIn, ...] = ()
        self.transfer_us = 0
        self.outranked: tuple[Outranked, ...] = ()
        self.retraction: Retraction | None = None
        self.stopped: Stopped | None = None
        self.decodes = True
        self.ghosts: list[DiscardedTokens] = []

    def stop_untried(self) -> None:
        """Record that the queue was not examined, because a request was preempted or no token is left."""
        self.stopped = Stopped(PREEMPTED) if self.preempted else Stopped(TOKENS, 1)

    def follow(self, idle: Plan) -> None:
        """Take over the preemptions of ``idle``, an earlier plan that became no step."""
        self.preempted[:0] = idle.preempted
        self.outranked = idle.outranked + self.outranked
        self.transfer_us += idle.transfer_us

    @property
    def computes_nothing(self) -> bool:
        """Whether the plan, decodes apart, would make a step without effect."""
        return not (self.chunks or self.instant or self.preempted or self.ghosts)


NO_PLAN: Final = Plan()
"""The plan of no step; never modified."""


class Planned(NamedTuple):
    """A step that has been planned and has not started."""

    plan: Plan | None
    """None = a plain decode."""
    epoch: int
    """The block pool's epoch after planning."""

    @property
    def computes_nothing(self) -> bool:
        """Whether it has nothing to compute, decodes of the cohort apart."""
        return self.plan is None or not (self.plan.chunks or self.plan.ghosts)

    def after(self, idle: Plan) -> Planned:
        """Return this step with the preemptions of ``idle``, an earlier plan that became no step."""
        plan = Plan() if self.plan is None else self.plan
        plan.follow(idle)
        return self._replace(plan=plan)


class Done(NamedTuple):
    """The outcome of a step's plan. Times in microseconds."""

    start_us: int
    duration_us: int
    decode_requests: int
    decode_context_tokens: int
    """The sum of their contexts before the step."""
    first_tokens: list[Request]
    """Requests that got their first token in it, in running order."""
    finishing: list[Request]
    """Requests that got their last token in it."""
    answering: Sequence[Request]
    """Requests whose answer (after any reasoning) began in it, in running order."""


@mypyc_attr(allow_interpreted_subclasses=True)
class StepPart(Picklable):
    """Something that extends steps or emits records about them; the defaults do nothing."""

    def begin_plan(self, now: int) -> None:
        """Prepare for the planning of a step."""

    def lasting_us(self, plan: Plan, now: int, duration_us: int) -> int:  # noqa: ARG002  (the default ignores them)
        """Return how long a step starting now takes, given that it would otherwise take ``duration_us``."""
        return duration_us

    def tell(self, done: Done) -> None:
        """Emit records about a step; called only if there are subscribers."""

    # ---- what becomes of a request, for the parts that a batch lists ----

    def entered(self, request: Request) -> None:
        """Note that a waiting request runs."""

    def interrupted(self, request: Request) -> None:
        """Note that a running request is about to lose its blocks."""

    def left(self, request: Request) -> None:
        """Note that a request no longer runs: it has its last token, or waits again."""

    def unqueued(self, request: Request) -> None:
        """Note that a waiting request has left without a result."""

    def taken_out(self, request: Request) -> None:
        """Note that a running request has left without a result."""

    def reset(self) -> None:
        """Reset everything; the instance is gone and all requests have been taken out."""
