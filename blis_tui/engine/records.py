"""Records of what happened in instances, one frozen data class per kind, each with a description.

The field order is the order in every file and is part of the format. A record is built only while its kind has a
subscriber. ``event`` is the number of the processed event, from 1; several records may carry the same number. Every
event has at least one record. All times are simulated microseconds.
"""

from __future__ import annotations

from string import Formatter
from typing import TYPE_CHECKING, ClassVar, Concatenate, Final, ParamSpec

from blis_tui.base.classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from dataclasses import KW_ONLY


RECORD_KINDS: dict[str, type[Record]] = {}
"""Every kind of record by its name in files and subscriptions, in order of definition; filled as classes are
defined."""


@dataclass(frozen=True, slots=True)
class Description:
    """How a kind of record is shown; omitted texts are made from the kind's name.

    Texts are templates over the record's fields (``{ttft_us:ms}``; see ``units.filled`` for the formats). ``line``,
    ``short`` and ``brief`` follow the name of the request or instance. They may use only what the debugger keeps of
    every event: ``figures``, ``request_id``, ``instance`` and ``reason``.

    Raises:
        TypeError: these three use anything else, or there are more than two figures.
    """

    kind: str
    """The name in files and subscriptions: lower case, words joined by ``-``."""
    _: KW_ONLY
    sign: str = ""
    """A character, one cell wide."""
    colour: str = ""
    """A colour of the theme, such as ``error``; empty = ordinary text."""
    meaning: str = ""
    """A phrase that follows "an event in which"."""
    explanation: str = ""
    """The meaning in whole sentences, with its consequences, for people who have not read the documentation."""
    sentence: str = ""
    """What a record says, without a full stop."""
    line: str = ""
    """The sentence's counterpart in a list of events: parts separated by ``, ``."""
    short: str = ""
    """A shorter ``line``, for narrow panes."""
    brief: str = ""
    """The most important part in a few characters, next to the sign."""
    figures: tuple[str, ...] = ()
    """Up to two fields that the debugger keeps of every such record: whole numbers, or names of requests."""
    own_event: bool = True
    """Whether it can name an event; otherwise it accompanies another record, such as that of a step."""
    result: bool = False
    """For records of a step: whether it is known only when the step is complete; others are decided at its start."""
    ends: str = ""
    """How it ends its request: ``done`` or ``lost``; empty = it does not."""
    state: str = ""
    """Its request's state from then on; empty = unchanged."""
    change: str = ""
    """What it changes for its request beyond the request's fields."""
    on_demand: bool = False
    """Whether it is emitted only to subscribers that name its kind, not to subscribers to all. It adds costly detail to
    another record of its event, and is in no record file or golden."""

    def __post_init__(self) -> None:
        """Fill omitted texts from the kind's name."""
        name = self.label
        defaults = {"meaning": name, "sentence": name, "line": name, "brief": "" if self.sign else name, "sign": "◇"}
        for field, text in defaults.items():
            object.__setattr__(self, field, getattr(self, field) or text)
        object.__setattr__(self, "short", self.short or self.line)
        object.__setattr__(self, "state", self.state or (self.kind if self.ends else ""))
        kept = {"request_id", "instance", "reason", *self.figures}
        named = {name for text in (self.line, self.short, self.brief) for _, name, *_ in Formatter().parse(text)}
        if len(self.figures) > 2 or named - {None} - kept:
            raise TypeError(f"a line about `{self.kind}` can name `reason`, `instance` and two figures, not {named}")

    @property
    def label(self) -> str:
        """The kind in words."""
        return self.kind.replace("-", " ")


def streamed_kinds() -> dict[str, type[Record]]:
    """Return the kinds in the record stream: all but those that are emitted only on demand."""
    return {name: kind for name, kind in RECORD_KINDS.items() if not kind.shown.on_demand}


