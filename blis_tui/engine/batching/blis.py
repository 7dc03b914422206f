"""``blis``: the batch formation of the BLIS simulator, modelled on vLLM V1."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.engine.batching.rule import BATCHING, RunningFirst
from blis_tui.engine.batching.traits import Traits

if TYPE_CHECKING:
    from blis_tui.registry import NoSettings


@BATCHING.plugin(
    "blis", "Running requests first, then waiting ones while the token budget lasts; preempts from the tail."
)
class BlisBatching(RunningFirst):
    """Discards generated tokens on preemption.

    A prompt that is cached as a whole pins its blocks, schedules no token, and gets its first token at the end of that
    step. A preempted request recomputes its prompt and generates its output again.
    """

    traits = Traits(
        caches_whole_prompts=True,
        stores_last_token=True,
        counts_to_limit=False,
        overtakes=False,
        drafters=("ngram",),
        adapters="beside",
        ranks=True,
    )

    def __init__(self, settings: NoSettings) -> None:
        del settings
