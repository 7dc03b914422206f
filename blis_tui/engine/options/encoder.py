"""The encoder of one instance as vLLM schedules it, and the media of prompts, item by item.

The encoder of one instance as vLLM schedules it: a token budget for each step, and a cache of its outputs.

Source: vLLM 0.32.0, ``v1/core/sched/scheduler.py`` (``_try_schedule_encoder_inputs``, ``_free_encoder_inputs``) and
``v1/core/encoder_cache_manager.py``; where 0.33 differs, 0.33.0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import NamedTuple
from blis_tui.base.portable_math import whole_sum
from blis_tui.engine.plan import NO_PLAN, StepPart
from blis_tui.engine.records import MediaEncoded, MediaHeld
from blis_tui.engine.request import COMPLETED, NO_MEDIA, RUNNING, WAITING, MediaItem, declared_segments
from blis_tui.engine.stopped import Excess

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from blis_tui.engine.cohort import DecodeCohort
    from blis_tui.engine.latency.model import Chunk
    from blis_tui.engine.plan import Done, Plan
    from blis_tui.engine.profile import Limits
    from blis_tui.engine.records import Observers
    from blis_tui.engine.request import Request
    from blis_tui.engine.rules.traits import EngineBehavior
    from blis_tui.model import Encoder as EncoderKeys


def items_of(request: Request) -> tuple[MediaItem, ...]:
    """Return the media items of a prompt, by position.

    If the workload gives only token counts, as traces do, each modality is one item. The items follow the shared head
    of the prompt, before its text, or start the prompt if they do not fit there. Such an item equals another one if it
    covers the same part of the same segment.
    """
    media = request.media
    if not request.media_items and media.tokens:
        head = whole_sum([tokens for _, tokens in declared_segments(request)])
        place = head if head + media.tokens <= request.input_tokens else 0
        items: list[MediaItem] = []
        for tokens in media:
            if tokens:
                items.append(MediaItem(place, tokens, content_at(request, place, tokens)))
                place += tokens
        request.media_items = tuple(items)
    return request.media_items


def content_at(request: Request, place: int, length: int) -> str:
    """Name the content of ``length`` tokens at a position; prompts with the same segment there get the same name."""
    start = 0
    for name, tokens in declared_segments(request):
        if place < start + tokens:
            return f"{name}@{place - start}+{length}"
        start += tokens
    return f"{request.request_id}@{place}+{length}"


BUDGET: Final = "budget"
CACHE: Final = "cache"
WHOLE: Final = "whole"


class Shortage(NamedTuple):
    """The resource that a media item lacked."""

    reason: str
    need: int
    had: int


class _Fit(NamedTuple):
    """What the encoder does for a chunk of a prompt."""

    encoded: Sequence[int]
    """Numbers of the items to encode."""
    again: Sequence[int]
    """Items with the same content as one of these."""
    budget: int
    """The step's budget left after that."""
    found_tokens: int
    """Tokens of items that were in the cache."""


class _MediaStep(NamedTuple):
    """A step with media: its end, and its requests with their place in the batch."""

    end_us: int
    requests: Sequence[tuple[int, Request]]


_NOTHING: Final = _Fit((), (), 0, 0)


