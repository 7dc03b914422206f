"""Deadlines to the microsecond.

Steps take 100 + prefill + 10 * decodes microseconds; blocks hold four tokens.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

import pytest

from blis_tui.engine.records import Queued, TimedOut
from blis_tui.model import Speculative
from tests.builders import Outcome, experiment, request

if TYPE_CHECKING:
    from blis_tui.engine.request import Request
    from blis_tui.model import Experiment

FAR_US = 10**6
RULES = ("blis", "vllm-v1", "sglang")


def engine(rule: str, *, ahead: bool = False, stages: int = 1, drafts: int = 0, blocks: int, budget: int) -> Experiment:
    settings = {"async_scheduling": ahead} if rule == "vllm-v1" else {}
    made = experiment(batching=rule, settings=settings, blocks=blocks, budget=budget)  # type: ignore[arg-type]
    pool = made.pools[0]
    speculative = Speculative(method="mtp", draft_tokens=drafts, acceptance=0.5) if drafts else None
    changed = replace(pool.engine, pipeline_parallel=stages, speculative=speculative)
    return replace(made, pools=(replace(pool, engine=changed),))


ENGINES = {
    **{rule: {"rule": rule} for rule in RULES},
    "planned ahead": {"rule": "vllm-v1", "ahead": True},
    "two stages": {"rule": "vllm-v1", "stages": 2},
    "two stages planned ahead": {"rule": "vllm-v1", "stages": 2, "ahead": True},
    "drafts": {"rule": "vllm-v1", "drafts": 2},
}


@pytest.mark.parametrize("kind", ENGINES)
def test_a_deadline_at_the_last_token_is_as_good_as_any_later_one(kind: str) -> None:
    """Whoever has it at the deadline has it in time; blocks and places go back in the same order, too."""
    stream = Random(kind)  # noqa: S311
    for _ in range(12):
        made = engine(**ENGINES[kind], blocks=stream.choice([10, 12, 16]), budget=stream.choice([16, 64]))  # type: ignore[arg-type]
        rows = [
            (stream.choice([0, 50, 108, 226]), stream.choice([4, 8, 12]), stream.choice([1, 3, 6])) for _ in range(5)
        ]
        rows.sort()
        shared = [stream.choice([(), (("x", 4),)]) for _ in rows]

        def asked(who: int, deadline_us: int) -> list[Request]:
            return [
                request(at, *row, segments=head, deadline_us=deadline_us * (at == who))
                for at, (row, head) in enumerate(zip(rows, shared, strict=True))  # noqa: B023  (called at once)
            ]

        for who in range(len(rows)):
            later = Outcome(made, asked(who, FAR_US))
            end_us = later.rows[str(who)].completed_us
            assert end_us is not None
            exact = Outcome(made, asked(who, end_us))
            assert exact.records == later.records
            assert exact.cluster.instances[0].pool.state() == later.cluster.instances[0].pool.state()


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(("deadline_us", "queued"), [(29, False), (30, False), (31, True)])
def test_who_comes_into_the_queue_at_the_deadline_comes_too_late(deadline_us: int, queued: bool, rule: str) -> None:
    """It takes 30 us to get there; a microsecond more is used."""
    outcome = Outcome(experiment(batching=rule, alpha=(30.0, 0.0, 0.0)), [request(0, 0, 8, 3, deadline_us=deadline_us)])
    assert bool([record for record in outcome.records if isinstance(record, Queued)]) == queued
    (late,) = [record for record in outcome.records if isinstance(record, TimedOut)]
    assert (late.was_running, late.time_us) == (queued, max(30, deadline_us))
