"""``round-robin`` takes the instances in turn."""

from blis_tui.cluster.policies.routing import RoundRobin
from blis_tui.model.plug_ins import NoSettings
from tests.cluster.seen import Seen, context, fleet, incoming


def test_whatever_their_load() -> None:
    policy, seen = RoundRobin(NoSettings()), fleet(Seen(waiting=50), Seen(), Seen())
    assert [policy.choose(incoming(), seen, context())[0] for _ in range(5)] == [0, 1, 2, 0, 1]
