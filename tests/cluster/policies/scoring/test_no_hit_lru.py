"""``no-hit-lru``: prompts that no cache holds go to whoever had one least recently."""

import pytest

from blis_tui.cluster.policies.scoring import NoHitLru, Weight
from tests.cluster.seen import Seen, fleet, incoming

HEAD = (("system", 8),)


def test_ranks_follow_the_latest_cold_prompts() -> None:
    scorer, seen, cold = NoHitLru(Weight()), fleet(Seen(), Seen(), Seen()), incoming()
    assert scorer.scores(cold, seen) == [1.0, 0.5, 0.0]  # nobody ever had one: in order
    scorer.routed(cold, seen, 0)
    assert scorer.scores(cold, seen) == [0.0, 1.0, 0.5]
    scorer.routed(cold, seen, 1)
    scorer.routed(cold, seen, 0)
    assert scorer.scores(cold, seen) == pytest.approx([0.0, 0.5, 1.0])


def test_a_prompt_that_somebody_has_is_indifferent_and_changes_nothing() -> None:
    scorer, seen = NoHitLru(Weight()), fleet(Seen(), Seen(cached=(HEAD,)))
    assert scorer.scores(incoming(20, HEAD), seen) == [0.5, 0.5]
    scorer.routed(incoming(20, HEAD), seen, 0)
    assert scorer.state() == ()


def test_one_instance_is_always_best() -> None:
    assert NoHitLru(Weight()).scores(incoming(), fleet(Seen())) == [1.0]
