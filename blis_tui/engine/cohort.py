"""The decode cohort: every request of an instance that gets one token in each step, advanced together.

``clock`` counts the steps in which the cohort advanced. A member remembers the clock at which it joined, so its
progress is derived, never stored: ``context = computed at join + (clock - joined_clock)``. Both the clock at which a
member finishes (``calendar``) and the steps in which its context crosses a block boundary are known when it joins.
Members are therefore kept in ``block_size`` classes, and one advance needs new blocks for exactly one class. An
advance costs O(1), not O(members).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from blis_tui.base.classes import mypyc_attr
from blis_tui.base.pickling import Picklable

if TYPE_CHECKING:
    from blis_tui.engine.kv.pool import BlockPool
    from blis_tui.engine.latency.model import StepLoad
    from blis_tui.engine.request import Reasoning, Request


@mypyc_attr(allow_interpreted_subclasses=True)
class DecodeCohort(Picklable):
    """The requests of one instance that decode in lock-step.

    Attributes:
        clock: number of advances so far.
        load: the step load whose decode aggregates this cohort keeps.
        calendar: clock value -> members that get their last token then, by their index.
        soonest: lower bound on the calendar's keys, unless the clock, or the next advance, has reached it.
        answers: clock value -> members that have finished reasoning by then and get the first token of their answer.
        classes: ``classes[clock % block_size]`` are the members that need a block for the next advance, by batch slot.
            Dictionaries are created on first use; an empty class may share its dictionary with others.
        dues: number of members in each class.
        last_advance_us: when the latest advance ended.
        uneven: members by index whose last token is not that of the latest advance (they stalled, or joined from
            elsewhere, or after it), as of when they joined.
        drafted: draft tokens that the latest advance verified in addition to the due ones.
        ahead: 1 while the next advance is planned (members hold the blocks for it), else 0.
        hashed_ahead: number of tokens after a block that must be known before its content is recorded.
        maybe_finished: slot -> request whose last token is being computed, where that was not certain when the step was
            planned; plans treat it as continuing.
    """

    __slots__ = (
        "ahead",
        "answers",
        "block_size_tokens",
        "calendar",
        "classes",
        "clock",
        "drafted",
        "dues",
        "hashed_ahead",
        "last_advance_us",
        "load",
        "maybe_finished",
        "soonest",
        "uneven",
    )

    lockstep: ClassVar[bool] = True
    """Whether each advance is one token for each member."""

    def __init__(self, load: StepLoad, block_size_tokens: int) -> None:
        self.load = load
        self.block_size_tokens = block_size_tokens
        self.clock = 0
        self.calendar: dict[int, dict[int, Request]] = {}
        self.soonest = 0
        self.answers: dict[int, list[Request]] = {}
        self.classes: list[dict[int, Request]] = []
        self.dues: list[int] = []
        self.last_advance_us = -1
        self.uneven: dict[int, Request] = {}
        self.ahead = 0
        self.drafted = 0
        self.maybe_finished: dict[int, Request] = {}
        self.hashed_ahead = 0

    def join(self, request: Request, last_token_us: int) -> None:
        """Add a request whose ``computed_tokens`` and ``generated_tokens`` are exact and that is not finished."""
        clock = self.clock
        context = request.computed_tokens
        wanted = request.output_tokens
        if wanted > request.max_output_tokens:
            wanted = request.max_output_tokens
        finish = clock + wanted - request.generated_tokens
        request.joined_clock = clock
        request.joined_us = last_token_us
        request.finish_clock = finish
        if last_token_us != self.last_advance_us:
            self.uneven[request.index] = request
        calendar = self.calendar
        if finish in calendar:
            calendar[finish][request.index] = request
        else:
            calendar[finish] = {request.index: request}
            if finish < self.soonest:
                self.soonest = finish
        classes = self.classes
        if not classes:  # created lazily: a block may have thousands of tokens, and a cluster thousands of instances
            classes += [{}] * self.block_size_tokens
            self.dues += [0] * self.block_size_tokens
        number = (clock - context) % self.block_size_tokens
        if members := classes[number]:
            members[request.batch_slot] = request
        else:
            classes[number] = {request.batch_slot: request}
        self.dues[number] += 1
        load = self.load
        load.decode_requests += 1
        load.decode_context_tokens += context
        if request.reasoning is not None and (answer := self._answer_clock(request.reasoning, request)) > clock:
            self.answers.setdefault(answer, []).append(request)

    def leave(self, request: Request) -> None:
        """Remove a member before its end and write its derived progress back to it."""
        finishing = self.calendar[request.finish_clock]
        del finishing[request.index]
        if not finishing:
            del self.calendar[request.finish_clock]
        self.retire(request)

    def retire(self, request: Request) -> None:
        """Remove a member that the calendar no longer lists."""
        clock = self.clock
        joined = request.joined_clock
        reasoning = request.reasoning
        answer = 0 if reasoning is None else self._answer_clock(reasoning, request)
        size = self.block_size_tokens
        number = (joined - request.computed_tokens) % size
        del self.classes[number][request.batch_slot]
        self.dues[number] -= 1
        if joined != clock:
            request.joined_us = self.last_advance_us
            request.computed_tokens += clock - joined
            request.generated_tokens += clock - joined
        request.joined_clock = -1
        request.held_blocks = -(-(request.computed_tokens + self.ahead) // size)
        load = self.load
        load.decode_requests -= 1
        load.decode_context_tokens -= request.computed_tokens
        if answer > clock:
            self.answers[answer].remove(request)
            if not self.answers[answer]:
                del self.answers[answer]

    def forget(self, request: Request) -> None:
        """Forget a request that decodes no more or has lost its blocks: there is nothing to forget."""

    def content_tokens(self, request: Request, *, results: bool = True) -> int:  # noqa: ARG002  (all results are known)
        """Number of tokens with content in the cache, of a request that ends."""
        return request.computed_tokens

    def _answer_clock(self, reasoning: Reasoning, request: Request) -> int:
        """Clock at which a member gets the first token after its reasoning; 0 = it has it already, or never will."""
        if not reasoning.tokens:
            return 0
        answer = request.joined_clock + reasoning.tokens + 1 - request.generated_tokens
        return answer if answer <= request.finish_clock else 0

    def next_needs(self, threshold: int) -> tuple[int, int]:  # noqa: ARG002  (no member asks for more than one token)
        """Return the tokens and KV blocks that the next advance of all members needs."""
        return self.load.decode_requests, self.due_blocks() if self.load.decode_requests else 0

    def take(self, pool: BlockPool, blocks: int) -> None:
        """Take the KV blocks that all members need."""
        if blocks:
            pool.take(blocks)

    def width(self, request: Request) -> int:  # noqa: ARG002  (every member has the same width)
        """Number of tokens that one decode asks for."""
        return 1

    def due(self) -> dict[int, Request]:
        """Members that need one more block each before the next advance, by batch slot; there must be members."""
        return self.classes[self.clock % self.block_size_tokens]

    def due_blocks(self) -> int:
        """Number of blocks that the next advance needs."""
        return self.dues[self.clock % self.block_size_tokens]

    def due_within(self, advances: int) -> int:
        """Number of blocks that members need for ``advances`` further advances, not counting one already planned."""
        size, dues = self.block_size_tokens, self.dues
        first = (self.clock + self.ahead) % size
        if advances == 1:
            return dues[first]
        if first + advances <= size:
            return sum(dues[first : first + advances])
        rounds, rest = advances // size, advances % size  # (divmod() would cost seven times as much)
        blocks = rounds * self.load.decode_requests + sum(dues[first : first + rest])
        return blocks + sum(dues[: first + rest - size]) if first + rest > size else blocks

    def affordable_advances(self, blocks: int) -> int:
        """Number of advances that ``blocks`` suffice for; must be small, as the loop counts one by one."""
        advances, size, dues = 0, self.block_size_tokens, self.dues
        first = self.clock + self.ahead
        while (blocks := blocks - dues[(first + advances) % size]) >= 0:
            advances += 1
        return advances

    def advance(self, now: int, duration_us: int, itl_us: dict[int, int]) -> list[Request] | None:
        """Give every member a token at ``now + duration_us``; return the members for which it was the last.

        ``itl_us`` counts tokens by the time since the request's previous token, usually the step's duration for all
        of them.
        """
        load = self.load
        count = load.decode_requests
        end = now + duration_us
        if self.last_advance_us == now and not self.uneven:
            if duration_us in itl_us:
                itl_us[duration_us] += count
            else:
                itl_us[duration_us] = count
        else:
            usual, others = end - self.last_advance_us, count
            for request in self.uneven.values():
                if request.joined_clock == self.clock:
                    gap = end - request.joined_us
                    itl_us[gap] = itl_us.get(gap, 0) + 1
                    others -= 1
            if others:
                itl_us[usual] = itl_us.get(usual, 0) + others
            self.uneven.clear()
        load.decode_context_tokens += count
        self.last_advance_us = end
        self.ahead = 0
        self.clock = clock = self.clock + 1
        return [*self.calendar.pop(clock).values()] if clock in self.calendar else None

    def last_token_us(self, request: Request) -> int:
        """Time of a member's latest token."""
        return request.joined_us if request.joined_clock == self.clock else self.last_advance_us

    def context_tokens(self, request: Request) -> int:
        """Number of computed tokens of a request, member or not."""
        joined = request.joined_clock
        return request.computed_tokens if joined < 0 else request.computed_tokens + self.clock - joined

    def generated_tokens(self, request: Request) -> int:
        """Number of output tokens of a request, member or not."""
        joined = request.joined_clock
        return request.generated_tokens if joined < 0 else request.generated_tokens + self.clock - joined

    def held_blocks(self, request: Request) -> int:
        """Number of KV blocks that a request holds, member or not."""
        if request.joined_clock < 0:
            return request.held_blocks
        return -(-(self.context_tokens(request) + self.ahead) // self.block_size_tokens)

    def members(self) -> list[Request]:
        """Return all members, in the order of their block classes (not of admission)."""
        return [request for members in self.classes for request in members.values()]
