"""Random clusters whose instances share a KV tier: engine and oracle agree on every record and every count."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from .draws import drawn
from .fleets import draw_mortal_sharing_fleet, draw_sharing_fleet
from .mortal import MortalOracle
from .runs import check_many, examples
from .test_clusters import check, check_some

if TYPE_CHECKING:
    from .strategies import Scenario


@examples(15)
@given(drawn(draw_sharing_fleet), st.floats(0, 1))
def test_clusters_with_a_shared_tier_agree_with_the_oracle(scenario: Scenario, share: float) -> None:
    check(scenario, share)


@examples(10)
@given(drawn(draw_mortal_sharing_fleet), st.floats(0, 1))
def test_where_instances_die_they_agree_too(scenario: Scenario, share: float) -> None:
    check(scenario, share, MortalOracle, 3)


@pytest.mark.slow
def test_many_clusters_with_a_shared_tier_agree_with_the_oracle() -> None:
    check_many(60, draw_sharing_fleet, check_some)
    check_many(40, draw_mortal_sharing_fleet, partial(check_some, kind=MortalOracle, retries=3))
