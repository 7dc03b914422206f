"""How SGLang admits requests to a prefill: four budgets, and priorities that preempt less urgent running requests.

Source: SGLang 0.5.23, ``managers/schedule_policy.py`` (``PrefillAdder``, ``preempt_to_schedule``) and
``mem_cache/prefill_budget.py``.
"""

from __future__ import annotations

from enum import Enum
from math import ceil
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import NamedTuple
from blis_tui.base.portable_math import whole_sum
from blis_tui.engine.stopped import PROMPTS, ROOM, TOKENS, Stopped

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Container, Iterable

    from blis_tui.engine.cohort import DecodeCohort
    from blis_tui.engine.request import Request
    from blis_tui.engine.sglang.radix_pool import RadixPool


MOST_NEW_TOKENS: Final = 4096
"""Cap on the expected output of a request (``SGLANG_CLIP_MAX_NEW_TOKENS_ESTIMATION``)."""
_OUTPUT: Final = attrgetter("max_output_tokens")
_SPARE_TOKENS: Final = 1
"""Tokens reserved per decoding request where all output lengths are known (``IGNORE_EOS_RESERVE_TOKENS``)."""


class Verdict(Enum):
    """The outcome for a candidate, or the state of the budgets after it."""

    GO_ON = "go on"
    NO_TOKEN = "no token"  # noqa: S105  (SGLang's name)
    OTHER = "other"


class PrefillEntry(NamedTuple):
    """What a prefill computes for a request."""

    request: Request
    computed: int
    """Tokens that are in the cache already."""
    new: int


