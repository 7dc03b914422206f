"""``load-balance``: 1 / (1 + queue + batch + in flight)."""

import pytest

from blis_tui.cluster.policies.scoring import LoadBalance, Weight
from tests.cluster.seen import Seen, fleet, incoming


def test_queue_batch_and_in_flight_count_alike() -> None:
    seen = fleet(Seen(), Seen(waiting=1), Seen(running=1), Seen(in_flight=1), Seen(2, 3, 4))
    assert LoadBalance(Weight()).scores(incoming(), seen) == pytest.approx([1, 1 / 2, 1 / 2, 1 / 2, 1 / 10])
