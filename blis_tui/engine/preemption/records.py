"""Records about victims and their return."""

from __future__ import annotations

from blis_tui.classes import dataclass
from blis_tui.engine.records import Description, Record


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
    """Number of blocks from each tier: ``name: count``."""
    thrashing: int
    """Number of these KV blocks that had been evicted at most a millisecond before."""
    transfer_us: int
    """Duration of the transfer."""
