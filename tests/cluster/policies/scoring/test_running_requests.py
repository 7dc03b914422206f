"""``running-requests``: the batch, from the smallest (1) to the largest (0)."""

import pytest

from blis_tui.cluster.policies.scoring import RunningRequests, Weight
from tests.cluster.seen import Seen, fleet, incoming


def test_the_smallest_batch_gets_one_and_the_largest_nothing() -> None:
    seen = fleet(Seen(running=4), Seen(running=2, waiting=9), Seen(running=12))
    assert RunningRequests(Weight()).scores(incoming(), seen) == pytest.approx([8 / 10, 1.0, 0.0])


def test_equal_batches_are_equally_good() -> None:
    assert RunningRequests(Weight()).scores(incoming(), fleet(Seen(running=7), Seen(running=7))) == [1.0, 1.0]
