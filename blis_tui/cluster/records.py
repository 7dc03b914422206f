"""Records of the control plane beyond admission and routing, one frozen dataclass each.

Kinds are listed in the order of their definition: requests on their way, instances that come and go, sessions.
"""

from __future__ import annotations

from blis_tui.base.classes import dataclass
from blis_tui.engine.records import AdapterHeld as _AdapterHeld  # noqa: F401  (defines its kinds first)
from blis_tui.engine.records import AnswerBegun as _AnswerBegun  # noqa: F401  (as above)
from blis_tui.engine.records import Description, Record
from blis_tui.engine.records import DraftsVerified as _DraftsVerified  # noqa: F401  (as above)
from blis_tui.engine.records import RestoreChosen as _RestoreChosen  # noqa: F401  (as above)


@dataclass(frozen=True, slots=True)
class Deferred(Record):
    """A request was deferred until the cluster is idle."""

    shown = Description(
        "deferred",
        sign="z",
        meaning="a request was deferred until the cluster is idle",
        explanation="Its class may only use an idle cluster: it comes back when no instance has work.",
        sentence="{request_id} was deferred: {in_flight:request} in flight",
        line="deferred until the cluster is idle",
        brief="until idle",
        figures=("in_flight",),
        state="in transit",
    )

    request_id: str
    """The request's name."""
    in_flight: int
    """Requests on the instances."""


@dataclass(frozen=True, slots=True)
class Resumed(Record):
    """The cluster is idle, so a deferred request comes back."""

    shown = Description(
        "resumed",
        sign="Z",
        meaning="deferred requests came back to an idle cluster",
        sentence="{request_id} comes back: the cluster is idle",
        state="in transit",
        own_event=False,
    )

    request_id: str
    """The request's name."""


@dataclass(frozen=True, slots=True)
class Held(Record):
    """The gateway queued a request."""

    shown = Description(
        "held",
        sign="‖",
        meaning="the gateway put a request into its queue",
        explanation="The gateway dispatches it when the instances are less busy.",
        sentence="{request_id} waits in the gateway's queue, {waiting:request} in it",
        line="in the gateway's queue, {waiting:,} in it",
        brief="{waiting} held",
        figures=("waiting", "priority"),
        state="in transit",
        own_event=False,
    )

    request_id: str
    """The request's name."""
    priority: int
    """Its priority: larger is more urgent."""
    waiting: int
    """Requests in the queue, this one included."""


@dataclass(frozen=True, slots=True)
class Dispatched(Record):
    """The gateway dispatched a request to the router."""

    shown = Description(
        "dispatched",
        sign="≫",
        meaning="the gateway sent a request on to the router",
        sentence="{request_id} was dispatched after {waited_us:ms}",
        line="dispatched after {waited_us:ms}",
        figures=("waited_us", "waiting"),
        state="in transit",
        own_event=False,
    )

    request_id: str
    """The request's name."""
    waited_us: int
    """How long the gateway held it."""
    waiting: int
    """Requests left in the queue."""
    saturation_ppm: int
    """How busy the instances were: 1,000,000 is saturated."""


@dataclass(frozen=True, slots=True)
class GatewayTick(Record):
    """The gateway checked whether it could dispatch a request."""

    shown = Description(
        "gateway-tick",
        sign="·",
        meaning="the gateway checked whether it could dispatch a request",
        sentence="the gateway checked its queue, {waiting:request} left in it",
    )

    waiting: int
    """Requests in the gateway's queue."""
    saturation_ppm: int
    """How busy the instances were, in parts per million: 1,000,000 is saturated."""


@dataclass(frozen=True, slots=True)
class Split(Record):
    """The decider chose whether a request's prefill and decode run on different instances."""

    shown = Description(
        "split",
        sign="Y",
        meaning="the decider chose whether prefill and decode of a request run on different instances",
        sentence="{request_id}: {verdict}, {reason}",
        line="{reason}",
        state="in transit",
        own_event=False,
    )

    request_id: str
    """The request's name."""
    verdict: str
    """``split`` or ``whole``."""
    reason: str
    """Why, in words."""


