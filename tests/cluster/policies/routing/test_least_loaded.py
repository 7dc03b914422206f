"""``least-loaded`` takes the smallest queue + batch + in flight."""

from blis_tui.cluster.policies.routing import LeastLoaded
from blis_tui.model.plug_ins import NoSettings
from tests.cluster.seen import Seen, context, fleet, incoming


def test_the_smallest_load_wins() -> None:
    seen = fleet(Seen(3, 0, 0), Seen(1, 1, 0), Seen(0, 0, 3))
    assert LeastLoaded(NoSettings()).choose(incoming(), seen, context()) == (1, "load 2")


def test_of_equals_each_is_drawn() -> None:
    policy, seen, drawing = LeastLoaded(NoSettings()), fleet(Seen(), Seen(9), Seen()), context()
    assert {policy.choose(incoming(), seen, drawing)[0] for _ in range(40)} == {0, 2}
