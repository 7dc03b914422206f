"""``always-admit`` turns nobody away."""

from blis_tui.cluster.policies.entry import AlwaysAdmit
from blis_tui.model.plug_ins import NoSettings
from tests.cluster.seen import Seen, context, fleet, incoming


def test_nobody_is_turned_away() -> None:
    assert AlwaysAdmit(NoSettings()).refusal(incoming(10**6), fleet(Seen(waiting=10**6)), context()) == ""
