"""What happened, in one short sentence each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.debugger.conditions.quantities import TIME_UNITS
from blis_tui.records.tables import record_dict
from blis_tui.units import filled

if TYPE_CHECKING:
    from blis_tui.engine.records import Record


def sentence(record: Record) -> str:
    """What a record says, without a full stop."""
    return filled(record.shown.sentence, record_dict(record))


def amount(value: float, unit: str) -> str:
    """A figure with its unit, such as ``1,024 blocks``, ``1 block`` or ``12.5 ms``; a share as it is."""
    text = f"{value:,.0f}" if value == int(value) else f"{value:,.3f}" if abs(value) >= 100 else f"{value:.5g}"
    if unit in ("", "share"):
        return text
    return f"{text} {unit.removesuffix('s')}" if value == 1 and unit not in TIME_UNITS else f"{text} {unit}"