def record_classes(kind: type[Record] | str) -> tuple[type[Record], ...]:
    """Return the record classes of a kind, given as class or name; ``all`` (or ``Record``) means the record stream.

    Raises:
        ValueError: there is no such kind.
        TypeError: it is neither a class of records nor a name.
    """
    if not isinstance(kind, str) and not (isinstance(kind, type) and issubclass(kind, Record)):
        raise TypeError(f"a kind of record is a class or a name, not {kind!r}")
    if kind in ("all", Record):
        return tuple(streamed_kinds().values())
    name = kind if isinstance(kind, str) else kind.kind
    if name not in RECORD_KINDS:
        raise ValueError(f"there is no record kind {name!r}; known are {', '.join(RECORD_KINDS)}")
    return (RECORD_KINDS[name],)


def described(kind: str) -> Description:
    """Return the description of a kind of record; an undefined kind gets a default one."""
    known = RECORD_KINDS.get(kind)
    return Description(kind) if known is None else known.shown


@dataclass(frozen=True, slots=True)
class Record:
    """Base of all records: the event it belongs to, and its time.

    A subclass becomes a kind of record by having a description. It is a frozen dataclass whose fields are whole
    numbers, strings, booleans, or tuples of strings or of such dataclasses.

    Attributes:
        kind: the description's.
        shown: the description.

    Raises:
        TypeError: another class describes the same kind.
    """

    kind: ClassVar[str] = "record"
    shown: ClassVar[Description] = Description("record")

    event: int
    """The number of the event that it belongs to, from 1."""
    time_us: int
    """When that event happened, in simulated time."""

    def __init_subclass__(cls) -> None:
        """Register the kind; a dataclass with slots is created twice, and the second class is kept."""
        if "shown" not in cls.__dict__:
            return
        cls.kind = cls.shown.kind
        known = RECORD_KINDS.setdefault(cls.kind, cls)
        if known.shown is not cls.shown:
            raise TypeError(f"the record kind `{cls.kind}` is already that of {known.__module__}.{known.__qualname__}")
        RECORD_KINDS[cls.kind] = cls


@dataclass(frozen=True, slots=True)
class Arrived(Record):
    """A request reached the cluster."""

    shown = Description(
        "arrived",
        sign="+",
        meaning="a request reached the cluster",
        explanation="A client's request reached the cluster. Admission control decides on it next.",
        sentence="{request_id} arrived",
        line="arrived: {input_tokens:prompt token}, up to {max_output_tokens:,} output tokens",
        short="arrived, {input_tokens:,} in, up to {max_output_tokens:,} out",
        brief="{input_tokens} tok",
        figures=("input_tokens", "max_output_tokens"),
        state="in transit",
    )

    request_id: str
    """The request's name."""
    input_tokens: int
    """Tokens of its whole prompt."""
    max_output_tokens: int
    """The budget of output tokens that its client declared; 0 = none."""
    slo_class: str
    """Its SLO class."""
    tenant_id: str
    """Its tenant; empty = none."""


@dataclass(frozen=True, slots=True)
class Admitted(Record):
    """Admission control let a request in."""

    shown = Description(
        "admitted",
        sign="»",
        meaning="admission control admitted a request",
        explanation="Admission control admitted the request. The gateway is next, if there is one, then the router.",
        sentence="{request_id} was admitted",
        state="in transit",
    )

    request_id: str
    """The request's name."""
    policy: str
    """The name of the admission policy."""


@dataclass(frozen=True, slots=True)
class Rejected(Record):
    """Admission control or the gateway rejected a request; ``policy`` says which."""

    shown = Description(
        "rejected",
        sign="✗",
        colour="error",
        meaning="admission control or the gateway rejected a request",
        explanation="The request was rejected: its client gets no answer.",
        sentence="{request_id} was rejected: {reason}",
        line="rejected: {reason}",
        short="rejected",
        ends="lost",
        change="{reason}",
    )

    request_id: str
    """The request's name."""
    policy: str
    """What rejected it: the admission policy's name, ``tenant-budget``, ``gateway``, ``router`` or ``lifecycle``."""
    reason: str
    """Why, in words."""


