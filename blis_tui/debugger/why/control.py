"""Why the control plane acted as it did: rejections, holds, deferrals, routing, splits and transfers.

Each sentence comes from records: those of the event, and those of the decision, which is replayed for this.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from blis_tui.base.portable_math import whole_sum
from blis_tui.base.units import bytes_text, count_text, ordinal, percent_text, plural, span_text, with_spans
from blis_tui.cluster.admission_control import BUDGET
from blis_tui.cluster.decisions import LOAD, PPM
from blis_tui.cluster.options.lifecycle import NAME as LIFECYCLE
from blis_tui.cluster.records import (
    Deferred,
    Dispatched,
    Held,
    Resumed,
    RoutingDecision,
    Split,
    TransferFinished,
    TransferStarted,
)
from blis_tui.cluster.router import NAME as ROUTER
from blis_tui.cluster.stages import CANDIDATES, GATEWAY
from blis_tui.debugger.why.explanation import (
    ExplanationRow,
    Part,
    Sentence,
    event_ref,
    instance_ref,
    listing,
    request_ref,
    say,
)
from blis_tui.engine.records import Record, Rejected

if TYPE_CHECKING:
    from collections.abc import Iterable

    from blis_tui.debugger.debugger import Debugger
    from blis_tui.debugger.event_store import EventRow, RequestEvent
    from blis_tui.model import Gateway

_R = TypeVar("_R", bound=Record)


def record_of(debugger: Debugger, event: int, kind: type[_R], request: str = "") -> _R | None:
    """Return the record of a kind in an event, for a given request if one is named."""
    return first_record(debugger.records_of(event), kind, request)


def first_record(records: Iterable[Record], kind: type[_R], request: str = "") -> _R | None:
    """Return the first record of a kind, for a given request if one is named."""
    own = (record for record in records if isinstance(record, kind))
    return next((record for record in own if request in ("", getattr(record, "request_id", ""))), None)


# ---- rejections ----


def rejected_by(record: Rejected) -> str:
    """Return what rejected a request, as the subject of a sentence."""
    if record.policy == GATEWAY:
        return "The gateway"
    if record.policy == BUDGET:
        return "The budget of its tenant"
    if record.policy == ROUTER:
        return "The router"
    if record.policy == LIFECYCLE:
        return "The cluster"
    return f"Admission control ({record.policy})"


def rejection(debugger: Debugger, record: Rejected) -> list[Sentence]:
    """Return what rejected a request, by which rule, and with what figures."""
    tape, experiment = debugger.tape, debugger.experiment
    life = tape.life(record.request_id, record.event)
    name = request_ref(record.request_id)
    facts: list[Sentence] = [say(f"{rejected_by(record)} rejected ", name, f": {with_spans(record.reason)}.")]
    if record.policy == GATEWAY and experiment.policy.gateway is not None:
        held = next((event for event in reversed(life) if event.what == "held"), None)
        facts += _gateway_limits(record, held, experiment.policy.gateway)
    elif record.policy == BUDGET:
        facts += _budget(debugger, record)
    else:
        facts += [say(f"Its prompt has {plural(life[0].first, 'token')}.")]
        rule = debugger.moment().state.admission_rule
        facts += [say(rule)] if rule else []
    return facts


def _gateway_limits(record: Rejected, held: RequestEvent | None, settings: Gateway) -> list[Sentence]:
    """Return the limit of the gateway that a request came up against; ``held``: when it was put into the queue."""
    facts: list[Sentence] = []
    if held is not None:
        waited_us = record.time_us - held.time_us
        facts.append(say(f"It had waited there for {span_text(waited_us)}, since ", event_ref(held.event), "."))
        if 0 < settings.request_ttl_us <= waited_us:
            return [*facts, say(f"A request may wait for {span_text(settings.request_ttl_us)}.")]
    elif settings.per_band_capacity:
        most = plural(settings.per_band_capacity, "request")
        facts.append(say(f"Each band holds {most}; when it is full, it takes no others."))
    if settings.max_depth:
        most = plural(settings.max_depth, "request")
        facts.append(say(f"The gateway holds {most}; when it is full: {settings.when_full}."))
    return facts


def _budget(debugger: Debugger, record: Rejected) -> list[Sentence]:
    """Return how many requests the tenant may have in flight: a share of the places in the batches of instances."""
    experiment = debugger.experiment
    budgets = experiment.policy.tenant_budgets
    arrival = debugger.records_of(debugger.tape.first_event_of(record.request_id))
    tenant = next((str(getattr(arrived, "tenant_id", "")) for arrived in arrival if hasattr(arrived, "tenant_id")), "")
    if budgets is None or tenant not in budgets.fractions:
        return []
    seats = {pool.name: pool.engine.max_num_seqs for pool in experiment.pools}
    up = [instance for instance in debugger.state_before(record.event).instances if instance.life in CANDIDATES]
    places = whole_sum([seats[instance.pool] for instance in up])
    share = percent_text(round(budgets.fractions[tenant] * PPM), PPM)
    return [
        say(
            f"{tenant} may have {share} of the {count_text(places)} places in the batches of instances that receive"
            " requests."
        ),
        say(f"Over its budget, requests of classes below priority {budgets.shed_below_priority} are rejected."),
    ]


def rejected_event(debugger: Debugger, row: EventRow) -> tuple[str, list[Part]]:
    """Return the explanation of a rejection."""
    record = record_of(debugger, row.event, Rejected, debugger.tape.name(row.request))
    if record is None:
        return "It was rejected.", []
    head = f"{rejected_by(record)} rejected it: {with_spans(record.reason)}."
    return head, [Part("The decision", tuple(rejection(debugger, record)))]


def rejection_parts(debugger: Debugger, event: int) -> list[Part]:
    """Return the requests that an event of another kind rejected because the gateway was full."""
    rejected = (record for record in debugger.records_of(event) if isinstance(record, Rejected))
    return [Part("The rejection", tuple(rejection(debugger, record))) for record in rejected]


# ---- waits before routing ----


def deferred_event(debugger: Debugger, row: EventRow) -> tuple[str, list[Part]]:
    """Return the explanation of a deferral."""
    record = record_of(debugger, row.event, Deferred)
    if record is None:
        return "It was deferred.", []
    facts = say(
        request_ref(record.request_id),
        f" is of a class that may only use an idle cluster, and {plural(record.in_flight, 'request')}"
        f" {'was' if record.in_flight == 1 else 'were'} in flight.",
    )
    more = say("It comes back to admission control when no request is in flight any more.")
    return "It is deferred until the cluster is idle.", [Part("The decision", (facts, more))]


def gateway_parts(debugger: Debugger, event: int) -> list[Part]:
    """Return what the gateway did in an event."""
    facts: list[Sentence] = []
    for record in debugger.records_of(event):
        if isinstance(record, Held):
            place = "it is the only one" if record.waiting == 1 else f"{count_text(record.waiting)} wait there now"
            name = request_ref(record.request_id)
            facts.append(say("The gateway put ", name, f" into its queue (priority {record.priority}): {place}."))
        elif isinstance(record, Dispatched):
            level = f"{record.saturation_ppm / PPM:.2f}"
            name = request_ref(record.request_id)
            waited = f"after {span_text(record.waited_us)}" if record.waited_us else "at once"
            facts.append(say("It dispatched ", name, f" {waited}: saturation was {level}."))
    gateway = debugger.moment().state.gateway
    if facts and gateway is not None:
        facts.append(say(gateway.rule))
    return [Part("The gateway", tuple(facts))] if facts else []


def resumed_parts(debugger: Debugger, event: int) -> list[Part]:
    """Return which deferred requests came back in an event."""
    refs = [request_ref(record.request_id) for record in debugger.records_of(event) if isinstance(record, Resumed)]
    if not refs:
        return []
    return [Part("Deferred requests", (say("The cluster was idle, so these came back: ", *listing(refs, 8), "."),))]


# ---- routing ----


def decision_parts(debugger: Debugger, event: int) -> list[Part]:
    """Return what the router weighed in an event; empty if it had no choice."""
    decision = record_of(debugger, event, RoutingDecision)
    if decision is None or decision.candidates < 2:
        return []
    rows = []
    for each in decision.top:
        scores = ", ".join(
            f"{name} {value / PPM:.3f}" for name, value in zip(decision.scorers, each.scores_ppm, strict=True)
        )
        load = f"{each.waiting:,} waiting, {each.running:,} running, {each.in_flight:,} in flight"
        kv = f"KV {percent_text(each.kv_used_blocks, each.kv_total_blocks)}"
        chosen = "chosen" if each.instance == decision.instance else ""
        detail = f"{load}, {kv}" if decision.scorers == (LOAD,) else f"{scores}; {load}, {kv}"
        rows.append(ExplanationRow(f"instance {each.instance}", f"{each.score_ppm / PPM:.3f}", chosen, say(detail)))
    return [Part("The choice, by score", tuple(_choice(decision)), tuple(rows))]


def _choice(decision: RoutingDecision) -> list[Sentence]:
    facts: list[Sentence] = []
    if decision.regret_ppm is None:
        facts.append(say(f"{decision.policy} has no scores; its candidates are compared by load: 1 / (1 + load)."))
    else:
        shares = (
            f"{percent_text(ppm, PPM)} {name}" for name, ppm in zip(decision.scorers, decision.shares_ppm, strict=True)
        )
        facts.append(say(f"The score is {' + '.join(shares)}."))
    age = decision.top[0].age_us
    if age or decision.scorers != (LOAD,):
        facts.append(_age(age))
    best = decision.top[0]
    if decision.regret_ppm:
        gap = f"{decision.regret_ppm / PPM:.3f} more than the chosen one"
        facts.append(say("By that, ", instance_ref(best.instance), f" had the best score, {gap}."))
    if decision.true_regret_ppm:
        gap = f"{decision.true_regret_ppm / PPM:.3f}"
        facts.append(say(f"By the true state at that moment, the best score was {gap} above that of the chosen one."))
    elif age and decision.true_regret_ppm is not None:
        facts.append(say("The true state at that moment would have led to an equally good choice."))
    return facts


def _age(age_us: int) -> Sentence:
    old = f"{span_text(age_us)} old" if age_us else "up to date"
    return say(f"The router's view of queues, batches and KV caches was {old}.")


# ---- disaggregation ----


def split_parts(debugger: Debugger, event: int) -> list[Part]:
    """Return why a request was or was not split between prefill and decode instances."""
    split = record_of(debugger, event, Split)
    if split is None:
        return []
    where = "on different instances" if split.verdict == "split" else "on one instance"
    facts = say("Prefill and decode of ", request_ref(split.request_id), f" run {where}: {with_spans(split.reason)}.")
    return [Part("Disaggregation", (facts,))]


def transfer_started_event(debugger: Debugger, row: EventRow) -> tuple[str, list[Part]]:
    """Return the explanation of the start of a transfer."""
    transfer = record_of(debugger, row.event, TransferStarted)
    split = debugger.experiment.cluster.disaggregation
    if transfer is None or split is None:
        return "KV blocks are on their way.", []
    link = split.transfer
    size = bytes_text(transfer.bytes)
    facts: list[Sentence] = [
        say(
            f"{size} leave ",
            instance_ref(transfer.instance),
            ", where the prompt of ",
            request_ref(transfer.request_id),
        )
        + say(" was computed."),
        say("They go to ", instance_ref(transfer.decode_instance), ".")
        if transfer.decode_instance >= 0
        else say("The decode instance is chosen when they have arrived."),
        say(f"The link takes {span_text(link.base_latency_us)} and then {link.bandwidth_gb_per_s:g} GB/s."),
    ]
    if transfer.transfers > 1:
        number = f"It is the {ordinal(transfer.transfers)} in progress"
        shared = {
            "none": "each has the whole bandwidth",
            "fair-share": "they share the bandwidth equally at any time",
            "fixed-at-start": "it keeps the share that it starts with",
        }
        facts.append(say(f"{number}: {shared[link.contention]} (contention: {link.contention})."))
    return f"The transfer of {size} of KV blocks began.", [Part("The transfer", tuple(facts))]


def transfer_finished_event(debugger: Debugger, row: EventRow) -> tuple[str, list[Part]]:
    """Return the explanation of the end of a transfer."""
    record = record_of(debugger, row.event, TransferFinished)
    if record is None:
        return "KV blocks have arrived.", []
    start = debugger.tape.latest(row.request, "transfer-started", row.event)
    took = span_text(record.duration_us)
    facts: list[Sentence] = [say("The KV blocks of ", request_ref(record.request_id), f" have arrived after {took}.")]
    if start is not None:
        others = f", when {plural(start.first - 1, 'other transfer')} was in progress" if start.first > 1 else ""
        facts.append(say("They left at ", event_ref(start.event), f"{others.replace('s was', 's were')}."))
    return f"The KV blocks arrived after {took}.", [Part("The transfer", tuple(facts))]
