"""A batch as it stands within a step: what the phases looked at so far have done to it, and no more."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from blis_tui.debugger.moment import PHASES

if TYPE_CHECKING:
    from blis_tui.cluster.snapshot import InstanceSnapshot, RequestSnapshot
    from blis_tui.debugger.moment import Moment
    from blis_tui.engine.records import StepFinished

_COMPLETE: Final = PHASES.index("complete")


def at_phase(moment: Moment) -> tuple[InstanceSnapshot, ...]:
    """All instances at the phase the reader is in.

    Before a step's ``complete`` its batch still holds the requests that end in it, and no token of it counts yet. The
    queue and the block counts are those after the step: what it schedules is decided at its start.
    """
    step = moment.step
    instances = moment.after.instances
    if step is None or moment.before is None or moment.phase is None or moment.phase >= _COMPLETE:
        return instances
    before = moment.before.instances[step.instance]
    after = instances[step.instance]
    running = _scheduled(step, before, after)
    lost = max(before.running_count - len(before.running), 0)
    count = max(len(running) + lost, after.running_count)
    changed = replace(after, running=running, running_count=count)
    return tuple(changed if one.index == step.instance else one for one in instances)


def _scheduled(step: StepFinished, before: InstanceSnapshot, after: InstanceSnapshot) -> tuple[RequestSnapshot, ...]:
    """The batch right after the step's ``schedule``: whoever stayed, then whoever came."""
    old = {request.request_id: request for request in (*before.running, *before.waiting)}
    new = {request.request_id: request for request in after.running}
    computed = {chunk.request_id: chunk.computed_tokens for chunk in step.chunks}
    preempted = frozenset(step.preempted)
    stayed = [request.request_id for request in before.running if request.request_id not in preempted]
    found: list[RequestSnapshot] = []
    for name in dict.fromkeys((*stayed, *step.admitted)):
        base = old.get(name) or new.get(name)
        if base is None:  # beyond the window of both
            continue
        found.append(
            replace(
                new.get(name, base),
                phase="prefill" if name in computed or base.phase == "waiting" else base.phase,
                computed_tokens=computed.get(name, base.computed_tokens),
                generated_tokens=base.generated_tokens,
            )
        )
    return tuple(found)


def step_tokens(step: StepFinished | None, instance: InstanceSnapshot) -> dict[str, int]:
    """Tokens that each request of a batch computes in a step, by name; empty for the other instances."""
    if step is None or step.instance != instance.index:
        return {}
    chunks = {chunk.request_id: chunk.new_tokens for chunk in step.chunks}
    idle = frozenset(step.stalled)
    first = frozenset(step.first_tokens)
    tokens: dict[str, int] = {}
    for request in instance.running:
        name = request.request_id
        if name in chunks:
            tokens[name] = chunks[name]
        elif request.phase in ("decode", "stalled") and step.decode_requests and name not in idle | first:
            tokens[name] = 1
        else:
            tokens[name] = 0
    return tokens
