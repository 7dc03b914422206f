"""How instances come and go, and what that does to requests, one frozen record each."""

from __future__ import annotations

import blis_tui.cluster.records  # noqa: F401  (kinds are listed in the order in which they are defined: those first)
from blis_tui.classes import dataclass
from blis_tui.engine.records import Description, Record


@dataclass(frozen=True, slots=True)
class InstanceChanged(Record):
    """An instance has reached another state of its life."""

    shown = Description(
        "instance-changed",
        sign="◆",
        meaning="an instance came, went, or changed in between",
        explanation="Only an instance that is warming up or active gets new requests.",
        sentence="instance {instance}: {reason}",
        line="{reason}",
    )

    instance: int
    pool: str
    state: str
    """``scheduling``, ``loading``, ``warming-up``, ``active``, ``draining``, ``terminated`` or ``failed``."""
    before: str
    """The state until now; empty = it is new."""
    reason: str
    """The state and how it came to it."""


@dataclass(frozen=True, slots=True)
class InstanceStopped(Record):
    """The last step of an instance that died or had to go at once is over: its requests and its KV cache are gone."""

    shown = Description(
        "instance-stopped",
        sign="✕",
        colour="error",
        meaning="an instance stopped with all that it held",
        explanation="A step is never torn apart: an instance that dies within one stops at its end.",
        sentence="instance {instance} stopped with {requests:request}",
        line="stopped with {requests:request}",
        figures=("requests",),
    )

    instance: int
    requests: int
    """Those that waited or ran there."""


@dataclass(frozen=True, slots=True)
class Retried(Record):
    """A request left an instance that could not serve it to the end: it is routed again."""

    shown = Description(
        "retried",
        sign="↺",
        colour="warning",
        meaning="a request has to start again, on another instance",
        explanation="Its instance has gone. The router chooses again; what was computed is lost, its arrival stays.",
        sentence="{request_id} has to leave instance {instance} and starts again",
        line="has to leave and starts again",
        figures=("failures",),
        state="in transit",
        change="its instance has gone: it starts again",
        own_event=False,
    )

    request_id: str
    instance: int
    failures: int
    """How many instances have died under it."""


@dataclass(frozen=True, slots=True)
class Lost(Record):
    """A request went down with its instance."""

    shown = Description(
        "lost",
        sign="¬",
        colour="error",
        meaning="a request was lost with its instance",
        sentence="{request_id} was lost with instance {instance}: {reason}",
        line="lost: {reason}",
        ends="lost",
        change="it was lost with its instance",
        own_event=False,
    )

    request_id: str
    instance: int
    reason: str


@dataclass(frozen=True, slots=True)
class Stranded(Record):
    """There is no instance that a request could be sent to."""

    shown = Description(
        "stranded",
        sign="¦",
        colour="warning",
        meaning="a request found no instance that it could be sent to",
        explanation="It is routed when an instance has come up.",
        sentence="{request_id} waits for an instance, {waiting:request} in all",
        line="waits for an instance, {waiting:request} in all",
        figures=("waiting",),
        state="in transit",
    )

    request_id: str
    waiting: int


@dataclass(frozen=True, slots=True)
class ScalingDecided(Record):
    """The autoscaler compared demand and supply."""

    shown = Description(
        "scaling-decided",
        sign="⇕",
        meaning="the autoscaler compared demand and supply",
        explanation="Demand is what the KV caches hold and what waits; supply is what the instances can hold.",
        sentence="the autoscaler: {reason}",
        line="{reason}",
        figures=("instances",),
    )

    verdict: str
    """``scale-up``, ``scale-down``, ``wait`` (for the stabilization window or an order under way) or ``hold``."""
    pool: str
    """Where instances come or go; empty = nowhere."""
    instances: int
    """How many."""
    demand_tokens: int
    supply_tokens: int
    pending_tokens: int
    """What instances that are on their way will add to the supply."""
    required_tokens: int
    """What is missing; 0 = nothing."""
    spare_tokens: int
    """What is too much; 0 = nothing."""
    reason: str


@dataclass(frozen=True, slots=True)
class Scaled(Record):
    """A decision of the autoscaler took effect."""

    shown = Description(
        "scaled",
        sign="↕",
        meaning="a decision of the autoscaler took effect",
        sentence="pool {pool}: {change:+d} instances",
        line="{change} instances",
        figures=("change",),
    )

    pool: str
    change: int
    """Instances that come, or (negative) go."""


@dataclass(frozen=True, slots=True)
class NodeChanged(Record):
    """A machine was ordered, is there, or was given back."""

    shown = Description(
        "node-changed",
        sign="▣",
        meaning="a machine was ordered, came, or was given back",
        sentence="{reason}",
        line="{reason}",
    )

    node: str
    state: str
    """``provisioning``, ``ready`` or ``released``."""
    reason: str