@dataclass(frozen=True, slots=True)
class Routed(Record):
    """The router chose an instance; ``reason`` says by what rule."""

    shown = Description(
        "routed",
        sign="→",
        meaning="the router chose an instance for a request",
        explanation=(
            "The router chose an instance for the request. It joins the queue there once its prompt is tokenized."
        ),
        sentence="{request_id} was routed to instance {instance}",
        line="routed to instance {instance} ({reason})",
        short="routed to instance {instance}",
        brief="i{instance}",
        figures=("instance",),
        state="in transit",
    )

    request_id: str
    """The request's name."""
    instance: int
    """Index of the instance that was chosen."""
    policy: str
    """The name of the routing policy."""
    reason: str
    """By what rule it chose, in words."""


@dataclass(frozen=True, slots=True)
class Queued(Record):
    """A request entered an instance's waiting queue."""

    shown = Description(
        "queued",
        sign="≡",
        colour="warning",
        meaning="a request entered a waiting queue",
        explanation="The request joined the queue of its instance. The next step considers the queue when it begins.",
        sentence="{request_id} was queued on instance {instance}",
        line="queued at instance {instance}, {position:place} in the queue",
        short="queued, {position:place}",
        brief="{position:place}",
        figures=("instance", "position"),
        state="waiting",
    )

    request_id: str
    """The request's name."""
    instance: int
    """Index of the instance."""
    position: int
    """Its place in the waiting queue, from 0."""


@dataclass(frozen=True, slots=True)
class Dropped(Record):
    """An instance cannot serve a request."""

    shown = Description(
        "dropped",
        sign="✗",
        colour="error",
        meaning="an instance dropped a request that it cannot serve",
        explanation="The instance cannot serve the request, and dropped it.",
        sentence="{request_id} was dropped by instance {instance}: {reason}",
        line="dropped: {reason}",
        short="dropped",
        ends="lost",
        change="{reason}",
    )

    request_id: str
    """The request's name."""
    instance: int
    """Index of the instance."""
    reason: str
    """Why it cannot be served there, in words."""


@dataclass(frozen=True, slots=True)
class Scheduled(Record):
    """A request left the waiting queue for the running batch."""

    shown = Description(
        "scheduled",
        sign="▸",
        colour="success",
        meaning="a request was scheduled: it left the queue and joined the batch",
        sentence="{request_id} was scheduled on instance {instance}",
        line="scheduled, {cached_tokens:cached token}",
        figures=("cached_tokens", "new_tokens"),
        own_event=False,
        state="running",
        change="joined the batch",
    )

    request_id: str
    """The request's name."""
    instance: int
    """Index of the instance."""
    cached_tokens: int
    """Tokens of it that are in the KV cache already: found in the prefix cache, brought back, or transferred."""
    new_tokens: int
    """Prompt tokens that its first step computes."""
    waited_us: int
    """Time since it arrived."""


@dataclass(frozen=True, slots=True)
class Preempted(Record):
    """A running request lost its blocks and went back to the head of the queue, so that ``for_request`` could continue.

    If no request was running, a waiting request lost the blocks that had been transferred to it. A request whose last
    token is already being computed loses its blocks, too, but does not go back: it completes when that step ends.
    """

    shown = Description(
        "preempted",
        sign="↩",
        colour="error",
        meaning="a running request lost its KV blocks and went back to the queue",
        sentence="{request_id} was preempted on instance {instance} for {for_request}",
        line="preempted for {for_request}, {lost_tokens:computed token} lost",
        figures=("lost_tokens", "for_request"),
        own_event=False,
        state="waiting",
        change="to free KV blocks for {for_request}",
    )

    request_id: str
    """The victim's name."""
    instance: int
    """Index of the instance."""
    for_request: str
    """The request that needed its KV blocks."""
    lost_tokens: int
    """Tokens of it that were in the KV cache."""
    freed_blocks: int
    """KV blocks that it held."""


@dataclass(frozen=True, slots=True)
class ChunkDone:
    """One prefill chunk of a step: tokens in the cache before it, and tokens it adds."""

    request_id: str
    """The request's name."""
    computed_tokens: int
    """Tokens of it in the KV cache before the step."""
    new_tokens: int
    """Tokens that the step computes."""


