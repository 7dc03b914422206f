"""Why instances come and go: the autoscaler's evaluations, what took effect, and how an instance changed.

Each sentence comes from the records of the run and the experiment's settings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.base.units import bytes_text, count_text, percent_text, plural, span_text, time_text
from blis_tui.cluster.options.autoscaler import ENOUGH
from blis_tui.cluster.policy import SCALING
from blis_tui.cluster.records import (
    InstanceChanged,
    InstanceStopped,
    Lost,
    Retried,
    Scaled,
    ScalingDecided,
    Stranded,
    TransferBrokenOff,
    TransferStarted,
)
from blis_tui.cluster.stages import ACTIVE, DRAINING, FAILED, LOADING, SCHEDULING, TERMINATED, WARMING
from blis_tui.debugger.why.control import record_of
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
from blis_tui.model import Lifecycle

if TYPE_CHECKING:
    from blis_tui.debugger.debugger import Debugger
    from blis_tui.debugger.event_store import EventRow
    from blis_tui.debugger.why.lifespans import RequestLife
    from blis_tui.engine.records import Record
    from blis_tui.model import Autoscaler


_LOOKS: Final = 60
"""Maximum number of evaluations searched backward for the start of a stabilization window."""
_NAMED: Final = 8
_DRAINS: Final = {
    "wait": "Its requests are served to completion.",
    "redirect": "Running requests are served to completion; waiting ones are routed again.",
    "immediate": "It stops after the current step; its requests are lost.",
}


# ---- the autoscaler ----


def scaling_decided_event(debugger: Debugger, row: EventRow) -> tuple[str, list[Part]]:
    """Return the explanation of an autoscaler evaluation: one for each role and model of instances."""
    scalings = _decisions(debugger, row.event)
    settings = debugger.experiment.cluster.autoscaler
    if not scalings or settings is None:
        return "The autoscaler evaluated how many instances there should be.", []
    parts = [part for place, scaling in enumerate(scalings) for part in _evaluation(debugger, scaling, place, settings)]
    return " ".join(f"{_head(scaling)}: {scaling.reason}." for scaling in scalings), parts


def scaling_meaning(debugger: Debugger) -> str:
    """Return what an evaluation is beside a rule, which does not go by demand and supply; empty without one."""
    settings = debugger.experiment.cluster.autoscaler
    if settings is None or settings.rule is None:
        return ""
    return (
        f"The rule `{settings.rule.kind}` says how many instances there should be. Demand and supply, in tokens of KV"
        " cache, are recorded beside it and decide nothing."
    )


def _decisions(debugger: Debugger, event: int) -> list[ScalingDecided]:
    """Return the evaluations of an event, one for each role and model of instances, always in the same order."""
    return [record for record in debugger.records_of(event) if isinstance(record, ScalingDecided)]


def _evaluation(debugger: Debugger, scaling: ScalingDecided, place: int, settings: Autoscaler) -> list[Part]:
    supply = scaling.supply_tokens + scaling.pending_tokens
    rows = (
        ExplanationRow(
            "demand", count_text(scaling.demand_tokens), percent_text(scaling.demand_tokens, supply), _demand(settings)
        ),
        ExplanationRow("supply", count_text(scaling.supply_tokens), "", _supply(settings)),
        ExplanationRow(
            "pending",
            count_text(scaling.pending_tokens),
            "",
            say("of instances that are loading or waiting for a node"),
        ),
        ExplanationRow("missing", count_text(scaling.required_tokens), "", _above(settings)),
        ExplanationRow("spare", count_text(scaling.spare_tokens), "", _below(settings)),
    )
    facts = tuple(_decision(debugger, scaling, place, settings))
    return [Part("The decision", facts), *(() if settings.rule else (Part("In tokens of KV cache", (), rows),))]


def _head(scaling: ScalingDecided) -> str:
    count = plural(scaling.instances, "instance")
    return {
        "scale-up": f"The autoscaler adds {count} to {scaling.pool}",
        "scale-down": f"The autoscaler removes {count} from {scaling.pool}",
        "wait": f"The autoscaler waits before changing {scaling.pool} by {count}",
    }.get(scaling.verdict, "The autoscaler changes nothing")


def _demand(settings: Autoscaler) -> Sentence:
    return say(f"in KV caches, and {plural(settings.avg_input_tokens, 'token')} for each waiting request")


def _supply(settings: Autoscaler) -> Sentence:
    return say(f"{100 * settings.kv_utilization_threshold:g} % of the KV caches of instances that receive requests")


def _above(settings: Autoscaler) -> Sentence:
    return say(f"until demand is {100 * settings.scale_up_threshold:g} % of the supply, pending supply included")


def _below(settings: Autoscaler) -> Sentence:
    return say(f"until demand is {100 * settings.scale_down_boundary:g} % of the supply")


def _decision(debugger: Debugger, scaling: ScalingDecided, place: int, settings: Autoscaler) -> list[Sentence]:
    up = scaling.required_tokens > 0
    window = settings.scale_up_window_us if up else settings.scale_down_window_us
    facts = [say(f"It evaluates every {span_text(settings.interval_us)}, this time at {time_text(scaling.time_us)}.")]
    if settings.rule is not None:
        plugins, rule = debugger.experiment.plugins, settings.rule
        facts.append(say(plugins.create(SCALING, rule.kind, rule.settings, settings).rule))
    if scaling.verdict == "wait":
        since, whole = _window_start(debugger, scaling, place)
        what = "that more are needed" if up else "that fewer would be enough"
        facts.append(say(f"It acts once it has seen for {span_text(window)} (stabilization window) {what}."))
        held = span_text(scaling.time_us - debugger.tape.time_us(since))
        if since == scaling.event:
            facts.append(say("It sees this for the first time."))
        elif whole:
            facts.append(say(f"It has seen this for {held} now, since ", event_ref(since), "."))
        else:
            facts.append(say(f"It has seen this for more than {held}, since before ", event_ref(since), "."))
    elif scaling.verdict.startswith("scale"):
        least, most = settings.bounds[scaling.pool]
        facts.append(say(f"Pool {scaling.pool} has at least {least} and at most {plural(most, 'instance')}."))
        delay = settings.scrape_delay
        if delay.mean_us or delay.std_dev_us:
            facts.append(say(f"It takes effect after about {span_text(delay.mean_us)} (scrape delay)."))
    elif scaling.spare_tokens and ENOUGH in scaling.reason:
        facts.append(
            say("Instances are removed only if the spare supply is larger than what the largest of them supplies.")
        )
    return facts


def _window_start(debugger: Debugger, scaling: ScalingDecided, place: int) -> tuple[int, bool]:
    """Return the evaluation at which the stabilization window began; if it was too long ago, a later one and False."""
    begun = event = scaling.event
    for _ in range(_LOOKS):
        event = debugger.tape.latest_of(scaling.kind, event - 1)
        before = _decisions(debugger, event)[place] if event else None
        if before is None or before.verdict != "wait" or (before.required_tokens > 0) != (scaling.required_tokens > 0):
            return begun, True
        begun = event
    return begun, False


def scaled_event(debugger: Debugger, row: EventRow) -> tuple[str, list[Part]]:
    """Return the explanation of a change in the number of instances."""
    record = record_of(debugger, row.event, Scaled)
    if record is None:
        return "A decision took effect.", []
    event = row.event
    while event := debugger.tape.latest_of("scaling-decided", event - 1):
        if any((each.pool, each.reason) == (record.pool, record.reason) for each in _decisions(debugger, event)):
            break
    verb = "added to" if record.change > 0 else "removed from"
    head = f"{plural(abs(record.change), 'instance')} {verb} pool {record.pool}."
    return head, [Part("The reason", (say("That was decided at ", event_ref(event), f": {record.reason}."),))]


# ---- one instance ----


def instance_changed_event(debugger: Debugger, row: EventRow) -> tuple[str, list[Part]]:
    """Return the explanation of a change in an instance's lifecycle."""
    change = record_of(debugger, row.event, InstanceChanged)
    if change is None:
        return "An instance changed.", []
    return f"Instance {change.instance}: {change.reason}.", []


