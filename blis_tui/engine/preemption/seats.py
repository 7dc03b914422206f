"""What rules of victims see of a batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from blis_tui.engine.cohort import DecodeCohort
    from blis_tui.engine.kv.pool import BlockPool
    from blis_tui.engine.request import Request


class Seats(Protocol):
    """Who holds KV blocks, as far as victims are concerned."""

    running: dict[int, Request]
    """Batch slot -> request, in the order of admission; it may be empty where ``ending`` is not."""
    ending: dict[int, Request]
    """Those whose last token is being computed: they hold their blocks until then."""
    stalled: dict[int, Request]
    """Those of ``running`` that decode and have fallen out of step with the others."""
    stalls: int
    """How often decodes have fallen out of step."""
    cohort: DecodeCohort
    """The others that decode."""
    pool: BlockPool
