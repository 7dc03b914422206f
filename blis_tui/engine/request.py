"""One request: what it asks for, its progress, and what its client's connection adds to the times it measures.

While a request decodes, its progress is not stored here: the decode cohort of its instance derives it from a clock
(see ``engine.cohort``). The fields below are exact whenever the request is outside a cohort.
"""

from __future__ import annotations

from enum import IntEnum
from operator import add, attrgetter
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import NamedTuple, mypyc_attr
from blis_tui.base.pickling import Picklable

if TYPE_CHECKING:
    from blis_tui.engine.kv.extent import Piece

Segments = tuple[tuple[str, int], ...]
"""The shareable head of a prompt: ``(segment id, tokens)`` pairs; the rest of the prompt is unique to the request.

Under a LoRA adapter it begins with an empty segment that names the adapter, as the same tokens have other keys and
values.
"""


def under_adapter(adapter: str, segments: Segments) -> Segments:
    """Return the shareable head of a prompt as an adapter computes it."""
    return ((f"lora/{adapter}", 0), *segments) if adapter and segments else segments


class RequestState(IntEnum):
    """The state of a request in its life cycle (INV-2 allows only the transitions that ``invariants`` lists)."""

    CREATED = 0
    WAITING = 1
    RUNNING = 2
    COMPLETED = 3
    REJECTED = 4
    DROPPED_UNSERVABLE = 5
    TIMED_OUT = 6
    LOST = 7


# The states that every request passes through: reading them from the class takes twenty times as long.
CREATED: Final = RequestState.CREATED
WAITING: Final = RequestState.WAITING
RUNNING: Final = RequestState.RUNNING
COMPLETED: Final = RequestState.COMPLETED


def declared_segments(request: Request) -> Segments:
    """Return the shareable head of the prompt without the adapter's segment."""
    return request.segments[1:] if request.adapter else request.segments


_HANDOVER: Final = (
    "decode_instance",
    "first_token_overhead_us",
    "last_step_us",
    "prefill_instance",
    "prefilled",
    "transfer_start_us",
    "transfer_us",
)


@mypyc_attr(allow_interpreted_subclasses=True)
class Handover(Picklable):
    """State of a request whose prompt is computed on one instance and whose answer is generated on another.

    Attributes:
        prefilled: whether its prompt is computed; until then its instance must not generate beyond the first token.
        prefill_instance: the instance that computes the prompt; -1 = not known yet, as in all following fields.
        decode_instance: the instance that generates the answer.
        transfer_start_us: when the transfer of its KV blocks starts.
        transfer_us: duration of the transfer.
        last_step_us: duration of the step that completes its prefill.
        first_token_overhead_us: overhead that its client waits for the first token beyond the step that produced it.
    """

    __slots__ = _HANDOVER

    def __init__(self) -> None:
        self.prefilled = False
        self.prefill_instance = -1
        self.decode_instance = -1
        self.transfer_start_us = -1
        self.transfer_us = -1
        self.last_step_us = 0
        self.first_token_overhead_us = 0

    def state(self) -> tuple[object, ...]:
        """Return all fields as plain values (for digests)."""
        return tuple(getattr(self, name) for name in _HANDOVER)


def handover_of(request: Request) -> Handover:
    """Return the handover of a request that is served by two instances.

    Raises:
        TypeError: the request has none.
    """
    if request.handover is None:
        raise TypeError(f"{request!r} is served by one instance")
    return request.handover


@mypyc_attr(allow_interpreted_subclasses=True)
class Reasoning(Picklable):
    """The reasoning of a request before its answer.

    Attributes:
        tokens: how many of its output tokens are reasoning; they come first.
        first_answer_us: when the first token after them was produced; -1 = not yet.
        ttfat_us: its client's time to that token, the first of the answer itself; -1 = not yet.
    """

    __slots__ = ("first_answer_us", "tokens", "ttfat_us")

    def __init__(self, tokens: int) -> None:
        self.tokens = tokens
        self.first_answer_us = self.ttfat_us = -1

    def state(self) -> tuple[int, int, int]:
        """Return all fields as plain values (for digests)."""
        return (self.tokens, self.first_answer_us, self.ttfat_us)