class PrefillAdder:
    """One prefill batch while it is put together.

    Args:
        pool: the KV blocks.
        running: decoding requests, in order.
        cohort: knows how many tokens a request has generated.
        ratio: share of their declared output that requests are expected to generate.
        max_prefill_tokens: number of input tokens after which no further candidate is examined.
        chunk: number of tokens after which a prompt is split; None = never.
        beside: tokens that requests decode in the same step.

    Attributes:
        entries: what it computes, in order.
        chunked: the entry's request whose prompt continues later; None = there is none.
        stopped: reason for the latest verdict other than to go on.
        rest: tokens to compute of the latest candidate.
    """

    def __init__(
        self,
        pool: RadixPool,
        running: Collection[Request],
        cohort: DecodeCohort,
        *,
        ratio: float,
        max_prefill_tokens: int,
        chunk: int | None,
        beside: int,
    ) -> None:
        self._pool = pool
        self._page = pool.block_size_tokens
        self._running = running
        self._cohort = cohort
        self._ratio = ratio
        self._input = max_prefill_tokens - beside
        self._chunk = None if chunk is None else chunk - beside
        self.entries: list[PrefillEntry] = []
        self.chunked: Request | None = None
        self._current_offset = beside
        self._total_offset: float | None = None
        """What the total budget is less than the free room; None = nobody has asked yet: see ``_lacks``."""
        self._taken: list[int] = [beside]
        """What has been deducted until then besides expected output."""
        self._most_offset = beside + whole_sum(map(_OUTPUT, running))
        """More than the offset can be, until then."""
        self._to_come: list[tuple[float, int]] | None = None
        self.stopped: Stopped | None = None
        self.rest = 0

    # ---- budgets ----

    def still_expected(self, request: Request) -> float:
        """Number of tokens that a running request is still expected to generate."""
        ratio = 1.0 if request.ignore_eos else self._ratio
        return min(request.max_output_tokens - self._cohort.generated_tokens(request), MOST_NEW_TOKENS) * ratio

    @property
    def total(self) -> float:
        """Remaining total budget: room for tokens now and later, less expected output of running requests."""
        if self._total_offset is None:
            self._total_offset = self._offset()
        return self._pool.free * self._page - self._total_offset

    def _offset(self) -> float:
        """Return the total offset, added up in SGLang's order, which determines its last bits."""
        expected: float = 0
        clock, most, ratio = self._cohort.clock, MOST_NEW_TOKENS, self._ratio
        for running in self._running:  # as `still_expected`, without its calls
            left = running.max_output_tokens - running.generated_tokens
            if (joined := running.joined_clock) >= 0:
                left -= clock - joined
            if left > most:
                left = most
            expected += left if running.ignore_eos else left * ratio
        offset = self._taken[0] + expected
        for tokens in self._taken[1:]:
            offset += tokens
        return offset

    def _lacks(self, tokens: int) -> bool:
        """Whether the total budget is no more than this; it need not be known if much more is free."""
        if self._total_offset is None and tokens < self._pool.free * self._page - self._most_offset:
            return False
        return not tokens < self.total

    def _deduct(self, tokens: int) -> None:
        """Deduct tokens from the total budget."""
        if self._total_offset is None:
            self._taken.append(tokens)
            self._most_offset += tokens
        else:
            self._total_offset += tokens

    @property
    def current(self) -> int:
        """Remaining current budget: room for tokens now."""
        return self._pool.free * self._page - self._current_offset

    def release_expected(self, request: Request) -> None:
        """Release the expected output of a running request that is put back."""
        if self._total_offset is None:
            self._total_offset = self._offset()
        self._total_offset -= self.still_expected(request)

    def state(self) -> Verdict:
        """Return whether the budgets allow a further candidate."""
        if self.current <= 0 or self._lacks(0):
            return self._no_room(1)
        if self._input <= 0 or (self._chunk is not None and self._chunk <= 0):
            self.stopped = Stopped(PROMPTS if self._input <= 0 else TOKENS, 1)
            return Verdict.OTHER
        return Verdict.GO_ON

    def _no_room(self, need: int, request: Request | None = None) -> Verdict:
        """Record that there is no room for ``need`` tokens."""
        self.stopped = Stopped(ROOM, need, max(0, min(ceil(self.total), self.current)), request)
        return Verdict.NO_TOKEN

    def _too_long(self, request: Request, need: int, had: int, cause: str = TOKENS) -> Verdict:
        """Record that the prompt exceeds what is left for prompts."""
        self.stopped = Stopped(cause, need, max(0, had), request)
        return Verdict.OTHER

    def _take(self, entry: PrefillEntry, answer: int) -> None:
        self.entries.append(entry)
        paged = self._page_aligned(entry.new)
        self._deduct(paged + self._page + answer)
        self._current_offset += paged + self._page
        self._input -= paged
        if self._chunk is not None:
            self._chunk -= paged

    def _page_aligned(self, tokens: int) -> int:
        return -(-tokens // self._page) * self._page

    # ---- candidates ----

    def go_on(self, request: Request) -> bool:
        """Continue a chunked prompt, whatever else is short; return whether more of it is left."""
        if self._chunk is None:
            return True
        most = min(self._chunk, int(self.total))
        if most <= 0:
            most = self._chunk
        rest = request.target_tokens - request.computed_tokens
        new = min(rest, most)
        self._take(PrefillEntry(request, request.computed_tokens, new), 0 if new < rest else _most(request))
        return new < rest

    def add(self, request: Request, *, known: bool) -> Verdict:
        """Examine a candidate; ``known``: there is no prefix caching, and no request stops early."""
        if known:
            return self._add_known(request)
        pool = self._pool
        hit, blocks = pool.match(request, request.target_tokens - 1)
        node, away = pool.split_hit(hit)
        pool.lock(request, node)
        entry = self._select(request, blocks, away)
        if away and isinstance(entry, PrefillEntry) and not pool.load_back(request, hit, away):
            entry = self._select(request, blocks - away, 0)  # host content is recomputed instead, if there is room
        if not isinstance(entry, PrefillEntry):
            pool.unlock(request)
            return entry
        whole = entry.computed + entry.new == request.target_tokens
        self._take(entry, _most(request) if whole else 0)
        if not whole:
            self.chunked = request
        return self.state()

    def _select(self, request: Request, blocks: int, away: int) -> PrefillEntry | Verdict:
        """Return what the candidate would compute after ``blocks`` cached blocks, or why it is not admitted.

        The cached blocks on the GPU are locked, so that they do not count as room. ``away``: number of the blocks that
        only the host has; they need room, too.
        """
        page = self._page
        start = blocks * page
        self.rest = rest = request.target_tokens - start
        left = min(max(_declared(request) - self._cohort.generated_tokens(request), 0), MOST_NEW_TOKENS)
        need = rest + away * page + left + page
        if self._lacks(need):
            return self._no_room(need + 1, request)
        if self._chunk is None:
            if self.entries and self._page_aligned(rest) >= self._input:
                return self._too_long(request, self._page_aligned(rest) + 1, self._input, PROMPTS)
        elif self._page_aligned(rest) > self._chunk:
            new = self._chunk // page * page
            new = (start + new) // page * page - start
            return PrefillEntry(request, start, new) if new > 0 else self._too_long(request, page, self._chunk)
        return PrefillEntry(request, start, rest)

    def _add_known(self, request: Request) -> Verdict:
        self.rest = rest = request.target_tokens
        need = self._page_aligned(rest) + self._page
        if need > min(self.current, self.total):
            return self._no_room(need, request)
        if not self._fits_until_end(request, self.current - need):
            self.stopped = Stopped(ROOM, request=request)
            return Verdict.NO_TOKEN
        if self._chunk is None or rest <= self._chunk:
            self._take(PrefillEntry(request, 0, rest), _most(request))
        elif self._chunk <= 0 or self.chunked is not None:
            # Part of the chunk is left after a prompt that was split at a block boundary. SGLang would split this
            # prompt, too, and take the first one for computed.
            return self._too_long(request, 1, self._chunk)
        else:
            self.chunked = request
            self._take(PrefillEntry(request, 0, self._chunk), 0)
        return self.state()

    def _fits_until_end(self, request: Request, room: float) -> bool:
        """Whether, at the end of each answer, there is room for what the others have generated by then."""
        to_come = self._to_come
        if to_come is None:
            requests = (request, *self._running, *(entry.request for entry in self.entries))
            to_come = self._to_come = sorted(filter(None, map(self._expected_output, requests)), key=_first)
        elif (course := self._expected_output(request)) is not None:
            place = next((at for at, other in enumerate(to_come) if course[0] <= other[0]), max(0, len(to_come) - 1))
            to_come.insert(place, course)
        freed = 0
        for at, (left, occupied) in enumerate(to_come):
            others = len(to_come) - at
            if room + freed - left * others <= _SPARE_TOKENS * others:
                return False
            freed += occupied
        return True

    def _expected_output(self, request: Request) -> tuple[float, int] | None:
        """Return a request's expected remaining output and its current tokens; None = no output is left."""
        ratio, generated = 1.0 if request.ignore_eos else self._ratio, self._cohort.generated_tokens(request)
        left = _declared(request) * ratio - generated
        return (left, request.input_tokens + generated) if left > 0 else None


def computes_only(request: Request) -> bool:
    """Whether only the prompt of a request is computed here, and its answer is generated elsewhere."""
    return request.handover is not None and not request.handover.prefilled


def _declared(request: Request) -> int:
    """Tokens that a request may generate here (``PrefillBootstrapQueue`` sets 1)."""
    handover = request.handover
    return request.max_output_tokens if handover is None or handover.prefilled else 1


def _most(request: Request) -> int:
    declared = request.max_output_tokens if request.handover is None else _declared(request)
    return min(declared, MOST_NEW_TOKENS)


def _first(course: tuple[float, int]) -> float:
    return course[0]


class Priorities:
    """What SGLang knows of an instance's requests when it chooses which ones a waiting request may preempt.

    Args:
        threshold: a running request is preempted only if the priorities differ by more than this.
        sign: 1: the smallest priority goes first; -1: the largest.
    """

    def __init__(self, threshold: int, sign: int) -> None:
        self.threshold = threshold
        self._sign = sign
        self._turns: dict[int, int] = {}
        self._needs: dict[int, int] = {}
        self._counted: dict[int, int] = {}

    def refuse(self, request: Request, tokens: int) -> None:
        """Record a request that was examined but stays in the queue; ``tokens`` of it had to be computed."""
        self._needs[request.index] = tokens

    def admit(self, request: Request, turn: int) -> None:
        """Record that a request has left the queue, which it entered at ``turn``."""
        self._turns[request.index] = turn
        self._needs.pop(request.index, None)

    def note_mixed(self, request: Request, tokens: int) -> None:
        """Record the tokens that a request decoding in a prefill step has by then, which SGLang counts."""
        self._counted[request.index] = tokens

    def put_back(self, request: Request) -> None:
        """Record that a request goes back to the queue; tokens generated since SGLang's last count are left out."""
        self._turns.pop(request.index, None)
        self._needs[request.index] = self._counted.pop(request.index, request.target_tokens)

    def forget(self, request: Request) -> None:
        """Forget a request that has left."""
        self._turns.pop(request.index, None)
        self._needs.pop(request.index, None)
        self._counted.pop(request.index, None)

    def keep(self, running: Container[int], waiting: Container[object]) -> None:
        """Forget all requests but these, given by index."""
        self._turns = {index: turn for index, turn in self._turns.items() if index in running}
        self._counted = {index: tokens for index, tokens in self._counted.items() if index in running}
        self._needs = {index: tokens for index, tokens in self._needs.items() if index in waiting}

    def outranked(
        self, request: Request, running: Iterable[Request], total: float, expected: Callable[[Request], float]
    ) -> set[int]:
        """Return which requests a waiting one preempts, by index: the least urgent first, then those queued last.

        The result is empty unless they can free all that the waiting request needs: the tokens it had to compute when
        it was last examined (0 if it never was), and its whole declared output.

        Args:
            request: the waiting request.
            running: possible victims.
            total: number of tokens for which there is room, now and later.
            expected: returns the tokens that a running request is still expected to generate.
        """
        missing = self._needs.get(request.index, 0) + min(request.max_output_tokens, MOST_NEW_TOKENS) - total
        chosen: set[int] = set()
        for candidate in sorted(running, key=self._least_urgent, reverse=True):
            if (candidate.priority - request.priority) * self._sign <= self.threshold:
                break
            chosen.add(candidate.index)
            missing -= expected(candidate)
            if missing <= 0:
                return chosen
        return set()

    def _least_urgent(self, request: Request) -> tuple[int, int]:
        return (request.priority * self._sign, self._turns[request.index])

    def state(self) -> tuple[object, ...]:
        """Return everything it remembers, as plain values (for digests)."""
        return (list(self._turns.items()), list(self._needs.items()), list(self._counted.items()))
