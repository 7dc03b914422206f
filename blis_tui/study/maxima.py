"""Upper bounds of a run's requests and tokens, as far as its documents determine them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from blis_tui.workload.arrivals import CLOSED_LOOP
from blis_tui.workload.source import TraceSource
from blis_tui.workload.trace_sessions import TracedSource

if TYPE_CHECKING:
    from blis_tui.spec.model import PluginConfig, Session, Workload
    from blis_tui.workload.source import RequestSource


def max_requests(workload: Workload, source: RequestSource) -> int | None:
    """Return the maximum number of requests that can arrive; None = unlimited."""
    if isinstance(source, TraceSource | TracedSource):
        return len(source)
    if workload.requests is not None:
        return workload.requests
    sessions = [client.session for client in workload.clients if client.session is not None]
    if workload.sessions is not None and len(sessions) == len(workload.clients):
        calls = [_max_calls(one) for one in sessions]
        known = [one for one in calls if one is not None]
        return workload.sessions * max(known) if len(known) == len(calls) else None
    closed = any(client.arrivals.kind == CLOSED_LOOP for client in workload.clients)
    return _in_stages(workload) if workload.exact_stage_counts and not sessions and not closed else None


def _max_calls(session: Session) -> int | None:
    """Return the maximum number of requests of one session."""
    turns, calls = _most(session.turns), 0
    for call in session.calls:
        calls += call.parallel
    return None if turns is None else turns * max(calls, 1)


def _in_stages(workload: Workload) -> int:
    """Return the maximum number in stages; each client's share of a stage is rounded up by less than one."""
    total = 0
    for stage in workload.stages:
        total += int(stage.rate_per_s * stage.duration_s) + len(workload.clients)
    return total


def max_output_tokens_of(workload: Workload) -> int | None:
    """Return the maximum number of tokens of an answer; None = no bound is known."""
    if workload.trace is not None:
        return None
    configs: list[PluginConfig] = []
    for client in workload.clients:
        configs.append(client.output_tokens)
        calls = () if client.session is None else client.session.calls
        configs += [call.output_tokens for call in calls if call.output_tokens is not None]
    most = [_most(config) for config in configs]
    known = [one for one in most if one is not None]
    return max(known, default=None) if len(known) == len(most) else None


def _most(config: PluginConfig) -> int | None:
    """Return the maximum of one of this package's own distributions; None if it has none."""
    settings = config.settings
    if config.kind == "empirical":
        weights = settings["weights"]
        return max(map(int, weights), default=None) if isinstance(weights, Mapping) else None
    names = {"constant": "value", "uniform": "max", "gaussian": "max", "lognormal": "max", "exponential": "max"}
    most = settings.get(names.get(config.kind, ""))
    return most if isinstance(most, int) else None
