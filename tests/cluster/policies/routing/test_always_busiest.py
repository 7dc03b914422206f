"""``always-busiest`` takes the first of the largest queue + batch + in flight."""

from blis_tui.cluster.policies.routing import AlwaysBusiest
from blis_tui.model.plug_ins import NoSettings
from tests.cluster.seen import Seen, context, fleet, incoming


def test_the_largest_load_wins() -> None:
    seen = fleet(Seen(3, 0, 0), Seen(1, 2, 1), Seen(0, 0, 4))
    assert AlwaysBusiest(NoSettings()).choose(incoming(), seen, context()) == (1, "load 4")