class Media(NamedTuple):
    """Number of a prompt's tokens that are not text, by modality."""

    image_tokens: int = 0
    audio_tokens: int = 0
    video_tokens: int = 0

    @property
    def tokens(self) -> int:
        """Total number of media tokens."""
        return self.image_tokens + self.audio_tokens + self.video_tokens

    def beside(self, other: Media) -> Media:
        """Return the sum of both."""
        return Media(*map(add, self, other)) if other is not NO_MEDIA else self


NO_MEDIA: Final = Media()


class MediaItem(NamedTuple):
    """An image, a piece of audio or a video in a prompt."""

    offset: int
    """Number of prompt tokens before it."""
    tokens: int
    content: str
    """Content name: equal items have equal names."""


FIELDS: Final = (
    "adapter",
    "arrival_us",
    "batch_slot",
    "cached_tokens",
    "client",
    "completed_us",
    "computed_tokens",
    "content",
    "deadline_us",
    "declared_tokens",
    "finish_clock",
    "first_token_us",
    "gateway_us",
    "generated_tokens",
    "handover",
    "held_blocks",
    "ignore_eos",
    "index",
    "input_tokens",
    "instance",
    "joined_clock",
    "joined_us",
    "known_clock",
    "length_capped",
    "max_output_tokens",
    "media",
    "media_items",
    "model",
    "named",
    "network",
    "output_tokens",
    "peak_tokens",
    "pieces",
    "preemptions",
    "priority",
    "queued_us",
    "reasoning",
    "request_id",
    "retries",
    "round_index",
    "scheduled_us",
    "segments",
    "session_id",
    "shared_blocks",
    "slo_class",
    "state",
    "target_tokens",
    "tenant",
    "uncounted_tokens",
)


