"""What the control plane does beyond admitting and routing, one frozen record each."""

from __future__ import annotations

from blis_tui.classes import dataclass
from blis_tui.engine.adapters.records import AdapterHeld as _AdapterHeld  # noqa: F401  (kinds come behind others)
from blis_tui.engine.content_records import AnswerBegun as _AnswerBegun  # noqa: F401  (likewise)
from blis_tui.engine.preemption.records import RestoreChosen as _RestoreChosen  # noqa: F401  (kinds come in that order)
from blis_tui.engine.records import Description, Record
from blis_tui.engine.speculative.records import DraftsVerified as _DraftsVerified  # noqa: F401  (likewise)


@dataclass(frozen=True, slots=True)
class Deferred(Record):
    """A request has to wait until the cluster is idle."""

    shown = Description(
        "deferred",
        sign="z",
        meaning="a request was put off until the cluster is idle",
        explanation="Its class may only use an idle cluster: it comes back when no instance has work.",
        sentence="{request_id} was put off: {in_flight:request} in flight",
        line="put off until the cluster is idle",
        brief="until idle",
        figures=("in_flight",),
        state="in transit",
    )

    request_id: str
    in_flight: int
    """Requests on the instances."""


@dataclass(frozen=True, slots=True)
class Resumed(Record):
    """The cluster is idle: deferred requests come back."""

    shown = Description(
        "resumed",
        sign="Z",
        meaning="deferred requests came back to an idle cluster",
        sentence="{request_id} comes back: the cluster is idle",
        state="in transit",
        own_event=False,
    )

    request_id: str


@dataclass(frozen=True, slots=True)
class Held(Record):
    """A request was put into the gateway's queue."""

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
    priority: int
    waiting: int
    """Requests in the queue, this one included."""


@dataclass(frozen=True, slots=True)
class Dispatched(Record):
    """The gateway sent a request on to the router."""

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
    waited_us: int
    waiting: int
    """Requests left in the queue."""
    saturation_ppm: int
    """How busy the instances were: 1,000,000 is saturated."""


@dataclass(frozen=True, slots=True)
class GatewayTick(Record):
    """The gateway looked whether it could dispatch somebody."""

    shown = Description(
        "gateway-tick",
        sign="·",
        meaning="the gateway looked whether it could dispatch a request",
        sentence="the gateway looked at its queue, {waiting:request} left in it",
    )

    waiting: int
    saturation_ppm: int


@dataclass(frozen=True, slots=True)
class Split(Record):
    """It was decided whether a request's prefill and decode run on different instances."""

    shown = Description(
        "split",
        sign="Y",
        meaning="it was decided whether prefill and decode of a request run on different instances",
        sentence="{request_id}: {verdict}, {reason}",
        line="{reason}",
        state="in transit",
        own_event=False,
    )

    request_id: str
    verdict: str
    """``split`` or ``whole``."""
    reason: str


@dataclass(frozen=True, slots=True)
class TransferStarted(Record):
    """The KV blocks of a prompt are on their way to the decode instance."""

    shown = Description(
        "transfer-started",
        sign="⇢",
        meaning="the KV blocks of a prompt started on their way to another instance",
        explanation="Its prompt is computed. Its KV blocks go to the instance that generates its answer.",
        sentence="the KV blocks of {request_id} leave instance {instance}, {transfers:transfer} under way",
        line="KV transfer starts, {transfers:,} under way",
        figures=("transfers", "bytes"),
        state="in transit",
    )

    request_id: str
    instance: int
    """Where its prompt was computed."""
    decode_instance: int
    """Where they go; -1 = not chosen yet."""
    bytes: int
    transfers: int
    """Under way, this one included."""


@dataclass(frozen=True, slots=True)
class TransferFinished(Record):
    """The KV blocks of a prompt have arrived."""

    shown = Description(
        "transfer-finished",
        sign="⇥",
        meaning="the KV blocks of a prompt have arrived",
        sentence="the KV blocks of {request_id} have arrived after {duration_us:ms}",
        line="KV transfer done after {duration_us:ms}",
        figures=("duration_us",),
        state="in transit",
    )

    request_id: str
    duration_us: int


@dataclass(frozen=True, slots=True)
class TransferBrokenOff(Record):
    """The KV blocks of a prompt did not arrive: one of the two instances has gone."""

    shown = Description(
        "transfer-broken-off",
        sign="⇎",
        colour="warning",
        meaning="the transfer of a prompt's KV blocks was broken off",
        explanation="One of its two instances has gone, with its KV cache. The request starts again, or is lost.",
        sentence="the KV blocks of {request_id} do not arrive: {reason}",
        line="KV transfer broken off: {reason}",
        state="in transit",
        own_event=False,
    )

    request_id: str
    instance: int
    """The one that has gone."""
    reason: str


@dataclass(frozen=True, slots=True)
class Candidate:
    """An instance that a request could have been sent to: what the router saw of it, and its scores."""

    instance: int
    waiting: int
    running: int
    in_flight: int
    kv_used_blocks: int
    kv_total_blocks: int
    age_us: int
    """How old these figures were, but for the requests in flight."""
    score_ppm: int
    """The weighted sum, in parts per million."""
    true_score_ppm: int
    """What it would have been had the router seen the instance as it was."""
    scores_ppm: tuple[int, ...]
    """Before weights, in the order of ``RoutingDecision.scorers``."""


@dataclass(frozen=True, slots=True)
class RoutingDecision(Record):
    """What the router weighed when it chose an instance."""

    shown = Description(
        "routing-decision",
        sign="⚖",
        meaning="the router weighed its candidates",
        sentence=(
            "{policy} chose instance {instance} of {candidates:candidate} for {request_id}, regret"
            " {regret_ppm:,} ppm, {true_regret_ppm:,} ppm against the true state"
        ),
        line="chose instance {instance}",
        own_event=False,
        on_demand=True,
    )

    request_id: str
    instance: int
    """The chosen one."""
    policy: str
    candidates: int
    """How many there were."""
    regret_ppm: int
    """The best score less that of the chosen one, as the router saw the instances."""
    true_regret_ppm: int
    """The same, had it seen them as they were."""
    scorers: tuple[str, ...]
    """The names of the scores."""
    shares_ppm: tuple[int, ...]
    """What each counts, of all together."""
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
    client: str
