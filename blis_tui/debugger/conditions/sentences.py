"""What happened, in one short sentence each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.debugger.conditions.quantities import TIME_UNITS
from blis_tui.engine.records import (
    Admitted,
    Arrived,
    Completed,
    Dropped,
    FirstToken,
    Preempted,
    Queued,
    Rejected,
    Routed,
    Scheduled,
    StepFinished,
    TimedOut,
)

if TYPE_CHECKING:
    from blis_tui.engine.records import Record


def sentence(record: Record) -> str:
    """What a record says, without a full stop."""
    match record:
        case Arrived():
            return f"{record.request_id} arrived"
        case Admitted():
            return f"{record.request_id} was admitted"
        case Rejected():
            return f"{record.request_id} was rejected: {record.reason}"
        case Routed():
            return f"{record.request_id} was routed to instance {record.instance}"
        case Queued():
            return f"{record.request_id} was queued on instance {record.instance}"
        case Dropped():
            return f"{record.request_id} was dropped by instance {record.instance}: {record.reason}"
        case Scheduled():
            return f"{record.request_id} was scheduled on instance {record.instance}"
        case Preempted():
            return f"{record.request_id} was preempted on instance {record.instance} for {record.for_request}"
        case StepFinished():
            return f"instance {record.instance} ran step {record.step:,}"
        case FirstToken():
            return f"{record.request_id} got its first token after {milliseconds(record.ttft_us)}"
        case Completed():
            return f"{record.request_id} completed after {milliseconds(record.e2e_us)}"
        case TimedOut():
            return f"{record.request_id} timed out on instance {record.instance}"
        case _:
            return record.kind


def milliseconds(time_us: float) -> str:
    """A time in milliseconds, to the microsecond where it needs that, such as ``1,250.5 ms``."""
    return f"{time_us / 1e3:,.3f}".rstrip("0").rstrip(".") + " ms"


def amount(value: float, unit: str) -> str:
    """A figure with its unit, such as ``1,024 blocks``, ``1 block`` or ``12.5 ms``; a share as it is."""
    text = f"{value:,.0f}" if value == int(value) else f"{value:,.3f}" if abs(value) >= 100 else f"{value:.5g}"
    if unit in ("", "share"):
        return text
    return f"{text} {unit.removesuffix('s')}" if value == 1 and unit not in TIME_UNITS else f"{text} {unit}"