@dataclass(frozen=True, slots=True)
class TransferStarted(Record):
    """The transfer of a prompt's KV blocks to the decode instance started."""

    shown = Description(
        "transfer-started",
        sign="⇢",
        meaning="the transfer of a prompt's KV blocks to another instance started",
        explanation="Its prompt is computed. Its KV blocks go to the instance that generates its answer.",
        sentence="the KV blocks of {request_id} are leaving instance {instance}, {transfers:transfer} in progress",
        line="KV transfer starts, {transfers:,} in progress",
        figures=("transfers", "bytes"),
        state="in transit",
    )

    request_id: str
    """The request's name."""
    instance: int
    """Where its prompt was computed."""
    decode_instance: int
    """Where the KV blocks go; -1 = not chosen yet."""
    bytes: int
    """Bytes of the KV blocks."""
    transfers: int
    """Transfers in flight, this one included."""


@dataclass(frozen=True, slots=True)
class TransferFinished(Record):
    """The KV blocks of a prompt have arrived."""

    shown = Description(
        "transfer-finished",
        sign="⇥",
        meaning="the KV blocks of a prompt arrived",
        sentence="the KV blocks of {request_id} have arrived after {duration_us:ms}",
        line="KV transfer done after {duration_us:ms}",
        figures=("duration_us",),
        state="in transit",
    )

    request_id: str
    """The request's name."""
    duration_us: int
    """Duration of the transfer."""


@dataclass(frozen=True, slots=True)
class TransferBrokenOff(Record):
    """The KV blocks of a prompt did not arrive, because one of the two instances is gone."""

    shown = Description(
        "transfer-broken-off",
        sign="⇎",
        colour="warning",
        meaning="the transfer of a prompt's KV blocks was aborted",
        explanation="One of its two instances has gone, with its KV cache. The request starts again, or is lost.",
        sentence="the KV transfer of {request_id} was aborted: {reason}",
        line="KV transfer aborted: {reason}",
        state="in transit",
        own_event=False,
    )

    request_id: str
    """The request's name."""
    instance: int
    """The instance that is gone."""
    reason: str
    """Why, in words."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A candidate instance for a request: what the router saw of it, and its scores."""

    instance: int
    """Index of the instance."""
    waiting: int
    """Requests in its queue."""
    running: int
    """Requests in its batch."""
    in_flight: int
    """Requests sent there that have not ended."""
    kv_used_blocks: int
    """KV blocks in use."""
    kv_total_blocks: int
    """Total number of its KV blocks."""
    age_us: int
    """Age of these figures, except for the requests in flight."""
    score_ppm: int
    """The weighted sum, in parts per million."""
    true_score_ppm: int
    """What the sum would have been by the instance's actual state."""
    scores_ppm: tuple[int, ...]
    """Unweighted scores, in the order of ``RoutingDecision.scorers``."""


@dataclass(frozen=True, slots=True)
class RoutingDecision(Record):
    """What the router weighed when it chose an instance."""

    shown = Description(
        "routing-decision",
        sign="⚖",
        meaning="the router scored its candidates",
        sentence=(
            "{policy} chose instance {instance} of {candidates:candidate} for {request_id}, regret"
            " {regret_ppm:ppm}, {true_regret_ppm:ppm} against the true state"
        ),
        line="chose instance {instance}",
        own_event=False,
        on_demand=True,
    )

    request_id: str
    """The request's name."""
    instance: int
    """The chosen instance."""
    policy: str
    """The name of the routing policy."""
    candidates: int
    """Number of candidates."""
    regret_ppm: int | None
    """The best score minus that of the chosen instance, in the router's view; None = the policy has no scores."""
    true_regret_ppm: int | None
    """The regret by the instances' actual state."""
    scorers: tuple[str, ...]
    """The names of the scores; without any, candidates are shown by their load."""
    shares_ppm: tuple[int, ...]
    """The weight of each score as a share of the total."""
    top: tuple[Candidate, ...]
    """The candidates with the highest scores, best first, and the chosen one."""


