"""What every kind of instance is made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from blis_tui.engine.batching.rule import BatchRule
    from blis_tui.engine.events import EventQueue
    from blis_tui.engine.front_end import FrontEnd
    from blis_tui.engine.latency.model import StepTimeModel
    from blis_tui.engine.ledger import Ledger
    from blis_tui.engine.records import Observers
    from blis_tui.engine.scheduling.priority import PriorityRule


@dataclass(frozen=True, slots=True)
class Parts:
    """What an instance is made of beside its batch, and whom it tells."""

    latency: StepTimeModel
    rule: BatchRule
    priority: PriorityRule
    events: EventQueue
    ledger: Ledger
    observers: Observers
    front_end: FrontEnd | None = None