@dataclass(frozen=True, slots=True)
class StepFinished(Record):
    """One step of one instance, with what each of its four phases did.

    Schedule: ``admitted``, ``preempted``, ``chunks``, ``decode_requests`` (each gets one token), ``stalled``
    (running, but no token this step). Execute: ``duration_us`` by the step-time model, ``decode_context_tokens``
    before the step. Complete: ``first_tokens``, ``completed``. Next: ``next_step_us`` (-1 = the instance goes idle).
    """

    shown = Description(
        "step",
        sign="■",
        colour="primary",
        meaning="an instance ran a step",
        explanation=(
            "An engine step: the instance scheduled a batch and computed it on the GPU; requests that decode in it get"
            " their next tokens."
        ),
        sentence="instance {instance} ran step {step:,}",
        result=True,
    )

    instance: int
    """Index of the instance."""
    step: int
    """The number of the step on this instance."""
    admitted: tuple[str, ...]
    """Requests that left the queue for the batch."""
    preempted: tuple[str, ...]
    """Requests that lost their blocks; they were put back into the queue, unless a step already computes their last
    token."""
    chunks: tuple[ChunkDone, ...]
    """Prefills, each with its tokens."""
    decode_requests: int
    """Requests that got one more token (with drafts one or more)."""
    decode_context_tokens: int
    """Tokens in the KV cache of these requests, added up, before the step."""
    stalled: tuple[str, ...]
    """Requests that run and got no token."""
    duration_us: int
    """How long it took; it began at ``time_us``."""
    first_tokens: tuple[str, ...]
    """Requests that got their first token."""
    completed: tuple[str, ...]
    """Requests whose answer is complete."""
    waiting: int
    """Requests in the waiting queue after it."""
    running: int
    """Requests in the batch after it."""
    kv_used_blocks: int
    """KV blocks in use after it."""
    next_step_us: int
    """When the next step starts; -1 = the instance goes idle."""


@dataclass(frozen=True, slots=True)
class FirstToken(Record):
    """A request's first token left the instance; ``ttft_us`` is what its client measures."""

    shown = Description(
        "first-token",
        sign="✦",
        colour="success",
        meaning="a request got its first token",
        sentence="{request_id} got its first token after {ttft_us:ms}",
        figures=("first_token_us", "ttft_us"),
        own_event=False,
        result=True,
        state="running",
        change="its first token",
    )

    request_id: str
    """The request's name."""
    instance: int
    """Index of the instance."""
    first_token_us: int
    """When it was generated, at the engine."""
    ttft_us: int
    """Time from arrival to it, as the client sees it."""


@dataclass(frozen=True, slots=True)
class Completed(Record):
    """A request is done; ``e2e_us`` is what its client measures."""

    shown = Description(
        "completed",
        sign="✓",
        colour="success",
        meaning="a request completed",
        explanation="The request has its last token and left the instance.",
        sentence="{request_id} completed after {e2e_us:ms}",
        line="completed, {output_tokens:output token} in {e2e_us:span}",
        short="completed, {output_tokens:,} out, {e2e_us:span}",
        brief="{e2e_us:span}",
        figures=("output_tokens", "e2e_us"),
        ends="done",
        change="its client has all tokens",
    )

    request_id: str
    """The request's name."""
    instance: int
    """Index of the instance."""
    output_tokens: int
    """Output tokens of its answer."""
    ttft_us: int
    """Time to first token, as the client sees it."""
    e2e_us: int
    """Time from arrival to its last token, as the client sees it."""
    length_capped: bool
    """Whether the answer was cut short: its model would have generated more."""


@dataclass(frozen=True, slots=True)
class Prefilled(Record):
    """A prompt has been computed for another instance, which will generate the answer."""

    shown = Description(
        "prefilled",
        sign="P",
        meaning="an instance finished a prompt whose answer is generated elsewhere",
        sentence="the prompt of {request_id} is computed",
        line="prompt computed for another instance",
        state="in transit",
    )

    request_id: str
    """The request's name."""
    instance: int
    """Index of the instance."""


