"""``load-aware``: half of what is left of a queue of 128."""

import pytest

from blis_tui.cluster.policies.scoring import LoadAware, Weight
from tests.cluster.seen import Seen, fleet, incoming


def test_it_falls_from_a_half_to_nothing_at_128() -> None:
    seen = fleet(*(Seen(waiting=count, running=50) for count in (0, 32, 64, 128, 500)))
    assert LoadAware(Weight()).scores(incoming(), seen) == pytest.approx([0.5, 0.375, 0.25, 0.0, 0.0])
