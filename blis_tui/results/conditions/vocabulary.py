"""The names in conditions: figures of the state and facts about the event, with compatibility rules."""

from __future__ import annotations

from math import nan
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Protocol

import blis_tui.cluster.records
import blis_tui.engine.records  # noqa: F401  (registers record kinds)
from blis_tui.base.classes import dataclass
from blis_tui.cluster.decisions import PPM
from blis_tui.cluster.records import RoutingDecision, ScalingDecided
from blis_tui.engine.records import Completed, FirstToken, Preempted, StepFinished, TiersLoaded, streamed_kinds

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from blis_tui.cluster.snapshot import RequestSnapshot
    from blis_tui.engine.records import Record


# ---- quantities ----

TIME_UNITS: Final = {"us": 1, "ms": 1000, "s": 1_000_000}
"""Units of time, in microseconds."""
_RANKS: Final = ("number", "share", "count", "time")


@dataclass(frozen=True, slots=True)
class Quantity:
    """What a part of a condition measures."""

    dimension: str
    """``number``, ``share``, ``count`` or ``time``; ``truth`` for conditions, ``text`` for texts."""
    unit: str = ""
    constant: bool = False
    """Whether it is the same in every state."""

    @property
    def is_number(self) -> bool:
        """Whether it can be used in calculations."""
        return self.dimension in _RANKS

    def __str__(self) -> str:
        match self.dimension:
            case "count":
                return f"a number of {self.unit}"
            case "time":
                return f"a time in {self.unit}"
            case "truth":
                return "a condition"
            case _:
                return f"a {self.dimension}"


BOOLEAN: Final = Quantity("truth")
TEXT: Final = Quantity("text")
PHASE: Final = Quantity("phase")
"""What a request does: one of ``PHASES``, by its place there."""


def of_unit(unit: str, *, constant: bool = False) -> Quantity:
    """Return the quantity of a figure with that unit."""
    if unit in TIME_UNITS:
        return Quantity("time", unit, constant)
    if unit in ("share", "%"):
        return Quantity("share", "", constant)
    return Quantity("count", unit, constant) if unit else Quantity("number", "", constant)


def combine(op: str, left: Quantity, right: Quantity) -> Quantity | None:
    """Return the quantity of ``left op right``; None = the two are incompatible.

    A plain number is compatible with everything and is taken in the other side's unit. Shares and counts scale what
    they multiply. Any other division gives a plain number.
    """
    constant = left.constant and right.constant
    if not (left.is_number and right.is_number):
        return None
    higher = max(left, right, key=lambda side: _RANKS.index(side.dimension))
    if op == "*":
        both_times = left.dimension == right.dimension == "time"
        return None if both_times else Quantity(higher.dimension, higher.unit, constant)
    if op == "/":
        if left.dimension in ("number", right.dimension) or right.dimension == "time":
            return Quantity("number", "", constant)
        return Quantity(left.dimension, left.unit, constant)
    if left.dimension == right.dimension:
        return Quantity(left.dimension, common_unit(left, right), constant)
    return Quantity(higher.dimension, higher.unit, constant) if "number" in (left.dimension, right.dimension) else None


def common_unit(left: Quantity, right: Quantity) -> str:
    """Return the common unit of two times: the unit of a constant is replaced."""
    return right.unit if left.constant and not right.constant else left.unit


# ---- requests ----

PHASES: Final = ("none", "in-transit", "waiting", "prefill", "decode", "stalled")
"""Phases of a request; the first before it arrives and after it ends."""


@dataclass(frozen=True, slots=True)
class RequestFigure:
    """A number about a live request; 0 if there is none of its name."""

    quantity: Quantity
    meaning: str
    """A phrase for help texts."""
    read: Callable[[RequestSnapshot], float]


