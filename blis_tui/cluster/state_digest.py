"""A digest of everything that determines a simulation's future; time travel relies on it."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Final

from blis_tui.engine.request import RequestState

if TYPE_CHECKING:
    from blis_tui.cluster.cluster import Cluster
    from blis_tui.engine.events import Event
    from blis_tui.engine.request import Request


_ADDRESS: Final = " at 0x"
"""Part of the default ``repr`` of objects."""


def digest(cluster: Cluster) -> str:
    """Return a SHA-256 digest over everything that determines the simulation's future and its report.

    Two simulations of one experiment with equal digests behave identically from then on.

    Raises:
        AddressError: some state contains a memory address, which differs between processes.
    """
    hasher = sha256()
    for part in _state(cluster):
        text = repr(part)
        if _ADDRESS in text and address_holder(part):
            raise AddressError
        hasher.update(text.encode())
    return hasher.hexdigest()


def address_holder(value: object) -> str:
    """Return the type of the first value in a state whose ``repr`` has a memory address; empty = there is none."""
    if isinstance(value, dict):
        value = [*value, *value.values()]
    if isinstance(value, tuple | list | set | frozenset):
        return next((kind for one in value if (kind := address_holder(one))), "")
    return "" if isinstance(value, str | bytes) or _ADDRESS not in repr(value) else type(value).__name__


class AddressError(Exception):
    """A state cannot be digested, as it would differ in each process."""


def _state(cluster: Cluster) -> list[object]:
    queue, offered = cluster.queue, cluster.pipeline.offered_output_tokens
    pending = [(time, order, seq, event.kind, _about(event)) for time, order, seq, event in queue.entries()]
    state: list[object] = [
        (cluster.now, cluster.events, cluster.arrived, cluster.rejected, queue.seq, offered),
        sorted(pending),
        cluster.policy_state(),
    ]
    for instance in cluster.instances:
        batch = instance.batch
        cohort = batch.cohort
        state += [
            (instance.routed, instance.seen.in_flight, instance.input_tokens, instance.flow.step_pending),
            (instance.seen.present, instance.seen.present_us(cluster.now)),
            instance.tallies.state(),
            instance.policy_state(),
            *((batch.preempted_for_reserved,) if batch.preempted_for_reserved else ()),
            (cohort.clock, cohort.last_advance_us, cohort.uneven),
            (cohort.load.decode_requests, cohort.load.decode_context_tokens),
            [_request_state(request) for request in batch.waiting.ordered()],
            [_request_state(request) for request in batch.running.values()],
            (sorted(batch.prefills), sorted(batch.stalled)),
            *((list(batch.given_up.items()),) if batch.given_up else ()),
            instance.pool.state(),
            *(
                one.state()
                for one in (batch.host, instance.pool.tiers, batch.adapters, batch.encoder)
                if one is not None
            ),
            instance.planned_state(),
        ]
    state.append(cluster.ledger.fingerprint())
    return state


def _about(event: Event) -> tuple[object, ...]:
    request = event.request
    return ("instance", event.instance_index) if request is None else _request_state(request)


def _request_state(request: Request) -> tuple[object, ...]:
    if request.state > RequestState.RUNNING:
        return (request.index, int(request.state))
    return (
        request.index,
        int(request.state),
        request.priority,
        request.queued_us,
        request.scheduled_us,
        request.first_token_us,
        request.computed_tokens,
        request.generated_tokens,
        request.target_tokens,
        request.cached_tokens,
        request.preemptions,
        request.batch_slot,
        request.joined_clock,
        request.joined_us,
        request.finish_clock,
        request.known_clock,
        request.held_blocks,
        tuple(key for piece in request.pieces for key in piece.keys),
        *(value for one in (request.handover, request.reasoning) if one is not None for value in one.state()),
    )