@dataclass(frozen=True, slots=True)
class TimedOut(Record):
    """A request's deadline passed before it was done."""

    shown = Description(
        "timed-out",
        sign="!",
        colour="error",
        meaning="a request's deadline passed",
        explanation="The request's deadline passed before it was done: its work is discarded.",
        sentence="{request_id} timed out on instance {instance}",
        line="timed out while {was_running:running|waiting}, {output_tokens:output token}",
        short="timed out, {output_tokens:,} out",
        figures=("output_tokens", "was_running"),
        ends="lost",
        change="its deadline passed",
    )

    request_id: str
    """The request's name."""
    instance: int
    """Index of the instance."""
    was_running: bool
    """Whether it was in the batch; otherwise it was in the queue."""
    output_tokens: int
    """Output tokens generated until then."""


P = ParamSpec("P")


class Observers:
    """Subscriptions by kind of record. Without subscribers they cost the engine one attribute read.

    Attributes:
        event: number of the event being processed; kept current only while there are subscribers.
        kinds: the record classes that have subscribers.
    """

    def __init__(self) -> None:
        self.event = 0
        self.kinds: frozenset[type[Record]] = frozenset()
        self._callbacks: dict[type[Record], tuple[Callable[[Record], None], ...]] = {}

    def add_all(self, classes: Iterable[type[Record]], callback: Callable[[Record], None]) -> None:
        """Call ``callback`` with each record of these kinds from now on."""
        for kind in classes:
            self._callbacks[kind] = (*self._callbacks.get(kind, ()), callback)
        self.kinds = frozenset(self._callbacks)

    def remove_all(self, classes: Iterable[type[Record]], callback: Callable[[Record], None]) -> None:
        """Stop calling ``callback`` with records of these kinds; do nothing for one it is not subscribed to."""
        for kind in classes:
            left = list(self._callbacks.get(kind, ()))
            if callback in left:
                left.remove(callback)
            self._callbacks[kind] = tuple(left)
            if not left:
                del self._callbacks[kind]
        self.kinds = frozenset(self._callbacks)

    def tell(self, kind: Callable[Concatenate[int, P], Record], *facts: P.args, **more: P.kwargs) -> None:
        """Emit a record of the event being processed, if its kind has a subscriber; not where steps are many."""
        if kind in self.kinds:
            self.emit(kind(self.event, *facts, **more))  # type: ignore[arg-type]

    def emit(self, record: Record) -> None:
        """Pass ``record`` to the subscribers of its kind, in order of subscription."""
        # A callback may end its own subscription, so the last one for a kind may be gone by now.
        for callback in self._callbacks.get(type(record), ()):
            callback(record)


@dataclass(frozen=True, slots=True)
class AnswerBegun(Record):
    """A request with reasoning got the first token of the answer itself; ``ttfat_us`` is what its client measures."""

    shown = Description(
        "answer-begun",
        sign="A",
        colour="success",
        meaning="a request finished reasoning and got the first token of its answer",
        sentence="{request_id} began its answer after {ttfat_us:ms}, behind {reasoning_tokens:reasoning token}",
        figures=("first_answer_us", "ttfat_us"),
        own_event=False,
        result=True,
        change="the first token of its answer",
    )

    request_id: str
    """The request's name."""
    instance: int
    """Index of the instance."""
    first_answer_us: int
    """When the first token after its reasoning was generated, at the engine."""
    ttfat_us: int
    """Time from arrival to that token, as the client sees it."""
    reasoning_tokens: int
    """Tokens generated before it, all of them reasoning."""


@dataclass(frozen=True, slots=True)
class PromptMedia(Record):
    """The prompt of a request that arrived has tokens that are not text."""

    shown = Description(
        "prompt-media",
        sign="▤",
        meaning="a request arrived whose prompt has images, audio or video",
        sentence=(
            "the prompt of {request_id} has {image_tokens:image token}, {audio_tokens:audio token} and"
            " {video_tokens:video token}"
        ),
        own_event=False,
    )

    request_id: str
    """The request's name."""
    image_tokens: int
    """Prompt tokens that stand for images."""
    audio_tokens: int
    """Prompt tokens that stand for audio."""
    video_tokens: int
    """Prompt tokens that stand for video."""