def lifecycle_parts(debugger: Debugger, event: int) -> list[Part]:
    """Return what happened to each instance in an event, and what that means."""
    facts = [
        say(
            instance_ref(record.instance),
            f" of pool {record.pool}: {record.reason}. {_meaning(debugger, record)}".rstrip(),
        )
        for record in debugger.records_of(event)
        if isinstance(record, InstanceChanged)
    ]
    return [Part("The instances", tuple(facts))] if facts else []


def _meaning(debugger: Debugger, change: InstanceChanged) -> str:
    if change.before == change.state:  # a failure of an instance that cannot fail
        return ""
    settings = debugger.experiment.cluster.lifecycle or Lifecycle()
    served, slow = plural(settings.warm_up_requests, "request"), f"{settings.warm_up_factor:g} times as long"
    return {
        SCHEDULING: "",
        LOADING: f"It loads its weights for {span_text(settings.loading_delay_us)} and receives no requests until "
        f"then.",
        WARMING: f"It receives requests; until {served} have left, its steps take {slow}.",
        ACTIVE: "It receives requests.",
        DRAINING: f"It receives no new requests. {_DRAINS[settings.drain]}",
        FAILED: "It receives no requests; if it is in the middle of a step, it stops when everything in progress has "
        "ended.",
        TERMINATED: "It is gone for good.",
    }.get(change.state, "")


