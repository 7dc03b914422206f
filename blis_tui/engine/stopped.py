"""Where the admissions of a step stopped, and why: what batching rules report, and the words for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import NamedTuple, dataclass
from blis_tui.engine.records import Description, Record

if TYPE_CHECKING:
    from blis_tui.engine.records import Observers
    from blis_tui.engine.request import Request


class Cause(NamedTuple):
    """Why requests wait: a cause that batching rules report, and all that is said of it.

    ``sentence`` and ``partly`` are templates (see ``units.filled``) over ``need``, ``had`` and ``kept`` of ``Stopped``,
    ``next`` (``had`` and one more), ``amounts`` and ``counted`` (both in parentheses, the second with the unit),
    ``key`` (the last part of it), ``limit`` (its value), ``budget`` (what the rule calls the token budget), and
    ``were`` (what requests did that count towards the limit of a batch).
    """

    name: str
    """The word in ``Stopped`` and in records."""
    short: str
    """The cause in a few words, which may have ``key`` and ``limit``."""
    sentence: str
    """What the step did, as a sentence that needs no documentation."""
    partly: str = ""
    """The sentence if a part of the limit was left that was not enough; empty = the same."""
    unit: str = ""
    """What amounts count; empty = the cause has no amounts."""
    key: str = ""
    """The key of an experiment that the cause follows from; empty = it follows from what arrives."""
    advice: str = ""
    """What makes it rarer."""


CAUSES: Final[dict[str, Cause]] = {}
"""The causes that built-in rules report; another rule may report any of them, or words of its own."""

PLACE: Final = "place"
KV_BLOCK: Final = "KV block"


def _cause(name: str, **words: str) -> str:
    """Add a cause to the table, and return its name."""
    CAUSES[name] = Cause(name, **words)
    return name


PREEMPTED: Final = _cause(
    "preempted",
    short="preemption",
    sentence="The step preempted running requests; such a step schedules no request from the queue.",
    key="engine.kv_blocks",
    advice="more KV blocks, or fewer requests in a batch",
)
OUTRANKED: Final = _cause(
    "outranked",
    short="preempted by priority",
    sentence="The step took all requests from the queue, and preempted less urgent ones for them; the next step looks"
    " at these.",
    key="policy.batching.priority_scheduling_preemption_threshold",
    advice="a higher threshold",
)
MAX_NUM_SEQS: Final = _cause(
    "seqs",
    short="batch full ({limit:,})",
    sentence="{limit:request} {were}, which is the limit ({key} {limit:,}).",
    partly="The batching rule says that it had no room for another request ({need:,} needed, {had:,} left).",
    unit=PLACE,
    key="engine.max_num_seqs",
    advice="more places, if the KV cache has room for them, or more instances",
)
TOKENS: Final = _cause(
    "tokens",
    short="token budget spent ({limit:,})",
    sentence="The step spent the token budget of {limit:,} ({budget}).",
    partly="The next prompt did not fit into what was left of the token budget, and is not split{amounts}.",
    unit="token",
    key="engine.max_num_batched_tokens",
    advice="a larger budget, with longer steps, or more instances",
)
PROMPTS: Final = _cause(
    "prompts",
    short="prompt tokens spent ({key})",
    sentence="The step took all that it may of prompts ({key}){amounts}.",
    unit="token",
    key="policy.batching.max_prefill_tokens",
    advice="more prompt tokens a step, with longer steps",
)
BLOCKS: Final = _cause(  # cached blocks of its prompt that no other request holds do not count as needed
    "blocks",
    short="too few free KV blocks",
    sentence="The next request needed more KV blocks than were free{amounts}.",
    unit=KV_BLOCK,
    key="engine.kv_blocks",
    advice="more KV blocks, or more instances",
)
WATERMARK: Final = _cause(  # it would fit if none had to stay free
    "watermark",
    short="KV blocks kept free ({key})",
    sentence="The next request did not fit beside the {kept:,} KV blocks that must stay free ({key}){amounts}.",
    unit=KV_BLOCK,
    key="policy.batching.watermark",
    advice="a lower watermark, with more preemptions",
)
ANSWERS: Final = _cause(
    "answers",
    short="no KV blocks for whole answers",
    sentence="The KV blocks of all prompts and whole declared answers must be free{amounts}.",
    unit=KV_BLOCK,
    key="policy.batching.capacity_scheduler_policy",
    advice="more KV blocks, answers declared shorter, or MAX_UTILIZATION, which may preempt",
)
ROOM: Final = _cause(
    "room",
    short="no room beside expected answers",
    sentence="The next request did not fit beside what running requests were expected to generate{counted}.",
    unit="token",
    key="policy.batching.schedule_conservativeness",
    advice="less conservativeness, with more retractions, or more KV blocks",
)
ADAPTER: Final = _cause(
    "adapter",
    short="waiting for its LoRA adapter",
    sentence="A LoRA adapter had no slot in the batch ({key}), or had to be loaded.",
    key="engine.lora.max_loras",
    advice="more slots, or requests of an adapter sent to the same instance",
)
ENCODER: Final = _cause(
    "encoder",
    short="waiting for the encoder",
    sentence="The next item of media exceeded what was left of the encoder's budget, or of the room in its"
    " cache{counted}.",
    unit="token",
    key="engine.encoder.max_num_encoder_input_tokens",
    advice="a larger budget, or a larger cache (encoder_cache_size)",
)
LATE: Final = _cause(
    "late",
    short="its last step in progress",
    sentence="The waiting request was preempted while a step was in progress, and is not scheduled before that step"
    " ends.",
    key="policy.batching.async_scheduling",
    advice="fewer preemptions",
)
GATHERING: Final = _cause(  # at most `need` steps, and `had` were over before this one
    "gathering",
    short="prompts wait for others",
    sentence="Prompts waited for others ({key}): {next:,} of {need:step}.",
    unit="step",
    key="policy.batching.batch_wait_timeout_iters",
    advice="a shorter wait",
)
CADENCE: Final = _cause(  # every `need` steps, and this is number `had`
    "cadence",
    short="a step without prompts",
    sentence="While requests decode, prompts are computed every {need:step} ({key}); this was step {had:,} since the"
    " latest ones.",
    unit="step",
    key="policy.batching.prefill_schedule_interval",
    advice="a shorter interval",
)
UNSEEN: Final = _cause(
    "unseen",
    short="the scheduler had not looked",
    sentence="The scheduler had not looked for new requests yet ({key}).",
    key="policy.batching.scheduler_recv_interval",
    advice="a shorter interval",
)
APART: Final = _cause(
    "apart",
    short="a step of prompts alone",
    sentence="The step computed prompts, and the next request's was computed on another instance.",
)


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
