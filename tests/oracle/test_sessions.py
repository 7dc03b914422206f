"""Random sessions: engine and oracle agree on every record, invariants hold, checkpoints resume identically."""

from __future__ import annotations

from functools import partial

from hypothesis import given
from hypothesis import strategies as st

from .draws import drawn
from .runs import check_many, examples
from .sessions import SessionOracle, SessionScenario, draw_sessions
from .test_clusters import check, check_some


@examples(10)
@given(drawn(draw_sessions), st.floats(0, 1))
def test_sessions_agree_with_the_oracle(scenario: SessionScenario, share: float) -> None:
    check(scenario, share, SessionOracle)


def test_many_sessions_agree_with_the_oracle() -> None:
    check_many(80, draw_sessions, partial(check_some, kind=SessionOracle))
