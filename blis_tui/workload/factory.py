"""From the resolved workload to a source of requests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.workload.arrivals import CLOSED_LOOP
from blis_tui.workload.source import GeneratedSource, TraceSource

if TYPE_CHECKING:
    from blis_tui.registry import Registry
    from blis_tui.spec.model import Workload
    from blis_tui.workload.source import RequestSource


def fixed_part(source: RequestSource) -> object:
    """What of a source never changes, and need not be part of checkpoints; ``None`` = there is no such part."""
    found: object = getattr(source, "fixed", None)
    return found


def create_source(workload: Workload, seed: int, plugins: Registry) -> RequestSource:
    """Build the source of ``workload``; a trace is read here, and does not depend on ``seed``.

    Raises:
        PolicyError: a generated workload cannot be generated as declared, or the trace's format is unknown.
        InputError: the trace file cannot be read.
        TraceError: rows of the trace are wrong.
    """
    if workload.trace is not None:
        from blis_tui.workload.traces import read_trace  # noqa: PLC0415  (generated workloads need none of it)

        table = read_trace(workload.trace, plugins)
        if workload.trace.pacing == "answers":
            from blis_tui.workload.trace_sessions import TracedSource  # noqa: PLC0415  (as above)

            return TracedSource(table, workload.requests)
        return TraceSource(table, workload.requests)
    if any(client.arrivals.kind == CLOSED_LOOP or client.session is not None for client in workload.clients):
        from blis_tui.workload.clients import client_sources  # noqa: PLC0415  (and traces none of this)
        from blis_tui.workload.interactive import InteractiveSource  # noqa: PLC0415

        return InteractiveSource(client_sources(workload, seed, plugins), workload.requests, workload.sessions)
    return GeneratedSource(workload, seed, plugins)