@dataclass(frozen=True, slots=True)
class SentByClient(Record):
    """Which client of the workload sent a request that arrived."""

    shown = Description(
        "sent-by-client",
        sign="◂",
        meaning="a client sent a request",
        sentence="{client} sent {request_id}",
        own_event=False,
        on_demand=True,
    )

    request_id: str
    """The request's name."""
    client: str
    """The ``id`` of the client in the workload."""


# ---- instances that come and go, and their requests ----


@dataclass(frozen=True, slots=True)
class InstanceChanged(Record):
    """An instance entered another state of its life cycle."""

    shown = Description(
        "instance-changed",
        sign="◆",
        meaning="an instance was added, removed, or changed state",
        explanation="Only an instance that is warming up or active gets new requests.",
        sentence="instance {instance}: {reason}",
        line="{reason}",
    )

    instance: int
    """Index of the instance."""
    pool: str
    """The name of its pool."""
    state: str
    """``scheduling``, ``loading``, ``warming-up``, ``active``, ``draining``, ``terminated`` or ``failed``."""
    before: str
    """The previous state; empty = the instance is new."""
    reason: str
    """The state and the reason for it."""


@dataclass(frozen=True, slots=True)
class InstanceStopped(Record):
    """The last step of an instance that failed or had to go at once is over: its requests and its KV cache are gone."""

    shown = Description(
        "instance-stopped",
        sign="✕",
        colour="error",
        meaning="an instance stopped, with everything it held",
        explanation="A step is never cut short: an instance that fails during one stops at its end.",
        sentence="instance {instance} stopped with {requests:request}",
        line="stopped with {requests:request}",
        figures=("requests",),
    )

    instance: int
    """Index of the instance."""
    requests: int
    """Requests that waited or ran there."""


@dataclass(frozen=True, slots=True)
class Retried(Record):
    """A request left an instance that could not complete it, and is routed again."""

    shown = Description(
        "retried",
        sign="↺",
        colour="warning",
        meaning="a request has to start again, because its instance has gone",
        explanation="The router chooses again; what was computed is lost, but its arrival time stays.",
        sentence="{request_id} has to leave instance {instance} and starts again",
        line="has to leave and starts again",
        figures=("failures",),
        state="in transit",
        change="its instance has gone: it starts again",
        own_event=False,
    )

    request_id: str
    """The request's name."""
    instance: int
    """Index of the instance that it left."""
    failures: int
    """Number of instances that have failed under it."""


@dataclass(frozen=True, slots=True)
class Lost(Record):
    """A request was lost with its instance."""

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
    """The request's name."""
    instance: int
    """Index of the instance."""
    reason: str
    """Why, in words."""


@dataclass(frozen=True, slots=True)
class Stranded(Record):
    """There is no instance that a request could be sent to, so it waits."""

    shown = Description(
        "stranded",
        sign="¦",
        colour="warning",
        meaning="no instance was available for a request",
        explanation="It is routed when an instance becomes available.",
        sentence="{request_id} waits for an instance, {waiting:request} in total",
        line="waits for an instance, {waiting:request} in total",
        figures=("waiting",),
        state="in transit",
    )

    request_id: str
    """The request's name."""
    waiting: int
    """Requests that wait for an instance, this one included."""