def instance_stopped_event(debugger: Debugger, row: EventRow) -> tuple[str, list[Part]]:
    """Return the explanation of what happened to the requests of an instance that stopped."""
    record = record_of(debugger, row.event, InstanceStopped)
    if record is None:
        return "An instance stopped.", []
    records = debugger.records_of(row.event)
    facts: list[Sentence] = []
    for label, kind in (("They start again", Retried), ("They are lost", Lost)):
        refs = [request_ref(each.request_id) for each in records if isinstance(each, kind)]
        if refs:
            facts.append(say(f"{label}: ", *listing(refs, _NAMED), "."))
    facts.append(say("Its KV cache is gone, and with it what was computed for them."))
    head = f"Instance {record.instance} stopped with {plural(record.requests, 'request')}."
    return head, [Part("Its requests", tuple(facts))]


def stranded_event(debugger: Debugger, row: EventRow) -> tuple[str, list[Part]]:
    """Return the explanation of a request that finds no instance."""
    record = record_of(debugger, row.event, Stranded)
    if record is None:
        return "A request found no instance.", []
    facts = [
        say(
            "No instance that could serve it is receiving requests now, so ",
            request_ref(record.request_id),
            " waits for one to come up.",
        ),
        say(f"{plural(record.waiting, 'request')} {'waits' if record.waiting == 1 else 'wait'} like this."),
    ]
    return "It found no instance that it could be sent to.", [Part("The reason", tuple(facts))]


# Why requests restart or end because an instance has gone: what was aborted, and what became of the requests.


def broken_off_event(debugger: Debugger, row: EventRow) -> tuple[str, list[Part]]:
    """Return the explanation of an aborted transfer."""
    transfer = record_of(debugger, row.event, TransferBrokenOff)
    if transfer is None:
        return "KV blocks do not arrive.", []
    return f"The KV blocks of {transfer.request_id} do not arrive: {transfer.reason}.", []


