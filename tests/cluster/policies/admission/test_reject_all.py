"""``reject-all`` turns everybody away."""

from blis_tui.cluster.policies.entry import RejectAll
from blis_tui.model.plug_ins import NoSettings
from tests.cluster.seen import Seen, context, fleet, incoming


def test_everybody_is_turned_away() -> None:
    assert RejectAll(NoSettings()).refusal(incoming(1, slo_class="critical"), fleet(Seen()), context())
