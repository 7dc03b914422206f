"""``always-admit`` turns nobody away."""

from blis_tui.cluster.policies.admission import AlwaysAdmit
from blis_tui.registry import NoSettings
from tests.cluster.seen import Seen, context, fleet, incoming


def test_nobody_is_turned_away() -> None:
    assert AlwaysAdmit(NoSettings()).refusal(incoming(10**6), fleet(Seen(waiting=10**6)), context()) == ""
