"""The naive encoder: every media item, the requests that need it, and its fate when results are known."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from blis_tui.engine.request import RequestState

if TYPE_CHECKING:
    from blis_tui.engine.latency.model import Chunk, StepLoad, StepTimeModel
    from blis_tui.engine.request import Request
    from blis_tui.model import Pool as PoolSpec

    from .instance import Job


class Item(NamedTuple):
    """A media item in a prompt, and what it is."""

    start: int
    end: int
    content: tuple[tuple[str, int], int]


def items_of(request: Request) -> list[Item]:
    """Images, audio and video after the shared head, or at the start of the prompt if they do not fit there.

    Two items are the same if they begin with the same token and have the same length.
    """
    head = [(name, place) for name, length in request.segments for place in range(length)]
    names = head + [(f"request {request.index}", place) for place in range(request.input_tokens - len(head))]
    start = len(head) if len(head) + sum(request.media) <= request.input_tokens else 0
    items = []
    for tokens in request.media:
        if tokens:
            items.append(Item(start, start + tokens, (names[start], tokens)))
            start += tokens
    return items


class Short(NamedTuple):
    """What an item lacks, how much it needs, and how much there was."""

    what: str
    need: int
    had: int


@dataclass(eq=False)
class Entry:
    """An item in the cache."""

    tokens: int
    needed_by: set[tuple[Job, int]] = field(default_factory=set)
    """Requests, with the numbers of their items."""
    since: int = 0
    """When it was last needed, if it is not needed now."""

    def who(self) -> set[Job]:
        return {job for job, _ in self.needed_by}


class EncoderCache:
    """vLLM's encoder cache and budget."""

    def __init__(self, spec: PoolSpec, *, latest: bool, ahead: bool) -> None:
        assert spec.engine.encoder is not None
        engine, keys = spec.engine, spec.engine.encoder
        usual = max(engine.max_num_batched_tokens, keys.max_tokens_per_mm_item)
        self.budget = keys.max_num_encoder_input_tokens or usual
        self.size = keys.encoder_cache_size or usual
        self.whole = keys.disable_chunked_mm_input
        self.step = engine.max_num_batched_tokens
        self.latest = latest
        self.ahead = ahead
        self.left = 0
        self.there: dict[tuple[tuple[str, int], int], Entry] = {}
        self.time = 0
        self.results: list[tuple[int, list[Job]]] = []
        """Steps with unknown results: when they end, and their requests."""
        self.sampled: dict[Job, list[tuple[int, int]]] = {}
        """Tokens being sampled: the step, and their number."""
        self.trial: tuple[list[int], list[int], int] = ([], [], 0)
        self.planned: dict[Job, int] = {}
        self.costs: dict[Job, int] = {}
        """Encoding cost of each request in a plan that has not been carried out."""
        self.finds: dict[Job, int] = {}
        self.short: Short | None = None
        self.waits: dict[Job, int] = {}
        self.encoded = self.found = self.evicted = self.holds = self.held_us = 0
        self.found_now = 0

    def books(self) -> tuple[int, ...]:
        return (self.encoded, self.found, self.evicted, self.holds, self.held_us)

    def too_large(self, request: Request) -> str:
        for item in items_of(request):
            tokens = item.end - item.start
            for key, limit in (("max_num_encoder_input_tokens", self.budget), ("encoder_cache_size", self.size)):
                if tokens > limit:
                    return f"media of {tokens} tokens, the encoder's {key} is {limit}"
            if self.whole and tokens > self.step:
                return f"media of {tokens} tokens are not split, max_num_batched_tokens is {self.step}"
        return ""

    def begin(self, now: int) -> None:
        """Begin a plan with the results that are known by now."""
        self.left = self.budget
        self.planned = {}
        while self.results and self.results[0][0] <= now:
            end, jobs = self.results.pop(0)
            for job in jobs:
                late = [gained for when, gained in self.sampled.get(job, []) if when >= end] if self.ahead else []
                for number, item in enumerate(items_of(job.request)):
                    if item.end <= job.computed - sum(late):
                        self.free(job, number)
                gone = job.state is RequestState.COMPLETED and job.completed_us <= end
                if gone or (job.state is RequestState.CREATED and job.parted):
                    self.free_all(job)

    def ran(self, end: int, jobs: list[Job]) -> None:
        """Note a step and its end."""
        self.results.append((end, jobs))

    def samples(self, job: Job, end: int, tokens: int) -> None:
        self.sampled.setdefault(job, []).append((end, tokens))

    def free_all(self, job: Job) -> None:
        for number in range(len(items_of(job.request))):
            self.free(job, number)

    def free(self, job: Job, number: int) -> None:
        entry = self.there.get(items_of(job.request)[number].content)
        if entry is None or (job, number) not in entry.needed_by:
            return
        entry.needed_by.remove((job, number))
        if not entry.needed_by:
            self.time += 1
            entry.since = self.time

    def drop(self, job: Job) -> None:
        """A request does not run or does not fit: release its items and return their budget."""
        self.free_all(job)
        self.left += self.planned.pop(job, 0)
        self.sampled.pop(job, None)

    def forget(self, job: Job) -> None:
        self.drop(job)
        self.waits.pop(job, None)

    def room(self) -> int:
        return self.size - sum(entry.tokens for entry in self.there.values())

    def fit(self, job: Job, computed: int, tokens: int, now: int) -> int:
        """How many of these tokens can be computed."""
        self.short = None
        encoded: list[int] = []
        again: list[int] = []
        items = items_of(job.request)
        taken = self.found_now = 0
        last = computed + tokens
        for number, item in enumerate(items):
            size = item.end - item.start
            if tokens <= 0 or item.end <= computed or item.start >= last:
                continue
            if self.whole and last < item.end and (computed < item.start or (self.latest and computed == item.start)):
                self.short = Short("whole", size, last - item.start)
                tokens = item.start - computed
                break
            if any(items[other].content == item.content for other in encoded):
                again.append(number)
                continue
            entry = self.there.get(item.content)
            if entry is not None:
                self.found_now += size if (job, number) not in entry.needed_by else 0
                entry.needed_by.add((job, number))
                continue
            idle = [one for one in self.there.values() if not one.needed_by]
            if size > self.left - taken:
                self.short = Short("budget", size, self.left - taken)
            elif size + taken > self.room() + sum(one.tokens for one in idle):
                self.short = Short("cache", size, self.room() + sum(one.tokens for one in idle) - taken)
            if self.short is not None:
                tokens = max(0, item.start - computed)
                break
            while size + taken > self.room():
                oldest = min((name for name, one in self.there.items() if not one.needed_by), key=self._since)
                del self.there[oldest]
                self.evicted += 1
            taken += size
            encoded.append(number)
        self.trial = (encoded, again, self.left - taken)
        if tokens == 0 and self.short is not None:
            self._wait(job, now)
        return tokens

    def _since(self, name: tuple[tuple[str, int], int]) -> int:
        return self.there[name].since

    def _wait(self, job: Job, now: int) -> None:
        if job not in self.waits:
            self.waits[job] = now
            self.holds += 1

    def take(self, job: Job, now: int) -> None:
        """Plan to compute the tokens that fit."""
        encoded, again, left = self.trial
        items = items_of(job.request)
        if self.short is not None:
            self._wait(job, now)
        elif job in self.waits:
            self.held_us += now - self.waits.pop(job)
        tokens = 0
        for number in encoded:
            item = items[number]
            tokens += item.end - item.start
            self.there[item.content] = Entry(item.end - item.start, {(job, number)})
        for number in again:
            self.there[items[number].content].needed_by.add((job, number))
        if encoded:
            self.left = left
            self.planned[job] = tokens
        self.costs[job] = tokens
        self.finds[job] = self.found_now + sum(items[number].end - items[number].start for number in again)

    def wipe(self) -> None:
        """Empty the cache."""
        for one in (self.there, self.results, self.sampled, self.planned, self.costs, self.finds, self.waits):
            one.clear()


class WithEncoder:
    """A step-time model plus encoder time, which an item takes with the first of its tokens in a prefill."""

    def __init__(self, model: StepTimeModel, token_us: float, *, scheduled: bool) -> None:
        self.model = model
        self.token_us = token_us
        self.scheduled = scheduled
        self.output_token_overhead_us = model.output_token_overhead_us
        self.post_decode_overhead_us = model.post_decode_overhead_us

    def step_time_us(self, load: StepLoad) -> int:
        tokens = sum(chunk.encoded if self.scheduled else _first_of(chunk) for chunk in load.chunks)
        return self.model.step_time_us(load) + int(self.token_us * tokens)

    def queueing_time_us(self, request: Request) -> int:
        return self.model.queueing_time_us(request)


def _first_of(chunk: Chunk) -> int:
    """Tokens of the items whose first computed token is in this chunk."""
    begun = chunk.cached if chunk.cached == chunk.computed else 0
    tokens = 0
    for item in items_of(chunk.request):
        wanted = [place for place in range(item.start, item.end) if place >= begun]
        if wanted and chunk.computed <= wanted[0] < chunk.computed + chunk.new:
            tokens += item.end - item.start
    return tokens
