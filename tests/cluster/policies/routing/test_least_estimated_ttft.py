"""``least-estimated-ttft``: the queue and the prompt, less what is cached, as steps of the instance's model."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

from blis_tui.cluster.policies.routing import LeastEstimatedTtft
from blis_tui.model import Speculative
from blis_tui.model.plug_ins import NoSettings
from tests.builders import Outcome, experiment
from tests.cluster.seen import BLOCK, Seen, context, fleet, incoming

if TYPE_CHECKING:
    import pytest

    from blis_tui.cluster.signals import Fleet
    from blis_tui.engine.latency.model import StepLoad, StepTimeModel

HEAD = (("system", 16),)


def predicting(monkeypatch: pytest.MonkeyPatch, *instances: Seen, us_per_token: tuple[int, ...]) -> Fleet:
    """Instances that take so long for each prompt token."""
    seen = fleet(*instances)
    monkeypatch.setattr(seen.board, "prefill_us", lambda place, tokens: us_per_token[place] * tokens)
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


def test_the_drafts_of_those_who_run_leave_less_of_the_budget() -> None:
    computed: list[tuple[int, int]] = []

    def step_time_us(load: StepLoad) -> int:
        computed.append((load.chunks[0].new, load.decode_requests))
        return 100

    def prefill_us(speculative: Speculative | None) -> int:
        made = experiment(budget=10)
        (pool,) = made.pools
        made = replace(made, pools=(replace(pool, engine=replace(pool.engine, speculative=speculative)),))
        instance = Outcome(made, []).cluster.instances[0]
        instance.latency = cast("StepTimeModel", SimpleNamespace(step_time_us=step_time_us))
        seen = fleet(Seen(running=2, kv_used=3))
        seen.board._instances.append(instance)
        return seen.prefill_us(0, 20)

    assert prefill_us(None) == 300  # 10 - 2 prompt tokens in a step
    assert prefill_us(Speculative(draft_tokens=2, acceptance=0.5, draft_token_us=0)) == 500  # 10 - 2 x 3
    assert computed == [
        (8, 2),
        (4, 2),
        (4, 2),
    ]  # once for all full steps, once for the rest; 20 are five full ones of 4