@dataclass(frozen=True, slots=True)
class MediaHeld(Record):
    """A prompt was computed only up to a media item, or not at all, because the encoder could not take the item.

    ``reason`` is ``budget``: the encoder's remaining budget for the step is too small; ``cache``: the encoder cache
    has too little room that no request needs; or ``whole``: the step does not reach the item's end, and the item's
    tokens may not be computed in parts. Each wait has one such record.
    """

    shown = Description(
        "media-held",
        sign="◪",
        colour="warning",
        meaning="a prompt is waiting for the encoder of images, audio or video",
        sentence="{request_id} waits for the encoder ({reason}): {tokens:token} needed, {had:,} left",
        line="waits for the encoder, {reason}",
        brief="encoder",
        figures=("tokens", "had"),
        own_event=False,
    )

    request_id: str
    """The request's name."""
    instance: int
    """Index of the instance."""
    reason: str
    """``budget``, ``cache`` or ``whole``."""
    tokens: int
    """Tokens of the item that the encoder could not take."""
    had: int
    """Tokens left in the budget or in the cache; for ``whole``, tokens that the step could compute."""


@dataclass(frozen=True, slots=True)
class MediaEncoded(Record):
    """A step computed media of a prompt: some items were encoded for it, others were in the encoder's cache."""

    shown = Description(
        "media-encoded",
        sign="◧",
        colour="accent",
        meaning="a step encoded images, audio or video of a prompt, or found them in the encoder's cache",
        sentence="{encoded_tokens:media token} of {request_id} are encoded, {cached_tokens:,} are in the cache",
        line="{encoded_tokens:media token} are encoded, {cached_tokens:,} are in the cache",
        brief="{encoded_tokens:,}",
        figures=("encoded_tokens", "cached_tokens"),
        own_event=False,
    )

    request_id: str
    """The request's name."""
    instance: int
    """Index of the instance."""
    encoded_tokens: int
    """Media tokens that were encoded for it in this step."""
    cached_tokens: int
    """Media tokens that were already in the encoder's cache when the prompt reached them."""


@dataclass(frozen=True, slots=True)
class RestoreChosen(Record):
    """How a preempted request will come back: ``choice`` is ``swap`` or ``recompute``.

    Emitted only where victims may be swapped. The costs are estimates made at that moment: ``swap_us`` for both
    transfers, ``recompute_us`` for the extra time of steps that recompute its tokens beside the decodes of the batch.
    """

    shown = Description(
        "restore-chosen",
        sign="⇅",
        colour="warning",
        meaning="the engine chose whether a preempted request is swapped out or recomputed",
        sentence="{request_id}: {choice} ({blocks:KV block}; swap {swap_us:span}, recompute {recompute_us:span})",
        line="swap {swap_us:span}, recompute {recompute_us:span}",
        figures=("swap_us", "recompute_us"),
        own_event=False,
    )

    request_id: str
    """The victim's name."""
    instance: int
    """Index of the instance."""
    choice: str
    """``swap`` or ``recompute``."""
    blocks: int
    """KV blocks that swapping moves to the host."""
    swap_us: int
    """Estimated time to move them there and back."""
    recompute_us: int
    """Estimated extra time of the steps that recompute its tokens."""


@dataclass(frozen=True, slots=True)
class SwappedBack(Record):
    """A preempted request was scheduled again, with ``tokens`` from the host.

    ``blocks`` were moved in ``transfer_us``; the others were still on the GPU.
    """

    shown = Description(
        "swapped-back",
        sign="⇑",
        colour="success",
        meaning="a preempted request got its KV blocks back from the host",
        sentence="{request_id} got {tokens:computed token} back from the host in {transfer_us:span}",
        line="{tokens:computed token} back from the host in {transfer_us:span}",
        figures=("tokens", "transfer_us"),
        own_event=False,
    )

    request_id: str
    """The request's name."""
    instance: int
    """Index of the instance."""
    tokens: int
    """Tokens of it that are in the KV cache again."""
    blocks: int
    """KV blocks that were moved; the GPU still had the others."""
    transfer_us: int
    """Duration of the transfer."""


