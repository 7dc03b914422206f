"""``gaie-legacy``: classes below 0 are turned away while the mean of the larger ratios is at least 1."""

import pytest

from blis_tui.cluster.policies.entry import GaieLegacy, GaieLegacySettings
from tests.cluster.seen import Seen, context, fleet, incoming

PRIORITIES = {"batch": -1, "standard": 0}


@pytest.mark.parametrize(
    ("instances", "saturated"),
    [
        ((Seen(waiting=5), Seen(waiting=5)), True),  # 1 and 1
        ((Seen(waiting=5), Seen(waiting=4)), False),  # 1 and 0.8
        ((Seen(kv_used=80), Seen(waiting=5)), True),
        ((Seen(waiting=10), Seen()), True),  # 2 and 0
        ((Seen(waiting=2, kv_used=79), Seen(kv_used=80)), False),  # the larger of 0.4 and 0.9875, and 1
    ],
)
def test_the_mean_of_the_larger_ratios_decides(instances: tuple[Seen, ...], saturated: bool) -> None:
    policy = GaieLegacy(GaieLegacySettings(queue_depth_threshold=5, kv_utilization_threshold=0.8))
    refused = policy.refusal(incoming(slo_class="batch"), fleet(*instances), context(0, PRIORITIES))
    assert bool(refused) == saturated
    assert not policy.refusal(incoming(), fleet(*instances), context(0, PRIORITIES))