REQUEST_FIGURES: Final[Mapping[str, RequestFigure]] = MappingProxyType(
    {
        "phase": RequestFigure(
            PHASE, f"what it does: {', '.join(PHASES)}", lambda request: PHASES.index(request.phase)
        ),
        "computed_tokens": RequestFigure(
            of_unit("tokens"), "tokens in the KV cache", lambda request: request.computed_tokens
        ),
        "generated_tokens": RequestFigure(of_unit("tokens"), "output tokens", lambda request: request.generated_tokens),
        "held_blocks": RequestFigure(of_unit("blocks"), "KV blocks that it holds", lambda request: request.held_blocks),
        "preemptions": RequestFigure(of_unit(""), "times preempted", lambda request: request.preemptions),
    }
)
"""Numbers about one request, written ``request_12.phase`` or ``request["any name"].phase``."""


# ---- names ----


class State(Protocol):
    """The source of figures: a simulation."""

    def figure(self, name: str, instance: int | None = None) -> float:
        """Return a figure of the whole cluster or of one instance."""

    def request(self, name: str) -> RequestSnapshot | None:
        """Return a live request; None = there is none of that name."""


@dataclass(frozen=True, slots=True)
class EventNumber:
    """A number about an event; ``read`` gives NaN if the event has none."""

    name: str
    unit: str
    """As in ``Figure``."""
    meaning: str
    """A phrase for help texts."""
    needs: frozenset[str]
    """Kinds of record it depends on."""
    read: Callable[[Sequence[Record]], float]


@dataclass(frozen=True, slots=True)
class EventText:
    """Texts about an event, one for each record: ``fits`` tells whether a record has a given text."""

    name: str
    meaning: str
    fits: Callable[[Record, str], bool]


def instance_of(record: Record) -> int | None:
    """Return the instance a record is about; None = it concerns the cluster."""
    instance: int | None = getattr(record, "instance", None)
    return instance


def subject_of(record: Record) -> str:
    """Return the request a record is about; empty for steps."""
    request_id: str = getattr(record, "request_id", "")
    return request_id


def involves(record: Record, request: str) -> bool:
    """Whether a record is about a request, or about a step that did more for it than decode one token."""
    if isinstance(record, StepFinished):
        return (
            any(chunk.request_id == request for chunk in record.chunks)
            or request in record.admitted
            or request in record.preempted
            or request in record.stalled
            or request in record.first_tokens
            or request in record.completed
        )
    return subject_of(record) == request


def names_request(record: Record, request: str) -> bool:
    """Whether a record mentions a request in any role."""
    return involves(record, request) or (isinstance(record, Preempted) and record.for_request == request)


def _of_kind(record: Record, kind: str) -> bool:
    return record.kind == kind


def _instance(records: Sequence[Record]) -> float:
    for record in records:
        instance = instance_of(record)
        if instance is not None:
            return instance
    return nan


def _step(name: str, unit: str, meaning: str, read: Callable[[StepFinished], float]) -> EventNumber:
    """Create a number about a step; 0 for other events."""

    def of_event(records: Sequence[Record]) -> float:
        for record in records:
            if isinstance(record, StepFinished):
                return read(record)
        return 0

    return EventNumber(name, unit, meaning, frozenset({StepFinished.kind}), of_event)


def _prefill_tokens(step: StepFinished) -> int:
    tokens = 0
    for chunk in step.chunks:
        tokens += chunk.new_tokens
    return tokens


def _ttft_ms(records: Sequence[Record]) -> float:
    ttfts_us = [record.ttft_us for record in records if isinstance(record, FirstToken)]
    return max(ttfts_us) / 1e3 if ttfts_us else nan


def _e2e_ms(records: Sequence[Record]) -> float:
    for record in records:
        if isinstance(record, Completed):
            return record.e2e_us / 1e3
    return nan


def _thrashing(records: Sequence[Record]) -> float:
    blocks = 0
    for record in records:
        if isinstance(record, TiersLoaded):
            blocks += record.thrashing
    return blocks


