"""The LoRA adapters that SGLang admits to a batch.

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
    """The adapters of one batch while it is formed. The base model counts as one of them.

    A request whose adapter has no slot is skipped, and requests behind it may go first.

    Args:
        adapters: those of the instance.
        requests: running requests as the scheduler knows them, and the request whose chunked prompt continues.
    """

    def __init__(self, adapters: Adapters, requests: Iterable[Request]) -> None:
        self._adapters = adapters
        self._used = {one.adapter: None for one in requests}
        self._passed: Request | None = None

    def has_place(self, request: Request) -> bool:
        """Whether a waiting request may be examined."""
        if request.adapter in self._used or len(self._used) < self._adapters.slots:
            return True
        self._adapters.hold(request)
        if self._passed is None:
            self._passed = request
        return False

    def take(self, request: Request) -> None:
        """Count the adapter of a request that was examined, even if the request is not admitted."""
        self._used[request.adapter] = None

    def tell(self, plan: Plan) -> None:
        """Report why a request was skipped, unless something else ended the plan."""
        if plan.stopped is None and self._passed is not None:
            plan.stopped = Stopped(ADAPTER, request=self._passed)
