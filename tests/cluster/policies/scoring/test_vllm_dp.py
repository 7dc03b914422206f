"""``vllm-dp``: 4 x queue + batch, from the least (1) to the most (0)."""

import pytest

from blis_tui.cluster.policies.scoring import VllmDp, Weight
from tests.cluster.seen import Seen, fleet, incoming


def test_who_waits_counts_four_times() -> None:
    seen = fleet(Seen(waiting=1), Seen(running=4), Seen(waiting=2, running=2), Seen())  # 4, 4, 10, 0
    assert VllmDp(Weight()).scores(incoming(), seen) == pytest.approx([6 / 10, 6 / 10, 0.0, 1.0])