@mypyc_attr(allow_interpreted_subclasses=True)
class Request:
    """One inference request. All times are simulated microseconds; -1 means "has not happened".

    Attributes:
        index: position in arrival order, from 0; identifies the request inside a simulation.
        request_id: its name, as the user knows it.
        named: whether the workload gave it that name; without one it is ``request_N``, N being its index.
        input_tokens: length of the whole prompt, shared segments included.
        output_tokens: tokens that its model would generate. Only the engine may read this (INV-9); an order or a rule
            of your own that does is an oracle, such as a baseline may be, and ``blis-tui check`` notes it.
        declared_tokens: the output budget that its client declared; -1 = undeclared, 0 = no answer wanted.
        max_output_tokens: its output budget: the declared one, possibly cut by an instance; if undeclared, 0 until an
            instance derives it from its limits. The control plane and reservations use it.
        segments: the shareable head of the prompt.
        content: shareable segments of everything that its blocks will hold; longer than ``segments`` only if the whole
            prompt is shareable and other prompts will begin with its answer.
        model: name of the requested model; empty = any.
        adapter: name of the requested LoRA adapter; empty = the base model.
        deadline_us: absolute time of its timeout; 0 = none.
        cached_tokens: prompt tokens found in the cache when it was first admitted.
        computed_tokens: tokens of it in the KV cache (outside a cohort).
        generated_tokens: output tokens produced so far (outside a cohort).
        uncounted_tokens: those of them that its completed answer does not count (``EngineBehavior.counts_to_limit``).
        target_tokens: computed tokens at which its current prefill ends.
        batch_slot: its number in the running list, in order of admission; -1 = not running.
        known_clock: the cohort's clock after the latest advance that was planned when its input token was known.
            Asynchronous scheduling does that only for requests that were skipped before.
        held_blocks: KV blocks that it holds (outside a cohort).
        shared_blocks: those of them that others can find by content: always a prefix of its block table, or of each in
            a pool of several groups.
        pieces: identifies these shared blocks.
        gateway_us: how long it waited in the gateway's queue; -1 = it did not.
        handover: its state across two instances; None = it runs on one.
        peak_tokens: the largest number of its tokens in the KV cache when it was preempted.
        retries: how often it had to start over.
        network: its client's connection; None = its times are measured at the cluster.
        client: ID of the workload's client that sent it; empty = unknown.
        ignore_eos: whether it is known to use up its budget.
        reasoning: its reasoning tokens; None = not distinguished.
        media: number of its prompt tokens that are not text.
        media_items: the same by item, in prompt order; empty = unknown, see ``items_of``.
    """

    __slots__ = FIELDS

    def __init__(
        self,
        index: int,
        request_id: str,
        arrival_us: int,
        input_tokens: int,
        output_tokens: int,
        segments: Segments = (),
        slo_class: str = "standard",
        tenant: str = "",
        deadline_us: int = 0,
        session_id: str = "",
        round_index: int = 0,
        model: str = "",
        adapter: str = "",
    ) -> None:
        self.index = index
        self.request_id = request_id or f"request_{index}"
        self.named = request_id != ""
        self.arrival_us = arrival_us
        self.input_tokens = input_tokens
        self.output_tokens = output_tokens
        self.declared_tokens = self.max_output_tokens = output_tokens
        self.adapter = adapter
        self.segments = self.content = under_adapter(adapter, segments) if adapter else segments
        self.slo_class = slo_class
        self.tenant = tenant
        self.deadline_us = deadline_us
        self.session_id = session_id
        self.round_index = round_index
        self.model = model
        self.state = CREATED
        self.instance = -1
        self.priority = 0
        self.queued_us = -1
        self.scheduled_us = -1
        self.first_token_us = -1
        self.completed_us = -1
        self.computed_tokens = 0
        self.generated_tokens = 0
        self.target_tokens = input_tokens
        self.cached_tokens = 0
        self.preemptions = 0
        self.peak_tokens = 0
        self.length_capped = False
        self.uncounted_tokens = 0
        self.held_blocks = 0
        self.shared_blocks = 0
        self.pieces: list[Piece] = []
        self.batch_slot = -1
        self.joined_clock = -1
        self.joined_us = -1
        self.finish_clock = self.known_clock = -1
        self.gateway_us = -1
        self.handover: Handover | None = None
        self.network: Connection | None = None
        self.client = ""
        self.reasoning: Reasoning | None = None
        self.media = NO_MEDIA
        self.media_items: tuple[MediaItem, ...] = ()
        self.ignore_eos = False
        self.retries = 0

    def declare(self, tokens: int | None) -> None:
        """Set the output budget that the client declares; None = undeclared.

        Without this call, a request declares exactly the tokens it will generate, as benchmark clients do.
        """
        self.declared_tokens = -1 if tokens is None else tokens
        self.max_output_tokens = tokens or 0

    @property
    def stops_early(self) -> bool:
        """Whether its answer ends with an end-of-sequence token before its budget is used up."""
        return self.output_tokens < self.max_output_tokens

    @property
    def answer_tokens(self) -> int:
        """Length of its answer so far, as reported (outside a cohort)."""
        return self.generated_tokens - self.uncounted_tokens

    def restart(self) -> None:
        """Reset everything that instances have done for it: it is on its way to a queue again."""
        self.state = CREATED
        self.instance = self.queued_us = self.scheduled_us = self.first_token_us = self.joined_us = -1
        self.known_clock = -1
        self.computed_tokens = self.generated_tokens = self.cached_tokens = self.preemptions = self.peak_tokens = 0
        self.target_tokens = self.input_tokens
        self.max_output_tokens = max(0, self.declared_tokens)
        self.handover = None
        if self.reasoning is not None:
            self.reasoning = Reasoning(self.reasoning.tokens)
        self.retries += 1

    def __getstate__(self) -> tuple[object, ...]:
        # Values without field names: a long queue pickles ten times as fast.
        values: tuple[object, ...] = _VALUES(self)
        return values

    def __setstate__(self, values: tuple[object, ...]) -> None:
        for name, value in zip(FIELDS, values, strict=True):
            setattr(self, name, value)

    def __repr__(self) -> str:
        return f"<Request {self.request_id} {self.state.name.lower()}>"


_VALUES: Final = attrgetter(*FIELDS)


_BITS_PER_TOKEN: Final = 32
_US_PER_MS: Final = 1000


class Connection(NamedTuple):
    """A client's connection to the cluster; 10^6 bits per second are one bit per microsecond."""

    rtt_ms: float
    bandwidth_mbps: float | None
    """None = unlimited."""

    def ttft_us(self, input_tokens: int) -> int:
        """Time added to the time to first token: a round trip and sending the prompt."""
        return self._us(input_tokens)

    def e2e_us(self, input_tokens: int, output_tokens: int) -> int:
        """Time added to the time to last token: a round trip and sending prompt and answer."""
        return self._us(input_tokens + output_tokens)

    def _us(self, tokens: int) -> int:
        sending = 0.0 if self.bandwidth_mbps is None else tokens * _BITS_PER_TOKEN / self.bandwidth_mbps
        return int(self.rtt_ms * _US_PER_MS + sending + 0.5)
