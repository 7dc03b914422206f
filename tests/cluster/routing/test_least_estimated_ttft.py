"""``least-estimated-ttft``: the queue and the prompt, less what is cached, as steps of the instance's model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.cluster.routing.least_estimated_ttft import LeastEstimatedTtft
from blis_tui.registry import NoSettings
from tests.cluster.seen import BLOCK, Seen, context, fleet, incoming

if TYPE_CHECKING:
    import pytest

    from blis_tui.cluster.signals import Fleet

HEAD = (("system", 16),)


def predicting(monkeypatch: pytest.MonkeyPatch, *instances: Seen, us_per_token: tuple[int, ...]) -> Fleet:
    """Instances that take so long for each prompt token."""
    seen = fleet(*instances)
    monkeypatch.setattr(seen.board, "prefill_us", lambda place, tokens, _size: us_per_token[place] * tokens)
    return seen


def test_queued_prompts_count_as_average_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = LeastEstimatedTtft(NoSettings())
    seen = predicting(monkeypatch, Seen(waiting=3), Seen(waiting=1), us_per_token=(1, 2))
    # The mean is 20: 3 x 20 + 20 tokens at 1 us, or 1 x 20 + 20 tokens at 2 us.
    assert policy.choose(incoming(20), seen, context())[1] == "first token in about 80 us"
    # The mean of 20 and 40 is 30: 3 x 30 + 40 = 130 us, or 2 x (30 + 40) = 140 us.
    assert policy.choose(incoming(40), seen, context()) == (0, "first token in about 130 us")


def test_what_is_cached_need_not_be_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = LeastEstimatedTtft(NoSettings())
    seen = predicting(monkeypatch, Seen(), Seen(cached=(HEAD,)), us_per_token=(1, 2))
    assert policy.choose(incoming(20, HEAD), seen, context()) == (1, f"first token in about {2 * (20 - 4 * BLOCK)} us")
