"""``kv-utilization``: what is free of 100 blocks."""

import pytest

from blis_tui.cluster.policies.scoring import KvUtilization, Weight
from tests.cluster.seen import Seen, fleet, incoming


def test_it_is_the_share_that_is_free() -> None:
    seen = fleet(Seen(kv_used=0), Seen(kv_used=25), Seen(kv_used=100))
    assert KvUtilization(Weight()).scores(incoming(), seen) == pytest.approx([1.0, 0.75, 0.0])