def _decided(name: str, meaning: str, ppm: Callable[[RoutingDecision], int | None]) -> EventNumber:
    """Create a share from a routing decision."""

    def of_event(records: Sequence[Record]) -> float:
        for record in records:
            if isinstance(record, RoutingDecision):
                share_ppm = ppm(record)
                return nan if share_ppm is None else share_ppm / PPM
        return nan

    return EventNumber(name, "share", meaning, frozenset({RoutingDecision.kind}), of_event)


def _scaling(name: str, unit: str, meaning: str, read: Callable[[ScalingDecided], int]) -> EventNumber:
    """Create a number from autoscaler evaluations, the maximum over roles."""

    def of_event(records: Sequence[Record]) -> float:
        return max((read(record) for record in records if isinstance(record, ScalingDecided)), default=nan)

    return EventNumber(f"scaling.{name}", unit, meaning, frozenset({ScalingDecided.kind}), of_event)


_NUMBERS: Final = (
    EventNumber("instance", "", "number of the event's instance, from 0", frozenset(streamed_kinds()), _instance),
    _decided(
        "regret",
        "best score minus that of the chosen instance, by the true state of the instances",
        lambda decision: decision.true_regret_ppm,
    ),
    _decided("regret.seen", "the same, by what the router saw", lambda decision: decision.regret_ppm),
    _scaling(
        "demand",
        "tokens",
        "KV tokens in use plus those of waiting requests, when the autoscaler evaluates (for the role with the most)",
        lambda look: look.demand_tokens,
    ),
    _scaling("supply", "tokens", "KV tokens that instances can hold, likewise", lambda look: look.supply_tokens),
    _scaling(
        "pending", "tokens", "KV tokens that pending instances can hold, likewise", lambda look: look.pending_tokens
    ),
    _scaling("required", "tokens", "KV tokens that are missing, likewise", lambda look: look.required_tokens),
    _scaling("spare", "tokens", "surplus KV tokens, likewise", lambda look: look.spare_tokens),
    _scaling("instances", "instances", "instances to add or remove, by its verdict", lambda look: look.instances),
    _step("step.duration_ms", "ms", "duration of the step", lambda step: step.duration_us / 1e3),
    _step("step.prefill_tokens", "tokens", "prompt tokens the step computed", _prefill_tokens),
    _step("step.decode_requests", "requests", "requests that decoded", lambda step: step.decode_requests),
    _step(
        "step.batch_tokens",
        "tokens",
        "prompt tokens the step computed, and one token for each decode (drafted ones do not count)",
        lambda step: _prefill_tokens(step) + step.decode_requests,
    ),
    _step("step.stalled", "requests", "running requests that got no token in the step", lambda step: len(step.stalled)),
    _step("step.admitted", "requests", "requests the step scheduled from the queue", lambda step: len(step.admitted)),
    _step("step.preempted", "requests", "requests the step preempted", lambda step: len(step.preempted)),
    _step("step.completed", "requests", "requests the step completed", lambda step: len(step.completed)),
    EventNumber(
        "tiers.thrashing",
        "blocks",
        "KV blocks reloaded from a tier at most 1 ms after they had left the GPU",
        frozenset({TiersLoaded.kind}),
        _thrashing,
    ),
    EventNumber(
        "ttft_ms",
        "ms",
        "time to first token, where the event has one (the longest of several)",
        frozenset({FirstToken.kind}),
        _ttft_ms,
    ),
    EventNumber(
        "e2e_ms",
        "ms",
        "end-to-end time, where the event completes a request",
        frozenset({Completed.kind}),
        _e2e_ms,
    ),
)

EVENT_NUMBERS: Final[Mapping[str, EventNumber]] = MappingProxyType({number.name: number for number in _NUMBERS})
"""Numbers about the event just processed, by name."""

EVENT_TEXTS: Final[Mapping[str, EventText]] = MappingProxyType(
    {
        "kind": EventText("kind", 'what happened, such as `kind == "preempted"`', _of_kind),
        "request": EventText("request", 'the request it is about, such as `request == "request_12"`', names_request),
    }
)
"""Texts about the event just processed, by name."""