def broken_off_parts(debugger: Debugger, event: int) -> list[Part]:
    """Return whose transfers an event aborted, how far they were, and what becomes of the requests."""
    records = debugger.records_of(event)
    broken = [record for record in records if isinstance(record, TransferBrokenOff)]
    if not broken:
        return []
    facts = [
        _broken_off(debugger, transfer) + say(_outcome(records, transfer.request_id)) for transfer in broken[:_NAMED]
    ]
    if len(broken) > _NAMED:
        facts.append(say(f"So do those of {plural(len(broken) - _NAMED, 'more request')}."))
    return [Part("KV transfers that do not arrive", tuple(facts))]


def _broken_off(debugger: Debugger, transfer: TransferBrokenOff) -> Sentence:
    began = _beginning(debugger, transfer)
    if began is None:
        return say(
            "The prompt of ",
            request_ref(transfer.request_id),
            " was computed in the last step of ",
            instance_ref(transfer.instance),
            ": its KV blocks are gone with it.",
        )
    way: Sentence = say(f"{bytes_text(began.bytes)} of ", request_ref(transfer.request_id), " were on their way from ")
    way += say(instance_ref(began.instance))
    if began.decode_instance >= 0:
        way += say(" to ", instance_ref(began.decode_instance))
    under_way = span_text(transfer.time_us - began.time_us)
    which = "it came from" if transfer.instance == began.instance else "it went to"
    return way + say(", since ", event_ref(began.event), f" ({under_way}); the instance {which} has gone.")


def _beginning(debugger: Debugger, transfer: TransferBrokenOff) -> TransferStarted | None:
    """Return the start of the transfer; None if it had not started."""
    for entry in reversed(debugger.tape.life(transfer.request_id, transfer.event)):
        if entry.what == "transfer-started":
            return record_of(debugger, entry.event, TransferStarted, transfer.request_id)
        if entry.what == "prefilled" and entry.event < transfer.event:
            return None
    return None


def _outcome(records: tuple[Record, ...], request: str) -> str:
    for record in records:
        if isinstance(record, Retried) and record.request_id == request:
            return " The request starts again, prefill included."
        if isinstance(record, Lost) and record.request_id == request:
            return f" The request is lost: {record.reason}."
    return ""


def restart_parts(debugger: Debugger, life: RequestLife) -> list[Part]:
    """Return a part for each restart of a request."""
    return [_restart_part(debugger, life, restart.event) for restart in life.restarts]


def _restart_part(debugger: Debugger, life: RequestLife, event: int) -> Part:
    records = debugger.records_of(event)
    retried = next(record for record in records if isinstance(record, Retried) and record.request_id == life.name)
    facts = [say("At ", event_ref(event), " it had to leave ", instance_ref(retried.instance), ".")]
    gone = _causing_failure(debugger, retried)
    if gone is not None:
        facts[0] = facts[0] + say(f" That instance had {gone.reason}, at ", event_ref(gone.event), ".")
    facts += [
        _broken_off(debugger, record)
        for record in records
        if isinstance(record, TransferBrokenOff) and record.request_id == life.name
    ]
    since_us = max((restart.time_us for restart in life.restarts if restart.event < event), default=life.arrival_us)
    spent = sum(span.duration_us for span in life.spans if span.gone and since_us <= span.start_us < retried.time_us)
    facts.append(say(f"What it had computed is gone, and the {span_text(spent)} of that attempt with it."))
    return Part(f"Why it started again after {span_text(retried.time_us - life.arrival_us)}", tuple(facts))


def _causing_failure(debugger: Debugger, retried: Retried) -> InstanceChanged | None:
    """Return the instance failure that caused a restart; None if the instance did not fail."""
    event = retried.event + 1
    for _ in range(_LOOKS):
        event = debugger.tape.latest_of("instance-changed", event - 1)
        for record in debugger.records_of(event):
            if (
                isinstance(record, InstanceChanged)
                and record.instance == retried.instance
                and record.before != record.state
            ):
                return record if record.state == FAILED else None
    return None