@dataclass(frozen=True, slots=True)
class PreemptedByPriority(Record):
    """A running request was put back so that a more urgent one takes its place (``sglang`` batching).

    Their priorities differ by more than ``threshold``.
    """

    shown = Description(
        "preempted-by-priority",
        sign="↥",
        colour="warning",
        meaning="a running request was preempted for a more urgent one",
        sentence="{request_id} (priority {priority}) made way for {beneficiary} (priority {beneficiary_priority}): they"
        " differ by more than {threshold:,}",
        line="made way: priority {priority} for {beneficiary_priority}",
        figures=("priority", "beneficiary_priority"),
        own_event=False,
    )

    request_id: str
    """The victim's name."""
    instance: int
    """Index of the instance."""
    beneficiary: str
    """The more urgent request."""
    priority: int
    """The victim's priority."""
    beneficiary_priority: int
    """The priority of the more urgent request."""
    threshold: int
    """The difference in priority must exceed this."""


@dataclass(frozen=True, slots=True)
class Retracted(Record):
    """Running requests were put back (``sglang`` batching), as their next tokens needed more KV blocks than there were.

    ``kept`` requests go on. ``ratio`` is the share of their declared output that running requests are expected to
    generate, estimated from those that go on; ``ratio_before`` is its previous value.
    """

    shown = Description(
        "retracted",
        sign="⇤",
        colour="warning",
        meaning="running requests were retracted for lack of KV blocks, and longer answers are expected from now on",
        sentence="{retracted:request} retracted, {kept:,} kept: {needed_blocks:KV block} needed, {free_blocks:,} "
        "available; answers are expected to take {ratio:share} of what they declare, {ratio_before:share} before",
        line="{retracted:request} retracted, {kept:,} kept",
        figures=("retracted", "kept"),
        own_event=False,
    )

    instance: int
    """Index of the instance."""
    retracted: int
    """Requests that were put back."""
    kept: int
    """Requests that go on."""
    needed_blocks: int
    """KV blocks that the next tokens of all running requests needed."""
    free_blocks: int
    """KV blocks that were available, including by eviction."""
    ratio_before: float
    """The previous share (0 to 1) of their declared output that requests were expected to generate."""
    ratio: float
    """The new share."""


STORED_BY_OTHERS: Final = "stored by others"
"""Marks the blocks of a shared tier that other instances have stored."""


@dataclass(frozen=True, slots=True)
class TiersLoaded(Record):
    """KV blocks of a request's prompt came back from tiers (``tiers``: how many from each).

    ``thrashing`` of them had been evicted at most a millisecond before. The transfer belongs to the step that is
    planned.
    """

    shown = Description(
        "tiers-loaded",
        sign="⇧",
        colour="success",
        meaning="KV blocks were reloaded from a tier below the GPU",
        sentence="{blocks:KV block} of {request_id} reloaded in {transfer_us:span}, {thrashing:,} of them thrashing",
        line="{blocks:KV block} reloaded, {thrashing:,} thrashing",
        figures=("blocks", "thrashing"),
        own_event=False,
    )

    request_id: str
    """The request's name."""
    instance: int
    """Index of the instance."""
    blocks: int
    """KV blocks that were reloaded."""
    tiers: tuple[str, ...]
    """Number of blocks from each tier: ``name: count``. Of a shared tier, those that other instances have stored are
    counted apart: ``name (stored by others): count``."""
    thrashing: int
    """Number of these KV blocks that had been evicted at most a millisecond before."""
    transfer_us: int
    """Duration of the transfer."""


