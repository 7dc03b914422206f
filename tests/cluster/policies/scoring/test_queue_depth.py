"""``queue-depth``: the queue (or queue + batch + in flight), from the shortest (1) to the longest (0)."""

import pytest

from blis_tui.cluster.policies.scoring import QueueDepth, QueueDepthSettings
from tests.cluster.seen import Seen, fleet, incoming

SEEN = fleet(Seen(waiting=1, running=9), Seen(waiting=3), Seen(waiting=5, in_flight=5))


def test_the_shortest_queue_gets_one_and_the_longest_nothing() -> None:
    assert QueueDepth(QueueDepthSettings()).scores(incoming(), SEEN) == pytest.approx([1.0, 0.5, 0.0])


def test_the_effective_load_may_be_meant() -> None:
    assert QueueDepth(QueueDepthSettings(signal="effective-load")).scores(incoming(), SEEN) == pytest.approx(
        [0.0, 1.0, 0.0]
    )
