"""``active-requests``: in flight, relative to the instance that has most."""

import pytest

from blis_tui.cluster.policies.scoring import ActiveRequests, Weight
from tests.cluster.seen import Seen, fleet, incoming


def test_it_is_what_is_left_to_the_most() -> None:
    seen = fleet(Seen(in_flight=2), Seen(in_flight=8), Seen(in_flight=6))
    assert ActiveRequests(Weight()).scores(incoming(), seen) == pytest.approx([6 / 8, 0.0, 2 / 8])


def test_who_has_least_gets_one_only_where_it_has_nothing() -> None:
    assert ActiveRequests(Weight()).scores(incoming(), fleet(Seen(in_flight=5), Seen(in_flight=5))) == [0.0, 0.0]
    assert ActiveRequests(Weight()).scores(incoming(), fleet(Seen(waiting=3), Seen())) == [1.0, 1.0]
