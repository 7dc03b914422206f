"""``tier-shed``: while the busiest instance is above a load, less urgent classes are turned away."""

import pytest

from blis_tui.cluster.policies.entry import TierShed, TierShedSettings
from tests.cluster.seen import Seen, context, fleet, incoming

PRIORITIES = {"critical": 4, "standard": 3, "batch": 1}


@pytest.mark.parametrize(
    ("load", "slo_class", "admitted"),
    [
        (Seen(2, 2, 1), "batch", True),
        (Seen(2, 2, 2), "batch", False),
        (Seen(2, 2, 2), "standard", True),
        (Seen(99, 0, 0), "critical", True),
        (Seen(99, 0, 0), "unheard-of", True),  # as standard
    ],
)
def test_who_is_turned_away(load: Seen, slo_class: str, admitted: bool) -> None:
    policy = TierShed(TierShedSettings(overload_threshold=5, min_priority=3))
    reason = policy.refusal(incoming(slo_class=slo_class), fleet(Seen(), load), context(0, PRIORITIES))
    assert (not reason) == admitted