@dataclass(frozen=True, slots=True)
class ScalingDecided(Record):
    """The autoscaler evaluated how many instances there should be: by demand and supply, or by a rule."""

    shown = Description(
        "scaling-decided",
        sign="⇕",
        meaning="the autoscaler evaluated how many instances there should be",
        explanation="Demand is what the KV caches hold and what is waiting; supply is what the instances can hold.",
        sentence="the autoscaler: {reason}",
        line="{reason}",
        figures=("instances",),
    )

    verdict: str
    """``scale-up``, ``scale-down``, ``wait`` (for the stabilization window) or ``hold``."""
    pool: str
    """The pool to change; empty = none."""
    instances: int
    """Number of instances to add or remove."""
    demand_tokens: int
    """Tokens in the KV caches, plus those that waiting requests are expected to need."""
    supply_tokens: int
    """Capacity of the KV caches in tokens, times ``kv_utilization_threshold``."""
    pending_tokens: int
    """Supply that instances being started will add."""
    required_tokens: int
    """Missing supply; 0 = none."""
    spare_tokens: int
    """Excess supply; 0 = none."""
    reason: str
    """Why, in words."""


@dataclass(frozen=True, slots=True)
class Scaled(Record):
    """A decision of the autoscaler took effect."""

    shown = Description(
        "scaled",
        sign="↕",
        meaning="a decision of the autoscaler took effect",
        sentence="pool {pool}: {change:+d} instances, {reason}",
        line="{change:+d} instances",
        figures=("change",),
    )

    pool: str
    """The name of the pool."""
    change: int
    """Instances added or (negative) removed."""
    reason: str
    """Why that was decided, in words."""


@dataclass(frozen=True, slots=True)
class NodeChanged(Record):
    """A node was ordered, became ready, or was released."""

    shown = Description(
        "node-changed",
        sign="▣",
        meaning="a node was requested, became ready, or was released",
        sentence="{reason}",
        line="{reason}",
    )

    node: str
    """The node's name."""
    state: str
    """``provisioning``, ``ready`` or ``released``."""
    reason: str
    """Why, in words."""


@dataclass(frozen=True, slots=True)
class WarmUpEnded(Record):
    """The initial period that latencies leave out (``warm_up_us``) has passed."""

    shown = Description(
        "warm-up-ended",
        sign="◷",
        meaning="the warm-up ended",
        explanation="From here on latencies count: those of requests that arrive, and gaps between the tokens of steps "
        "that begin.",
        sentence="the warm-up ended with {requests:request} in the cluster: latencies count from here on",
        line="{requests:request} in the cluster",
        figures=("requests",),
    )

    requests: int
    """Requests that had arrived and not ended; the report's latencies leave them out."""


# ---- sessions ----


@dataclass(frozen=True, slots=True)
class SessionBegun(Record):
    """A request begins a session: a conversation, or a run of an agent."""

    shown = Description(
        "session-begun",
        sign="(",
        meaning="a request began a session",
        explanation="Later calls of the session wait for its answer, and their prompts start with the conversation so "
        "far.",
        sentence="{request_id} begins the session {session_id}",
        line="begins a session of {calls:call}",
        figures=("calls",),
        state="in transit",
        own_event=False,
    )

    request_id: str
    """The request's name."""
    session_id: str
    """The session's name."""
    calls: int
    """Requests that the session has if each is answered."""


@dataclass(frozen=True, slots=True)
class SessionContinued(Record):
    """A request continues a session."""

    shown = Description(
        "session-continued",
        sign=")",
        meaning="a request continued a session",
        explanation="The calls that it waited for have been answered, and the user's think time or a tool's work is "
        "over.",
        sentence="{request_id} continues the session {session_id} as call {call:place}, {waited_us:span} later",
        line="continues its session {waited_us:span} after {last}",
        figures=("last", "waited_us"),
        state="in transit",
        own_event=False,
    )

    request_id: str
    """The request's name."""
    session_id: str
    """The session's name."""
    call: int
    """Its position in the session, from 0."""
    after: tuple[str, ...]
    """Requests that it waited for."""
    last: str
    """The one of them that was answered last or, with ``pacing: clock``, sent last."""
    waited_us: int
    """Time since then."""
    history_tokens: int
    """Tokens of its prompt that appeared before in the session, or are common to all prompts of its client."""
