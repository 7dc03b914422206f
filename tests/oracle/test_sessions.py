"""Random sessions: engine and oracle agree on every record, invariants hold, checkpoints go on alike."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from .fleets import fleets
from .runs import examples
from .strategies import scenarios
from .talks import TalkingOracle, talks
from .test_clusters import check

if TYPE_CHECKING:
    from .talks import Talks


@examples(100)
@given(st.one_of(talks(scenarios()), talks(scenarios(starved=True)), talks(fleets())), st.floats(0, 1))
def test_sessions_agree_with_the_oracle(scenario: Talks, share: float) -> None:
    check(scenario, share, TalkingOracle)


@pytest.mark.slow
@examples(400)
@given(st.one_of(talks(scenarios()), talks(scenarios(starved=True)), talks(fleets())), st.floats(0, 1))
def test_many_sessions_agree_with_the_oracle(scenario: Talks, share: float) -> None:
    check(scenario, share, TalkingOracle)
