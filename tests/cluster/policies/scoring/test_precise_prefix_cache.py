"""``precise-prefix-cache``: cached blocks of the prompt, from the fewest (0) to the most (1)."""

import pytest

from blis_tui.cluster.policies.scoring import PrecisePrefixCache, PrecisePrefixCacheSettings
from tests.cluster.seen import Seen, fleet, incoming

PROMPT = incoming(30, (("system", 20),))  # five full blocks


def cached(tokens: int) -> Seen:
    return Seen(cached=((("system", tokens),),) if tokens else ())


def test_the_most_blocks_get_one_and_the_fewest_nothing() -> None:
    scorer = PrecisePrefixCache(PrecisePrefixCacheSettings())
    assert scorer.scores(PROMPT, fleet(cached(4), cached(12), cached(20))) == pytest.approx([0.0, 2 / 4, 1.0])


def test_where_all_have_equally_many_nobody_is_better() -> None:
    scorer = PrecisePrefixCache(PrecisePrefixCacheSettings(nobody_has_it=0.5))
    assert scorer.scores(PROMPT, fleet(cached(8), cached(8))) == [1.0, 1.0]
    assert scorer.scores(PROMPT, fleet(cached(0), cached(0))) == [0.5, 0.5]
    assert scorer.scores(incoming(), fleet(cached(8), cached(0))) == [0.5, 0.5]
