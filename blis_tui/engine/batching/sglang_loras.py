"""Which LoRA adapters SGLang lets into a batch.

Source: SGLang 0.5.23, ``managers/scheduler.py`` (``can_schedule_lora_req``) and ``lora/lora_manager.py``
(``validate_lora_batch``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.engine.stopped import ADAPTER, Stopped

if TYPE_CHECKING:
    from collections.abc import Iterable

    from blis_tui.engine.adapters.adapters import Adapters
    from blis_tui.engine.plan import Plan
    from blis_tui.engine.request import Request


class AdapterPlaces:
    """The adapters of one batch as it is formed. The base model counts as one of them.

    A request whose adapter has no place is passed over, and those behind it may go first.

    Args:
        adapters: those of the instance.
        requests: who runs as far as the scheduler knows, and whose prompt goes on.
    """

    def __init__(self, adapters: Adapters, requests: Iterable[Request]) -> None:
        self._adapters = adapters
        self._used = {one.adapter: None for one in requests}
        self._passed: Request | None = None

    def has_place(self, request: Request) -> bool:
        """Whether a waiting request may be looked at."""
        if request.adapter in self._used or len(self._used) < self._adapters.slots:
            return True
        self._adapters.hold(request)
        if self._passed is None:
            self._passed = request
        return False

    def take(self, request: Request) -> None:
        """It was looked at: its adapter counts, also where it is not admitted."""
        self._used[request.adapter] = None

    def tell(self, plan: Plan) -> None:
        """Say why a request was passed over, where nothing else ended the plan."""
        if plan.stopped is None and self._passed is not None:
            plan.stopped = Stopped(ADAPTER, request=self._passed)
