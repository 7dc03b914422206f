"""``session-affinity`` keeps a session where it began."""

from blis_tui.cluster.policies.routing import SessionAffinity
from blis_tui.model.plug_ins import NoSettings
from tests.cluster.seen import Seen, context, fleet, incoming


def test_a_session_stays_and_others_go_to_the_least_loaded() -> None:
    policy = SessionAffinity(NoSettings())
    assert policy.choose(incoming(session="s"), fleet(Seen(5), Seen(1)), context()) == (1, "load 1")
    busy = fleet(Seen(5), Seen(9))
    assert policy.choose(incoming(session="s"), busy, context()) == (1, "session s")
    assert policy.choose(incoming(session="t"), busy, context()) == (0, "load 5")
    assert policy.choose(incoming(), busy, context()) == (0, "load 5")


def test_a_session_whose_instance_may_not_be_chosen_moves() -> None:
    policy, seen = SessionAffinity(NoSettings()), fleet(Seen(5), Seen(1))
    policy.choose(incoming(session="s"), seen, context())
    seen.exclude(1)
    assert policy.choose(incoming(session="s"), seen, context()) == (0, "load 5")
