"""The time at the beginning of a run that its latencies leave out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.cluster.passage import LIFECYCLE, Background

if TYPE_CHECKING:
    from blis_tui.cluster.pipeline import Pipeline
    from blis_tui.engine.instance import Instance


class WarmUp:
    """It remembers what gaps between tokens had been counted when it was over: requests have their times in the books.

    Args:
        pipeline: what warms up.
        until_us: when it is over; 0 = there is none.
    """

    def __init__(self, pipeline: Pipeline, until_us: int) -> None:
        self._roster = pipeline.roster
        self._counted: tuple[dict[int, int], ...] = ()
        if until_us:
            pipeline.queue.push(until_us, LIFECYCLE, Background("warm-up-over", pipeline, None, self._end))

    def _end(self, event: Background, now: int) -> bool:
        del event, now
        self._counted = tuple(dict(instance.tallies.itl_us) for instance in self._roster.instances)
        return True

    def gaps_since(self, instance: Instance) -> dict[int, int]:
        """Gaps between tokens of an instance, in microseconds, that it has counted since; of all before the end."""
        gaps = instance.tallies.itl_us
        if instance.index >= len(self._counted):
            return gaps
        before = self._counted[instance.index]
        left = {gap: count - before.get(gap, 0) for gap, count in gaps.items()}
        return {gap: count for gap, count in left.items() if count}
