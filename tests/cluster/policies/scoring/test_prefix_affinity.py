"""``prefix-affinity``: leading blocks of the prompt that were sent there before, of all its full blocks."""

import pytest

from blis_tui.cluster.policies.scoring import PrefixAffinity, PrefixAffinitySettings
from tests.cluster.seen import Seen, fleet, incoming

LONG = incoming(42, (("system", 16), ("tools", 8)))  # ten full blocks, six of them shareable
SHORT = incoming(20, (("system", 16),))  # five, four of them shareable
OTHER = incoming(20, (("else", 16),))


def test_it_is_the_share_of_leading_blocks() -> None:
    scorer, seen = PrefixAffinity(PrefixAffinitySettings()), fleet(Seen(), Seen())
    assert scorer.scores(LONG, seen) == [0.0, 0.0]
    scorer.routed(SHORT, seen, 1)
    assert scorer.scores(LONG, seen) == pytest.approx([0.0, 4 / 10])
    assert scorer.scores(SHORT, seen) == pytest.approx([0.0, 4 / 5])
    assert scorer.scores(OTHER, seen) == [0.0, 0.0]
    scorer.routed(LONG, seen, 0)
    assert scorer.scores(LONG, seen) == pytest.approx([6 / 10, 4 / 10])


def test_the_oldest_blocks_are_forgotten_first() -> None:
    scorer, seen = PrefixAffinity(PrefixAffinitySettings(capacity_blocks=6)), fleet(Seen())
    scorer.routed(SHORT, seen, 0)
    scorer.routed(OTHER, seen, 0)  # ten blocks by now: of the first prompt only its own last block could stay
    assert scorer.scores(SHORT, seen) == [0.0]
    assert scorer.scores(OTHER, seen) == pytest.approx([4 / 5])


def test_a_prompt_without_a_full_block_has_no_affinity() -> None:
    scorer, seen = PrefixAffinity(PrefixAffinitySettings()), fleet(Seen())
    scorer.routed(incoming(3, (("system", 3),)), seen, 0)
    assert scorer.scores(incoming(3, (("system", 3),)), seen) == [0.0]
