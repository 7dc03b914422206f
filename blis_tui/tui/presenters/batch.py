"""What each request of a batch computes in a step."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from blis_tui.cluster.snapshot import InstanceSnapshot
    from blis_tui.engine.records import StepFinished


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