class Encoder(StepPart):
    """Decides which media items are encoded in which step.

    An item is encoded whole, in the step that computes its first token, if the step's budget and the cache have room.
    Otherwise the prompt is computed up to the item. An encoder output stays in the cache while a request needs it,
    which is until the item's tokens are computed, and after that until room is needed. Unneeded outputs are evicted in
    the order in which they became unneeded.

    Args:
        keys: its budget per step, its cache size, and whether the tokens of an item may be computed in several steps.
        limits: the limits of a step.
        traits: whether an item's tokens may be split when a step begins with the item (not in vLLM 0.33), and whether a
            step is planned before the tokens of the previous one are known.
        observers: receive its records.
        index: of the instance.
        decodes: the decoding requests, if steps are planned ahead in a pipeline; otherwise None.

    Attributes:
        lack: why the latest chunk was cut; None = it was not.
        encoded_tokens: total media tokens encoded. The following counts are totals, too.
        cached_tokens: media tokens that were in the cache when a prompt reached them.
        evicted_items: items evicted from the cache.
        holds: requests that had to wait, once for each wait.
        held_us: how long they waited, if they went on.
    """

    def __init__(
        self,
        keys: EncoderKeys,
        limits: Limits,
        traits: EngineBehavior,
        observers: Observers,
        index: int,
        decodes: DecodeCohort | None = None,
    ) -> None:
        tokens = max(limits.max_num_batched_tokens, keys.max_tokens_per_mm_item)
        self._budget_tokens = self._budget = keys.max_num_encoder_input_tokens or tokens
        self._cache_tokens = self._room = keys.encoder_cache_size or tokens
        self._step_tokens = limits.max_num_batched_tokens
        self._observers = observers
        self._index = index
        self._whole = keys.disable_chunked_mm_input
        self._strictly = traits.whole_media_strictly
        self._ahead = traits.plans_ahead or decodes is not None
        self._decodes = decodes
        self._due: dict[int, int] = {}
        """In a pipeline, for requests in ``_late``: when the first step that continues after the prompt is over."""
        self._now = 0
        self.lack: Shortage | None = None
        self.encoded_tokens = self.cached_tokens = self.evicted_items = self.holds = self.held_us = 0
        self._needed_by: dict[str, dict[int, None]] = {}
        """Cached content -> the requests that need it, by their index."""
        self._freeable: dict[str, int] = {}
        """Content that no request needs -> its tokens, in the order in which it became unneeded."""
        self._needed: dict[int, dict[int, None]] = {}
        """Request -> numbers of its items that it needs in the cache."""
        self._held_us: dict[int, int] = {}
        """Request -> since when it waits for the encoder."""
        self._fit = _NOTHING
        self._fits: dict[int, int] = {}
        """Request -> media tokens that the plan encodes for it."""
        self._over: list[_MediaStep] = []
        self._late: list[tuple[int, int, Request]] = []
        """End of a step, batch slot and request, where an item at the end of the prompt is needed until the next step
        is over."""
        self._plan: Plan = NO_PLAN

    # ---- planning ----

    def begin_plan(self, now: int) -> None:
        """Prepare for the planning of a step: free what requests whose steps are over no longer need."""
        self._now = now
        self._budget = self._budget_tokens
        self._fits = {}
        if self._decodes is not None:
            self._free_in_pipeline(self._decodes, now)
            return
        while self._over and self._over[0].end_us <= now:
            end_us, requests = self._over.pop(0)
            late, self._late = self._late, []
            before = [(slot, request) for end, slot, request in late if end < end_us]
            self._late = [entry for entry in late if entry[0] >= end_us]
            for slot, request in sorted([*before, *requests], key=_place):
                self._free_computed(request, slot, end_us, ended=(slot, request) in before)
        late, self._late = self._late, [entry for entry in self._late if entry[0] >= now]
        for end_us, slot, request in late:
            if end_us < now:
                self._free_computed(request, slot, end_us, ended=True)

    def _free_in_pipeline(self, decodes: DecodeCohort, now: int) -> None:
        """Do the same in a pipeline, where other batches may end before the next one of a request."""
        while self._over and self._over[0].end_us <= now:
            end_us, requests = self._over.pop(0)
            for slot, request in sorted(requests, key=_place):
                self._free_computed(request, slot, end_us, ended=False)
        late, self._late = self._late, []
        for end_us, slot, request in late:
            index = request.index
            if request.state is COMPLETED:
                self._due.setdefault(index, request.completed_us)
            elif request.state is not RUNNING or request.batch_slot != slot:
                self._due.pop(index, None)
                continue  # preempted or gone, so it needs nothing
            elif index not in self._due and (next_us := decodes.last_token_us(request)) > end_us:
                self._due[index] = next_us
            if self._due.get(index, now + 1) > now:
                self._late.append((end_us, slot, request))
            else:
                del self._due[index]
                self._free_computed(request, slot, end_us, ended=True)

    def _free_computed(self, request: Request, slot: int, end_us: int, *, ended: bool) -> None:
        """Free what a request has computed in a step that is over.

        Where plans run ahead of results, the last token of a prompt counts as computed when the next token is known.
        """
        last = not any(other is request for over in self._over for _, other in over.requests)
        runs = request.state is RUNNING or request.state is WAITING
        if last and not runs and request.completed_us <= self._now:
            self.release(request)
            return
        items, waits = items_of(request), False
        for number in sorted(self._needed.get(request.index, ())):
            end = items[number].offset + items[number].tokens
            if end > request.computed_tokens:
                continue
            if self._ahead and not ended and end == request.target_tokens:
                waits = True
            else:
                self._free(request, number)
        if waits and last:
            self._late.append((end_us, slot, request))

    def has_media(self, requests: Mapping[int, Request]) -> bool:
        """Whether any of these requests has media."""
        return any(request.media != NO_MEDIA for request in requests.values())

    def has_pending_media(self, request: Request) -> bool:
        """Whether the encoder cache matters for the admission of this request."""
        return request.media != NO_MEDIA

    def fit(self, request: Request, computed: int, tokens: int) -> int:
        """Return how many of ``tokens`` tokens after the computed ones the encoder allows.

        The request needs its cached media from now on. The caller must then call ``take`` or ``release``.
        """
        self.lack, self._fit = None, _NOTHING
        if request.media == NO_MEDIA or not tokens:
            return tokens
        items = items_of(request)
        encoded: list[int] = []
        again: list[int] = []
        contents: dict[str, None] = {}
        taken = cached = 0
        end = computed + tokens
        for number, (offset, length, content) in enumerate(items):
            if offset + length <= computed:
                continue
            if offset >= end:
                break
            begins = computed <= offset if self._strictly else computed < offset
            if self._whole and begins and end < offset + length:
                self.lack = Shortage(WHOLE, length, end - offset)
                tokens = offset - computed
                break
            if content in contents:
                again.append(number)
                continue
            if content in self._needed_by:
                cached += 0 if number in self._needed.get(request.index, ()) else length
                self._mark_needed(request, number, content)
                continue
            if not self._make_room(length, self._budget - taken, taken):
                tokens = max(0, offset - computed)
                break
            taken += length
            contents[content] = None
            encoded.append(number)
        self._fit = _Fit(encoded, again, self._budget - taken, cached)
        if not tokens and self.lack is not None:
            self._hold(request, self.lack)
        return tokens

    def _make_room(self, tokens: int, budget: int, taken: int) -> bool:
        """Whether an item can be encoded in addition to the chunk's items so far; if so, make room in the cache."""
        if tokens > budget:
            self.lack = Shortage(BUDGET, tokens, budget)
            return False
        need, freeable = tokens + taken, 0
        if need <= self._room:
            return True
        freeable += whole_sum(self._freeable.values())
        if need > self._room + freeable:
            self.lack = Shortage(CACHE, tokens, self._room + freeable - taken)
            return False
        while need > self._room:
            oldest = next(iter(self._freeable))
            self._room += self._freeable.pop(oldest)
            del self._needed_by[oldest]
            self.evicted_items += 1
        return True

    def take(self, request: Request, chunk: Chunk) -> None:
        """Commit the latest ``fit``: its chunk is part of the plan."""
        encoded, again, budget, cached = self._fit
        if self.lack is not None:
            self._hold(request, self.lack)
        elif request.index in self._held_us:
            self.held_us += self._now - self._held_us.pop(request.index)
        items, tokens = items_of(request), 0
        for number in encoded:
            item = items[number]
            self._needed_by[item.content] = {}
            self._room -= item.tokens
            tokens += item.tokens
            self._mark_needed(request, number, item.content)
        for number in again:
            cached += items[number].tokens
            self._mark_needed(request, number, items[number].content)
        if encoded:
            self._budget = budget
            self._fits[request.index] = tokens
        chunk.encoded, chunk.found = tokens, cached
        self._fit = _NOTHING

    def release(self, request: Request) -> None:
        """Release a request's media in the cache, and cancel what a plan was to encode for it."""
        for number in sorted(self._needed.get(request.index, ())):
            self._free(request, number)
        self._budget += self._fits.pop(request.index, 0)

    def interrupted(self, request: Request) -> None:
        """Release the media of a request that is about to lose its blocks."""
        self.release(request)

    def unqueued(self, request: Request) -> None:
        """Forget a request that no longer waits."""
        self._forget(request)

    def taken_out(self, request: Request) -> None:
        """Forget a request that no longer runs."""
        self._forget(request)

    def _forget(self, request: Request) -> None:
        """Forget a request that has left."""
        self.release(request)
        self._held_us.pop(request.index, None)

    def _mark_needed(self, request: Request, number: int, content: str) -> None:
        self._freeable.pop(content, None)
        self._needed_by[content][request.index] = None
        self._needed.setdefault(request.index, {})[number] = None

    def _free(self, request: Request, number: int) -> None:
        """Release one item of a request, and its content unless another of its items is the same."""
        needed, items = self._needed[request.index], items_of(request)
        del needed[number]
        _, tokens, content = items[number]
        if any(items[other].content == content for other in needed):
            return
        if not needed:
            del self._needed[request.index]
        holders = self._needed_by[content]
        del holders[request.index]
        if not holders:
            self._freeable[content] = tokens

    def _hold(self, request: Request, lack: Shortage) -> None:
        if request.index in self._held_us:
            return
        self._held_us[request.index] = self._now
        self.holds += 1
        self._observers.tell(MediaHeld, self._now, request.request_id, self._index, *lack)

    # ---- execution ----

    def lasting_us(self, plan: Plan, now: int, duration_us: int) -> int:
        """Return the unchanged duration; count the step's media, and free them when it is over."""
        self._plan = plan
        requests: list[tuple[int, Request]] = []
        for chunk in plan.chunks:
            request = chunk.request
            self.encoded_tokens += chunk.encoded
            self.cached_tokens += chunk.found
            if request.media != NO_MEDIA:
                requests.append((request.batch_slot, request))
        if requests:
            self._over.append(_MediaStep(now + duration_us, requests))
        return duration_us

    def tell(self, done: Done) -> None:
        """Emit which media a step computed."""
        observers = self._observers
        if MediaEncoded in observers.kinds:
            for chunk in self._plan.chunks:
                if chunk.encoded or chunk.found:
                    who = chunk.request.request_id, self._index
                    observers.emit(MediaEncoded(observers.event, done.start_us, *who, chunk.encoded, chunk.found))
        self._plan = NO_PLAN

    def reset(self) -> None:
        """Reset everything; the instance is gone and all requests have been taken out."""
        self._needed_by, self._freeable, self._needed, self._held_us = {}, {}, {}, {}
        self._over, self._late, self._fits, self._due = [], [], {}, {}
        self._fit, self._plan, self._room = _NOTHING, NO_PLAN, self._cache_tokens

    # ---- queries ----

    def too_large(self, request: Request) -> Excess | None:
        """Return why the media of a request can never be encoded, or None if they can."""
        for _, tokens, _ in items_of(request):
            for limit, name in (
                (self._budget_tokens, "max_num_encoder_input_tokens"),
                (self._cache_tokens, "encoder_cache_size"),
            ):
                if tokens > limit:
                    return Excess(name, f"media of {tokens} tokens, the encoder's {name} is {limit}")
            if self._whole and tokens > self._step_tokens:
                name = "max_num_batched_tokens"
                return Excess(name, f"media of {tokens} tokens are not split, {name} is {self._step_tokens}")
        return None

    def state(self) -> tuple[object, ...]:
        """Return the whole state as plain values (for digests)."""
        return (
            self._room,
            tuple((content, tuple(requests)) for content, requests in self._needed_by.items()),
            tuple(self._freeable),
            _numbers(self._needed),
            tuple(self._held_us.items()),
            tuple((end, tuple(slot for slot, _ in requests)) for end, requests in self._over),
            tuple(
                (end, slot, *([self._due[request.index]] if request.index in self._due else ()))
                for end, slot, request in self._late
            ),
            *self.books(),
        )

    def books(self) -> tuple[int, ...]:
        """Return all counters."""
        return (self.encoded_tokens, self.cached_tokens, self.evicted_items, self.holds, self.held_us)

    def audit(self) -> str:
        """Check the books; return what is wrong, or an empty string."""
        if self._room < 0:
            return f"the encoder's cache holds {-self._room} tokens too many"
        free = [content for content, requests in self._needed_by.items() if not requests]
        if sorted(free) != sorted(self._freeable):
            return f"no request needs {free} of the encoder's cache, the books have {[*self._freeable]}"
        return ""


def _place(entry: tuple[int, Request]) -> int:
    return entry[0]


def _numbers(needed: Mapping[int, Mapping[int, None]]) -> tuple[tuple[int, tuple[int, ...]], ...]:
    return tuple((request, tuple(numbers)) for request, numbers in needed.items())
