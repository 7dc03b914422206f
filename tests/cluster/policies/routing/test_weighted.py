"""``weighted``: the highest sum of shares x scores, each score cut to 0 to 1."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from blis_tui.cluster.policies.scoring import (
    FigureScorer,
    KvUtilization,
    PrecisePrefixCache,
    QueueDepth,
    SparseScorer,
    Weight,
    least_first,
)
from blis_tui.cluster.policies.scoring import PrecisePrefixCacheSettings as Cache
from blis_tui.cluster.policies.scoring import QueueDepthSettings as Depth
from blis_tui.cluster.policies.weighted import Weighted, WeightedSettings
from tests.cluster.seen import Seen, context, fleet, incoming

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from blis_tui.cluster.policy import Scorer
    from blis_tui.plugins import Fleet, IncomingRequest

SEEN = fleet(Seen(waiting=0, kv_used=90), Seen(waiting=4, kv_used=0), Seen(waiting=2, kv_used=40))


class Boundless(FigureScorer):
    figure = "waiting"

    def grades(self, values: Sequence[float]) -> list[float]:
        return [5.0 - 3.0 * value for value in values]


class Relative(FigureScorer):
    figure = "kv_utilization"

    def grades(self, values: Sequence[float]) -> list[float]:
        return least_first(values)


class Exceptions(SparseScorer):
    def sparse(self, request: IncomingRequest, fleet: Fleet) -> tuple[float, Mapping[int, float]]:
        return 2.0, {0: 7.0, 2: -3.0}


class ByPlace(FigureScorer):
    """It says itself what the scores are, and what its base would grade is not asked for."""

    figure = "waiting"

    def scores(self, request: IncomingRequest, fleet: Fleet) -> Sequence[float]:
        return [0.0, 1.0, 0.5]


class SparseByPlace(SparseScorer):
    def scores(self, request: IncomingRequest, fleet: Fleet) -> Sequence[float]:
        return [0.0, 1.0, 0.5]


def weighted(queue: float, kv: float) -> Weighted:
    return Weighted(
        WeightedSettings(scorers=(("q", QueueDepth(Depth(weight=queue))), ("kv", KvUtilization(Weight(weight=kv)))))
    )


def test_weights_are_shares_of_their_sum() -> None:
    policy = weighted(3.0, 1.0)
    sums = [0.75 * 1.0 + 0.25 * 0.1, 0.75 * 0.0 + 0.25 * 1.0, 0.75 * 0.5 + 0.25 * 0.6]
    assert policy.sums(incoming(), SEEN) == pytest.approx(sums)
    assert policy.choose(incoming(), SEEN, context()) == (0, f"score {sums[0]:.6f}")


def test_another_weight_makes_another_choice() -> None:
    assert weighted(1.0, 3.0).choose(incoming(), SEEN, context())[0] == 1


def test_scores_are_cut() -> None:
    policy = Weighted(WeightedSettings(scorers=(("b", Boundless(Weight())),)))
    assert policy.sums(incoming(), SEEN) == [1.0, 0.0, 0.0]


@pytest.mark.parametrize("own", [Boundless, Relative, Exceptions, ByPlace, SparseByPlace])
def test_scorers_of_ones_own_count_in_a_choice_as_in_the_sums(own: type[FigureScorer | SparseScorer]) -> None:
    scorers: tuple[Scorer, ...] = (own(Weight(weight=2.0)), QueueDepth(Depth()), KvUtilization(Weight()))
    policy = Weighted(WeightedSettings(scorers=tuple(zip(("own", "queue", "kv"), scorers, strict=True))))
    sums = policy.sums(incoming(), SEEN)
    best = max(sums)
    assert policy.choose(incoming(), SEEN, context()) == (sums.index(best), f"score {best:.6f}")


@pytest.mark.parametrize("count", [0, 1, 4])
def test_grades_for_other_values_than_asked_for_are_an_error(count: int) -> None:
    class Graded(FigureScorer):
        figure = "waiting"

        def grades(self, values: Sequence[float]) -> list[float]:
            return [1.0] * count

    policy = Weighted(WeightedSettings(scorers=(("own", Graded(Weight())),)))
    with pytest.raises(ValueError, match=f"`grades` returns {count} scores for 3 values"):
        policy.choose(incoming(), SEEN, context())


def test_by_default_an_idle_instance_without_a_common_prefix_gets_nothing() -> None:
    scorers = (PrecisePrefixCache(Cache(weight=2.0)), QueueDepth(Depth()), KvUtilization(Weight()))
    policy = Weighted(WeightedSettings(scorers=tuple(zip(("cache", "queue", "kv"), scorers, strict=True))))
    busy, idle = Seen(waiting=50, kv_used=99, cached=((("system", 4),),)), Seen()
    prompt = incoming(12_000, (("system", 4), ("chat", 11_996)))
    assert policy.sums(prompt, fleet(busy, idle)) == pytest.approx([0.5 + 0.25 * 0.01, 0.5])
    assert policy.choose(prompt, fleet(busy, idle), context())[0] == 0
