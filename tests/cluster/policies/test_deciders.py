"""Which prompts deciders split, on both sides of their thresholds."""

import pytest

from blis_tui.cluster.policies.entry import (
    DirectToDecode,
    DirectToDecodeSettings,
    PrefixThreshold,
    PrefixThresholdSettings,
)
from tests.cluster.seen import BLOCK, Seen, fleet, incoming

THRESHOLD = 4 * BLOCK
HEAD = (("system", 2 * BLOCK),)


@pytest.mark.parametrize(("beyond", "split"), [(-1, False), (0, True), (1, True)])
def test_prompts_of_the_threshold_and_more_do_not_go_straight_to_decode(beyond: int, split: bool) -> None:
    decider = DirectToDecode(DirectToDecodeSettings(threshold_tokens=THRESHOLD))
    request = incoming(THRESHOLD + beyond)
    assert decider.split(request, fleet(Seen()), 0) == (split, f"{THRESHOLD + beyond} prompt tokens")


@pytest.mark.parametrize("known", [True, False], ids=["instance known", "instance not chosen yet"])
@pytest.mark.parametrize("cached", [True, False])
@pytest.mark.parametrize(("beyond", "split"), [(-1, False), (0, False), (1, True)])
def test_prompts_are_split_with_more_uncached_tokens_than_the_threshold(
    beyond: int, split: bool, cached: bool, known: bool
) -> None:
    decider = PrefixThreshold(PrefixThresholdSettings(threshold_tokens=THRESHOLD))
    seen = fleet(Seen(cached=(HEAD,) if cached and known else ()))
    if cached and not known:
        decider.sent(incoming(2 * BLOCK, segments=HEAD), seen)
    new = THRESHOLD + beyond
    request = incoming(new + 2 * BLOCK * cached, segments=HEAD)
    assert decider.split(request, seen, 0 if known else None) == (split, f"{new} uncached prompt tokens")