@dataclass(frozen=True, slots=True)
class AdapterHeld(Record):
    """A waiting request was skipped for the first time because of its LoRA adapter.

    ``reason`` is ``slots``: the maximum number of other adapters is in use (``in_use``); or ``load``: it is not on the
    accelerators yet. ``in_use`` starts with the adapter in use for the longest time.
    """

    shown = Description(
        "adapter-held",
        sign="◫",
        colour="warning",
        meaning="a request is waiting for its LoRA adapter",
        sentence="{request_id} waits for its adapter {adapter} ({reason})",
        line="waits for its adapter, {reason}",
        brief="adapter",
        own_event=False,
    )

    request_id: str
    """The request's name."""
    instance: int
    """Index of the instance."""
    adapter: str
    """The adapter that it asks for."""
    reason: str
    """``slots``: the maximum number of other adapters is in use; ``load``: it is not on the GPUs yet."""
    in_use: tuple[str, ...]
    """Adapters in use, the one in use for the longest time first."""


@dataclass(frozen=True, slots=True)
class AdapterEvicted(Record):
    """The least recently used LoRA adapter was evicted for another one."""

    shown = Description(
        "adapter-evicted",
        sign="⌫",
        colour="warning",
        meaning="a LoRA adapter was evicted for another one",
        sentence="{adapter} is evicted for {beneficiary}",
        own_event=False,
    )

    instance: int
    """Index of the instance."""
    adapter: str
    """The evicted adapter."""
    beneficiary: str
    """The adapter that takes its place."""


@dataclass(frozen=True, slots=True)
class AdapterLoad(Record):
    """A LoRA adapter is loaded from ``host`` or ``storage`` for a request.

    With ``blis`` batching, the event ``adapter-ready`` ends the load; with ``vllm-v1``, the step takes that much
    longer.
    """

    shown = Description(
        "adapter-load",
        sign="⎘",
        colour="accent",
        meaning="loading of a LoRA adapter started",
        sentence="{adapter} is loaded from {source} for {request_id} in {load_us:span}",
        line="its adapter is loaded in {load_us:span}",
        brief="{load_us:span}",
        figures=("load_us",),
        own_event=False,
    )

    request_id: str
    """The request that it is loaded for."""
    instance: int
    """Index of the instance."""
    adapter: str
    """The adapter's name."""
    source: str
    """Where it comes from: ``host`` or ``storage``."""
    load_us: int
    """Duration of the load."""


@dataclass(frozen=True, slots=True)
class AdapterReady(Record):
    """A LoRA adapter that was loaded concurrently with steps is on the accelerators now."""

    shown = Description(
        "adapter-ready",
        sign="⎗",
        colour="success",
        meaning="a LoRA adapter finished loading",
        sentence="{adapter} is ready, after {load_us:span}",
        line="an adapter is ready after {load_us:span}",
        brief="{load_us:span}",
        figures=("load_us",),
    )

    instance: int
    """Index of the instance."""
    adapter: str
    """The adapter's name."""
    load_us: int
    """Duration of the load."""


@dataclass(frozen=True, slots=True)
class DraftDone:
    """The drafts of one request in a step; ``output_tokens`` is what its answer gained."""

    request_id: str
    """The request's name."""
    draft_tokens: int
    """Draft tokens that the step verified."""
    accepted_tokens: int
    """Draft tokens that were accepted."""
    output_tokens: int
    """Output tokens that its answer gained."""


@dataclass(frozen=True, slots=True)
class DraftsVerified(Record):
    """A step verified draft tokens; emitted for each step with decodes under speculative decoding.

    ``verified`` lists the decodes of the step in batch order; the other figures are their sums.
    """

    shown = Description(
        "drafts-verified",
        sign="≈",
        colour="success",
        meaning="a step verified drafted tokens",
        sentence="{accepted_tokens:,} of {draft_tokens:drafted token} accepted",
        line="{accepted_tokens:,} of {draft_tokens:drafted token} accepted",
        figures=("draft_tokens", "accepted_tokens"),
        own_event=False,
        result=True,
    )

    instance: int
    """Index of the instance."""
    draft_tokens: int
    """Draft tokens that the step verified, over all requests."""
    accepted_tokens: int
    """Draft tokens that were accepted, over all requests."""
    output_tokens: int
    """Output tokens that answers gained, over all requests."""
    verified: tuple[DraftDone, ...]
    """The decodes of the step, in batch order."""
